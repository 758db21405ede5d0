-- name: put
-- Returns the id of the job that there was of that idempotency key, else its own; then somebody's act is kept with it.
with made as materialized (
  select weft.put_job(json_populate_record(null::weft.job, $1), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
    $17, $18, $19, $20, $21, $29) as id
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_ids, detail, origin, reason)
  select $22, $24, $25, 'job', array[made.id], $26, $27, $28 from made where made.id = $23 and $25::text is not null
)
select made.id from made;

-- name: asked_by
-- By which request the job of an idempotency key was made; null when it was none.
select k.request from weft.idempotency_key k where k.org_id = $1 and k.handler = '@job' and k.key = $2;

-- name: keep_tasks
-- False when an output that is to be kept is gone.
select weft.keep_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- name: show
select j.id, j.workflow_id, j.state, j.reason, j.priority, j.inputs, j.result, j.error, j.created_at, j.started_at, j.ended_at,
  j.failed_id, j.owner_id, j.parent_id, j.base_kind, j.base_ref, j.snapshot_id, j.version_hash, j.labels, j.actor, j.end_id,
  j.rerun_of, j.patch, j.tag_positions, j.callback_url
from weft.show_jobs($1, $2) j;

-- name: hold_end
-- Before the job itself: so does whoever finishes it.
select t.id from weft.task t where t.id = (select j.end_id from weft.job j where j.org_id = $1 and j.id = $2) for no key update;

-- name: cancel
-- pending, running or paused → cancelling.
update weft.job j set state = 'cancelling', verdict = 'cancelled', reason = 'cancelled'
where j.org_id = $1 and j.id = $2 and j.state in ('pending', 'running', 'paused') returning j.rank;

-- name: sweep
select weft.sweep_job($1, $2);

-- name: sweep_later
select weft.put_control($1, $2, $3, '@sweep', '{}');

-- name: fail
-- Null when the step is no longer the caller's.
select weft.fail_job($1, $2, $3, $4);

-- name: skip
-- Null when the step is no longer the caller's.
select weft.skip_by_step($1, $2, $3, $4, $5, $6, $7);

-- name: add_children
-- False when the fan_out is no longer the caller's, or its job does not go on.
select weft.add_children($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);

-- name: count_children
-- Of which items of a fan_out there are tasks: they are made in order.
select coalesce(max(c.item) + 1, 0) from (
  select max(t.item) as item from weft.task t join weft.task p on p.id = $1 where t.job_id = p.job_id and t.parent_id = $1
  union all select max(d.item) from weft.task_done d where d.parent_id = $1
) c;

-- name: completed_items
-- Of which items of fan_outs there are outputs already.
select distinct d.item from unnest($1::bigint[]) as p (id)
cross join lateral (select c.item from weft.task_done c where c.parent_id = p.id and c.state = 'completed') d;

-- name: list
-- Those between two ids that pass all filters, in order; filters that are null let everything pass. Where the next page
-- begins stands in each row, and when there is none in one without a job.
select l.rest, l.id, l.workflow_id, l.state, l.reason, l.priority, l.created_at, l.started_at, l.ended_at, l.failed_id, l.owner_id,
  l.base_ref, l.actor
from weft.list_jobs($1, $2, $3, $4, $5, $6, greatest($7, weft.first_id_at($8) - 1), least($9, weft.first_id_at($10)), $11, $12, $13) l;

-- name: nodes
-- The nodes of a job after a key, all without a limit; of a fan_out how many of its items are in which state. Of one that is
-- tried again its last error.
with tasks as (
  select t.id, t.node, t.parent_id, t.state::text as state, t.reason, t.attempt, t.handler, t.claimed_at,
    null::timestamptz as ended_at, t.due_at, t.allow_failure, case when t.failures > 0 and t.parent_id is null then (
      select a.error from weft.attempt a where a.task_id = t.id order by a.attempt desc limit 1) end as error,
    t.worker_id, null::bigint as kept_id
  from weft.task t where t.job_id = $2 and t.org_id = $1 and t.node is not null
  union all
  select d.id, d.node, d.parent_id, d.state::text, d.reason, d.attempt, d.handler, d.claimed_at, d.ended_at, null, d.allow_failure,
    d.error, d.worker_id, d.kept_id
  from weft.task_done d where d.job_id = $2 and d.org_id = $1 and d.node is not null
), items as (
  select s.parent_id, json_object_agg(s.state, s.n) as states, max(s.ended_at) as ended_at,
    bool_and(s.allow_failure) as allow_failure from (
    select c.parent_id, c.state, count(*) as n, max(c.ended_at) as ended_at,
      bool_and(c.allow_failure) as allow_failure from tasks c where c.parent_id is not null group by 1, 2
  ) s group by 1
)
select t.id, t.node, t.state, t.reason, t.attempt, t.handler, t.claimed_at, greatest(t.ended_at, i.ended_at) as ended_at,
  t.due_at, t.error, i.states as items, t.kept_id, t.allow_failure or coalesce(i.allow_failure, false) as allow_failure,
  encode(c.code, 'hex') as code_version
from tasks t left join items i on i.parent_id = t.id
left join weft.worker_code c on c.worker_id = t.worker_id and c.handler = t.handler
where t.parent_id is null and t.id > $3 order by t.id limit $4;

-- name: pause
-- pending or running → paused; what is about to begin is parked by whoever claims it.
update weft.job j set state = 'paused' where j.org_id = $1 and j.id = $2 and j.state in ('pending', 'running') returning j.id;

-- name: wait_for_claims
-- Of a job that was paused: whoever claims something of it, and has not seen that, holds it until it is running.
select count(*) from (
  select 1 from weft.task t where t.job_id = $1 and t.state in ('pending', 'ready') for key share
) held;

-- name: resume
select weft.resume_job($1, $2);

-- name: end_late
select weft.end_late_jobs(100);

-- name: wait
-- running, by its worker and attempt → waiting.
select weft.wait_for_answer($1, $2, $3, $4);

-- name: answer
-- waiting → completed, failed or skipped.
select weft.answer($1, $2, $3, $4, $5);

-- name: facts
-- What a job that a task belongs to hands on to the jobs that it makes.
select j.org_id, j.rank, j.tag_positions, j.actor, j.labels from weft.job j where j.id = $1;

-- name: begin_wait
-- running, by its worker and attempt → waiting.
select weft.begin_wait($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: send_event
-- Who sends an event is kept with it, and as an act when it is new.
with e as materialized (select id, answered, is_new, is_same from weft.send_events($1, array[$2::text], array[$3::jsonb], $4, array[$5::text], $6)), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $4, 'send', 'event', $2, json_build_object('id', e.id::text, 'answered', e.answered, 'sources', weft.sources_of_event(e.id)), $7, $8
  from e where e.is_new
)
select e.id, e.answered, e.is_new, e.is_same, weft.sources_of_event(e.id) as sources from e;

-- name: send_events
-- Who sends events is kept with each, and as an act for all new ones of a name.
with e as materialized (
  select e.id, e.answered, e.is_new, e.is_same, e.place, ($2::text[])[e.place] as name
  from weft.send_events($1, $2, $3, $4, $5, $6) with ordinality as e (id, answered, is_new, is_same, place)
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $4, 'send', 'event', e.name, json_build_object('first', min(e.id)::text, 'last', max(e.id)::text, 'count', count(*)), $7, $8
  from e where e.is_new group by e.name
)
select e.id, e.answered, e.is_new, e.is_same, weft.sources_of_event(e.id) as sources from e order by e.place;

-- name: approvals
-- What waits for a person, after a key.
select a.task_id, a.job_id, t.node, a.since, a.form, t.expires_at from weft.awaited a join weft.task t on t.id = a.task_id
where a.org_id = $1 and a.kind = 'approval' and a.task_id > $2 order by a.task_id limit $3;

-- name: approvals_of
-- What of one job waits for a person.
select a.task_id, a.job_id, t.node, a.since, a.form, t.expires_at from weft.awaited a join weft.task t on t.id = a.task_id
where a.org_id = $1 and a.kind = 'approval' and a.job_id = $2 and a.task_id > $3 order by a.task_id limit $4;

-- name: message
-- A task that asks for a job, with the key under which it was enqueued.
select t.org_id, t.actor, (select k.key from weft.idempotency_key k where k.task_id = t.id) as key
from weft.task t where t.id = $1;

-- name: finish
-- running, by its worker and attempt → completed.
select weft.complete($1, $2, $3, $4);
