-- name: abandoned
-- Writes of attempts that came to nothing, which nobody can finish any more.
select s.id, s.version_id, v.location, d.storage ->> 'kind' as kind
from weft.staged_write s join weft.dataset_version v on v.id = s.version_id join weft.dataset d on d.id = v.dataset_id
where s.created_at < weft.now() - $1::interval and ($3::bigint is null or s.org_id = $3)
  and not exists (select 1 from weft.task t where t.id = s.task_id and t.attempt = s.attempt and t.state = 'running')
order by s.id limit $2;

-- name: forget_writes
delete from weft.staged_write s where s.id = any ($1) returning s.id;

-- name: keep_datasets
-- Of an org, for whoever closes several things of them in one transaction: as all do who lock versions, before these. Not those that
-- are deleted, which others pass over while they are held.
select 1 from weft.dataset d where d.org_id = $1 and d.deleted_at is null order by d.id for key share;

-- name: close_states
select v.id from weft.close_states($1, $2) v (id);

-- name: removed_files
-- Files that no state has that may be read; one that came back by a rollback stands under another id, and may have gone again.
select f.version_id, f.id, v.location, v.is_outside, d.storage ->> 'kind' as kind, f.path,
  not exists (select 1 from weft.dataset_file o where o.version_id = f.version_id and o.path = f.path
    and (o.removed_by is null or o.removed_by > v.oldest_write)) as is_last
from weft.dataset_file f join weft.dataset_version v on v.id = f.version_id join weft.dataset d on d.id = v.dataset_id
where f.removed_by is not null and f.removed_by <= v.oldest_write and ($2::bigint is null or f.org_id = $2) order by f.version_id, f.removed_by limit $1;

-- name: forget_files
delete from weft.dataset_file f using unnest($1::bigint[], $2::bigint[]) as u (version_id, id)
where f.version_id = u.version_id and f.id = u.id returning f.id;

-- name: close_versions
-- Versions that have not been current for long, that nothing is being written into, and that no live job writes and no version of a
-- live DAG has: from here on nobody may go back to them, and the same job would begin another.
update weft.dataset_version v set collected_at = weft.now(), config_hash = v.config_hash || '@' || v.id
where v.id in (
  select o.id from weft.dataset_version o
  where o.retired_at < weft.now() - $1::interval and o.collected_at is null and ($2::bigint is null or o.org_id = $2)
    and not exists (select 1 from weft.dataset d where d.current_id = o.id)
    and not exists (select 1 from weft.staged_write s where s.version_id = o.id)
    and not exists (select 1 from weft.live_output l where l.version_id = o.id)
    and not exists (select 1 from weft.dag_version_dataset p where p.version_id = o.id)
  order by o.id for update skip locked)
  and v.collected_at is null and not exists (select 1 from weft.dataset d where d.current_id = v.id)
returning v.id;

-- name: close_deleted
-- Versions of datasets that were deleted long ago, and that no live DAG has: from here on nobody may bring them back. What is
-- registered again is another.
update weft.dataset_version v set collected_at = weft.now(), config_hash = v.id::text
from (select d.id from weft.dataset d where d.deleted_at < weft.now() - $1::interval and ($2::bigint is null or d.org_id = $2) order by d.id for update skip locked) d
where v.dataset_id = d.id and v.collected_at is null
  and not exists (select 1 from weft.staged_write s where s.version_id = v.id)
  and not exists (select 1 from weft.live_output l where l.version_id = v.id)
  and not exists (select 1 from weft.dag_version_dataset p where p.version_id = v.id) returning v.id;

-- name: forget_datasets
delete from weft.dataset d where d.deleted_at < weft.now() - $1::interval and ($2::bigint is null or d.org_id = $2)
  and not exists (select 1 from weft.dataset_version v where v.dataset_id = d.id)
  and not exists (select 1 from weft.live_input i where i.dataset_id = d.id) returning d.id;

-- name: closed_versions
select v.id, v.location, v.is_outside, d.storage ->> 'kind' as kind
from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id where v.collected_at is not null and ($2::bigint is null or v.org_id = $2) order by v.id limit $1;

-- name: past
-- What nobody of an org may see any more: versions, with how they were called, and files, of these and of states before.
select array(select split_part(d.name, '@', 1) || '@' || v.number from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id
    where v.org_id = $1 and v.collected_at is not null order by d.name, v.number) as versions, f.files, f.bytes,
  (select count(*)::int from weft.dataset d where d.org_id = $1 and d.deleted_at < weft.now() - $2::interval and not exists (
    select 1 from weft.dataset_version v where v.dataset_id = d.id and v.collected_at is null)) as datasets
from (
  select count(*)::int as files, coalesce(sum(f.bytes), 0)::bigint as bytes
  from weft.dataset_version v join weft.dataset_file f on f.version_id = v.id
  where v.org_id = $1 and not v.is_outside and (v.collected_at is not null or f.removed_by <= v.oldest_write)
) f;

-- name: files_of
select f.id, f.path from weft.dataset_file f where f.version_id = $1 order by f.id limit $2;

-- name: forget_version
delete from weft.dataset_version v where v.id = $1 and v.collected_at is not null
  and not exists (select 1 from weft.dataset_file f where f.version_id = v.id) returning v.id;
