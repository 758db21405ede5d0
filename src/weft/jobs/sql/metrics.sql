-- name: totals
-- What only grows, as one look, so that nothing is counted twice or not at all while it moves. Tasks of the engine are
-- not counted.
select
  coalesce((select json_object_agg(o.name, json_build_array(o.count, o.seconds)) from (
    select t.name, sum(t.count) as count, sum(t.seconds) as seconds from weft.tally t where t.org_id = $1 group by 1) o), '{}') as tallies,
  coalesce((select json_object_agg(o.state, o.count) from (
    select j.state, count(*) from weft.job j where j.org_id = $1 group by 1) o), '{}') as live_jobs,
  (select coalesce(sum(w.completed), 0)::bigint from weft.worker w where w.org_id = $1 and 2 <> all (w.queues)) as completed,
  (select count(*) from weft.task t where t.id >= m.id and t.org_id = $1 and t.queue_id > 0 and t.queue_id <> 2)
    + (select count(*) from weft.task_done d where d.id >= m.id and d.org_id = $1 and d.queue_id > 0 and d.queue_id <> 2) as made
from (select coalesce((select m.id from weft.tally_mark m where m.name = 'tasks_created'), 0) as id) m;

-- name: job_times
-- Of the last thousand jobs that have ended, of the last five thousand by age.
select percentile_cont(array[0.5, 0.9, 0.99]) within group (order by extract(epoch from o.ended_at - o.started_at)) as quantiles
from (
  select d.ended_at, d.started_at from (
    select d.org_id, d.ended_at, d.started_at from weft.job_done d order by d.id desc limit 5000
  ) d where d.org_id = $1 and d.started_at is not null limit 1000
) o;

-- name: task_times
-- The same of tasks that have completed.
with last as materialized (
  select d.worker_id, extract(epoch from d.ended_at - d.claimed_at) as seconds from (
    select d.org_id, d.queue_id, d.state, d.worker_id, d.ended_at, d.claimed_at from weft.task_done d order by d.id desc limit 5000
  ) d where d.org_id = $1 and d.queue_id > 0 and d.queue_id <> 2 and d.state = 'completed' and d.claimed_at is not null limit 1000
)
select (select percentile_cont(array[0.5, 0.9, 0.99]) within group (order by l.seconds) from last l) as quantiles,
  (select json_object_agg(o.worker_id, o.seconds) from (
    select l.worker_id::text, avg(l.seconds) as seconds from last l where l.worker_id is not null group by 1) o) as by_worker;

-- name: live_workers
-- Those whose lease has not lapsed; orchestrators serve those of every org.
select w.id, 2 = any (w.queues) as orchestrates, extract(epoch from weft.now() - w.heartbeat_at)::float8 as age
from weft.worker w where (w.org_id = $1 or 2 = any (w.queues)) and w.state in ('active', 'idle') and w.until >= (select weft.now())
order by w.id;

-- name: live_workers_of_all
-- Those of every org.
select w.id, 2 = any (w.queues) as orchestrates from weft.worker w
where w.state in ('active', 'idle') and w.until >= (select weft.now()) order by w.id;

-- name: leases
-- Since when the first of the tasks is held that are, and what time it is.
select weft.now() as now, min(t.claimed_at) as since from weft.task t
where t.worker_id is not null and t.org_id = $1 and t.queue_id > 0 and t.queue_id <> 2;

-- name: outbox
-- What is due and not carried out, up to a thousand, and since when the first of it.
select count(*)::int as pending, coalesce(extract(epoch from weft.now() - min(o.available_at)), 0)::float8 as lag
from (
  select o.available_at from weft.outbox o
  where o.state = 'pending' and o.org_id = $1 and o.available_at <= (select weft.now()) order by o.available_at, o.id limit 1000
) o;

-- name: health
-- Tasks that somebody holds whose lease has lapsed, or that should have been ready a minute ago; up to a thousand each.
select
  (select count(*) from (
    select from weft.task t left join weft.worker w on w.id = t.worker_id
    where t.worker_id is not null and t.org_id = $1
      and (w.id is null or w.state not in ('active', 'idle') or w.until < (select weft.now())) limit 1000) o)::int as held,
  (select count(*) from (
    select from weft.task t where t.state = 'scheduled' and t.due_at < (select weft.now() - interval '1 minute') and t.org_id = $1
    limit 1000) o)::int as late,
  exists (select 1 from weft.job j where j.org_id = $1) as has_jobs,
  exists (select 1 from weft.schedule s where s.org_id = $1 and s.paused_at is null) as has_schedules,
  exists (select 1 from weft.live_job l where l.org_id = $1 and l.state <> 'stopped') as has_live_jobs;

-- name: health_of_all
-- Tasks that somebody holds whose lease has lapsed, or that should have been ready a minute ago; up to a thousand each; of all orgs.
select
  (select count(*) from (
    select from weft.task t left join weft.worker w on w.id = t.worker_id
    where t.worker_id is not null
      and (w.id is null or w.state not in ('active', 'idle') or w.until < (select weft.now())) limit 1000) o)::int as held,
  (select count(*) from (
    select from weft.task t where t.state = 'scheduled' and t.due_at < (select weft.now() - interval '1 minute')
    limit 1000) o)::int as late,
  exists (select 1 from weft.job j) as has_jobs, exists (select 1 from weft.schedule s where s.paused_at is null) as has_schedules,
  exists (select 1 from weft.live_job l where l.state <> 'stopped') as has_live_jobs;
