-- name: why
-- All that decides whether a task that has not ended can be claimed. Those ahead are counted up to a thousand.
select t.state::text as state, t.reason, t.handler, t.attempt, t.due_at, t.due_at > weft.now() as is_early,
  t.waiting_on, t.concurrency_key, t.worker_id, t.claimed_at, q.name as queue, q.paused_at, q.max_running,
  coalesce(s.max_running, q.max_running_per_key) as key_limit, coalesce(s.held, 0) as key_held,
  coalesce((select w.state not in ('active', 'idle') or w.until < weft.now()
            from weft.worker w where w.id = t.worker_id), true) as is_worker_lost,
  (select count(*) from weft.task r where r.worker_id is not null and r.queue_id = t.queue_id) as running,
  (select count(*) from (
     select from weft.task o where o.state = 'ready' and o.queue_id = t.queue_id
       and (o.rank, o.order_id, o.id) < (t.rank, t.order_id, t.id) limit 1000) a) as ahead,
  live.workers, live.serving, live.knowing,
  array(select distinct h from weft.worker w, unnest(w.handlers) as h
        where w.org_id = t.org_id and w.state in ('active', 'idle') and w.until >= (select weft.now())) as handlers
from weft.task t
join weft.queue q on q.id = t.queue_id
left join weft.key_slot s on s.queue_id = t.queue_id and s.key = t.concurrency_key
cross join lateral (
  select count(*) as workers, count(*) filter (where t.queue_id = any (w.queues)) as serving,
    count(*) filter (where t.queue_id = any (w.queues) and t.handler = any (w.handlers)) as knowing
  from weft.worker w
  where w.org_id = t.org_id and w.state in ('active', 'idle') and w.until >= (select weft.now())
) live
where t.org_id = $1 and t.id = $2;
