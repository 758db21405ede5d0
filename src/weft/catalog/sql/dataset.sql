-- name: create
-- Null when there is one of that name.
insert into weft.dataset (org_id, name, description, storage, actor) values ($1, $2, $3, $4, $5)
on conflict (org_id, name) do nothing returning id;

-- name: show
-- One that may be seen: by all roles where none is asked for.
select d.id, d.name, d.description, d.producer_dag, d.producer_node, d.producer_output, d.storage, d.read_roles, d.unique_key,
  v.number as version, v.last_write as write, v.columns, v.rows, v.bytes, v.files, v.written_at, d.created_at, d.actor
from weft.dataset d left join weft.dataset_version v on v.id = d.current_id
where d.org_id = $1 and d.name = $2 and ($3::text[] is null or d.read_roles && $3);

-- name: list
-- Those that may be seen, by name after a key.
select d.id, d.name, d.description, d.producer_dag, d.producer_node, d.producer_output, d.storage, d.read_roles, d.unique_key,
  v.number as version, v.last_write as write, v.columns, v.rows, v.bytes, v.files, v.written_at, d.created_at, d.actor
from weft.dataset d left join weft.dataset_version v on v.id = d.current_id
where d.org_id = $1 and d.name > $2 and d.deleted_at is null and ($3::text[] is null or d.read_roles && $3) order by d.name limit $4;

-- name: change
update weft.dataset d set description = coalesce($3, d.description), read_roles = coalesce($4, d.read_roles), updated_at = weft.now()
where d.org_id = $1 and d.id = $2 returning d.id;

-- name: unknown_roles
select u.slug from unnest($2::text[]) as u (slug)
where not exists (select 1 from weft.org_role r where r.org_id = $1 and r.slug = u.slug) order by u.slug;

-- name: lock
select d.id, d.producer_dag, d.producer_node, d.producer_output, d.unique_key, d.current_id, d.last_version, d.storage,
  exists (select 1 from weft.live_output o where o.dataset_id = d.id) as is_live
from weft.dataset d where d.org_id = $1 and d.name = $2 for no key update;

-- name: one_output_at_a_time
-- A node numbers the datasets that it writes, in the order in which they come.
select pg_advisory_xact_lock(hashtextextended('weft.producer ' || $1::bigint || ' ' || $2::text || ' ' || $3::text, 0));

-- name: set_producer
-- Of a dataset that nobody writes yet.
update weft.dataset d set producer_dag = $3, producer_node = $4, updated_at = weft.now(), producer_output = (
  select coalesce(max(o.producer_output) + 1, 0) from weft.dataset o where o.org_id = $1 and o.producer_dag = $3 and o.producer_node = $4)
where d.org_id = $1 and d.id = $2 and d.producer_dag is null returning d.id;

-- name: set_key
update weft.dataset d set unique_key = $3 where d.org_id = $1 and d.id = $2 and d.unique_key is null returning d.id;

-- name: add_version
with numbered as (
  update weft.dataset d set last_version = d.last_version + 1 where d.org_id = $1 and d.id = $2 returning d.last_version
)
insert into weft.dataset_version as v (id, org_id, dataset_id, number, config_hash, location, is_outside, actor)
select $3, $1, $2, n.last_version, $4, coalesce($5, $1::bigint || '/' || $2::bigint || '/' || n.last_version || '/'), $5 is not null, $6 from numbered n
returning v.id, v.number;

-- name: make_current
select weft.make_current($1, $2);

-- name: versions
-- Newest first, before a number.
select v.id, v.number, v.config_hash, v.schema_hash, v.columns, v.range_start, v.range_end, v.location, v.is_outside, v.last_write,
  v.rows, v.bytes, v.files, v.written_at, v.created_at, v.current_at, v.retired_at, v.id = d.current_id as is_current, v.actor
from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id
where v.org_id = $1 and v.dataset_id = $2 and v.collected_at is null and ($3::int is null or v.number < $3)
order by v.number desc limit $4;

-- name: version
-- By number, else the one that is current.
select v.id, v.number, v.columns, v.schema_hash, v.location, v.is_outside, v.last_write, v.oldest_write
from weft.dataset d join weft.dataset_version v on v.dataset_id = d.id and (v.number = $3 or $3::int is null and v.id = d.current_id)
where d.org_id = $1 and d.id = $2 and v.collected_at is null;

-- name: version_at
-- The one that was current then; null when that has been collected.
select v.id, v.number, v.columns, v.schema_hash, v.location, v.is_outside, v.oldest_write,
  coalesce((select max(w.number) from weft.dataset_write w where w.version_id = v.id and w.written_at <= $3), 0) as last_write
from (select s.version_id from weft.dataset_seen s where s.org_id = $1 and s.dataset_id = $2 and s.at <= $3 order by s.at desc limit 1) s
  join weft.dataset_version v on v.id = s.version_id
where v.org_id = $1 and v.dataset_id = $2 and v.collected_at is null;

-- name: files
-- Those that a version had after one of its writes, of some partitions or all, after a key; those alone that came since another.
select f.partition_key, f.id, f.path, f.rows, f.bytes, f.added_by from weft.dataset_file f
where f.org_id = $1 and f.version_id = $2 and f.added_by <= $3 and (f.removed_by is null or f.removed_by > $3) and f.added_by > $8
  and ($4::text[] is null or f.partition_key = any ($4)) and (f.partition_key, f.id) > ($5, $6)
order by f.partition_key, f.id limit $7;

-- name: is_kept
-- Whether nothing of a state has been collected: then what was read of it before is whole. Null when its version is gone.
select v.collected_at is null and v.oldest_write <= $3 from weft.dataset_version v where v.org_id = $1 and v.id = $2;

-- name: partitions
-- What a version has now, by key after one, or from the first: rows that are in no partition have the key ''.
select p.partition_key as key, p.last_write as write, p.rows, p.bytes, p.files, p.written_at from weft.dataset_partition p
where p.org_id = $1 and p.version_id = $2 and p.partition_key >= coalesce($3, '') and p.partition_key is distinct from $3 order by p.partition_key limit $4;

-- name: latest_partitions
-- What a version has now, the one that was written last first.
select p.partition_key as key, p.last_write as write, p.rows, p.bytes, p.files, p.written_at from weft.dataset_partition p
where p.org_id = $1 and p.version_id = $2 order by p.last_write desc, p.partition_key desc limit $3;

-- name: writes
-- Newest first, before a number.
select w.number, w.mode, w.task_id, w.attempt, w.job_id, w.node, w.handler, w.partitions, w.rows, w.bytes, w.rows_removed, w.written_at,
  w.actor from weft.dataset_write w
where w.org_id = $1 and w.version_id = $2 and ($3::bigint is null or w.number < $3) order by w.number desc limit $4;

-- name: lock_versions
-- In the order of all who lock some.
select v.id, v.last_write from weft.dataset_version v where v.id = any ($1) order by v.id for no key update;

-- name: roll_back
select weft.roll_back_version($1, $2, $3);

-- name: kept_columns
select v.columns from weft.dataset_version v where v.org_id = $1 and v.id = $2;
