-- name: register
insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
values ($1, weft.now() + $2::interval, $3, $4, $5, $6, $7, $8) returning id;

-- name: own_queue
-- A queue of its own, for the steps of the jobs that an orchestrator owns.
with made as (
  insert into weft.queue (id, org_id, name) values (-$1::bigint, 1, '@control/' || $1)
)
update weft.worker w set queues = w.queues || -$1::bigint where w.id = $1;

-- name: leave_jobs
select weft.hand_over($1, null, 10000) where exists (select 1 from weft.queue q where q.id = -$1::bigint);

-- name: adopt_jobs
select weft.adopt_jobs($1, 1000);

-- name: know_handlers
insert into weft.handler as h (org_id, name) select $1, unnest($2::text[]) order by 2
on conflict (org_id, name) do update set known_at = excluded.known_at;

-- name: note_codes
insert into weft.worker_code (worker_id, org_id, handler, code)
select $2, $1, u.handler, decode(u.code, 'hex') from unnest($3::text[], $4::text[]) as u (handler, code) on conflict do nothing;

-- name: leave_codes
-- Of workers that are gone: what they ran may have ended at any time until now.
update weft.worker_code c set gone_at = weft.now() from (
  select o.worker_id, o.handler from weft.worker_code o
  where o.gone_at is null and not exists (select 1 from weft.worker w where w.id = o.worker_id) order by 1, 2 limit 1000
) gone where c.worker_id = gone.worker_id and c.handler = gone.handler;

-- name: prune_codes
-- Of workers that were gone for longer than the given time.
delete from weft.worker_code c where c.ctid = any (array(
  select o.ctid from weft.worker_code o where o.gone_at < (select weft.now() - $1::interval) order by o.gone_at limit 1000
)) returning 1;

-- name: heartbeat
-- Lands only while the worker is not lost.
select held, leader, token, next_due_at, has_outbox, lapsed, limited from weft.heartbeat($1, $2, $3, $4, $5, $6, $7);

-- name: set_saturated
update weft.worker w set saturated = $2 where w.id = $1 returning w.id;

-- name: open_transactions
select pg_snapshot_xmin(s)::text::bigint as oldest, pg_snapshot_xmax(s)::text::bigint as next
from pg_current_snapshot() s;

-- name: deregister
-- active or idle → stopped.
update weft.worker w set state = 'stopped', until = weft.now(), completed = w.completed + $2, failed = w.failed + $3
where w.id = $1 and w.state in ('active', 'idle')
returning w.id;

-- name: give_up_lead
-- The row stays: its fencing number must never start again.
update weft.lease l set until = '-infinity' where l.holder = $1;

-- name: give_up_slots
delete from weft.queue_slot s where s.worker_id = $1;

-- name: list
-- Newest first below a key; all without a limit.
select w.* from weft.workers w where w.org_id = $1 and ($2::text[] is null or w.state = any ($2)) and w.id < $3
order by w.id desc limit $4;

-- name: mark_lost
-- active or idle whose lease lapsed → lost.
update weft.worker w set state = 'lost'
from (select l.id from weft.worker l where l.state in ('active', 'idle') and l.until < (select weft.now())
      order by l.id limit 100 for update skip locked) lapsed
where w.id = lapsed.id and w.state in ('active', 'idle') returning w.id;

-- name: lost
-- Lost and not rescued yet, or gone in another way and still holding tasks.
select w.id from weft.worker w where w.state = 'lost' and w.rescued_at is null
union select o from weft.orphaning_workers() o order by 1 limit 100;

-- name: held_by_lost
-- Locks in order what a lost worker still holds; what somebody else has locked is taken the next time.
select t.id, t.crashes, t.attempt from weft.task t where t.worker_id = $1 and t.state in ('claimed', 'running')
order by t.id limit 1000 for update skip locked;

-- name: rescue
-- claimed or running, held by a lost worker → ready; the crash is counted apart from failures.
with moved as (
  update weft.task t set state = 'ready', worker_id = null, expires_at = null, crashes = t.crashes + 1
  where t.id = any ($2) and coalesce(t.worker_id, 0) = $1 and t.state in ('claimed', 'running')
  returning t.id, t.attempt, t.org_id, t.job_id, t.queue_id, t.claimed_at, t.concurrency_key
), recorded as (
  insert into weft.attempt (task_id, attempt, org_id, job_id, worker_id, outcome, reason, started_at, ended_at)
  select id, attempt, org_id, job_id, $1, 'lost', 'lease_expired', claimed_at, weft.now() from moved
  on conflict do nothing
)
select id, queue_id, concurrency_key, job_id from moved;

-- name: bury_crashed
-- claimed or running, held by a lost worker, at the limit of losses → dead.
with moved as (
  delete from weft.task t where t.id = any ($2) and coalesce(t.worker_id, 0) = $1 and t.state in ('claimed', 'running')
  returning t.*
), kept as (
  insert into weft.task_done (
    id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts, failures, crashes,
    generation, handler, params, error, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry,
    concurrency_key, reason, actor, node, parent_id, item, counts_for, needs, allow_failure)
  select id, org_id, queue_id, order_id, created_at, weft.now(), 'dead', attempt, rank, max_attempts, failures, crashes + 1,
    generation, handler, params, $3, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry, concurrency_key,
    'crashed', actor, node, parent_id, item, counts_for, needs, allow_failure
  from moved
), recorded as (
  insert into weft.attempt (task_id, attempt, org_id, job_id, worker_id, outcome, reason, started_at, ended_at, error)
  select id, attempt, org_id, job_id, $1, 'lost', 'crashed', claimed_at, weft.now(), $3 from moved
  on conflict do nothing
), counted as (
  insert into weft.tally as t (org_id, name, process, count)
  select org_id, 'tasks_failed', pg_backend_pid(), count(*) from moved where queue_id > 0 and queue_id <> 2 group by 1
  on conflict (org_id, name, process) do update set count = t.count + excluded.count
)
select id, queue_id, concurrency_key, job_id from moved;

-- name: abandon
-- active or idle: its lease lapses now, and others take over what it held.
update weft.worker w set until = weft.now() where w.id = $1 and w.state in ('active', 'idle') and w.until > weft.now();

-- name: rescued
-- lost, and holds nothing any more.
update weft.worker w set rescued_at = weft.now()
where w.id = $1 and w.state = 'lost' and not exists (select 1 from weft.task t where t.worker_id = $1) returning w.queues;

-- name: expired
-- running past the expiry that its heartbeat_timeout set.
select t.id, t.attempt, t.worker_id, t.failures, t.max_attempts, t.retry from weft.task t
where t.expires_at < (select weft.now()) and t.state = 'running' order by t.expires_at limit 1000 for update skip locked;

-- name: prune
-- Stopped, or lost and rescued, longer ago than the given time; what they have counted is kept.
with gone as (
  delete from weft.worker w using (
    select o.id from weft.worker o where o.state in ('stopped', 'lost') and o.until < (select weft.now() - $1::interval)
      and (o.state = 'stopped' or o.rescued_at is not null)
    order by o.id limit 1000
  ) old where w.id = old.id and not exists (select 1 from weft.task t where t.worker_id = w.id)
  returning w.id, w.org_id, w.completed, w.queues
), counted as (
  insert into weft.tally as t (org_id, name, process, count)
  select org_id, 'tasks_completed', 0, sum(completed) from gone where 2 <> all (queues) group by 1
  on conflict (org_id, name, process) do update set count = t.count + excluded.count
)
select id from gone;

-- name: refresh_handlers
update weft.handler h set known_at = weft.now()
where exists (select 1 from weft.worker w where w.org_id = h.org_id and w.state in ('active', 'idle')
              and w.until > (select weft.now()) and h.name = any (w.handlers));

-- name: handler_is_missing
-- Whether no live worker has known the handler for the given time; the first question starts the clock.
with asked as (
  insert into weft.handler (org_id, name) values ($1, $2) on conflict do nothing
)
select coalesce((
  select h.known_at < (select weft.now() - $3::interval) from weft.handler h where h.org_id = $1 and h.name = $2
), false) and not exists (
  select 1 from weft.worker w where w.org_id = $1 and w.state in ('active', 'idle') and w.until > (select weft.now())
  and $2 = any (w.handlers));
