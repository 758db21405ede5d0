-- name: ensure_partitions
-- Makes the daily partitions of task_done, task_params, attempt, job_done, step, job_event and job_label that are missing from yesterday to `days` ahead, and on
-- the days of tasks that have not ended; returns how many. Whoever finds one missing calls it, with the rights of the
-- schema's owner, to whom they belong. LIKE and ATTACH, not PARTITION OF: that would queue every claim behind one idle reader.
create or replace function weft.ensure_partitions(days int default 8) returns int language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  parent text; child text; low bigint; high bigint; day timestamptz; made int := 0;
  today timestamptz := date_trunc('day', weft.now(), 'UTC');
begin
  perform pg_advisory_xact_lock(hashtext('weft.ensure_partitions'));
  for day in
    -- One probe for each day on which there are open tasks.
    with recursive live (number) as (
      select ((select min(t.id) from weft.task t) >> 22) / 86400000
      union all
      select ((select min(t.id) from weft.task t where t.id >= ((l.number + 1) * 86400000) << 22) >> 22) / 86400000
      from live l where l.number is not null
    )
    select timestamptz '2024-01-01Z' + make_interval(hours => 24 * l.number::int) from live l where l.number is not null
    union select today + make_interval(hours => 24 * n) from generate_series(-1, least(days, 31)) n
    order by 1
  loop
    low := weft.first_id_at(day);
    high := weft.first_id_at(day + interval '24 hours');
    -- Job_event and job_label are made last of all, by the same migration.
    foreach parent in array array['task_done', 'task_params', 'attempt', 'job_done', 'step', 'job_event', 'job_label'] loop
      continue when to_regclass('weft.' || parent) is null;
      child := parent || '_' || to_char(day at time zone 'UTC', 'YYYYMMDD');
      if to_regclass('weft.' || child) is null then
        execute format('create table weft.%I (like weft.%I including all)', child, parent);
        execute format('alter table weft.%I attach partition weft.%I for values from (%s) to (%s)', parent, child, low, high);
        made := made + 1;
      end if;
    end loop;
  end loop;
  return made;
end $$;

-- name: drop_release_next
drop function weft.release_next;

-- name: put_control
-- Lets the engine do something about a job: a task of the control queue, ready at once.
create function weft.put_control(org bigint, job bigint, rank smallint, handler text, params json) returns bigint
language plpgsql as $$
declare new_id bigint := weft.next_id(); lane bigint := weft.control_queue(job);
begin
  loop
    insert into weft.task as t (id, org_id, queue_id, order_id, state, rank, handler, params, job_id, max_attempts)
    values (new_id, org, lane, job, 'ready', put_control.rank, put_control.handler, put_control.params, job, 10)
    on conflict do nothing;
    exit when found;
    new_id := weft.next_id();
  end loop;
  perform weft.hint_one(lane);
  return new_id;
end $$;

-- name: reach_next
-- Counts for what comes after tasks that these have ended: `reaching` says whether they completed, and of a conditional
-- `taken` names the branch. What waits for nothing more becomes ready, or asks for a slot of its key; returned is what
-- nothing has reached, to be skipped. The end of a job is never skipped. What comes after a failure is skipped here when all
-- that it waited for has ended. Tasks are locked in order.
create function weft.reach_next(ended bigint[], taken int[], reaching boolean, own bigint[]) returns bigint[]
language plpgsql as $$
declare next_ids bigint[]; next_counts int[]; next_reached int[]; keyed bigint[]; missed bigint[]; spoiled bigint[]; woken bigint[];
  at timestamptz := weft.now();
begin
  -- Of the items of a fan_out each counts for the same one: that is looked up once.
  select array_agg(e.next), array_agg(e.n), array_agg(e.r) into next_ids, next_counts, next_reached
  from (
    select e.next, sum(s.n)::int as n,
      coalesce(sum(s.n) filter (where reaching and (e.branches is null or s.taken = any (e.branches))), 0)::int as r
    from (select u.prev, u.taken, count(*) as n from unnest(ended, taken) as u (prev, taken) group by 1, 2) s
    cross join lateral (select e.next, e.branches from weft.edge e where e.prev = s.prev offset 0) e
    group by 1 order by 1
  ) e;
  if next_ids is null then
    return null;
  end if;
  if cardinality(next_ids) > 1 then
    perform 1 from weft.task t where t.id = any (next_ids) order by t.id for no key update;
  end if;
  with reached as (
    update weft.task t set
      waiting_on = t.waiting_on - next_counts[width_bucket(t.id, next_ids)],
      reached = t.reached + next_reached[width_bucket(t.id, next_ids)],
      -- Not before it may begin: by a change of what is indexed the row is written anew in every index.
      queue_id = case when t.queue_id <> 2 and t.queue_id > 0 or t.waiting_on > next_counts[width_bucket(t.id, next_ids)]
                      then t.queue_id
                      else coalesce((select -j.owner_id from weft.job j where j.id = t.job_id), 2) end,
      state = case when t.waiting_on = next_counts[width_bucket(t.id, next_ids)] and t.concurrency_key is null and t.state = 'pending'
                     and (t.reached + next_reached[width_bucket(t.id, next_ids)] > 0 and t.reason is distinct from 'upstream_failed'
                          or t.handler = '@end')
                   then 'ready'::weft.task_state else t.state end,
      reason = case when t.waiting_on = next_counts[width_bucket(t.id, next_ids)] and t.reason is distinct from 'upstream_failed'
                    then null else t.reason end,
      expires_at = case when t.waiting_on = next_counts[width_bucket(t.id, next_ids)] and t.concurrency_key is null
                        then at + t.dispatch_timeout end
    where t.id = any (next_ids)
    returning t.id, t.queue_id, t.state, t.reached, t.reason,
      t.waiting_on = 0 and t.state = 'pending' and t.reason is distinct from 'concurrency_key' as is_left
  )
  select array_agg(r.id order by r.id) filter (where r.is_left and r.reached > 0 and r.reason is null),
         array_agg(r.id order by r.id) filter (where r.is_left and r.reached = 0 and r.reason is null),
         array_agg(r.id order by r.id) filter (where r.is_left and r.reason is not null),
         array_agg(distinct r.queue_id) filter (where r.state = 'ready' and r.queue_id <> all (own))
  into keyed, missed, spoiled, woken from reached r;
  if keyed is not null then
    perform weft.take_slots(keyed);
    woken := array(
      select distinct t.queue_id from weft.task t
      where t.id = any (next_ids) and t.state = 'ready' and t.queue_id <> all (own));
  end if;
  if spoiled is not null then
    perform weft.skip_later(weft.skip_tasks(spoiled, 'upstream_failed', 100, own), 'upstream_failed');
  end if;
  if cardinality(woken) > 0 then
    perform weft.hint(woken);
  end if;
  return missed;
end $$;

-- name: release_next
-- Lets go what waited for tasks that completed. A part of finish_and_claim, under its settings. A statement after the one
-- that moved them: it sees an edge that was added while that one waited for its lock. Of `own` queues the caller claims
-- itself; for others somebody is woken. What no branch has reached is skipped: a few at once, many by the engine.
create function weft.release_next(ended bigint[], taken int[], own bigint[]) returns void language plpgsql as $$
declare missed bigint[] := weft.reach_next(ended, taken, true, own);
begin
  if missed is not null then
    perform weft.skip_later(weft.skip_tasks(missed, 'branch_not_taken', 100, own), 'branch_not_taken');
  end if;
end $$;

-- name: skip_tasks
-- pending or ready → skipped, and what is reached by nothing else after it, up to `room` of them; returns what is left.
-- After a failure nothing that comes after goes on, whatever else has reached it: only the end of the job does.
create function weft.skip_tasks(ids bigint[], why text, room int, own bigint[]) returns bigint[] language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set enable_material = off set jit = off as $$
declare
  batch bigint[]; gone bigint[]; counted bigint[]; keyed_queues bigint[]; keys text[]; later bigint[];
  at timestamptz := weft.now();
begin
  while cardinality(ids) > 0 and room > 0 loop
    batch := ids[1:room];
    ids := ids[cardinality(batch) + 1:];
    room := room - cardinality(batch);
    perform 1 from weft.task t where t.id = any (batch) order by t.id for update;
    with moved as (
      delete from weft.task t where t.id = any (batch) and t.state in ('pending', 'ready') and t.handler <> '@end' returning t.*
    ), kept as (
      insert into weft.task_done (
        id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts, failures, crashes,
        generation, handler, params, job_id, timeout, heartbeat_timeout, retry, concurrency_key, reason, actor,
        node, parent_id, item, counts_for, needs, allow_failure)
      select id, org_id, weft.lasting_queue(queue_id), order_id, created_at, at, 'skipped', attempt, rank, max_attempts, failures, crashes,
        generation, handler, params, job_id, timeout, heartbeat_timeout, retry, concurrency_key, why, actor,
        node, parent_id, item, counts_for, needs, allow_failure
      from moved
    )
    select array_agg(id), array_agg(counts_for) filter (where counts_for is not null),
      array_agg(queue_id) filter (where concurrency_key is not null and state = 'ready'),
      array_agg(concurrency_key) filter (where concurrency_key is not null and state = 'ready')
    into gone, counted, keyed_queues, keys from moved;
    if keys is not null then
      perform weft.free_slots(keyed_queues, keys);
    end if;
    if gone is not null then
      later := case when why = 'upstream_failed' then weft.fail_next(gone || counted)
                    else weft.reach_next(gone || counted, null, false, own) end;
      ids := ids || coalesce(later, '{}');
    end if;
  end loop;
  return ids;
end $$;

-- name: fail_next
-- What comes after tasks that failed, and can never be reached: it is not to go on by what others do. Returned is what all
-- have ended for that it waited for, to be skipped; the rest, when they have: else its job could end before them.
create function weft.fail_next(failed bigint[]) returns bigint[] language plpgsql as $$
declare next_ids bigint[]; next_counts int[]; woken bigint[];
begin
  select array_agg(e.next), array_agg(e.n) into next_ids, next_counts
  from (select e.next, count(*)::int as n from unnest(failed) as s (prev) join weft.edge e on e.prev = s.prev
        group by 1 order by 1) e;
  perform 1 from weft.task t where t.id = any (next_ids) order by t.id for no key update;
  update weft.task t set
    waiting_on = t.waiting_on - next_counts[width_bucket(t.id, next_ids)],
    state = case when t.waiting_on = next_counts[width_bucket(t.id, next_ids)] and t.state = 'pending' and t.handler = '@end'
                 then 'ready'::weft.task_state else t.state end,
    queue_id = case when t.handler = '@end' then weft.control_queue(t.job_id) else t.queue_id end,
    reason = case when t.handler = '@end' then null else 'upstream_failed' end
  where t.id = any (next_ids) and t.state = 'pending';
  woken := array(
    select distinct t.queue_id from weft.task t where t.id = any (next_ids) and t.handler = '@end' and t.state = 'ready');
  if cardinality(woken) > 0 then
    perform weft.hint(woken);
  end if;
  return array(select t.id from weft.task t where t.id = any (next_ids) and t.handler <> '@end' and t.waiting_on = 0);
end $$;

-- name: skip_later
-- Leaves to the engine what is left to be skipped.
create function weft.skip_later(ids bigint[], why text) returns void language plpgsql as $$
begin
  if cardinality(ids) > 0 then
    perform weft.put_control(t.org_id, t.job_id, min(t.rank)::smallint, '@skip',
      json_build_object('ids', json_agg(t.id::text order by t.id), 'why', why))
    from weft.task t where t.id = any (ids) group by t.org_id, t.job_id;
  end if;
end $$;

-- name: output_of
create function weft.output_of(task_id bigint) returns json language plpgsql stable
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare found record;
begin
  select d.output, d.handler into found from weft.task_done d where d.id = task_id;
  return case when found.handler = '@fan_in' and found.output is not null then weft.results_of(found.output) else found.output end;
end $$;

-- name: results_of
-- What a fan_in stands for, in order: the outputs of the items of a fan_out, or of several of which each ran what the
-- others had not completed, or that of another task. Under a key that no output has: whoever reads it knows that each is
-- an output by itself, which may be in the blob storage.
create function weft.results_of(reference json) returns json language sql stable as $$
  select json_build_object('$gathered', coalesce(json_agg(r.output order by p.place, r.item), '[]'))
  from json_array_elements(reference -> '$results') with ordinality as p (part, place)
  cross join lateral (
    select d.output, d.item from weft.task_done d where d.parent_id = (p.part ->> 'each')::bigint
    union all
    select weft.output_of(d.id), 0 from weft.task_done d where d.id = (p.part ->> 'of')::bigint
    union all
    select k.output, k.item from weft.kept_results(p.part -> 'all') k
  ) r
$$;

-- name: outputs_of
-- The outputs of tasks that have ended, in the order in which they are asked for; null of one that has none.
create function weft.outputs_of(ids bigint[]) returns json[] language sql stable as $$
  select array(select weft.output_of(u.id) from unnest(ids) with ordinality as u (id, place) order by u.place)
$$;

-- name: end_jobs
-- Jobs whose end was reached → completed, failed or cancelled, with what the end gave as the result; whoever is to be told
-- of it is, once that is committed.
create function weft.end_jobs(jobs bigint[]) returns void language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
  parents bigint[]; labelled bigint[]; child record;
begin
  -- Before the jobs themselves: whoever sweeps a task away locks it before the job that it waits for.
  parents := array(select j.parent_id from weft.job j where j.id = any (jobs) and j.parent_id is not null order by 1);
  if cardinality(parents) > 0 then
    perform 1 from weft.task t where t.id = any (parents) order by t.id for update;
  end if;
  with moved as (
    delete from weft.job j where j.id = any (jobs) returning j.*
  ), kept as (
  insert into weft.job_done (
    id, org_id, end_id, created_at, ended_at, state, rank, finishes_independent, started_at, failed_id, owner_id, parent_id,
    snapshot_id, version_hash, workflow_id, base_kind, base_ref, reason, inputs, result, error, patch, tag_positions,
    labels, callback_url, actor, rerun_of)
  select m.id, m.org_id, m.end_id, m.created_at, weft.now(),
    coalesce(m.verdict, 'completed'),
    m.rank, m.finishes_independent, m.started_at, m.failed_id, m.owner_id, m.parent_id, m.snapshot_id, m.version_hash,
    m.workflow_id, m.base_kind, m.base_ref, m.reason, m.inputs,
    case when m.verdict is null then e.output end, f.error, m.patch, m.tag_positions, m.labels, m.callback_url, m.actor,
    m.rerun_of
  from moved m
  left join lateral (select d.output from weft.task_done d where d.id = m.end_id) e on true
  left join lateral (select d.error from weft.task_done d where d.id = m.failed_id) f on true
  ), counted as (
    insert into weft.tally as t (org_id, name, process, count, seconds)
    select m.org_id, 'jobs_' || coalesce(m.verdict, 'completed'), pg_backend_pid(), count(*),
      coalesce(sum(extract(epoch from weft.now() - m.started_at)), 0)
    from moved m group by 1, 2 order by 1, 2
    on conflict (org_id, name, process) do update set count = t.count + excluded.count, seconds = t.seconds + excluded.seconds
  ), told as (
    insert into weft.outbox (org_id, kind, payload, actor)
    select m.org_id, 'callback', json_build_object('url', m.callback_url, 'job_id', m.id::text,
      'status', coalesce(m.verdict, 'completed'), 'workflow_id', m.workflow_id, 'reason', m.reason,
      'ended_at', to_char(weft.now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), m.actor
    from moved m where m.callback_url is not null
  )
  select array_agg(m.id) filter (where m.labels is not null) into labelled from moved m;
  if labelled is not null then
    insert into weft.job_label (job_id, org_id, name, value, ending)
    select d.id, d.org_id, l.key, l.value, d.state
    from unnest(labelled) as u (id) cross join lateral (select d.* from weft.job_done d where d.id = u.id) d
      cross join lateral json_each_text(d.labels) l;
  end if;
  if cardinality(parents) = 0 then
    return;
  end if;
  for child in
    select d.parent_id, d.state, d.result, d.error, d.id, d.reason from unnest(jobs) as u (id)
    cross join lateral (select d.* from weft.job_done d where d.id = u.id) d where d.parent_id is not null
    order by d.parent_id
  loop
    perform weft.answer(child.parent_id, case when child.state = 'completed' then 'completed' else 'failed' end, child.result,
      coalesce(child.error, json_build_object('type', 'JobFailed', 'message', format('job %s %s: %s', child.id, child.state,
        child.reason), 'traceback', '')), case when child.state = 'completed' then null else 'job_' || child.state end);
  end loop;
end $$;

-- name: wait_for_answer
-- running, by its worker and attempt → waiting, until it is answered or its time is over; false when it is no longer theirs.
create function weft.wait_for_answer(me bigint, task_id bigint, in_attempt int, patience interval) returns boolean language plpgsql as $$
begin
  update weft.task t set state = 'waiting', worker_id = null, expires_at = weft.now() + patience
  where t.id = task_id and coalesce(t.worker_id, 0) = me and t.attempt = in_attempt and t.state = 'running';
  return found;
end $$;

-- name: answer
-- waiting → completed, failed or skipped; false when it does not wait.
create function weft.answer(task_id bigint, ending text, output json, error json, why text) returns boolean language plpgsql as $$
#variable_conflict use_variable
declare ended bigint[]; org bigint;
begin
  with moved as (
    delete from weft.task t where t.id = task_id and t.state = 'waiting' returning t.*
  ), kept as (
    insert into weft.task_done (
      id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts, failures, crashes,
      generation, handler, params, output, error, claimed_at, job_id, timeout, heartbeat_timeout, retry, concurrency_key,
      reason, actor, node, parent_id, item, counts_for, needs, allow_failure)
    select m.id, m.org_id, m.queue_id, m.order_id, m.created_at, weft.now(), ending::weft.task_state, m.attempt, m.rank,
      m.max_attempts, m.failures, m.crashes, m.generation, m.handler, m.params,
      case when ending = 'completed' then output end, case when ending = 'failed' then error end, m.claimed_at, m.job_id,
      m.timeout, m.heartbeat_timeout, m.retry, m.concurrency_key, why, m.actor, m.node, m.parent_id, m.item, m.counts_for,
      m.needs, m.allow_failure
    from moved m
  )
  select array_remove(array[m.id, m.counts_for], null), m.org_id into ended, org from moved m;
  if ended is null then
    return false;
  end if;
  if ending = 'completed' and output::text like '{"$blob":%' then
    perform weft.keep_blob(task_id, org, output);
  end if;
  delete from weft.awaited a where a.task_id = ended[1];
  if ending = 'completed' then
    perform weft.release_next(ended, null, '{}');
  elsif ending = 'skipped' then
    perform weft.skip_later(weft.reach_next(ended, null, false, '{}'), 'branch_not_taken');
  else
    perform weft.note_failed(array[task_id]);
  end if;
  return true;
end $$;

-- name: lock_event
-- One after the other: who begins to wait for an event, and who sends it.
create function weft.lock_event(org bigint, event text) returns void language sql volatile as $$
  select pg_advisory_xact_lock(hashtextextended('weft.event ' || org || ' ' || event, 0))
$$;

-- name: begin_wait
-- Parks a task until a person or an event answers it. An event that came since its job was submitted does so at once.
create function weft.begin_wait(
  me bigint, task_id bigint, in_attempt int, patience interval, kind text, skips boolean, event text, match jsonb, form json
) returns boolean language plpgsql as $$
#variable_conflict use_variable
declare of weft.task; found_payload jsonb;
begin
  if not weft.wait_for_answer(me, task_id, in_attempt, patience) then
    return false;
  end if;
  select * into of from weft.task t where t.id = task_id;
  insert into weft.awaited (task_id, org_id, job_id, kind, skips, event, match, form)
  values (task_id, of.org_id, of.job_id, kind, skips, event, match, form) on conflict do nothing;
  if event is not null then
    perform weft.lock_event(of.org_id, event);
    select e.payload into found_payload from weft.event e
    where e.org_id = of.org_id and e.name = event and e.payload @> match
      and e.at >= (select j.created_at from weft.job j where j.id = of.job_id)
    order by e.id limit 1;
    if found then
      perform weft.note_event(of.org_id, of.job_id, 'task.received', 'completed', json_build_object('event', event), task_id, of.node);
      perform weft.answer(task_id, 'completed', found_payload::json, null, null);
    end if;
  end if;
  return true;
end $$;

-- name: route_event
-- Answers those who wait for an event, from after a task on and so many of them; returns where the next begin, null after the
-- last. One whose job was submitted after it was sent does not mean it.
create function weft.route_event(event_id bigint, after bigint, room int, out answered int, out last bigint) language plpgsql as $$
#variable_conflict use_variable
declare told weft.event; waiting record; looked int := 0;
begin
  answered := 0;
  select * into told from weft.event e where e.id = event_id;
  perform weft.lock_event(told.org_id, told.name);
  for waiting in
    -- Found by the event, and only then put in order: by the order of all who wait it would cost all of them.
    with those as materialized (
      select a.task_id, a.job_id from weft.awaited a
      where a.org_id = told.org_id and a.event = told.name and told.payload @> a.match and a.task_id > after)
    select w.task_id, w.job_id, t.node from those w join weft.task t on t.id = w.task_id
    where (select j.created_at from weft.job j where j.id = w.job_id) <= told.at order by w.task_id limit room
  loop
    looked := looked + 1;
    last := waiting.task_id;
    if weft.answer(waiting.task_id, 'completed', told.payload::json, null, null) then
      perform weft.note_event(told.org_id, waiting.job_id, 'task.received', 'completed',
        json_build_object('event', told.name, 'by', told.actor), waiting.task_id, waiting.node);
      answered := answered + 1;
    end if;
  end loop;
  last := case when looked = room then last end;
end $$;

-- name: tell_event
-- Answers those who wait for an event that was just accepted, so many of them; returns how many wait in all, and where those begin
-- who are left.
create function weft.tell_event(told weft.event, room int, out answered int, out last bigint) language plpgsql as $$
#variable_conflict use_variable
declare rest int;
begin
  select r.answered, r.last into answered, last from weft.route_event(told.id, 0, room) r;
  if last is not null then
    select count(*) into rest from weft.awaited a
    where a.org_id = told.org_id and a.event = told.name and told.payload @> a.match and a.task_id > last;
    answered := answered + rest;
  end if;
  if answered > 0 then
    update weft.event e set answered = answered where e.id = told.id;
  end if;
end $$;

-- name: send_events
-- Accepts events, each once for its key, all or none, and answers those who wait for such ones; of each so many at once, the rest
-- by the outbox. Returns of each in turn its id, how many waited, whether it is new, and if not, whether it says the same as the
-- first of its key.
create function weft.send_events(org bigint, names text[], payloads jsonb[], sender text, keys text[], room int)
returns table (id bigint, answered int, is_new boolean, is_same boolean) language plpgsql as $$
#variable_conflict use_column
declare ids bigint[]; made bigint[]; counts int[]; lasts bigint[]; told weft.event; place int; found record;
begin
  perform weft.lock_event(org, n.name) from (select distinct u.name from unnest(names) as u (name) order by u.name) n;
  ids := array(select weft.next_id() from generate_series(1, cardinality(names)));
  with added as (
    insert into weft.event as e (id, org_id, name, payload, actor, idempotency_key)
    select u.id, org, u.name, u.payload, sender, u.key
    from unnest(ids, names, payloads, keys) with ordinality as u (id, name, payload, key, place) order by u.place
    on conflict (org_id, idempotency_key) where idempotency_key is not null do nothing returning e.id
  )
  select coalesce(array_agg(a.id), '{}') into made from added a;
  perform weft.offer_events(made);
  counts := array_fill(0, array[cardinality(names)]);
  lasts := array_fill(null::bigint, array[cardinality(names)]);
  for told in
    select e.* from weft.event e
    where e.id = any (made) and exists (select 1 from weft.awaited a where a.org_id = org and a.event = e.name) order by e.id
  loop
    place := array_position(ids, told.id);
    found := weft.tell_event(told, room);
    counts[place] := found.answered;
    lasts[place] := found.last;
  end loop;
  insert into weft.outbox (org_id, kind, payload, state, processed_at, actor)
  select org, 'route_event', json_build_object('event_id', u.id::text, 'after', u.last::text),
    (case when u.last is null then 'done' else 'pending' end)::weft.outbox_state, case when u.last is null then weft.now() end, sender
  from unnest(ids, lasts) with ordinality as u (id, last, place) where u.id = any (made) order by u.place;
  return query
    select coalesce(f.id, u.id), coalesce(f.answered, u.answered), f.id is null, f.name = u.name and f.payload = u.payload
    from unnest(ids, names, payloads, keys, counts) with ordinality as u (id, name, payload, key, answered, place)
      left join weft.event f on u.id <> all (made) and f.org_id = org and f.idempotency_key = u.key
    order by u.place;
end $$;

-- name: end_late_waits
-- waiting past its time → failed, or skipped where it may be; returns how many.
create function weft.end_late_waits(room int) returns int language plpgsql as $$
declare late record; count int := 0;
begin
  for late in
    select t.id, coalesce(a.skips, false) as skips from weft.task t left join weft.awaited a on a.task_id = t.id
    where t.expires_at < (select weft.now()) and t.state = 'waiting' order by t.expires_at limit room for update of t skip locked
  loop
    count := count + weft.answer(late.id, case when late.skips then 'skipped' else 'failed' end, null,
      json_build_object('type', 'WaitTimeout', 'message', 'nobody answered in time', 'traceback', ''), 'timeout')::int;
  end loop;
  return count;
end $$;

-- name: end_late_starts
-- ready, and not begun in its time → failed; returns how many. What belongs to a job that is paused begins its time anew.
create function weft.end_late_starts(room int) returns int language plpgsql as $$
declare late bigint; count int := 0;
begin
  for late in
    select t.id from weft.task t where t.expires_at < (select weft.now()) and t.state = 'ready'
    order by t.expires_at limit room for update skip locked
  loop
    -- Nobody may begin it while its job is paused: it has all its time when that goes on.
    update weft.task t set expires_at = weft.now() + t.dispatch_timeout
    where t.id = late and exists (select 1 from weft.job j where j.id = t.job_id and j.state = 'paused');
    continue when found;
    update weft.task t set state = 'waiting' where t.id = late;
    count := count + weft.answer(late, 'failed', null, json_build_object('type', 'DispatchTimeout', 'message',
      'nobody began it in time', 'traceback', ''), 'dispatch_timeout')::int;
  end loop;
  return count;
end $$;

-- name: begin_jobs
-- Jobs of which something is about to begin: pending → running; an orchestrator owns what nobody does. Tasks of a job that
-- is paused wait for it instead; the lock makes that exact against whoever resumes it. Returns the tasks that may begin.
create function weft.begin_jobs(tasks bigint[], jobs bigint[], orchestrator bigint) returns bigint[] language plpgsql as $$
declare fresh bigint[]; paused bigint[]; parked bigint[]; keyed_queues bigint[]; keys text[];
begin
  -- Those that are paused are locked too: whoever resumes one that has not begun makes it pending again.
  fresh := array(
    select j.id from weft.job j
    where j.id = any (jobs) and (j.state in ('pending', 'paused') or j.owner_id is null and orchestrator is not null)
    order by j.id for no key update);
  update weft.job j set state = case when j.state = 'pending' then 'running' else j.state end,
    started_at = coalesce(j.started_at, weft.now()), owner_id = coalesce(j.owner_id, orchestrator)
  where j.id = any (fresh) and j.state <> 'paused';
  select array_agg(l.id) into paused from (
    select j.id from weft.job j where j.id = any (jobs) and j.state = 'paused' order by j.id for share
  ) l;
  if paused is null then
    return tasks;
  end if;
  with held as (
    update weft.task t set state = 'pending', reason = 'job_paused', expires_at = null, queue_id = weft.lasting_queue(t.queue_id)
    where t.id = any (tasks) and t.job_id = any (paused)
    returning t.id, t.queue_id, t.concurrency_key
  )
  select array_agg(h.id), array_agg(h.queue_id) filter (where h.concurrency_key is not null),
    array_agg(h.concurrency_key) filter (where h.concurrency_key is not null)
  into parked, keyed_queues, keys from held h;
  if keys is not null then
    perform weft.free_slots(keyed_queues, keys);
  end if;
  return array(select u.id from unnest(tasks) as u (id) where u.id <> all (parked));
end $$;

-- name: resume_job
-- paused → running, and what waited for it goes on.
create function weft.resume_job(org bigint, job bigint) returns boolean language plpgsql as $$
declare keyed bigint[];
begin
  -- Whoever finishes the end of a job locks it before the job.
  perform 1 from weft.task t where t.id = (select j.end_id from weft.job j where j.org_id = org and j.id = job) for no key update;
  update weft.job j set state = case when j.started_at is null then 'pending' else 'running' end::weft.job_state
  where j.org_id = org and j.id = job and j.state = 'paused';
  if not found then
    return false;
  end if;
  perform 1 from weft.task t where t.job_id = job and t.state = 'pending' and t.reason = 'job_paused' order by t.id for update;
  with freed as (
    update weft.task t set reason = null,
      expires_at = case when t.attempt = 0 and t.concurrency_key is null then weft.now() + t.dispatch_timeout end,
      queue_id = case when t.queue_id = 2 or t.queue_id < 0 then weft.control_queue(job) else t.queue_id end,
      state = case when t.concurrency_key is null then 'ready' else 'pending' end::weft.task_state
    where t.job_id = job and t.state = 'pending' and t.reason = 'job_paused'
    returning t.id, t.concurrency_key
  )
  select array_agg(f.id order by f.id) filter (where f.concurrency_key is not null) into keyed from freed f;
  if keyed is not null then
    perform weft.take_slots(keyed);
  end if;
  -- Also of what was never parked: whoever looked for work passed over it while whoever paused the job had it locked.
  -- A filter, not a condition, by which all that is ready would be read.
  perform weft.hint(coalesce(array_agg(distinct t.queue_id) filter (where t.state = 'ready'), '{}')) from weft.task t where t.job_id = job;
  return true;
end $$;

-- name: end_late_jobs
-- Jobs that have run out of time → cancelling, to fail; returns how many.
create function weft.end_late_jobs(room int) returns int language plpgsql as $$
declare late weft.job; count int := 0;
begin
  for late in
    select * from weft.job j where j.timeout_at < (select weft.now()) and j.state in ('pending', 'running', 'paused')
    order by j.timeout_at limit room for update skip locked
  loop
    update weft.job j set state = 'cancelling', verdict = 'failed', reason = 'timeout', timeout_at = null where j.id = late.id;
    perform weft.put_control(late.org_id, late.id, late.rank::smallint, '@sweep', '{}');
    count := count + 1;
  end loop;
  return count;
end $$;

-- name: publish_writes
-- What tasks that end here have written beside their outputs; nothing, before there are datasets.
create function weft.publish_writes(ended bigint[]) returns void language sql as '';

-- name: publish_live
-- What tasks of live jobs that end here have staged; nothing, before there are live jobs.
create function weft.publish_live(ended bigint[]) returns void language sql as '';

-- name: offer_events
-- Tells sources that listen of events that were accepted; nobody, before there are any.
create function weft.offer_events(events bigint[]) returns void language sql as '';

-- name: drop_finish_and_claim
drop function weft.finish_and_claim;

-- name: finish_and_claim
-- The hot path in one round trip: completes with the fence (worker, attempt), moves to task_done, releases what waited,
-- then claims up to `wanted` tasks above the given marks, one ordered probe per queue. `ids` must be sorted.
-- Does bounded work on success only. Rows with `lost` tell outcomes that did not land. With `patience` it does not wait
-- for long for a task or key that a handler has locked, because it completes its task in a transaction of its own: that
-- would hold up all others.
-- The plans are pinned: the same text gave a third of the speed when the session had first seen empty tables.
create function weft.finish_and_claim(
  me bigint, ids bigint[], attempts int[], outputs json[],
  queues bigint[], rooms int[], ranks smallint[], orders bigint[], marks bigint[],
  wanted int, from_head boolean, patience text
) returns table (
  lost boolean, id bigint, attempt int, queue_id bigint, rank smallint, order_id bigint, handler text, params json,
  max_attempts smallint, failures smallint, crashes smallint,
  timeout interval, heartbeat_timeout interval, retry json, job_id bigint, node text, given json[]
) language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set enable_material = off set jit = off as $$
#variable_conflict use_column
declare
  results json[]; ended bigint[]; counted bigint[]; taken int[]; ends bigint[]; begun bigint[]; mine bigint[] := '{}'; freed_queues bigint[]; freed_keys text[]; admitted bigint[];
  at timestamptz := weft.now(); got bigint[] := '{}'; more bigint[]; room int; shares int[];
begin
  if patience is not null then
    perform set_config('lock_timeout', patience, true);
  end if;
  if cardinality(ids) = 0 then
    -- A claim alone is not flushed before its handler starts: should the server crash in that moment, the task is ready
    -- again and its attempt is refused, as after any lost lease. An outcome is always flushed, and the claim with it.
    perform set_config('synchronous_commit', 'off', true);
  else
    -- No join: with statistics of an empty table it was planned the wrong way round and cost the square of the batch.
    -- `ids` are sorted, so width_bucket finds a task's place among them; local arrays are read in constant time.
    -- `coalesce`: from `worker_id = me`, and from `worker_id + 0 = me`, follows that it is not null, and the index of what
    -- is held would do, read whole. With nothing held by the statistics that looks cheaper than the primary key.
    results := outputs;
    with moved as (
      delete from weft.task t
      where t.id = any (ids) and coalesce(t.worker_id, 0) = me and t.state = 'running'
        and t.attempt = attempts[width_bucket(t.id, ids)]
      returning t.*, results[width_bucket(t.id, ids)] as output
    ), kept as (
      insert into weft.task_done (
        id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts, failures, crashes,
        generation, handler, params, output, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry,
        concurrency_key, actor, node, parent_id, item, counts_for, needs, allow_failure)
      select id, org_id, queue_id, order_id, created_at, at, 'completed', attempt, rank, max_attempts, failures, crashes,
        generation, handler, params, output, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry,
        concurrency_key, actor, node, parent_id, item, counts_for, needs, allow_failure
      from moved
    )
    -- What ends for another counts there as well. Of a conditional its output names the branch that is taken.
    select array_agg(id), array_agg(queue_id) filter (where concurrency_key is not null),
           array_agg(concurrency_key) filter (where concurrency_key is not null),
           array_agg(counts_for) filter (where counts_for is not null),
           array_agg(case when handler = '@conditional' then (output ->> 'branch')::int end),
           array_agg(job_id) filter (where handler = '@end')
    into ended, freed_queues, freed_keys, counted, taken, ends from moved;

    perform weft.publish_writes(ended);
    perform weft.publish_live(ended);
    perform weft.release_next(ended || counted, taken, case when wanted > 0 then queues else '{}' end);
    if ends is not null then
      perform weft.end_jobs(ends);
    end if;
    if freed_keys is not null then
      admitted := weft.admit_waiting(freed_queues, freed_keys, 1);
    end if;

    if coalesce(cardinality(ended), 0) < cardinality(ids) then
      -- A repeated finish by the same worker and attempt has landed before.
      return query
        select true, r.id, r.attempt, null::bigint, null::smallint, null::bigint, null::text, null::json, null::smallint,
               null::smallint, null::smallint, null::interval, null::interval, null::json, null::bigint, null::text, null::json[]
        from unnest(ids, attempts) as r (id, attempt)
        where r.id <> all (coalesce(ended, '{}')) and not exists (
          select 1 from weft.task_done d where d.id = r.id and d.worker_id = me and d.attempt = r.attempt
                                           and d.state = 'completed');
    end if;
  end if;

  if wanted > 0 then
    -- A worker that was given up for lost gets nothing: the lock makes that exact against whoever marks it. It comes
    -- only here, where nothing more has to be waited for: it would hold up the worker's own heartbeat.
    perform 1 from weft.worker w where w.id = me and w.state in ('active', 'idle') for share;
    wanted := case when found then wanted else 0 end;
    -- No room in a queue that is paused or gone. A room of -1 is a worker that knows of no limit: it gets nothing from a
    -- queue that has one, until it leased slots.
    select array_agg(case when q.id is null or q.paused_at is not null or u.room < 0 and q.max_running is not null then 0
                          when u.room < 0 then wanted else u.room end order by u.place)
    into rooms
    from unnest(queues, rooms) with ordinality as u (queue_id, room, place) left join weft.queue q on q.id = u.queue_id;
  end if;
  if cardinality(admitted) > 0 then
    if wanted > 0 and cardinality(queues) = 1 and queues[1] = all (freed_queues) then
      -- Straight to running, when it is their turn.
      got := weft.first_in_line(admitted, queues[1], least(wanted, rooms[1]),
        case when from_head then -32768 else ranks[1] end, case when from_head then 0 else orders[1] end,
        case when from_head then 0 else marks[1] end);
      rooms[1] := rooms[1] - cardinality(got);
    end if;
    if cardinality(got) < cardinality(admitted) then
      update weft.task t set state = 'ready', reason = null where t.id = any (admitted) and t.id <> all (got);
    end if;
  end if;
  if wanted > 0 then
    shares := case when cardinality(queues) = 1 then rooms
                   else weft.share_out(queues, rooms, ranks, orders, marks, wanted) end;
    for i in 1 .. cardinality(queues) loop
      room := least(shares[i], wanted - cardinality(got));
      continue when room <= 0;
      select array_agg(c.id) into more from (
        select t.id from weft.task t
        where t.state = 'ready' and t.queue_id = queues[i]
          and (t.rank, t.order_id, t.id) > (ranks[i], orders[i], marks[i])
        order by t.rank, t.order_id, t.id limit room
        for update skip locked
      ) c;
      got := got || coalesce(more, '{}');
      mine := case when queues[i] < 0 then mine || more else mine end;
      rooms[i] := rooms[i] - coalesce(cardinality(more), 0);
    end loop;
    -- Came up short above the marks: look once below them, for what is more urgent or was committed late.
    for i in 1 .. case when from_head then cardinality(queues) else 0 end loop
      room := least(rooms[i], wanted - cardinality(got));
      continue when room <= 0 or marks[i] = 0;
      select array_agg(c.id) into more from (
        select t.id from weft.task t
        where t.state = 'ready' and t.queue_id = queues[i]
          and (t.rank, t.order_id, t.id) <= (ranks[i], orders[i], marks[i])
        order by t.rank, t.order_id, t.id limit room
        for update skip locked
      ) c;
      got := got || coalesce(more, '{}');
      mine := case when queues[i] < 0 then mine || more else mine end;
    end loop;
    if cardinality(got) > 0 then
      select array_agg(distinct t.job_id) into begun from weft.task t where t.id = any (got) and t.job_id is not null;
      if exists (select 1 from weft.job j where j.id = any (begun)
                   and (j.state in ('pending', 'paused') or j.owner_id is null and -me = any (queues))) then
        got := weft.begin_jobs(got, begun, case when -me = any (queues) then me end);
      end if;
      at := weft.now();
      -- What came by an owner's queue goes back to that of all, should the owner be lost.
      return query
        update weft.task t set state = 'running', attempt = t.attempt + 1, worker_id = me, claimed_at = at, reason = null,
          expires_at = at + t.heartbeat_timeout, queue_id = case when t.queue_id < 0 then 2 else t.queue_id end
        where t.id = any (got)
        returning false, t.id, t.attempt::int, case when t.id = any (mine) then -me else t.queue_id end, t.rank::smallint, t.order_id, t.handler::text, t.params,
          t.max_attempts, t.failures::smallint, t.crashes, t.timeout::interval, t.heartbeat_timeout::interval, t.retry,
          t.job_id, t.node, case when t.needs is not null then weft.outputs_of(t.needs) end;
    end if;
  end if;
end $$;

-- name: note_failed
-- Tells the engine of tasks that ended without success; those whose failure is allowed let the others go on.
create function weft.note_failed(ids bigint[]) returns void language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare allowed bigint[]; ends bigint[]; cancelled bigint[];
begin
  select array_agg(d.id order by d.id) filter (where d.allow_failure)
           || array_agg(d.counts_for) filter (where d.allow_failure and d.counts_for is not null),
         array_agg(d.job_id) filter (where d.handler = '@end'),
         array_agg(d.id) filter (where d.state = 'cancelled')
  into allowed, ends, cancelled
  from unnest(ids) as u (id) cross join lateral (
    select d.id, d.job_id, d.allow_failure, d.counts_for, d.handler, d.state from weft.task_done d where d.id = u.id and d.job_id is not null
  ) d;
  if cancelled is not null then
    delete from weft.awaited a where a.task_id = any (cancelled);
    perform weft.cancel_children(cancelled);
  end if;
  if allowed is not null then
    perform weft.release_next(allowed, null, '{}');
  end if;
  if ends is not null then
    update weft.job j set failed_id = j.end_id, verdict = coalesce(j.verdict, 'failed'), reason = 'task_failed' where j.id = any (ends);
    perform weft.end_jobs(ends);
  end if;
  -- A step of the engine itself is begun anew: nobody else would do what it was to do.
  perform weft.put_control(d.org_id, d.job_id, d.rank, case when d.is_step then d.handler else '@fail' end,
    case when d.handler = '@skip' then json_build_object('ids', d.params -> 'ids', 'why', d.params -> 'why', 'again', true)
         when d.is_step then d.params else json_build_object('id', d.id::text) end)
  from unnest(ids) as u (id) cross join lateral (
    select d.id, d.org_id, d.job_id, d.rank, d.handler, d.handler in ('@fail', '@skip', '@sweep') as is_step,
      coalesce(d.params, (select p.params from weft.task_params p where p.id = d.id)) as params
    from weft.task_done d
    where d.id = u.id and not d.allow_failure and d.handler <> '@end'
      and exists (select 1 from weft.job j where j.id = d.job_id)
  ) d;
end $$;

-- name: forget_result
-- The end of a job that failed or was cancelled evaluates nothing.
create function weft.forget_result(job weft.job) returns void language sql volatile as $$
  update weft.task t set params = '{}', needs = null where t.id = job.end_id
$$;

-- name: fail_job
-- Carries out, by the step of an orchestrator and its attempt, what a job does about a task that failed; returns whether
-- there is more to sweep away, and null when the step is no longer theirs. The step notes that the failure was counted:
-- whoever takes over does not count it again. Tasks are locked before the end of the job, and that before the job itself,
-- as by whoever finishes them.
create function weft.fail_job(me bigint, step bigint, in_attempt int, failed bigint) returns boolean language plpgsql as $$
declare lost record; job weft.job; is_swept boolean; is_counted boolean;
begin
  select t.params ->> 'counted' is not null into is_counted from weft.task t
  where t.id = step and coalesce(t.worker_id, 0) = me and t.attempt = in_attempt and t.state = 'running' for update;
  if not found then
    return null;
  end if;
  select d.id, d.job_id, d.counts_for into lost from weft.task_done d where d.id = failed;
  select * into job from weft.job j where j.id = lost.job_id;
  if job.id is null then
    return false;
  end if;
  is_swept := not job.finishes_independent or job.state = 'cancelling';
  if not is_swept and not is_counted then
    update weft.task t set params = json_build_object('id', failed::text, 'counted', true) where t.id = step;
    perform weft.skip_later(
      weft.skip_tasks(weft.fail_next(array_remove(array[failed, lost.counts_for], null)), 'upstream_failed', 1000, '{}'),
      'upstream_failed');
    perform weft.forget_result(job);
  end if;
  update weft.job j set failed_id = coalesce(j.failed_id, failed), verdict = coalesce(j.verdict, 'failed'),
    reason = coalesce(j.reason, 'task_failed'), state = case when is_swept then 'cancelling' else j.state end
  where j.id = job.id;
  return is_swept;
end $$;

-- name: cancel_children
-- Jobs that tasks were waiting for → cancelling.
create function weft.cancel_children(parents bigint[]) returns void language plpgsql as $$
declare child weft.job;
begin
  for child in
    select * from weft.job j where j.parent_id = any (parents) and j.state in ('pending', 'running', 'paused')
    order by j.id for update
  loop
    update weft.job j set state = 'cancelling', verdict = 'cancelled', reason = 'parent_cancelled' where j.id = child.id;
    perform weft.put_control(child.org_id, child.id, child.rank::smallint, '@sweep', '{}');
  end loop;
end $$;

-- name: sweep_job
-- Of a job that is cancelling: what has not begun → skipped, or cancelled when somebody cancelled the job; what runs →
-- cancelled, and told so. At most `room` tasks; returns whether any are left. When none is, the end of the job is ready.
create function weft.sweep_job(job_id bigint, room int) returns boolean language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
  job weft.job; batch bigint[]; keyed_queues bigint[]; keys text[]; at timestamptz := weft.now();
begin
  -- Not locked: a job that is cancelling never goes on, and whoever finishes a task locks that first.
  select * into job from weft.job j where j.id = sweep_job.job_id;
  if job.id is null or job.state <> 'cancelling' then
    return false;
  end if;
  -- Whoever frees a slot of a key locks that before the task that gets it.
  perform 1 from weft.key_slot s where (s.queue_id, s.key) in (
    select t.queue_id, t.concurrency_key from weft.task t where t.job_id = job.id and t.concurrency_key is not null)
  order by s.queue_id, s.key for update;
  -- Steps of the engine end by themselves, but for those that were parked while the job was paused.
  select array_agg(l.id) into batch from (
    select t.id from weft.task t
    where t.job_id = job.id and t.id <> job.end_id and (t.handler not in ('@fail', '@skip', '@sweep') or t.state = 'pending')
    -- Not to wait, in this order, for who waits for what is locked here: the next sweep finds it.
    order by t.id limit room for update skip locked
  ) l;
  if batch is not null then
    with moved as (
      delete from weft.task t where t.id = any (batch) returning t.*
    ), kept as (
      insert into weft.task_done (
        id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts, failures, crashes,
        generation, handler, params, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry, concurrency_key, reason,
        actor, node, parent_id, item, counts_for, needs, allow_failure)
      select id, org_id, weft.lasting_queue(queue_id), order_id, created_at, at,
        case when worker_id is null and job.verdict = 'failed' then 'skipped' else 'cancelled' end::weft.task_state,
        attempt, rank, max_attempts, failures, crashes, generation, handler, params, worker_id, claimed_at, m.job_id, timeout,
        heartbeat_timeout, retry, concurrency_key,
        case when job.verdict = 'failed' then 'job_failed' else 'job_cancelled' end,
        actor, node, parent_id, item, counts_for, needs, allow_failure
      from moved m
    ), recorded as (
      insert into weft.attempt (task_id, attempt, org_id, job_id, worker_id, outcome, reason, started_at, ended_at)
      select id, attempt, org_id, m.job_id, worker_id, 'cancelled',
        case when job.verdict = 'failed' then 'job_failed' else 'job_cancelled' end, claimed_at, at
      from moved m where worker_id is not null on conflict do nothing
    ), told as (
      select pg_notify('weft_worker_' || worker_id, format('cancel %s %s', id, attempt)) from moved where worker_id is not null
    )
    select array_agg(m.queue_id) filter (where m.concurrency_key is not null and m.state in ('ready', 'running')),
      array_agg(m.concurrency_key) filter (where m.concurrency_key is not null and m.state in ('ready', 'running'))
    into keyed_queues, keys from moved m where (select count(*) from told) >= 0;
    if keys is not null then
      perform weft.free_slots(keyed_queues, keys);
    end if;
    delete from weft.awaited a where a.task_id = any (batch);
    perform weft.cancel_children(batch);
  end if;
  if exists (
    select 1 from weft.task t
    where t.job_id = job.id and t.id <> job.end_id and (t.handler not in ('@fail', '@skip', '@sweep') or t.state = 'pending')
  ) then
    return true;
  end if;
  perform weft.forget_result(job);
  update weft.task t set state = 'ready', reason = null, waiting_on = 0, queue_id = coalesce(-job.owner_id, 2)
  where t.id = job.end_id and t.state = 'pending';
  if found then
    perform weft.hint_one(coalesce(-job.owner_id, 2));
  end if;
  return false;
end $$;

-- name: put_job
-- A job with its tasks and what leads from one to the next; those that nothing leads to are ready. Returns its id; when there
-- is a job of that idempotency key, that one's, and nothing is written.
create function weft.put_job(
  job weft.job, patience interval, key text, ids bigint[], nodes text[], handlers text[], queues bigint[], ranks smallint[], params json[],
  waits int[], needs text[], attempts smallint[], retries json[], timeouts interval[], heartbeats interval[],
  dispatches interval[], keys text[], lenient boolean[], prevs bigint[], nexts bigint[], branches text[], request bytea
) returns bigint language plpgsql as $$
declare keyed bigint[]; known bigint;
begin
  while key is not null loop
    insert into weft.idempotency_key (org_id, handler, key, task_id, job_id, request)
    values (job.org_id, '@job', put_job.key, job.end_id, job.id, put_job.request) on conflict do nothing;
    exit when found;
    -- The lock keeps it from expiring between this look and the answer.
    select k.job_id into known from weft.idempotency_key k
    where k.org_id = job.org_id and k.handler = '@job' and k.key = put_job.key for update;
    if found then
      return known;
    end if;
  end loop;
  job.created_at := weft.now();
  job.timeout_at := job.created_at + patience;
  insert into weft.job select (job).*;
  insert into weft.task (id, org_id, queue_id, order_id, created_at, state, waiting_on, rank, max_attempts, handler, params,
    job_id, timeout, heartbeat_timeout, retry, concurrency_key, reason, actor, node, needs, allow_failure, dispatch_timeout,
    expires_at)
  select u.id, job.org_id, u.queue, job.id, job.created_at,
    case when u.waits = 0 and u.key is null then 'ready' else 'pending' end::weft.task_state, u.waits, u.rank, u.attempts,
    u.handler, case when length(u.params::text) <= 256 then u.params end, job.id, u.timeout, u.heartbeat, u.retry, u.key,
    case when u.waits > 0 then 'dependencies' end, job.actor, u.node, u.needs::bigint[], u.lenient,
    u.dispatch, case when u.waits = 0 and u.key is null then job.created_at + u.dispatch end
  from unnest(ids, nodes, handlers, queues, ranks, params, waits, needs, attempts, retries, timeouts, heartbeats, dispatches,
    keys, lenient)
    as u (id, node, handler, queue, rank, params, waits, needs, attempts, retry, timeout, heartbeat, dispatch, key, lenient);
  insert into weft.task_params (id, org_id, params)
  select u.id, job.org_id, u.params from unnest(ids, params) as u (id, params) where length(u.params::text) > 256;
  insert into weft.edge (prev, next, org_id, branches)
  select u.prev, u.next, job.org_id, u.branches::smallint[] from unnest(prevs, nexts, branches) as u (prev, next, branches);
  if keys <> array_fill(null::text, array[cardinality(keys)]) then
    select array_agg(u.id order by u.id) into keyed from unnest(ids, waits, keys) as u (id, waits, key)
    where u.waits = 0 and u.key is not null;
    if keyed is not null then
      perform weft.take_slots(keyed);
    end if;
  end if;
  return job.id;
end $$;

-- name: add_children
-- Tasks for further items of a fan_out that runs, by its worker and attempt, while its job goes on; each counts for what
-- comes after it. False when that is not so.
create function weft.add_children(
  me bigint, parent bigint, parent_attempt int, ids bigint[], items int[], all_params json[], queue bigint, handler text,
  priority int, attempts smallint, retry json, timeout interval, heartbeat interval, dispatch interval, keys text[],
  most int, lenient boolean
) returns boolean language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare of weft.task; job_rank smallint;
begin
  select * into of from weft.task t where t.id = parent and coalesce(t.worker_id, 0) = me and t.attempt = parent_attempt
    and t.state = 'running' for no key update;
  if of.id is null then
    return false;
  end if;
  perform 1 from weft.task t where t.id in (select e.next from weft.edge e where e.prev = parent) order by t.id for no key update;
  select j.rank into job_rank from weft.job j where j.id = of.job_id and j.state in ('pending', 'running', 'paused') for share;
  if not found then
    return false;
  end if;
  update weft.task t set waiting_on = t.waiting_on + cardinality(ids)
  where t.id in (select e.next from weft.edge e where e.prev = parent);
  insert into weft.task (id, org_id, queue_id, order_id, state, rank, max_attempts, handler, params, job_id, timeout,
    heartbeat_timeout, retry, concurrency_key, actor, node, parent_id, item, counts_for, allow_failure, dispatch_timeout,
    expires_at)
  select u.id, of.org_id, queue, of.order_id, case when u.key is null then 'ready' else 'pending' end::weft.task_state,
    greatest(-32767, least(32767, job_rank - priority)), attempts, add_children.handler, case when length(u.params::text) <= 256 then u.params end, of.job_id,
    add_children.timeout, heartbeat, add_children.retry, u.key, of.actor, of.node, parent, u.item, parent, lenient,
    dispatch, case when u.key is null then weft.now() + dispatch end
  from unnest(ids, items, all_params, keys) as u (id, item, params, key);
  insert into weft.task_params (id, org_id, params)
  select u.id, of.org_id, u.params from unnest(ids, all_params) as u (id, params) where length(u.params::text) > 256;
  if most is not null then
    insert into weft.key_slot (queue_id, key, org_id, max_running) values (queue, keys[1], of.org_id, most) on conflict do nothing;
  end if;
  if keys[1] is not null then
    perform weft.take_slots(ids);
  end if;
  perform weft.hint_one(queue);
  return true;
end $$;

-- name: first_job_partitions
select weft.ensure_partitions();

-- name: view_jobs
create or replace view weft.jobs as
  select j.id, j.org_id, j.workflow_id, j.state::text as state, j.reason, -j.rank as priority, j.inputs, null::json as result,
    null::json as error, j.created_at, j.started_at, null::timestamptz as ended_at, j.failed_id, j.owner_id, j.parent_id,
    j.base_kind, j.base_ref, j.snapshot_id, encode(j.version_hash, 'hex') as version_hash, j.labels, j.actor, j.end_id,
    j.rerun_of, j.patch, j.tag_positions, j.callback_url
  from weft.job j
  union all
  select d.id, d.org_id, d.workflow_id, d.state::text, d.reason, -d.rank, d.inputs, d.result,
    d.error, d.created_at, d.started_at, d.ended_at, d.failed_id, d.owner_id, d.parent_id,
    d.base_kind, d.base_ref, d.snapshot_id, encode(d.version_hash, 'hex'), d.labels, d.actor, d.end_id,
    d.rerun_of, d.patch, d.tag_positions, d.callback_url
  from weft.job_done d;

-- name: show_jobs
-- Jobs, live or ended. A function, whose plan is kept: planned for every call, it took ten times as long as its execution.
create function weft.show_jobs(org bigint, jobs bigint[]) returns setof weft.jobs language plpgsql stable
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  -- One by one: of an array it is not known in which partitions its ids are.
  return query select j.* from unnest(jobs) as u (id) cross join lateral (
    select j.* from weft.jobs j where j.org_id = org and j.id = u.id) j;
end $$;

-- name: jobs_are_read_only
do $$
declare verb text;
begin
  foreach verb in array array['insert', 'update', 'delete'] loop
    execute format('create rule refuse_%s as on %s to weft.jobs do instead select weft.refuse_write(''jobs'')', verb, verb);
  end loop;
end $$;

-- name: comment_jobs
comment on view weft.jobs is 'Every job, live or ended, with its state and, when it has ended, its result or error.';
