-- name: job
-- The live job of a task that is running, by its worker and attempt; null for a task that has none.
select l.id, l.org_id, l.name, d.name as dag, l.document, u.is_boot from weft.task t
  left join weft.live_unit u on u.task_id = t.id left join weft.live_job l on l.id = u.live_job_id left join weft.live_dag d on d.id = l.dag_id
where t.id = $2 and coalesce(t.worker_id, 0) = $1 and t.attempt = $3 and t.state = 'running' for share of t;

-- name: inputs
-- Those from outside have no version: it is the one that is current. By now units are made of what is written
-- into one of them, and stood there after a write when that began.
select d.name, case when i.is_internal then v.number end as version, v.number as by_now, i.boot_write as stood
from weft.live_input i join weft.dataset d on d.id = i.dataset_id left join weft.dataset_version v on v.id = i.version_id
where i.live_job_id = $1 order by i.place;

-- name: outputs
select d.name, v.number as version from weft.live_output o join weft.dataset d on d.id = o.dataset_id
  join weft.dataset_version v on v.id = o.version_id where o.live_job_id = $1 order by o.place;

-- name: state
select s.version, s.state from weft.operator_state s where s.live_job_id = $1 and s.state_key = $2;

-- name: stage
insert into weft.staged_live (task_id, attempt, org_id, live_job_id, states, units, callbacks, rest, is_caught_up, files)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict (task_id, attempt) do update set states = excluded.states, units = excluded.units, callbacks = excluded.callbacks,
  rest = excluded.rest, is_caught_up = excluded.is_caught_up, files = excluded.files;
