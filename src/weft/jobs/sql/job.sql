-- name: put
-- False when there is a job of that idempotency key.
select weft.put_job(json_populate_record(null::weft.job, $1), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
  $17, $18, $19);

-- name: of_key
select coalesce(t.job_id, d.job_id) from weft.idempotency_key k
left join weft.task t on t.id = k.task_id left join weft.task_done d on d.id = k.task_id
where k.org_id = $1 and k.handler = '@job' and k.key = $2;

-- name: show
select j.id, j.workflow_id, j.state, j.reason, j.priority, j.inputs, j.result, j.error, j.created_at, j.started_at, j.ended_at,
  j.failed_id, j.owner_id, j.parent_id, j.base_kind, j.base_ref, j.snapshot_id, j.version_hash, j.labels, j.actor, j.end_id
from weft.jobs j where j.org_id = $1 and j.id = $2;

-- name: cancel
-- pending, running or paused → cancelling.
update weft.job j set state = 'cancelling', reason = 'cancelled'
where j.org_id = $1 and j.id = $2 and j.state in ('pending', 'running', 'paused') returning j.rank;

-- name: sweep
select weft.sweep_job($1, $2);

-- name: sweep_later
select weft.put_control($1, $2, $3, '@sweep', '{}');

-- name: fail
select weft.fail_job($1);

-- name: skip
select weft.skip_tasks($1, $2, 1000, '{}');

-- name: add_children
-- False when the fan_out is no longer the caller's, or its job does not go on.
select weft.add_children($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: count_children
-- Of which items of a fan_out there are tasks: they are made in order.
select coalesce(max(c.item) + 1, 0) from (
  select max(t.item) as item from weft.task t join weft.task p on p.id = $1 where t.job_id = p.job_id and t.parent_id = $1
  union all select max(d.item) from weft.task_done d where d.parent_id = $1
) c;
