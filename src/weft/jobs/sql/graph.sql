-- name: look_at
-- What ids of a job stand for, live or ended; of a group the task by which it is closed.
select t.id, t.handler::text as handler, t.node, t.params from weft.task t
where t.id = any ($3) and t.org_id = $1 and t.job_id = $2
union all
select d.id, d.handler, d.node, d.params from weft.task_done d where d.id = any ($3) and d.org_id = $1 and d.job_id = $2;

-- name: job_of
select j.end_id, j.state::text as state from weft.jobs j where j.org_id = $1 and j.id = $2;

-- name: one_adds
-- One after the other: what two add at once could be a circle that neither sees.
select pg_advisory_xact_lock(hashtextextended('weft.graph ' || $1::bigint, 0));

-- name: lock_before
-- Those that live: each ends after this transaction, and then sees what was added. In order of ids.
select t.id, t.queue_id from weft.task t where t.id = any ($1) order by t.id for share;

-- name: lock_after
-- Those that will wait for more: none of them is claimed meanwhile. In order of ids, after what comes before them.
select t.id, t.state::text as state, t.queue_id, t.concurrency_key from weft.task t
where t.id = any ($1) order by t.id for no key update;

-- name: endings
select d.id, d.state::text as state, d.allow_failure from weft.task_done d where d.id = any ($1);

-- name: going_on
-- Only while the job goes on; it does until this transaction has ended.
select j.rank::int as rank, j.actor from weft.job j
where j.org_id = $1 and j.id = $2 and j.state in ('pending', 'running', 'paused') for share;

-- name: edges_among
select e.prev, e.next from weft.edge e join unnest($1::bigint[], $2::bigint[]) as u (prev, next)
  on e.prev = u.prev and e.next = u.next;

-- name: leading_to
-- Which of `$1` lead to which of `$2`, over any number of others that live.
select first, last from weft.leading_to($1, $2);

-- name: wait_longer
-- pending, or ready and not claimed → pending, for as many more; those are locked by the caller. What comes after a
-- failure stays what it is.
update weft.task t set waiting_on = t.waiting_on + u.more, reached = t.reached + u.reached,
  state = case when u.more > 0 then 'pending'::weft.task_state else t.state end,
  reason = case when u.more > 0 and t.reason is distinct from 'upstream_failed' then 'dependencies' else t.reason end
from unnest($1::bigint[], $2::int[], $3::int[]) as u (id, more, reached)
where t.id = u.id and t.state in ('pending', 'ready');

-- name: free_slots
select weft.free_slots($1, $2);

-- name: take_slots
select weft.take_slots($1);

-- name: spawn
-- No row when the task that asks is no longer its worker's, or its job does not go on.
select id, known_handler, has_key from weft.spawn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: outcomes
select d.id, d.state::text as state, d.reason, d.error, weft.output_of(d.id) as output
from weft.task_done d where d.id = any ($1);

-- name: group_of
-- The group that a task is in: it leads to what closes that.
select e.next as id from weft.edge e where e.prev = $1 and exists (
  select 1 from weft.task t where t.id = e.next and t.handler = '@close'
  union all select 1 from weft.task_done d where d.id = e.next and d.handler = '@close') limit 1;

-- name: queues_of
-- Where the tasks of a job wait that workers run.
select distinct q.name, t.handler::text as handler from weft.task t join weft.queue q on q.id = t.queue_id where t.job_id = $1 and left(t.handler, 1) <> '@';

-- name: health
select exists (
    select 1 from weft.worker w where w.org_id = $1 and w.state in ('active', 'idle') and w.until > weft.now()
  ) as has_workers,
  exists (
    select 1 from weft.worker w where w.org_id = $1 and w.until < weft.now() - interval '1 minute'
      and exists (select 1 from weft.task t where t.worker_id = w.id)
  ) as has_stale_tasks;
