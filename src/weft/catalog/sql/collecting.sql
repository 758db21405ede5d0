-- name: abandoned
-- Writes of attempts that came to nothing, which nobody can finish any more.
select s.id, s.version_id, v.location, d.storage ->> 'kind' as kind
from weft.staged_write s join weft.dataset_version v on v.id = s.version_id join weft.dataset d on d.id = v.dataset_id
where s.created_at < weft.now() - $1::interval
  and not exists (select 1 from weft.task t where t.id = s.task_id and t.attempt = s.attempt and t.state = 'running')
order by s.id limit $2;

-- name: forget_writes
delete from weft.staged_write s where s.id = any ($1) returning s.id;

-- name: close_states
-- From here on nobody may read or go back to what versions were before: then files that were removed by then may go.
update weft.dataset_version v set oldest_write = h.number
from (
  select f.version_id, max(w.number) as number
  from (select distinct f.version_id from weft.dataset_file f where f.removed_by is not null) f
    join weft.dataset_write w on w.version_id = f.version_id and w.written_at < weft.now() - $1::interval
  group by f.version_id
) h
where v.id = h.version_id and h.number > v.oldest_write returning v.id;

-- name: removed_files
-- Files that no state has that may be read; one that came back by a rollback stands under another id, and goes with the last.
select f.version_id, f.id, v.location, v.is_outside, d.storage ->> 'kind' as kind, f.path,
  not exists (select 1 from weft.dataset_file o where o.version_id = f.version_id and o.path = f.path
    and (o.removed_by is null or o.removed_by > f.removed_by)) as is_last
from weft.dataset_file f join weft.dataset_version v on v.id = f.version_id join weft.dataset d on d.id = v.dataset_id
where f.removed_by is not null and f.removed_by <= v.oldest_write order by f.version_id, f.removed_by limit $1;

-- name: forget_files
delete from weft.dataset_file f using unnest($1::bigint[], $2::bigint[]) as u (version_id, id)
where f.version_id = u.version_id and f.id = u.id returning f.id;

-- name: close_versions
-- Versions that have not been current for long, that nothing is being written into, and that no live job writes and no version of a
-- live DAG has: from here on nobody may go back to them, and the same job would begin another.
update weft.dataset_version v set collected_at = weft.now(), config_hash = v.config_hash || '@' || v.id
where v.id in (
  select o.id from weft.dataset_version o
  where o.retired_at < weft.now() - $1::interval and o.collected_at is null
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
from (select d.id from weft.dataset d where d.deleted_at < weft.now() - $1::interval order by d.id for update skip locked) d
where v.dataset_id = d.id and v.collected_at is null
  and not exists (select 1 from weft.staged_write s where s.version_id = v.id)
  and not exists (select 1 from weft.live_output l where l.version_id = v.id)
  and not exists (select 1 from weft.dag_version_dataset p where p.version_id = v.id) returning v.id;

-- name: forget_datasets
delete from weft.dataset d where d.deleted_at < weft.now() - $1::interval
  and not exists (select 1 from weft.dataset_version v where v.dataset_id = d.id)
  and not exists (select 1 from weft.live_input i where i.dataset_id = d.id) returning d.id;

-- name: closed_versions
select v.id, v.location, v.is_outside, d.storage ->> 'kind' as kind
from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id where v.collected_at is not null order by v.id limit $1;

-- name: files_of
select f.id, f.path from weft.dataset_file f where f.version_id = $1 order by f.id limit $2;

-- name: forget_version
delete from weft.dataset_version v where v.id = $1 and v.collected_at is not null
  and not exists (select 1 from weft.dataset_file f where f.version_id = v.id) returning v.id;
