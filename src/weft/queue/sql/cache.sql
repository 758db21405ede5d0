-- name: find
-- As the function says, which notes it, too.
select f.id, f.task_id, f.output, f.is_traced from weft.find_output($1, $2, $3, $4, $5, $6) f;

-- name: drop
-- The one output that a task was found to have made.
delete from weft.output_cache c using weft.task t
where t.id = $1 and c.org_id = t.org_id and c.id = $2 and c.task_id = $3 returning c.task_id;

-- name: note
select weft.note_outputs($1, $2, $3, $4, $5, $6, $7, $8);

-- name: list
-- By name after a key; all without a limit. It goes from one handler to the next by their index, and counts those of the page.
with recursive known as (
  (select c.handler, 1 as place from weft.output_cache c where c.org_id = $1 and c.handler > $2 order by c.handler limit 1)
  union all
  select n.handler, k.place + 1 from known k cross join lateral (
    select c.handler from weft.output_cache c where c.org_id = $1 and c.handler > k.handler order by c.handler limit 1) n
  where $3::int is null or k.place < $3
)
select k.handler, f.outputs, f.bytes, f.blobs, f.oldest_at, f.newest_at, f.used_at from known k cross join lateral (
  select count(*)::int as outputs, sum(c.bytes)::bigint as bytes,
    count(c.digest)::int as blobs, min(c.made_at) as oldest_at, max(c.made_at) as newest_at, max(c.used_at) as used_at
  from weft.output_cache c where c.org_id = $1 and c.handler = k.handler
) f order by k.handler;

-- name: clear
-- Of one handler, or of all.
delete from weft.output_cache c using (
  select o.id from weft.output_cache o where o.org_id = $1 and ($2::text is null or o.handler = $2) limit 10000
) old where c.id = old.id returning 1;

-- name: prune
-- Past their time, or without one made longer ago than the given time.
delete from weft.output_cache c using (
  (select o.id from weft.output_cache o where o.expires_at <= (select weft.now()) order by o.expires_at limit 1000)
  union all
  (select o.id from weft.output_cache o
   where o.expires_at is null and o.made_at < (select weft.now() - $1::interval) order by o.made_at limit 1000)
) old where c.id = old.id returning 1;

-- name: prune_notes
-- Of tasks that were made longer ago than the given time, and have ended.
delete from weft.task_reuse r using (
  select o.task_id from weft.task_reuse o where o.task_id < (select weft.first_id_at(weft.now() - $1::interval)) order by o.task_id limit 1000
) old where r.task_id = old.task_id and not exists (select 1 from weft.task t where t.id = r.task_id) returning 1;

-- name: shrink
-- Those before which, from the last used on, there are as many bytes of their org as there may be.
delete from weft.output_cache c using (
  select o.id from (
    select u.id, u.used_at, sum(u.bytes) over (partition by u.org_id order by u.used_at desc, u.id desc) as upto from weft.output_cache u
  ) o where o.upto > $1::bigint order by o.used_at, o.id limit 1000
) old where c.id = old.id returning 1;
