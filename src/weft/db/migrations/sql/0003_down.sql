-- name: drop_use
create or replace view weft.artifact_use as
select m.to_id as artifact_id, m.org_id, 'tag' as used_by, m.tag as user_name from weft.tag_move m where m.to_id is not null
union all select t.target_id, t.org_id, 'tag', t.name from weft.tag t
union all select a.parent_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.parent_id is not null
union all select a.merged_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.merged_id is not null
union all select a.base_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.base_id is not null;

-- name: drop_jobs
drop view weft.jobs;
drop function weft.end_late_waits, weft.send_event, weft.begin_wait, weft.lock_event, weft.cancel_children, weft.answer, weft.wait_for_answer, weft.end_late_jobs, weft.resume_job, weft.begin_jobs, weft.put_job, weft.add_children, weft.sweep_job, weft.fail_job, weft.forget_result, weft.note_failed, weft.end_jobs, weft.outputs_of, weft.output_of, weft.results_of,
  weft.skip_later, weft.fail_next, weft.skip_tasks, weft.release_next, weft.reach_next, weft.put_control, weft.finish_and_claim;
drop table weft.event, weft.awaited, weft.job_done, weft.job;
drop type weft.job_state;

-- name: drop_tasks_of_jobs
delete from weft.task where job_id is not null;
delete from weft.queue where id = 2;
alter table weft.edge drop column branches;
alter table weft.task_done drop column node, drop column parent_id, drop column item, drop column counts_for, drop column needs,
  drop column allow_failure;
alter table weft.task drop column node, drop column parent_id, drop column item, drop column counts_for, drop column reached,
  drop column needs, drop column allow_failure;

-- name: ensure_partitions
-- Makes the daily partitions of task_done, task_params and attempt that are missing from yesterday to `days` ahead, and on
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
    foreach parent in array array['task_done', 'task_params', 'attempt'] loop
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

-- name: release_next
-- Lets go what waited for tasks that completed; what has a concurrency key asks for a slot. A part of finish_and_claim,
-- under its settings, as are the next two. A statement after the one that moved them: it sees an edge that was added
-- while that one waited for its lock. Of `own` queues the caller claims itself; for others somebody is woken.
create function weft.release_next(ended bigint[], own bigint[]) returns void language plpgsql as $$
declare next_ids bigint[]; next_counts int[]; keyed bigint[];
begin
  select array_agg(e.next), array_agg(e.n) into next_ids, next_counts
  from (select next, count(*)::int as n from weft.edge where prev = any (ended) group by 1 order by 1) e;
  if next_ids is null then
    return;
  end if;
  perform 1 from weft.task t where t.id = any (next_ids) order by t.id for no key update;
  update weft.task t set
    waiting_on = t.waiting_on - next_counts[width_bucket(t.id, next_ids)],
    state = case when t.waiting_on = next_counts[width_bucket(t.id, next_ids)] and t.concurrency_key is null and t.state = 'pending'
                 then 'ready'::weft.task_state else t.state end,
    reason = case when t.waiting_on = next_counts[width_bucket(t.id, next_ids)] then null else t.reason end
  where t.id = any (next_ids);
  select array_agg(t.id order by t.id) into keyed from weft.task t
  where t.id = any (next_ids) and t.waiting_on = 0 and t.concurrency_key is not null and t.state = 'pending'
    and t.reason is distinct from 'concurrency_key';
  if keyed is not null then
    perform weft.take_slots(keyed);
  end if;
  perform weft.hint(array(
    select distinct t.queue_id from weft.task t
    where t.id = any (next_ids) and t.state = 'ready' and t.queue_id <> all (own)));
end $$;

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
  timeout interval, heartbeat_timeout interval, retry json, job_id bigint
) language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set enable_material = off set jit = off as $$
#variable_conflict use_column
declare
  results json[]; ended bigint[]; freed_queues bigint[]; freed_keys text[]; admitted bigint[];
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
        concurrency_key, actor)
      select id, org_id, queue_id, order_id, created_at, at, 'completed', attempt, rank, max_attempts, failures, crashes,
        generation, handler, params, output, worker_id, claimed_at, job_id, timeout, heartbeat_timeout, retry,
        concurrency_key, actor
      from moved
    )
    select array_agg(id), array_agg(queue_id) filter (where concurrency_key is not null),
           array_agg(concurrency_key) filter (where concurrency_key is not null)
    into ended, freed_queues, freed_keys from moved;

    perform weft.release_next(ended, case when wanted > 0 then queues else '{}' end);
    if freed_keys is not null then
      admitted := weft.admit_waiting(freed_queues, freed_keys, 1);
    end if;

    if coalesce(cardinality(ended), 0) < cardinality(ids) then
      -- A repeated finish by the same worker and attempt has landed before.
      return query
        select true, r.id, r.attempt, null::bigint, null::smallint, null::bigint, null::text, null::json, null::smallint,
               null::smallint, null::smallint, null::interval, null::interval, null::json, null::bigint
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
    end loop;
    if cardinality(got) > 0 then
      at := weft.now();
      return query
        update weft.task t set state = 'running', attempt = t.attempt + 1, worker_id = me, claimed_at = at, reason = null,
          expires_at = at + t.heartbeat_timeout
        where t.id = any (got)
        returning false, t.id, t.attempt::int, t.queue_id, t.rank::smallint, t.order_id, t.handler::text, t.params,
          t.max_attempts, t.failures::smallint, t.crashes, t.timeout::interval, t.heartbeat_timeout::interval, t.retry,
          t.job_id;
    end if;
  end if;
end $$;
