-- name: save
-- running, by its worker and attempt; the lock makes that exact against whoever takes the task away.
with held as (
  select t.id, t.org_id, t.job_id from weft.task t
  where t.id = $2 and coalesce(t.worker_id, 0) = $1 and t.attempt = $3 and t.state = 'running' for share
)
insert into weft.step as s (task_id, name, org_id, job_id, attempt, took, bytes, data)
select h.id, $4, h.org_id, h.job_id, $3, $5, $6, $7 from held h
on conflict (task_id, name) do update set
  attempt = excluded.attempt, saved_at = excluded.saved_at, took = excluded.took, bytes = excluded.bytes, data = excluded.data
returning s.saved_at;

-- name: drop
-- running, by its worker and attempt.
with held as (
  select t.id from weft.task t
  where t.id = $2 and coalesce(t.worker_id, 0) = $1 and t.attempt = $3 and t.state = 'running' for share
)
delete from weft.step s using held h where s.task_id = h.id and s.name = $4 returning s.name;

-- name: load
select s.name, s.attempt, s.saved_at, s.data from weft.step s where s.task_id = $1 and s.name = $2;

-- name: last
select s.name, s.attempt, s.saved_at, s.data from weft.step s where s.task_id = $1 and left(s.name, 1) <> '@'
order by s.saved_at desc, s.name desc limit 1;

-- name: list
-- Without what they hold, but for what was measured.
select s.name, s.attempt, s.saved_at, s.took, s.bytes, case when left(s.name, 1) = '@' then s.data end as data
from weft.steps s where s.org_id = $1 and s.task_id = $2 and left(s.name, 10) <> '@addition ' order by s.saved_at, s.name;
