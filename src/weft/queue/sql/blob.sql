-- name: put
-- Comes before the bytes: from now on, and for the grace, it is not collected.
insert into weft.blob (digest, bytes) values ($1, $2) on conflict (digest) do update set put_at = excluded.put_at;

-- name: database
-- Tells this database from others that use the same storage.
select format('%s-%s', s.system_identifier, current_database()) from pg_control_system() s;

-- name: is_used_by
-- Whether anything of an org refers to it.
select weft.uses_blob($1, $2);

-- name: keep
-- Of tasks that have not ended.
select weft.keep_blob(t.id, t.org_id, r.reference) from unnest($1::bigint[], $2::json[]) as r (id, reference)
join weft.task t on t.id = r.id order by r.reference ->> '$blob';

-- name: forget_references
-- Of tasks that are gone, from a place in their order on; returns how many were looked at.
with page as materialized (
  select b.task_id, b.digest from weft.task_blob b where b.task_id > $1 order by b.task_id limit 1000
), gone as (
  delete from weft.task_blob b using page
  where b.task_id = page.task_id and b.digest = page.digest
    and not exists (select 1 from weft.task t where t.id = page.task_id)
    and not exists (select 1 from weft.task_done d where d.id = page.task_id)
  returning 1
)
select max(page.task_id) as last, count(*)::int as seen, (select count(*)::int from gone) as gone from page;

-- name: unused
-- Put longer ago than the grace and referred to by nothing. The lock keeps away who would refer to it now.
select b.digest from weft.blob b
where b.put_at < (select weft.now() - $1::interval)
  and not exists (select 1 from weft.blob_use u where u.digest = b.digest)
order by b.put_at limit 100 for update of b skip locked;

-- name: still_unused
-- The second look, under the lock: what was referred to before that was taken is seen only now.
select u.digest from unnest($1::text[]) as u (digest)
where not exists (select 1 from weft.blob_use r where r.digest = u.digest);

-- name: forget
-- Refused by the references themselves when there are any.
delete from weft.blob b where b.digest = $1;
