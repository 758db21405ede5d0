-- name: job_event
-- What happens to a job and leaves no other trace: never changed, gone with its job. In daily partitions by the id of the
-- job, so that all that is told of one stands together. What rows of jobs, tasks and attempts tell is not written again.
create table weft.job_event (
  job_id bigint not null,
  id bigint not null default weft.next_id(),
  org_id bigint not null,
  at timestamptz not null default weft.now(),
  task_id bigint,
  type text not null check (type ~ '^(job|task)\.[a-z_]+$'),
  node text,
  state text,
  data json,
  checkpoint text,
  primary key (job_id, id)
) partition by range (job_id);

-- name: job_event_is_kept
create trigger job_event_is_kept before update or delete on weft.job_event for each row execute function weft.refuse_change();

-- name: job_event_is_not_emptied
create trigger job_event_is_not_emptied before truncate on weft.job_event for each statement execute function weft.refuse_change();

-- name: job_event_partitions
select weft.ensure_partitions();

-- name: note_event
-- Notes what happened to a job, or to one of its tasks, in the transaction of whoever did it, and wakes who follows it.
create function weft.note_event(
  org bigint, job bigint, type text, state text default null, data json default null, task bigint default null,
  node text default null, checkpoint text default null
) returns bigint language plpgsql as $$
declare new_id bigint := weft.next_id();
begin
  insert into weft.job_event (job_id, id, org_id, task_id, type, node, state, data, checkpoint)
  values (job, new_id, org, task, note_event.type, note_event.node, note_event.state, json_strip_nulls(data), note_event.checkpoint);
  -- Of checkpoints there may be many a second, and a notification holds up all commits for a moment.
  if checkpoint is null then
    perform pg_notify('weft_job_events', job::text);
  end if;
  return new_id;
end $$;

-- name: task_done_order
-- What ended in a job, in the order of time. When each began stands in it too, so that those which began in a while are
-- told from the others without a look at the rows.
drop index weft.task_done_job;
create index task_done_job on weft.task_done (job_id, ended_at, claimed_at) where job_id is not null;

-- name: attempt_order
create index attempt_job on weft.attempt (job_id, ended_at, started_at) where job_id is not null;

-- name: step_order
create index step_job on weft.step (job_id, saved_at) where job_id is not null and name not like '@%';

-- name: view_job_events
-- An attempt that is not recorded by itself began when its task says so.
create or replace view weft.job_events as
  select j.job_id, j.org_id, j.job_id || '.' || s.type as id, s.at, 'job.' || s.type as type, s.state, null::text as node,
    null::int as item, null::bigint as task_id, null::int as attempt, json_strip_nulls(s.data) as data, null::text as checkpoint
  from (
    select j.id as job_id, j.org_id, j.created_at, j.started_at, null::timestamptz as ended_at, null::text as ending, j.actor,
      null::text as reason, null::bigint as failed_id, null::json as error
    from weft.job j
    union all
    select d.id, d.org_id, d.created_at, d.started_at, d.ended_at, d.state::text, d.actor, d.reason, d.failed_id, d.error
    from weft.job_done d
  ) j cross join lateral (
    values ('submitted', 'pending', j.created_at, json_build_object('by', j.actor)),
      ('started', 'running', j.started_at, null::json),
      (j.ending, j.ending, j.ended_at, json_build_object('reason', j.reason, 'failed_id', j.failed_id::text, 'type', j.error ->> 'type',
        'message', j.error ->> 'message'))
  ) as s (type, state, at, data)
  where s.at is not null
  union all
  select t.job_id, t.org_id, t.id || '.' || t.attempt || '.running', t.claimed_at, 'task.claimed', 'running', t.node, t.item, t.id,
    t.attempt, json_strip_nulls(json_build_object('worker_id', t.worker_id::text)), null
  from weft.task t
  where t.node is not null and t.claimed_at is not null
    and not exists (select 1 from weft.attempt a where a.task_id = t.id and a.attempt = t.attempt)
  union all
  select d.job_id, d.org_id, d.id || '.' || d.attempt || '.running', d.claimed_at, 'task.claimed', 'running', d.node, d.item, d.id,
    d.attempt, json_strip_nulls(json_build_object('worker_id', d.worker_id::text)), null
  from weft.task_done d
  where d.node is not null and d.claimed_at is not null and (
    d.state = 'completed' or not exists (select 1 from weft.attempt a where a.task_id = d.id and a.attempt = d.attempt))
  union all
  select d.job_id, d.org_id, d.id || '.' || d.state, d.ended_at, 'task.' || d.state, d.state::text, d.node, d.item, d.id, d.attempt,
    json_strip_nulls(json_build_object('reason', d.reason, 'kept_id', d.kept_id::text, 'type', d.error ->> 'type',
      'message', d.error ->> 'message', 'items', case when d.handler = '@fan_out' then d.output -> 'count' end)), null
  from weft.task_done d where d.node is not null
  union all
  select a.job_id, a.org_id, a.task_id || '.' || a.attempt || '.running', a.started_at, 'task.claimed', 'running', t.node, t.item, a.task_id,
    a.attempt, json_strip_nulls(json_build_object('worker_id', a.worker_id::text)), null
  from weft.attempt a cross join lateral (
    select t.node, t.item from weft.task t where t.id = a.task_id and t.node is not null
    union all
    select d.node, d.item from weft.task_done d where d.id = a.task_id and d.node is not null
  ) t where a.started_at is not null
  union all
  select a.job_id, a.org_id, a.task_id || '.' || a.attempt || '.' || a.outcome, a.ended_at, 'attempt.' || a.outcome, a.outcome, t.node, t.item,
    a.task_id, a.attempt, json_strip_nulls(json_build_object('reason', a.reason, 'worker_id', a.worker_id::text, 'type', a.error ->> 'type',
      'message', a.error ->> 'message')), null
  from weft.attempt a cross join lateral (
    select t.node, t.item from weft.task t where t.id = a.task_id and t.node is not null
    union all
    select d.node, d.item from weft.task_done d where d.id = a.task_id and d.node is not null
  ) t
  union all
  select s.job_id, s.org_id, s.task_id || '.' || extract(epoch from s.saved_at) || '.' || s.name, s.saved_at, 'task.saved', 'running', t.node,
    t.item, s.task_id, s.attempt, json_build_object('bytes', s.bytes), s.name
  from weft.step s cross join lateral (
    select t.node, t.item from weft.task t where t.id = s.task_id and t.node is not null
    union all
    select d.node, d.item from weft.task_done d where d.id = s.task_id and d.node is not null
  ) t where s.name not like '@%'
  union all
  select e.job_id, e.org_id, e.id::text, e.at, e.type, e.state, e.node, null, e.task_id, null, e.data, e.checkpoint
  from weft.job_event e;

-- name: job_events_are_read_only
do $$
declare verb text;
begin
  foreach verb in array array['insert', 'update', 'delete'] loop
    execute format('create rule refuse_%s as on %s to weft.job_events do instead select weft.refuse_write(''job_events'')', verb, verb);
  end loop;
end $$;

-- name: comment_job_events
comment on view weft.job_events is 'What happened in each job, in order of `at` and then `id`.';

-- name: tally
-- Totals that outlive what they count. A server process has rows of its own, so that nobody waits for a number; when it is
-- gone they are added to row 0.
create table weft.tally (
  org_id bigint not null references weft.org,
  name text not null,
  process int not null,
  count bigint not null default 0,
  seconds double precision not null default 0,
  primary key (org_id, name, process)
) with (fillfactor = 50);

-- name: tally_mark
-- Tasks with an id below it are in the total of those that were made.
create table weft.tally_mark (
  name text primary key,
  id bigint not null
);

-- name: first_mark
insert into weft.tally_mark (name, id) values ('tasks_created', 0);

-- name: add_up
-- Adds to a total, in the transaction of what is counted.
create function weft.add_up(org bigint, name text, count bigint, seconds double precision default 0) returns void language sql volatile as $$
  insert into weft.tally as t (org_id, name, process, count, seconds) values (org, add_up.name, pg_backend_pid(), add_up.count, add_up.seconds)
  on conflict (org_id, name, process) do update set count = t.count + excluded.count, seconds = t.seconds + excluded.seconds
$$;
