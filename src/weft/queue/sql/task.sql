-- name: enqueue
-- Creates unless the idempotency key is known; the last argument says whether a worker hears of it with the commit.
select id, created from weft.put_task($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- name: enqueue_by_request
-- The same for a request with a key: also by which request a known key came.
select id, created, known from weft.put_task_by_request($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: claim_keys
-- Whoever inserts a key makes its task; waits for others who are about to insert the same.
insert into weft.idempotency_key as k (org_id, handler, key, task_id)
select $1, r.handler, r.key, r.id from unnest($2::text[], $3::text[], $4::bigint[]) as r (handler, key, id)
on conflict (org_id, handler, key) do nothing
returning k.handler, k.key;

-- name: known_keys
-- The tasks that keys name.
select k.handler, k.key, k.task_id from unnest($2::text[], $3::text[]) as r (handler, key)
join weft.idempotency_key k on k.org_id = $1 and k.handler = r.handler and k.key = r.key;

-- name: now
select weft.now();

-- name: take_slots
-- Only tasks that wait for nothing else.
select weft.take_slots($1);

-- name: finish_and_claim
-- Guarded by worker, attempt and the state running.
select lost, id, attempt, queue_id, rank, order_id, handler, params, max_attempts, failures, crashes, timeout,
  heartbeat_timeout, retry, job_id, node, given
from weft.finish_and_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- name: params_of
select id, params from weft.params_of($1);

-- name: postpone
-- running or dispatched, by its worker and attempt → scheduled; the attempt is recorded.
with moved as (
  update weft.task t set
    state = 'scheduled', due_at = weft.now() + r.delay, worker_id = null, expires_at = null, reason = r.reason,
    failures = t.failures + r.counted::int, crashes = t.crashes + (r.outcome = 'crashed')::int
  from unnest($2::bigint[], $3::int[], $4::interval[], $5::text[], $6::text[], $7::json[], $8::boolean[])
    as r (id, attempt, delay, outcome, reason, error, counted)
  where t.id = any ($2) and t.id = r.id and coalesce(t.worker_id, 0) = $1 and t.attempt = r.attempt
    and t.state in ('running', 'dispatched')
  returning t.id, t.attempt, t.org_id, t.job_id, t.queue_id, t.concurrency_key, t.claimed_at, r.outcome, r.reason, r.error
), recorded as (
  insert into weft.attempt (task_id, attempt, org_id, job_id, worker_id, outcome, reason, started_at, ended_at, error)
  select id, attempt, org_id, job_id, $1, outcome, reason, claimed_at, weft.now(), error from moved
  on conflict do nothing
)
select id, queue_id, concurrency_key, job_id from moved;

-- name: decline
-- running, by its worker and attempt → scheduled. One record, with the first start and the last end, tells of all declines
-- that follow one another with no other attempt and no longer pause than the last argument between them.
with moved as (
  update weft.task t set
    state = 'scheduled', worker_id = null, expires_at = null, reason = 'no_handler',
    -- The longer it goes from one to another, the more rarely it comes back: others stand behind it. While somebody of its
    -- queue knows its handler, that is soon: whose turn it is, is a matter of chance.
    due_at = weft.now() + (
      select case
        when exists (
          select 1 from weft.worker w where w.org_id = t.org_id and w.id <> $1 and w.state in ('active', 'idle') and w.until > weft.now()
          and t.queue_id = any (w.queues) and t.handler = any (w.handlers))
        then least($4::interval, greatest(interval '0.1 seconds', d.lasted / 4))
        else greatest($4::interval, least(interval '30 seconds', d.lasted / 2)) end
      from (select coalesce((
        select weft.now() - a.started_at from weft.attempt a
        where a.task_id = $2 and a.attempt = t.attempt - 1 and a.outcome = 'declined' limit 1), interval '0') as lasted) d)
  where t.id = $2 and coalesce(t.worker_id, 0) = $1 and t.attempt = $3 and t.state = 'running'
  returning t.id, t.attempt, t.org_id, t.job_id, t.queue_id, t.concurrency_key, t.claimed_at, t.due_at
), again as (
  update weft.attempt a set attempt = moved.attempt, worker_id = $1, ended_at = weft.now()
  from moved
  where a.task_id = $2 and a.attempt = moved.attempt - 1 and a.outcome = 'declined'
    and a.ended_at > (select weft.now() - $5::interval)
  returning a.task_id
), recorded as (
  insert into weft.attempt (task_id, attempt, org_id, job_id, worker_id, outcome, reason, started_at, ended_at)
  select id, attempt, org_id, job_id, $1, 'declined', 'no_handler', claimed_at, weft.now() from moved
  where not exists (select 1 from again)
  on conflict do nothing
)
select id, queue_id, concurrency_key, due_at - weft.now() as delay from moved;

-- name: has_been_declined_for
-- Whether the attempts before this one were declined, one after the other, for the given time.
select exists (
  select 1 from weft.attempt a
  where a.task_id = $1 and a.attempt = $2::int - 1 and a.outcome = 'declined'
    and a.started_at <= (select weft.now() - $3::interval) and a.ended_at > (select weft.now() - $3::interval)
);

-- name: end_unsuccessfully
-- running or dispatched, by its worker and attempt → failed or dead; the attempt is recorded.
with moved as (
  delete from weft.task t
  using unnest($2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[], $7::json[])
    as r (id, attempt, state, outcome, reason, error)
  where t.id = any ($2) and t.id = r.id and coalesce(t.worker_id, 0) = $1 and t.attempt = r.attempt
    and t.state in ('running', 'dispatched')
  returning t.*, r.state as new_state, r.outcome, r.reason as new_reason, r.error
), kept as (
  insert into weft.task_done (
    id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts, failures, crashes,
    generation, handler, params, error, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry,
    concurrency_key, reason, actor, node, parent_id, item, counts_for, needs, allow_failure)
  select id, org_id, queue_id, order_id, created_at, weft.now(), new_state::weft.task_state, attempt, rank, max_attempts,
    failures + 1, crashes + (outcome = 'crashed')::int, generation, handler, params, error, worker_id, claimed_at, job_id,
    timeout, heartbeat_timeout, retry, concurrency_key, new_reason, actor, node, parent_id, item, counts_for, needs, allow_failure
  from moved
), recorded as (
  insert into weft.attempt (task_id, attempt, org_id, job_id, worker_id, outcome, reason, started_at, ended_at, error)
  select id, attempt, org_id, job_id, $1, outcome, new_reason, claimed_at, weft.now(), error from moved
  on conflict do nothing
), counted as (
  insert into weft.tally as t (org_id, name, process, count)
  select org_id, 'tasks_failed', pg_backend_pid(), count(*) from moved where queue_id > 0 and queue_id <> 2 group by 1
  on conflict (org_id, name, process) do update set count = t.count + excluded.count
)
select id, queue_id, concurrency_key, job_id from moved;

-- name: note_failed
-- Tells the engine of tasks of jobs that ended without success.
select weft.note_failed($1);

-- name: set_aside
-- running or dispatched, by its worker and attempt → pending, where it stays until an operator acts: no outcome of it can
-- be written.
update weft.task t set state = 'pending', reason = 'outcome_refused', worker_id = null, expires_at = null
where t.id = $2 and coalesce(t.worker_id, 0) = $1 and t.attempt = $3 and t.state in ('running', 'dispatched')
returning t.id, t.queue_id, t.concurrency_key, t.job_id;

-- name: hand_back
-- claimed or running, by its worker and attempt → ready; not counted.
update weft.task t set state = 'ready', worker_id = null, expires_at = null
from unnest($2::bigint[], $3::int[]) as r (id, attempt)
where t.id = any ($2) and t.id = r.id and coalesce(t.worker_id, 0) = $1 and t.attempt = r.attempt and t.state in ('claimed', 'running')
returning t.id, t.queue_id, t.concurrency_key, t.job_id;

-- name: hand_back_all
-- claimed or running, held by this worker, whether it knows of it or not → ready; not counted. What somebody has locked,
-- such as a handler that completes it in a transaction of its own, is left to the rescuer.
with held as (
  select t.id from weft.task t where t.worker_id = $1 and t.state in ('claimed', 'running') order by t.id
  for update skip locked
)
update weft.task t set state = 'ready', worker_id = null, expires_at = null from held where t.id = held.id
returning t.id, t.queue_id, t.concurrency_key, t.job_id;

-- name: wait_for_locks
-- For the rest of a transaction.
select set_config('lock_timeout', $1, true);

-- name: extend_expiry
-- running, by its worker and attempt. A tenth longer: heartbeats that follow one another quickly are not all sent. What
-- somebody has locked does not expire: it is not waited for, and is told as held.
with held as (
  select t.id, t.attempt from unnest($2::bigint[], $3::int[]) as r (id, attempt)
  join weft.task t on t.id = r.id and coalesce(t.worker_id, 0) = $1 and t.attempt = r.attempt and t.state = 'running'
), free as (
  select t.id from weft.task t
  where t.id = any ($2) and t.heartbeat_timeout is not null
    and exists (select 1 from held where held.id = t.id and held.attempt = t.attempt) and t.state = 'running'
  order by t.id for update skip locked
), extended as (
  update weft.task t set expires_at = weft.now() + t.heartbeat_timeout * 1.1 from free where t.id = any ($2) and t.id = free.id
)
select held.id from held;

-- name: held_by
-- What a worker holds by the database's account.
select t.id, t.attempt, t.queue_id, t.rank, t.order_id, t.handler, t.params, t.max_attempts, t.failures, t.crashes,
  t.timeout, t.heartbeat_timeout, t.retry, t.job_id, t.node,
  case when t.needs is not null then weft.outputs_of(t.needs) end as given
from weft.task t where t.worker_id = $1 and t.state = 'running' order by t.id;

-- name: finished_by
-- Which attempts of a worker have completed, for example inside a transaction of their handlers.
select d.id from weft.task_done d, unnest($2::bigint[], $3::int[]) as r (id, attempt)
where d.id = r.id and d.worker_id = $1 and d.attempt = r.attempt and d.state = 'completed';

-- name: free_slots
select weft.free_slots($1, $2);

-- name: cancel
-- any state that is not final → cancelled; a running attempt is fenced by the row's absence. Not what the engine itself does
-- about a job, nor its end: what is left of it would go on without a job.
with moved as (
  delete from weft.task t where t.id = any ($2) and t.org_id = $1 and t.handler not in ('@end', '@fail', '@skip', '@sweep')
  returning t.*
), kept as (
  insert into weft.task_done (
    id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts, failures, crashes,
    generation, handler, params, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry, concurrency_key,
    reason, actor, node, parent_id, item, counts_for, needs, allow_failure)
  select id, org_id, weft.lasting_queue(queue_id), order_id, created_at, weft.now(), 'cancelled', attempt, rank, max_attempts, failures,
    crashes, generation, handler, params, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry,
    concurrency_key, $3, actor, node, parent_id, item, counts_for, needs, allow_failure
  from moved
), recorded as (
  insert into weft.attempt (task_id, attempt, org_id, job_id, worker_id, outcome, reason, started_at, ended_at)
  select id, attempt, org_id, job_id, worker_id, 'cancelled', $3, claimed_at, weft.now() from moved where worker_id is not null
  on conflict do nothing
)
select id, attempt, state::text as state, worker_id, queue_id, concurrency_key, job_id from moved;

-- name: tell_cancelled
select pg_notify('weft_worker_' || $1::bigint, format('cancel %s %s', $2::bigint, $3::int));

-- name: replay
-- failed, dead or cancelled, of these the given ones → ready (pending when it has a concurrency key, until a slot is
-- taken), in a new generation. A task of a job is not replayed alone: what came after it was skipped.
with moved as (
  delete from weft.task_done d where d.id = any ($2) and d.org_id = $1 and d.state in ('failed', 'dead', 'cancelled')
    and d.state = any ($3) and d.job_id is null
  returning d.*
)
insert into weft.task (
  id, org_id, queue_id, order_id, created_at, waiting_on, state, reason, attempt, rank, max_attempts, generation, handler,
  params, job_id, timeout, heartbeat_timeout, retry, concurrency_key, actor, node, parent_id, item, counts_for, needs, allow_failure)
select id, org_id, queue_id, order_id, created_at, w.n,
  case when w.n = 0 and concurrency_key is null then 'ready' else 'pending' end::weft.task_state,
  case when w.n > 0 then 'dependencies' end, attempt, rank, max_attempts, generation + 1, handler, params, job_id,
  timeout, heartbeat_timeout, retry, concurrency_key, actor, node, parent_id, item, counts_for, needs, allow_failure
from moved cross join lateral (
  -- What has completed meanwhile, or is gone altogether, is no longer waited for.
  select count(*)::int as n from weft.edge e where e.next = moved.id and (
    exists (select 1 from weft.task p where p.id = e.prev)
    or exists (select 1 from weft.task_done p where p.id = e.prev and p.state <> 'completed'))
) w
returning id, queue_id, case when waiting_on = 0 then concurrency_key end as concurrency_key;

-- name: lock_live
select t.id from weft.task t where t.id = any ($1) order by t.id for update;

-- name: lock_predecessors
-- So that none can finish unseen while what waits for them is put back.
select t.id from weft.task t where t.id in (select e.prev from weft.edge e where e.next = any ($1)) order by t.id for share;

-- name: lock_ended_predecessors
-- So that none can go round again and finish unseen.
select d.id from weft.task_done d where d.id in (select e.prev from weft.edge e where e.next = any ($1)) order by d.id for share;

-- name: lock_done
select d.id from weft.task_done d where d.id = any ($1) order by d.id for update;

-- name: states_of
-- What became of tasks, wherever they are.
select t.id, t.state::text as state, t.job_id from weft.task t where t.id = any ($2) and t.org_id = $1
union all
select d.id, d.state::text, d.job_id from weft.task_done d where d.id = any ($2) and d.org_id = $1;

-- name: ended_among
-- Not in the small table of live tasks: ended, or gone altogether.
select u.id from unnest($1::bigint[]) as u (id) where not exists (select 1 from weft.task t where t.id = u.id);

-- name: purge
-- failed or dead, ended before a moment, and not in a job that goes on: that has yet to hear of it, or to tell what failed.
delete from weft.task_done d using (
  select c.id from weft.task_done c
  where c.state in ('failed', 'dead') and c.org_id = $1 and c.ended_at <= (select weft.now() - $2::interval)
    and ($3::bigint is null or c.queue_id = $3)
    and not exists (select 1 from weft.job j where j.id = c.job_id)
  order by c.id limit $4
) old where d.id = old.id
returning d.id, d.ended_at;

-- name: purge_ids
-- The same of those that are named, in a statement of its own: in a plan for all arguments all dead letters would be read.
delete from weft.task_done d using (
  select c.id from unnest($4::bigint[]) as u (id) cross join lateral (
    select c.* from weft.task_done c where c.id = u.id offset 0) c
  where c.state in ('failed', 'dead') and c.org_id = $1 and c.ended_at <= (select weft.now() - $2::interval)
    and ($3::bigint is null or c.queue_id = $3)
    and not exists (select 1 from weft.job j where j.id = c.job_id)
  order by c.id limit $5
) old where d.id = old.id
returning d.id, d.ended_at;

-- name: purge_rest
-- What else is kept of tasks that were purged; their idempotency keys outlive them.
with params as (
  delete from weft.task_params p where p.id = any ($1)
), attempts as (
  delete from weft.attempt a where a.task_id = any ($1)
), steps as (
  delete from weft.step s where s.task_id = any ($1)
), inputs as (
  delete from weft.task_input i where i.task_id = any ($1)
), logs as (
  delete from weft.task_log l where l.task_id = any ($1)
), blobs as (
  delete from weft.task_blob b where b.task_id = any ($1)
)
update weft.idempotency_key k set ended_at = r.ended_at from unnest($1::bigint[], $2::timestamptz[]) as r (id, ended_at)
where k.task_id = r.id;

-- name: count_purged
-- Those that are not in the total of tasks that were made, and can be counted no more.
select weft.add_up($1, 'tasks_created', count(*)) from unnest($2::bigint[]) as u (id)
where u.id >= (select m.id from weft.tally_mark m where m.name = 'tasks_created') having count(*) > 0;

-- name: count_purgeable
select count(*) from weft.task_done c
where c.state in ('failed', 'dead') and c.org_id = $1 and c.ended_at <= (select weft.now() - $2::interval)
  and ($3::bigint is null or c.queue_id = $3) and not exists (select 1 from weft.job j where j.id = c.job_id);

-- name: add_log
-- Of a task that is there, live or ended; never in the place of a longer copy.
insert into weft.task_log (task_id, org_id, attempt, digest, bytes)
select t.id, t.org_id, $2, $3, $4 from (
  select l.id, l.org_id from weft.task l where l.id = $1
  union all select d.id, d.org_id from weft.task_done d where d.id = $1
) t
on conflict (task_id, attempt) do update set digest = excluded.digest, bytes = excluded.bytes, created_at = excluded.created_at
where task_log.bytes <= excluded.bytes;

-- name: ask_for_logs
-- Tells the workers that run these tasks that somebody follows what they print.
select pg_notify('weft_worker_' || t.worker_id, format('log %s %s', t.id, t.attempt)) from weft.task t
where t.org_id = $1 and t.id = any ($2::bigint[]) and t.worker_id is not null;

-- name: logs
select l.attempt, l.digest, l.bytes from weft.task_log l where l.org_id = $1 and l.task_id = $2 and ($3::int is null or l.attempt = $3)
order by l.attempt;

-- name: log_marks
-- Of tasks the state, and how much of what they printed was copied.
select t.id, t.state::text as state, (select coalesce(sum(l.bytes), 0) from weft.task_log l where l.task_id = t.id)::bigint as bytes
from weft.tasks t where t.org_id = $1 and t.id = any ($2::bigint[]);

-- name: show
-- Not the spans of time, which a row may hold in sizes that no client can read.
select t.id, t.state, t.reason, t.queue, t.handler, t.priority, t.attempt, t.failures, t.max_attempts, t.worker_id,
  t.created_at, t.due_at, t.claimed_at, t.ended_at, t.error, t.crashes, t.generation, t.concurrency_key, t.waiting_on,
  t.job_id, t.actor, t.params, t.output, encode(c.code, 'hex') as code_version
from weft.tasks t left join weft.worker_code c on c.worker_id = t.worker_id and c.handler = t.handler
where t.org_id = $1 and t.id = $2;

-- name: attempts
select a.attempt, a.worker_id, a.outcome, a.reason, a.started_at, a.ended_at, a.error, encode(c.code, 'hex') as code_version
from weft.attempts a left join weft.worker_code c on c.worker_id = a.worker_id and c.handler = $3
where a.org_id = $1 and a.task_id = $2 order by a.attempt;

-- name: list
-- Those between two ids that pass all filters, in order; filters that are null let everything pass. Where the next page
-- begins stands in each row, and when there is none in one without a task.
select l.rest, l.id, l.state, l.reason, l.queue_name as queue, l.handler, l.priority, l.attempt, l.failures, l.max_attempts, l.worker_id,
  l.created_at, l.due_at, l.claimed_at, l.ended_at, l.error
from weft.list_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9) l;

-- name: add_edge_lock
-- Locks the predecessor, so that it cannot finish between our look and our insert.
select t.state::text as state from weft.task t where t.id = $1 for share;

-- name: has_edge
select exists (select 1 from weft.edge e where e.prev = $1 and e.next = $2);

-- name: add_edge
-- `next` must be held: what waits for nothing but a slot may be admitted at any moment.
with held as (
  update weft.task t set waiting_on = t.waiting_on + 1
  where t.id = $2 and t.state = 'pending' and t.reason = 'dependencies' returning t.id, t.org_id
)
insert into weft.edge (prev, next, org_id) select $1, held.id, held.org_id from held returning next;

-- name: hold
-- ready, or pending for a slot → pending for its dependencies, before edges are added. A slot that it had is free again.
with held as (
  select t.id, t.state from weft.task t
  where t.id = $1 and (t.state = 'ready' or t.state = 'pending' and t.reason = 'concurrency_key') for update
)
update weft.task t set state = 'pending', reason = 'dependencies' from held where t.id = held.id
returning t.queue_id, case when held.state = 'ready' then t.concurrency_key end as concurrency_key;

-- name: release
-- pending that waits for nothing → ready, or without a reason, until a slot is taken, when it has a concurrency key.
update weft.task t set reason = null,
  state = case when t.concurrency_key is null then 'ready' else 'pending' end::weft.task_state
where t.id = $1 and t.state = 'pending' and t.waiting_on = 0 and t.reason = 'dependencies'
returning t.id, t.concurrency_key;
