-- name: holder
-- running, by its worker and attempt; the lock makes that exact against whoever takes the task away.
-- Of a task of a live job the DAG and the live job are what produces.
select t.org_id, t.job_id, coalesce(t.node, l.name) as node, t.handler, t.actor, coalesce(j.workflow_id, d.name) as dag, l.id as live_job_id
from weft.task t left join weft.job j on j.id = t.job_id
  left join weft.live_unit u on u.task_id = t.id left join weft.live_job l on l.id = u.live_job_id left join weft.live_dag d on d.id = l.dag_id
where t.id = $2 and coalesce(t.worker_id, 0) = $1 and t.attempt = $3 and t.state = 'running' for share of t;

-- name: live_output
-- The version that a live job writes, which need not be the current one.
select o.version_id from weft.live_output o where o.live_job_id = $1 and o.dataset_id = $2;

-- name: begin
insert into weft.staged_write (org_id, task_id, attempt, dataset_id, version_id, follows, swaps, mode)
values ($1, $2, $3, $4, $5, $6, $7, $8) returning id;

-- name: own_version
-- The version that an attempt has begun by its last write that may change all columns.
select s.version_id from weft.staged_write s
where s.task_id = $1 and s.attempt = $2 and s.dataset_id = $3 and s.swaps and s.partitions is not null order by s.id desc limit 1;

-- name: stage
-- Once: one that was told its files stays as it is, and may be told the same again by who has not heard the answer.
update weft.staged_write s set partitions = $4, is_whole = $5, files = $6, seen = $7, seen_schema = $8, columns = $9, schema_hash = $10,
  columns_from = $11
where s.id = $1 and s.task_id = $2 and s.attempt = $3 and (s.partitions is null
  or s.partitions = $4 and s.is_whole = $5 and s.files::jsonb = $6::json::jsonb and s.schema_hash = $10 and s.seen is not distinct from $7
    and s.seen_schema is not distinct from $8 and s.columns_from::jsonb is not distinct from $11::json::jsonb) returning s.id;

-- name: kind
-- How the dataset of a write is kept.
select d.storage ->> 'kind' from weft.staged_write s join weft.dataset d on d.id = s.dataset_id where s.id = $1;

-- name: note_input
-- What an attempt reads of a version of its org; the same once.
insert into weft.task_input (task_id, attempt, place, org_id, dataset_id, version_id, write, partitions, pinned, seen)
select $1, $2, (select coalesce(max(i.place), 0) + 1 from weft.task_input i where i.task_id = $1 and i.attempt = $2),
  v.org_id, v.dataset_id, v.id, $5, $6, $7, $8
from weft.dataset_version v
where v.id = $4 and v.org_id = $3 and not exists (
  select 1 from weft.task_input o where o.task_id = $1 and o.attempt = $2 and o.version_id = $4 and o.write = $5
    and o.pinned is not distinct from $7 and (o.partitions is null or o.partitions @> $6));

-- name: note_look
-- That an attempt has seen which partitions a version of its org has now; the same once.
insert into weft.task_input (task_id, attempt, place, org_id, dataset_id, version_id, write)
select $1, $2, (select coalesce(max(i.place), 0) + 1 from weft.task_input i where i.task_id = $1 and i.attempt = $2),
  v.org_id, v.dataset_id, v.id, v.last_write
from weft.dataset_version v
where v.id = $4 and v.org_id = $3 and not exists (
  select 1 from weft.task_input o where o.task_id = $1 and o.attempt = $2 and o.version_id = $4 and o.write = v.last_write
    and o.pinned is null and o.partitions is null);

-- name: read_columns
-- What an attempt has read so far, or goes on with: each dataset, with the columns of the version that was read.
select distinct on (d.id, v.id) d.id, d.name, v.columns
from weft.inputs_of($1, $2) i join weft.dataset d on d.org_id = i.org_id and d.id = i.dataset_id
  join weft.dataset_version v on v.org_id = i.org_id and v.id = i.version_id;

-- name: version
select v.location, v.last_write, v.columns, v.schema_hash from weft.dataset_version v where v.id = $1;

-- name: next_id
select weft.next_id();
