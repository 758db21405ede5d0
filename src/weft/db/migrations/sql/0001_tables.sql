-- name: task_state
-- The states of `weft.core.states.TaskState`, in the same order.
create type weft.task_state as enum (
  'pending', 'scheduled', 'ready', 'dispatched', 'claimed', 'running', 'waiting',
  'completed', 'failed', 'dead', 'skipped', 'cancelled'
);

-- name: attempt_number
-- What no worker could read or count on from is kept out of the live tasks: one such row, made by hand, would hold up
-- every claim. By domains, because a check of the table is read and planned anew by each statement: 20 µs.
create domain weft.attempt_number as int check (value between 0 and 1000000000);

-- name: waiting_count
create domain weft.waiting_count as int check (value >= 0);

-- name: rank_number
create domain weft.rank_number as smallint check (value > -32768);

-- name: failure_count
create domain weft.failure_count as smallint check (value between 0 and 32766);

-- name: handler_name
create domain weft.handler_name as text check (octet_length(value) <= 800);

-- name: span
create domain weft.span as interval check (value between interval '0' and interval '20000 days');

-- name: worker_state
create type weft.worker_state as enum ('active', 'idle', 'stopped', 'lost');

-- name: outbox_state
create type weft.outbox_state as enum ('pending', 'processing', 'done', 'failed');

-- name: now
-- The one clock: every decision about time asks it, so that a test may replace it.
create function weft.now() returns timestamptz language sql volatile parallel safe
return clock_timestamp();

-- name: id_sequence
create sequence weft.id_sequence as bigint minvalue 0 maxvalue 4095 cycle cache 1;

-- name: first_id_at
-- The lowest id of a moment: 41 bits of milliseconds since 2024-01-01, then machine and sequence.
create function weft.first_id_at(moment timestamptz) returns bigint language sql immutable strict parallel safe
return greatest(0, floor(extract(epoch from moment) * 1000)::bigint - 1704067200000) << 22;

-- name: next_id
-- An id made in SQL: machine number 0, which no process leases, and a number that comes again after 4,095 others. Whoever
-- is held up between the clock and the number takes both anew, so that two make the same only where thousands are made
-- within two milliseconds. What one session makes always grows: where the numbers begin again it waits for the next
-- millisecond, but not for a clock that was put back.
create function weft.next_id() returns bigint language plpgsql as $$
declare
  millisecond constant bigint := 1 << 22;
  last constant bigint := coalesce(nullif(current_setting('weft.last_id', true), ''), '0')::bigint;
  made bigint; moment bigint; kept text;
begin
  for round in 1 .. 5 loop
    moment := weft.first_id_at(weft.now());
    made := moment | nextval('weft.id_sequence');
    if weft.first_id_at(weft.now()) <= moment + millisecond then
      exit when made > last or last > moment + 1000 * millisecond;
      perform pg_sleep(0.001);
    end if;
  end loop;
  -- By an assignment, which is evaluated in place: a `perform` starts an executor.
  kept := set_config('weft.last_id', made::text, false);
  return made;
end $$;

-- name: machine
-- Machine numbers for ids, leased to processes that make ids in bulk. Of the installation, like lease and
-- schema_revision. A blob belongs to whoever knows its digest. Every other table has the org of its rows.
create table weft.machine (
  number smallint primary key check (number between 1 and 1023),
  holder text,
  until timestamptz not null default '-infinity'
) with (fillfactor = 50);

-- name: machine_numbers
insert into weft.machine (number) select generate_series(1, 1023);

-- name: org
create table weft.org (
  id bigint primary key,
  slug text not null unique,
  name text not null,
  settings json not null default '{}',
  created_at timestamptz not null default weft.now()
);

-- name: default_org
insert into weft.org (id, slug, name) values (1, 'default', 'Default');

-- name: queue
create table weft.queue (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  name text not null check (name <> '' and length(name) <= 200),
  runtime text not null default 'worker',
  max_running int check (max_running >= 0),
  max_running_per_key int check (max_running_per_key > 0),
  paused_at timestamptz,
  created_at timestamptz not null default weft.now(),
  actor text,
  unique (org_id, name)
);

-- name: default_queue
insert into weft.queue (id, org_id, name) values (1, 1, 'default');

-- name: task
-- Only tasks that have not ended: small, never partitioned. Fixed-width columns that are never null come first.
create table weft.task (
  id bigint primary key,
  org_id bigint not null,
  queue_id bigint not null,
  order_id bigint not null,
  created_at timestamptz not null default weft.now(),
  state weft.task_state not null,
  waiting_on weft.waiting_count not null default 0,
  attempt weft.attempt_number not null default 0,
  rank weft.rank_number not null default 0,
  max_attempts smallint,
  failures weft.failure_count not null default 0,
  crashes smallint not null default 0,
  generation smallint not null default 0,
  handler weft.handler_name not null,
  params json,
  worker_id bigint,
  claimed_at timestamptz,
  due_at timestamptz,
  expires_at timestamptz,
  job_id bigint,
  timeout weft.span,
  heartbeat_timeout weft.span,
  retry json,
  concurrency_key text,
  reason text,
  actor text
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);

-- name: task_ready
create index task_ready on weft.task (queue_id, rank, order_id, id) where state = 'ready';

-- name: task_due
create index task_due on weft.task (due_at) where state = 'scheduled';

-- name: task_worker
create index task_worker on weft.task (worker_id) where worker_id is not null;

-- name: task_job
create index task_job on weft.task (job_id, id) where job_id is not null;

-- name: task_key
create index task_key on weft.task (queue_id, concurrency_key, rank, order_id, id)
  where state = 'pending' and reason = 'concurrency_key';

-- name: task_expiry
create index task_expiry on weft.task (expires_at) where expires_at is not null;

-- name: task_done
-- Every task that has ended, insert-only but for replay and purge, in daily partitions by id.
create table weft.task_done (
  id bigint not null,
  org_id bigint not null,
  queue_id bigint not null,
  order_id bigint not null,
  created_at timestamptz not null,
  ended_at timestamptz not null,
  state weft.task_state not null,
  attempt int not null,
  rank smallint not null,
  max_attempts smallint,
  failures smallint not null,
  crashes smallint not null,
  generation smallint not null,
  handler text not null,
  params json,
  output json,
  error json,
  worker_id bigint,
  claimed_at timestamptz,
  job_id bigint,
  timeout interval,
  heartbeat_timeout interval,
  retry json,
  concurrency_key text,
  reason text,
  actor text,
  primary key (id)
) partition by range (id);

-- name: task_done_queue
create index task_done_queue on weft.task_done (queue_id, id);

-- name: task_done_job
create index task_done_job on weft.task_done (job_id, id) where job_id is not null;

-- name: task_done_unsuccessful
create index task_done_unsuccessful on weft.task_done (state, id) where state <> 'completed';

-- name: task_params
-- Params too long to be carried along each time their task's row is rewritten: written once, never moved.
create table weft.task_params (
  id bigint not null,
  org_id bigint not null,
  params json not null,
  primary key (id)
) partition by range (id);

-- name: attempt
-- An attempt that did not complete; one that completed is told by its task.
create table weft.attempt (
  task_id bigint not null,
  attempt int not null,
  org_id bigint not null,
  worker_id bigint,
  outcome text not null,
  reason text,
  started_at timestamptz,
  ended_at timestamptz not null,
  error json,
  primary key (task_id, attempt)
) partition by range (task_id);

-- name: edge
-- `next` waits for `prev`; counted in the task's waiting_on.
create table weft.edge (
  prev bigint not null,
  next bigint not null,
  org_id bigint not null,
  primary key (prev, next)
);

-- name: edge_next
create index edge_next on weft.edge (next);

-- name: idempotency_key
-- `ended_at` is noted when a task is removed before its key; until then its row tells.
create table weft.idempotency_key (
  org_id bigint not null,
  handler text not null,
  key text not null,
  task_id bigint not null,
  ended_at timestamptz,
  primary key (org_id, handler, key)
);

-- name: idempotency_key_task
create index idempotency_key_task on weft.idempotency_key (task_id);

-- name: worker
-- A worker process. Its row is the lease of all tasks it holds: they are its own while `until` lies ahead.
create table weft.worker (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  until timestamptz not null,
  heartbeat_at timestamptz not null default weft.now(),
  started_at timestamptz not null default weft.now(),
  completed bigint not null default 0,
  failed bigint not null default 0,
  state weft.worker_state not null default 'active',
  saturated boolean not null default false,
  blocked boolean not null default false,
  concurrency int not null,
  pid int not null,
  hostname text not null,
  version text not null,
  queues bigint[] not null,
  handlers text[] not null,
  rescued_at timestamptz
) with (fillfactor = 50);

-- name: handler
-- When a live worker was last known to have a handler; a task whose handler nobody has is failed in the end.
create table weft.handler (
  org_id bigint not null,
  name text not null,
  known_at timestamptz not null default weft.now(),
  primary key (org_id, name)
);

-- name: lease
-- Leadership: one row per role, with a fencing number that grows with each change of holder.
create table weft.lease (
  name text primary key,
  holder bigint not null,
  token bigint not null default 1,
  until timestamptz not null
) with (fillfactor = 50);

-- name: queue_slot
-- Blocks of a queue's max_running, leased to workers.
create table weft.queue_slot (
  queue_id bigint not null references weft.queue on delete cascade,
  worker_id bigint not null,
  org_id bigint not null,
  slots int not null check (slots >= 0),
  primary key (queue_id, worker_id)
) with (fillfactor = 50);

-- name: key_slot
-- How many tasks of a concurrency key are admitted (ready or running), and the key's own limit if it has one.
create table weft.key_slot (
  queue_id bigint not null references weft.queue on delete cascade,
  org_id bigint not null,
  key text not null,
  held int not null default 0 check (held >= 0),
  max_running int check (max_running > 0),
  primary key (queue_id, key)
) with (fillfactor = 50);

-- name: outbox
-- Kinds are those of `weft.core.states.OutboxKind`.
create table weft.outbox (
  id bigint primary key default weft.next_id(),
  org_id bigint not null,
  kind text not null check (kind in ('enqueue_task', 'route_event', 'callback', 'openlineage')),
  ordering_key text,
  payload json not null,
  state weft.outbox_state not null default 'pending',
  available_at timestamptz not null default weft.now(),
  attempts int not null default 0,
  last_error text,
  created_at timestamptz not null default weft.now(),
  processed_at timestamptz,
  worker_id bigint,
  actor text
) with (fillfactor = 70);

-- name: outbox_due
create index outbox_due on weft.outbox (available_at, id) where state = 'pending';

-- name: outbox_order
create index outbox_order on weft.outbox (org_id, ordering_key, id) where state <> 'done' and ordering_key is not null;

-- name: outbox_processing
create index outbox_processing on weft.outbox (worker_id) where state = 'processing';

-- name: blob
-- What was put into the blob storage: noted before the file is written, forgotten when it is removed.
create table weft.blob (
  digest text primary key,
  bytes bigint not null,
  put_at timestamptz not null default weft.now()
);

-- name: blob_put
create index blob_put on weft.blob (put_at);

-- name: task_blob
-- Which task refers to which blob, by its params or its output. A blob that is referred to cannot be forgotten.
create table weft.task_blob (
  task_id bigint not null,
  digest text not null references weft.blob,
  org_id bigint not null,
  primary key (task_id, digest)
);

-- name: task_blob_digest
create index task_blob_digest on weft.task_blob (digest);

-- name: task_log
-- Logs that were copied to the blob storage, one row an attempt.
create table weft.task_log (
  task_id bigint not null,
  org_id bigint not null,
  attempt int not null,
  digest text not null references weft.blob,
  bytes bigint not null,
  created_at timestamptz not null default weft.now(),
  primary key (task_id, attempt)
);

-- name: task_log_digest
create index task_log_digest on weft.task_log (digest);

-- name: task_log_created
create index task_log_created on weft.task_log (created_at);

-- name: audit
-- What operators did: a row a verb, written in the verb's own transaction and never changed; the retention prunes it.
create table weft.audit (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  at timestamptz not null default weft.now(),
  actor text not null,
  verb text not null,
  subject_kind text not null,
  subject_ids bigint[] not null default '{}',
  subject_name text,
  detail json not null default '{}'
);

-- name: audit_subject
-- Every reader goes through the list of what is not sorted in yet: it stays at eight pages, instead of 512.
create index audit_subject on weft.audit using gin (subject_ids) with (gin_pending_list_limit = 64);

-- name: audit_name
create index audit_name on weft.audit (org_id, subject_name, id) where subject_name is not null;
