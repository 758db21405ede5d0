-- name: make_movable
-- In a database of tests only: the one clock of Weft, which runs on, and is ahead by what a test says.
create schema weft_testing;
create table weft_testing.clock (ahead interval not null);
insert into weft_testing.clock values ('0');
create or replace function weft.now() returns timestamptz language sql volatile parallel safe
return clock_timestamp() + (select c.ahead from weft_testing.clock c);

-- name: put_back
update weft_testing.clock c set ahead = '0';

-- name: is_movable
select to_regclass('weft_testing.clock') is not null;

-- name: move
-- Leases are of processes, whose time does not move: they are prolonged by as much.
with moved as (update weft_testing.clock c set ahead = c.ahead + $1::interval),
  workers as (update weft.worker w set until = w.until + $1::interval where w.state in ('active', 'idle')),
  leases as (update weft.lease l set until = l.until + $1::interval),
  machines as (update weft.machine m set until = m.until + $1::interval where m.holder is not null)
update weft.task t set expires_at = t.expires_at + $1::interval where t.state = 'running' and t.expires_at is not null;

-- name: ensure_partitions
select weft.ensure_partitions();

-- name: now
select weft.now();

-- name: next_due
-- The time until something is due: a task, a wait, a job that may take no longer, an effect.
select min(d.at) - weft.now() from (
  select min(t.due_at) as at from weft.task t where t.state = 'scheduled'
  union all select min(t.expires_at) from weft.task t where t.state = 'waiting'
  union all select min(j.timeout_at) from weft.job j where j.state in ('pending', 'running', 'paused')
  union all select min(o.available_at) from weft.outbox o where o.state = 'pending' and o.available_at > weft.now()
) d;

-- name: busy
-- What is ready in these queues and may be claimed, or runs; both are up to the engine where no handler is at work.
-- A handler with tasks that it made waits for these, as far as can be told.
select t.id, t.state = 'ready' or t.handler like '@%' as is_ours,
  exists (select 1 from weft.task c where c.job_id = t.job_id and c.parent_id = t.id) as has_children
from weft.task t left join weft.queue q on q.id = t.queue_id
where t.state = 'running'
  or (t.state = 'ready' and (t.handler like '@%' or (q.paused_at is null and q.name = any ($1))));
