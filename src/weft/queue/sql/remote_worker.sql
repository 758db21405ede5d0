-- name: bind
-- active or idle: who has just registered.
update weft.worker w set token_id = $2 where w.id = $1 and w.state in ('active', 'idle');

-- name: seat
-- Of the worker's own org and token.
select w.state::text as state, w.concurrency,
  array(select q.id from weft.queue q where q.id = any (w.queues) order by array_position(w.queues, q.id)) as ids,
  array(select q.name from weft.queue q where q.id = any (w.queues) order by array_position(w.queues, q.id)) as names
from weft.worker w where w.id = $1 and w.org_id = $2 and w.token_id = $3;

-- name: is_live
-- active or idle: whoever was given up for lost gets nothing any more.
select exists (select 1 from weft.worker w where w.id = $1 and w.state in ('active', 'idle'));

-- name: is_beat_due
-- Also of one that was given up for lost: its heartbeat says so.
select w.state not in ('active', 'idle') or w.heartbeat_at <= weft.now() - $2::interval from weft.worker w where w.id = $1;

-- name: rest
-- running, by its worker and attempt → the same, resting.
update weft.task t set resting_attempt = t.attempt
where t.id = $2 and t.worker_id = $1 and t.attempt = $3 and t.state = 'running' and t.resting_attempt is distinct from t.attempt;

-- name: rests
-- running, by its worker and attempt.
select exists (select 1 from weft.task t where t.id = $2 and t.worker_id = $1 and t.attempt = $3 and t.state = 'running'
  and t.resting_attempt = t.attempt);

-- name: end_rest
-- running and resting, by its worker and attempt → the same, no longer resting.
update weft.task t set resting_attempt = null
where t.id = $2 and t.worker_id = $1 and t.attempt = $3 and t.state = 'running' and t.resting_attempt = t.attempt;

-- name: lock_share
-- Until the transaction ends: whichever server is asked, a worker's slots are counted and taken by one at a time.
select pg_advisory_xact_lock(hashtextextended('weft.share', $1));

-- name: shares
-- Of the queues with a limit. Those that rest take no slot of their queues, nor do those that are about to end.
with used as (
  select t.queue_id, count(*)::int as tasks from weft.task t
  where t.worker_id = $1 and t.state = 'running' and t.resting_attempt is distinct from t.attempt
    and not exists (select 1 from unnest($3::bigint[], $4::int[]) as e (id, attempt) where e.id = t.id and e.attempt = t.attempt)
  group by 1
)
select q.id, q.max_running, coalesce(s.slots, 0), coalesce(u.tasks, 0) from weft.queue q
left join weft.queue_slot s on s.queue_id = q.id and s.worker_id = $1
left join used u on u.queue_id = q.id
where q.id = any ($2) and q.max_running is not null;

-- name: held_among
-- running, by its worker and attempt.
select t.id, t.attempt, t.queue_id, t.rank, t.order_id, t.handler, t.params, t.max_attempts, t.failures, t.crashes,
  t.timeout, t.heartbeat_timeout, t.retry, t.job_id, t.node,
  case when t.needs is not null then weft.outputs_of(t.needs) end as given
from unnest($2::bigint[], $3::int[]) as r (id, attempt)
join weft.task t on t.id = r.id and t.attempt = r.attempt and coalesce(t.worker_id, 0) = $1 and t.state = 'running'
order by t.id;

-- name: settled_among
-- Attempts of a worker that have ended without success and are recorded as such: told again, it is no news.
select a.task_id from unnest($2::bigint[], $3::int[]) as r (id, attempt)
join weft.attempt a on a.task_id = r.id and a.attempt = r.attempt and a.worker_id = $1
where a.outcome in ('failed', 'snoozed', 'crashed');

-- name: had_among
-- Which attempts are or were the worker's own.
select r.id, r.attempt from unnest($2::bigint[], $3::int[]) as r (id, attempt) where exists (
  select 1 from weft.task t where t.id = r.id and t.attempt = r.attempt and t.worker_id = $1
  union all select 1 from weft.task_done d where d.id = r.id and d.attempt = r.attempt and d.worker_id = $1
  union all select 1 from weft.attempt a where a.task_id = r.id and a.attempt = r.attempt and a.worker_id = $1
);

-- name: refers_to
-- Whether a task of the org refers to a blob; for a token of some queues one of these, or one that a task needs or has
-- made which a worker of the token holds.
select exists (
  select 1 from weft.task_blob b where b.digest = $2 and b.org_id = $1 and ($3::text[] is null or exists (
    select 1 from weft.task t join weft.queue q on q.id = t.queue_id where t.id = b.task_id and q.name = any ($3)
    union all
    select 1 from weft.task_done d join weft.queue q on q.id = d.queue_id where d.id = b.task_id and q.name = any ($3)
    union all
    select 1 from weft.worker w join weft.task h on h.worker_id = w.id and h.state = 'running'
    where w.token_id = $4 and (b.task_id = any (h.needs)
      or exists (select 1 from weft.task_done c where c.id = b.task_id and c.parent_id = h.id))
  ))
);

-- name: task_refers_to
-- Which of these tasks of the org refer to the blobs that they are said to have put.
select r.id from unnest($2::bigint[], $3::text[]) as r (id, digest)
join weft.task_blob b on b.task_id = r.id and b.digest = r.digest and b.org_id = $1;

-- name: of_org
-- Which of these are tasks of the org, live or ended: of some queues only, unless a task has made them.
select t.id from weft.task t where t.id = any ($2) and t.org_id = $1 and ($3::bigint[] is null or t.queue_id = any ($3) or t.parent_id = $4)
union all
select d.id from weft.task_done d where d.id = any ($2) and d.org_id = $1 and ($3::bigint[] is null or d.queue_id = any ($3) or d.parent_id = $4);
