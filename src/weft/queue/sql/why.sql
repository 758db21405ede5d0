-- name: why
-- All that decides whether a task that has not ended can be claimed. Those ahead are counted up to a thousand.
select t.state::text as state, t.reason, t.handler, t.attempt, t.due_at, t.due_at > weft.now() as is_early,
  t.waiting_on, coalesce(t.concurrency_key, n.key) as concurrency_key, n.is_wanted as is_key_wanted, t.worker_id, t.claimed_at, q.name as queue, q.paused_at, q.max_running,
  coalesce(s.max_running, q.max_running_per_key) as key_limit, coalesce(s.held, 0) as key_held,
  coalesce((select w.state not in ('active', 'idle') or w.until < weft.now()
            from weft.worker w where w.id = t.worker_id), true) as is_worker_lost,
  (select count(*) from weft.task r where r.worker_id is not null and r.queue_id = t.queue_id) as running,
  (select count(*) from (
     select from weft.task o where o.state = 'ready' and o.queue_id = t.queue_id
       and (o.rank, o.order_id, o.id) < (t.rank, t.order_id, t.id) limit 1000) a) as ahead,
  live.workers, live.serving, live.knowing, live.orchestrators, t.job_id, t.node, t.parent_id, t.expires_at, j.state::text as job_state,
  a.kind as awaited_kind, a.event as awaited_event, a.match as awaited_match, a.form as awaited_form, a.since as awaited_since,
  (select count(*) from weft.task k where (t.state = 'waiting' or n.task_id is not null) and k.job_id = t.job_id and k.parent_id = t.id)::int as made,
  c.id as child_id, c.state::text as child_state, before.tasks as before, holding.tasks as holding,
  array(select distinct h from weft.worker w, unnest(w.handlers) as h
        where w.org_id = t.org_id and w.state in ('active', 'idle') and w.until >= (select weft.now())) as handlers
from weft.task t
join weft.queue q on q.id = t.queue_id
left join weft.key_loan n on n.task_id = t.id
left join weft.key_slot s on s.queue_id = t.queue_id and s.key = coalesce(t.concurrency_key, n.key)
cross join lateral (
  select count(*) as workers, count(*) filter (where t.queue_id = any (w.queues)) as serving,
    count(*) filter (where t.queue_id = any (w.queues) and t.handler = any (w.handlers)) as knowing,
    count(*) filter (where 2 = any (w.queues)) as orchestrators
  from weft.worker w
  where (w.org_id = t.org_id or t.queue_id = 2 or t.queue_id < 0) and w.state in ('active', 'idle') and w.until >= (select weft.now())
) live
left join weft.job j on j.id = t.job_id
left join weft.awaited a on a.task_id = t.id
left join weft.job c on t.state = 'waiting' and c.parent_id = t.id
-- The tasks that it waits for, those of a fan_out as one.
left join lateral (
  select json_agg(json_build_object('id', b.id::text, 'name', b.name, 'state', b.state, 'count', b.count) order by b.id) as tasks from (
    select p.id, coalesce(p.node, p.id::text) as name, p.state::text as state, null::int as count
    from weft.edge e join weft.task p on p.id = e.prev where e.next = t.id
    union all
    select min(i.id), i.node, max(i.state)::text, count(*)::int from weft.edge e
    join weft.task i on i.job_id = t.job_id and i.counts_for = e.prev where e.next = t.id group by i.counts_for, i.node
    order by 1 limit 10
  ) b
) before on t.state = 'pending' and t.waiting_on > 0
-- Who has the slots of its queue or key, the longest first.
left join lateral (
  select json_agg(json_build_object('id', h.id::text, 'node', h.node, 'job_id', h.job_id::text) order by h.claimed_at) as tasks from (
    select h.id, h.node, h.job_id, h.claimed_at from weft.task h
    where h.worker_id is not null and h.queue_id = t.queue_id
      and (t.reason is distinct from 'concurrency_key' and n.task_id is null or h.concurrency_key = coalesce(t.concurrency_key, n.key))
    order by h.claimed_at limit 5
  ) h
) holding on t.reason = 'concurrency_key' or n.is_wanted or q.max_running is not null
where t.org_id = $1 and t.id = $2;
