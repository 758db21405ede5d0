-- name: job
-- The live job of a task that is running, by its worker and attempt; null for a task that has none.
select l.id, l.org_id, l.name, d.name as dag, l.document from weft.task t
  left join weft.live_unit u on u.task_id = t.id left join weft.live_job l on l.id = u.live_job_id left join weft.live_dag d on d.id = l.dag_id
where t.id = $2 and coalesce(t.worker_id, 0) = $1 and t.attempt = $3 and t.state = 'running' for share of t;

-- name: inputs
-- Those from outside have no version: it is the one that is current.
select d.name, case when i.is_internal then v.number end as version
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

-- name: changed_files
-- Of files as they are now, those of which there has been no unit: with whether they are as they were so long ago.
select u.place::int - 1 as place, f.tag = u.tag and f.seen_at <= weft.now() - $4::interval as is_settled, f.tag is distinct from u.tag as is_new
from unnest($2::text[], $3::text[]) with ordinality as u (path, tag, place)
  left join weft.live_file f on f.live_job_id = $1 and f.path = u.path
where f.path is null or f.tag <> u.tag or not f.is_emitted order by u.place;

-- name: gone_files
-- Those from after one to another that are not among these any more.
select f.path from weft.live_file f
where f.live_job_id = $1 and f.path > $2 and ($3::text is null or f.path <= $3) and f.path <> all ($4::text[]) order by f.path limit $5;
