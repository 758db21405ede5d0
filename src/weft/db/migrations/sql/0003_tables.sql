-- name: revision_digest
-- By which state of its SQL the database came to its revision.
alter table weft.schema_revision add column digest text;

-- name: job_state
-- The states of `weft.core.job_states.JobState`, in the same order.
create type weft.job_state as enum ('pending', 'running', 'paused', 'cancelling', 'completed', 'failed', 'cancelled');

-- name: task_of_job
-- What a task is in its job: its node, the task that made it and for which of its
-- items, the one for which its end counts as well, how many of those that
-- lead to it have reached it, the tasks whose outputs it is given, whether others go on when it fails, and how long it
-- may wait, once it could begin, until somebody begins it first.
alter table weft.task
  add column node text,
  add column parent_id bigint,
  add column item int,
  add column counts_for bigint,
  add column reached int not null default 0,
  add column needs bigint[],
  add column allow_failure boolean not null default false,
  add column dispatch_timeout interval;

-- name: task_done_of_job
alter table weft.task_done
  add column node text,
  add column parent_id bigint,
  add column item int,
  add column counts_for bigint,
  add column needs bigint[],
  add column allow_failure boolean not null default false;

-- name: task_done_parent
create index task_done_parent on weft.task_done (parent_id, item) where parent_id is not null;

-- name: attempt_of_job
-- Of a task of a job, so that what happened in one is found without a look at each of its tasks.
alter table weft.attempt add column job_id bigint;

-- name: key_of_job
-- Of a key that names a job, or something that a task of a job has made: it outlives the tasks by which the job could be found.
alter table weft.idempotency_key add column job_id bigint, add column request bytea;

-- name: edge_branches
-- Of a conditional: the branches by which `next` is reached; null is reached by whatever completes.
alter table weft.edge add column branches smallint[];

-- name: job
-- Only jobs that have not ended. The task `end_id` waits for all that nothing comes after; its end is the end of the job,
-- with the verdict if there is one, else completed. No index has the state, so that a job that begins is changed in place.
create table weft.job (
  id bigint primary key,
  org_id bigint not null,
  end_id bigint not null,
  created_at timestamptz not null default weft.now(),
  state weft.job_state not null default 'pending',
  rank weft.rank_number not null default 0,
  finishes_independent boolean not null default false,
  started_at timestamptz,
  timeout_at timestamptz,
  verdict weft.job_state,
  failed_id bigint,
  owner_id bigint,
  parent_id bigint,
  snapshot_id bigint references weft.artifact,
  version_hash bytea,
  workflow_id text not null,
  base_kind text not null,
  base_ref text,
  reason text,
  inputs json not null,
  patch json,
  tag_positions json,
  labels json,
  callback_url text,
  actor text
) with (fillfactor = 50);

-- name: job_owner
create index job_owner on weft.job (owner_id) where owner_id is not null;

-- name: job_parent
create index job_parent on weft.job (parent_id) where parent_id is not null;

-- name: job_snapshot
create index job_snapshot on weft.job (snapshot_id);

-- name: job_timeout
create index job_timeout on weft.job (timeout_at) where timeout_at is not null;

-- name: job_done
-- Every job that has ended, insert-only but for a replay that reopens it, in daily partitions by id.
create table weft.job_done (
  id bigint not null,
  org_id bigint not null,
  end_id bigint not null,
  created_at timestamptz not null,
  ended_at timestamptz not null,
  state weft.job_state not null,
  rank smallint not null,
  finishes_independent boolean not null,
  started_at timestamptz,
  failed_id bigint,
  owner_id bigint,
  parent_id bigint,
  snapshot_id bigint,
  version_hash bytea,
  workflow_id text not null,
  base_kind text not null,
  base_ref text,
  reason text,
  inputs json not null,
  result json,
  error json,
  patch json,
  tag_positions json,
  labels json,
  callback_url text,
  actor text,
  primary key (id)
) partition by range (id);

-- name: job_done_workflow
create index job_done_workflow on weft.job_done (org_id, workflow_id, id);

-- name: job_done_snapshot
create index job_done_snapshot on weft.job_done (snapshot_id);

-- name: job_done_unsuccessful
create index job_done_unsuccessful on weft.job_done (state, id) where state <> 'completed';

-- name: artifact_use
-- Who uses which artifact: each room adds its own here, and what is listed is never removed.
create or replace view weft.artifact_use as
select m.to_id as artifact_id, m.org_id, 'tag' as used_by, m.tag as user_name from weft.tag_move m where m.to_id is not null
union all select t.target_id, t.org_id, 'tag', t.name from weft.tag t
union all select a.parent_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.parent_id is not null
union all select a.merged_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.merged_id is not null
union all select a.base_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.base_id is not null
union all select j.snapshot_id, j.org_id, 'job', j.id::text from weft.job j where j.snapshot_id is not null
union all select d.snapshot_id, d.org_id, 'job', d.id::text from weft.job_done d where d.snapshot_id is not null;

-- name: awaited
-- What a task in the state waiting waits for: a person, or an event that matches; with whether it is skipped when its time
-- is over, or fails.
create table weft.awaited (
  task_id bigint primary key,
  org_id bigint not null,
  job_id bigint not null,
  since timestamptz not null default weft.now(),
  kind text not null check (kind in ('approval', 'event')),
  skips boolean not null default false,
  event text,
  match jsonb not null default '{}',
  form json not null default '{}'
);

-- name: awaited_event
create index awaited_event on weft.awaited (org_id, event) where event is not null;

-- name: awaited_job
create index awaited_job on weft.awaited (job_id);

-- name: event
-- What was told from outside, for those who wait for it now or later in their job; the retention prunes it.
create table weft.event (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  name text not null check (name <> '' and length(name) <= 200),
  payload jsonb not null,
  at timestamptz not null default weft.now(),
  answered int not null default 0,
  actor text,
  idempotency_key text
);

-- name: event_name
create index event_name on weft.event (org_id, name, id);

-- name: event_key
create unique index event_key on weft.event (org_id, idempotency_key) where idempotency_key is not null;

-- name: control_queue
-- Where the steps of jobs wait that the engine itself carries out, of every org.
insert into weft.queue (id, org_id, name) values (2, 1, '@control');
