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

-- name: ended_after
-- Whether any task of a partition ended after a moment. Rows are appended as tasks end, so the last pages tell it most
-- often; that there is none is sure only after reading all of them, once in the life of a partition.
create function weft.ended_after(child text, moment timestamptz) returns boolean language plpgsql stable as $$
declare found_one boolean; tail bigint := greatest(0, pg_relation_size(format('weft.%I', child)::regclass) / 8192 - 8);
begin
  execute format('select exists (select 1 from weft.%I d where d.ctid >= $1 and d.ended_at > $2)', child)
    into found_one using format('(%s,0)', tail)::tid, moment;
  if not found_one then
    execute format('select exists (select 1 from weft.%I d where d.ended_at > $1)', child) into found_one using moment;
  end if;
  return found_one;
end $$;

-- name: ended_since
-- About how many tasks of each queue ended since a moment, a row for each day on which they were created. Rows are
-- appended as tasks end: pages are looked at from the last on back, in growing steps, until one is older. An index would
-- be exact, and cost each outcome one part in twenty.
create function weft.ended_since(moment timestamptz) returns table (queue_id bigint, ended bigint) language plpgsql stable
  set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_indexscan = off
  set enable_indexonlyscan = off set enable_bitmapscan = off set jit = off as $$
declare day record; page bigint; step bigint; latest timestamptz;
begin
  for day in
    select weft.first_id_at(c.day) as low, weft.first_id_at(c.day + interval '24 hours') as high, c.pages from (
      select to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' as day, pg_relation_size(c.oid) / 8192 as pages
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'weft.task_done'::regclass and not i.inhdetachpending
    ) c where c.pages > 0
  loop
    step := 1;
    loop
      page := greatest(0, day.pages - step);
      select max(d.ended_at) into latest from weft.task_done d
      where d.id >= day.low and d.id < day.high
        and d.ctid >= format('(%s,0)', page)::tid and d.ctid < format('(%s,0)', page + 1)::tid;
      exit when latest < moment or page = 0;
      step := step * 2;
    end loop;
    continue when step = 1 and latest < moment;
    return query
      select d.queue_id, count(*) from weft.task_done d
      where d.id >= day.low and d.id < day.high and d.ctid >= format('(%s,0)', page)::tid and d.ended_at >= moment
      group by d.queue_id;
  end loop;
end $$;

-- name: first_partitions
select weft.ensure_partitions();

-- name: params_of
-- The params of tasks that are kept beside their rows.
create function weft.params_of(ids bigint[]) returns table (id bigint, params json) language plpgsql stable
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
begin
  -- One by one, so that each id is looked for in its own partition only.
  return query select p.id, p.params from unnest(ids) as u (id)
    cross join lateral (select t.id, t.params from weft.task_params t where t.id = u.id) p;
end $$;

-- name: admit_waiting
-- Gives back slots of concurrency keys, `freed` per entry, and chooses the tasks that get them: locked and counted, but
-- still pending; the caller makes them ready or claims them. Keys are locked in order, after tasks.
create function weft.admit_waiting(queues bigint[], keys text[], freed int) returns bigint[] language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set enable_material = off set jit = off as $$
declare
  slot_queues bigint[]; slot_keys text[]; returned int[]; rooms int[]; places int[]; taken int[]; place record;
  admitted bigint[];
begin
  select array_agg(l.queue_id), array_agg(l.key), array_agg(l.n), array_agg(case when l.most is not null then greatest(0, l.most - l.held + l.n) end)
  into slot_queues, slot_keys, returned, rooms
  from (
    select s.queue_id, s.key, s.held, coalesce(s.max_running, q.max_running_per_key) as most, r.n
    from (select u.queue_id, u.key, count(*)::int * freed as n from unnest(queues, keys) as u (queue_id, key)
          where u.key is not null group by 1, 2 order by 1, 2) r
    join weft.key_slot s on s.queue_id = r.queue_id and s.key = r.key
    join weft.queue q on q.id = s.queue_id
    order by s.queue_id, s.key
    for update of s
  ) l;
  if returned is null then
    return '{}';
  end if;
  -- A second statement: it sees what was parked while the first waited. A room of null is a key without a limit.
  select array_agg(w.id), array_agg(u.place) into admitted, places
  from unnest(slot_queues, slot_keys, rooms) with ordinality as u (queue_id, key, room, place)
  cross join lateral (
    select t.id from weft.task t
    where t.state = 'pending' and t.reason = 'concurrency_key'
      and t.queue_id = u.queue_id and t.concurrency_key = u.key
    order by t.rank, t.order_id, t.id limit u.room
    for update
  ) w;
  taken := array_fill(0, array[cardinality(returned)]);
  for place in select p, count(*) as n from unnest(places) as x (p) group by 1 loop
    taken[place.p] := place.n;
  end loop;
  if taken <> returned then
    update weft.key_slot s set held = s.held - u.returned + u.taken
    from unnest(slot_queues, slot_keys, returned, taken) as u (queue_id, key, returned, taken)
    where s.queue_id = u.queue_id and s.key = u.key and u.taken <> u.returned;
  end if;
  return coalesce(admitted, '{}');
end $$;

-- name: free_slots
-- Gives back slots of concurrency keys, `freed` per entry, and makes the tasks ready that waited for them; returns their
-- queues. With 0 it only admits, for when a limit was raised.
create function weft.free_slots(queues bigint[], keys text[], freed int default 1) returns bigint[]
language plpgsql as $$
declare
  admitted bigint[] := weft.admit_waiting(queues, keys, freed); woken bigint[];
begin
  with made as (
    update weft.task t set state = 'ready', reason = null where t.id = any (admitted) returning t.queue_id
  )
  select coalesce(array_agg(distinct queue_id), '{}') into woken from made;
  -- Whoever frees a slot need not have room, or may be about to stop.
  perform weft.hint(woken);
  return woken;
end $$;

-- name: take_slots
-- Asks for slots of concurrency keys for tasks that could be ready: those for which there is one become ready,
-- the others wait with the reason concurrency_key. The tasks are locked by the caller. Returns how many are ready.
create function weft.take_slots(ids bigint[]) returns int language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
  wanted record; room int; ready bigint[] := '{}'; parked bigint[] := '{}';
begin
  insert into weft.key_slot (queue_id, key, org_id)
    select t.queue_id, t.concurrency_key, q.org_id from weft.task t join weft.queue q on q.id = t.queue_id
    where t.id = any (ids) and t.concurrency_key is not null
    group by 1, 2, 3 order by 1, 2
    -- Not `do nothing`: the row must be locked, or it could be pruned as idle before the next statement.
    on conflict (queue_id, key) do update set held = weft.key_slot.held;
  for wanted in
    select s.queue_id, s.key, s.held, coalesce(s.max_running, q.max_running_per_key) as most, r.ids
    from (select t.queue_id, t.concurrency_key as key, array_agg(t.id order by t.rank, t.order_id, t.id) as ids
          from weft.task t where t.id = any (take_slots.ids) group by 1, 2) r
    join weft.key_slot s on s.queue_id = r.queue_id and s.key = r.key
    join weft.queue q on q.id = s.queue_id
    order by s.queue_id, s.key
    for update of s
  loop
    room := case when wanted.most is null then cardinality(wanted.ids)
                 else least(cardinality(wanted.ids), greatest(0, wanted.most - wanted.held)) end;
    ready := ready || wanted.ids[1:room];
    parked := parked || wanted.ids[room + 1:];
    update weft.key_slot set held = held + room where queue_id = wanted.queue_id and key = wanted.key;
  end loop;
  update weft.task set state = 'ready', reason = null where id = any (ready);
  update weft.task set state = 'pending', reason = 'concurrency_key' where id = any (parked);
  return cardinality(ready);
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

-- name: first_in_line
-- Which of the tasks that got a slot of their key are among the first `room` of their queue above a mark: what is ready
-- already may come before them.
create function weft.first_in_line(
  admitted bigint[], queue bigint, room int, low_rank int, low_order bigint, low_mark bigint
) returns bigint[] language plpgsql as $$
declare first bigint[];
begin
  if cardinality(admitted) <= room and not exists (
    select 1 from weft.task t where t.state = 'ready' and t.queue_id = queue
      and (t.rank, t.order_id, t.id) > (low_rank::smallint, low_order, low_mark)) then
    return admitted;
  end if;
  select coalesce(array_agg(b.id), '{}') into first
  from (
    select c.id, c.is_admitted, row_number() over (order by c.rank, c.order_id, c.id) as place from (
      (select t.rank, t.order_id, t.id, true as is_admitted from weft.task t where t.id = any (admitted))
      union all
      (select t.rank, t.order_id, t.id, false from weft.task t where t.state = 'ready' and t.queue_id = queue
         and (t.rank, t.order_id, t.id) > (low_rank::smallint, low_order, low_mark)
       order by t.rank, t.order_id, t.id limit room)
    ) c
  ) b where b.is_admitted and b.place <= room;
  return first;
end $$;

-- name: share_out
-- How many of the best `wanted` tasks come from each of several queues: a look without locks, so that no row is locked
-- that is not taken (whoever skipped it would sleep).
create function weft.share_out(
  queues bigint[], rooms int[], ranks smallint[], orders bigint[], marks bigint[], wanted int
) returns int[] language plpgsql as $$
declare shares int[];
begin
  select array_agg(coalesce(best.n, 0) order by u.place) into shares
  from unnest(queues) with ordinality as u (queue_id, place)
  left join (
    select p.queue_id, count(*)::int as n from (
      select c.queue_id from unnest(queues, rooms, ranks, orders, marks) as u (queue_id, room, rank, order_id, mark)
      cross join lateral (
        select t.queue_id, t.rank, t.order_id, t.id from weft.task t
        where t.state = 'ready' and t.queue_id = u.queue_id
          and (t.rank, t.order_id, t.id) > (u.rank, u.order_id, u.mark)
        order by t.rank, t.order_id, t.id limit least(wanted, u.room)
      ) c
      order by c.rank, c.order_id, c.id limit wanted
    ) p group by 1
  ) best on best.queue_id = u.queue_id;
  return shares;
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

-- name: hint_stager
-- Tells the leader that a task was scheduled, so that it sleeps no longer than until that is due.
create function weft.hint_stager() returns void language sql volatile as $$
  select pg_notify('weft_worker_' || l.holder, 'due') from weft.lease l where l.name = 'maintenance' and l.until > weft.now()
$$;

-- name: hint_one
-- Tells one worker of a queue that there is work; none when all of them are saturated, for they look when they finish.
-- One whose event loop is blocked hears of it only when there is no other.
create function weft.hint_one(queue bigint, except_worker bigint default 0) returns int language plpgsql as $$
declare chosen bigint;
begin
  select w.id into chosen from weft.worker w
  where queue = any (w.queues) and w.state in ('active', 'idle') and w.until > weft.now() and not w.saturated
    and w.id <> except_worker
  order by w.blocked, random() limit 1;
  if chosen is null then
    return 0;
  end if;
  perform pg_notify('weft_worker_' || chosen, 'work');
  return 1;
end $$;

-- name: keep_blob
-- Notes that a task refers to a blob, before anybody can see that it does.
create function weft.keep_blob(task_id bigint, org_id bigint, reference json) returns void language sql volatile as $$
  insert into weft.blob (digest, bytes) values (reference ->> '$blob', (reference ->> 'size')::bigint) on conflict do nothing;
  insert into weft.task_blob (task_id, digest, org_id) values (task_id, reference ->> '$blob', org_id) on conflict do nothing;
$$;

-- name: check_task
-- Refuses what cannot be a task.
create function weft.check_task(
  handler text, params json, queue text, priority int, idempotency_key text, run_at timestamptz, delay interval,
  max_attempts int, timeout interval, heartbeat_timeout interval, concurrency_key text
) returns boolean language plpgsql immutable parallel safe as $$
begin
  if handler is null or handler = '' or length(handler) > 200 then
    raise exception 'handler: must have 1 to 200 characters' using errcode = 'WF002';
  elsif handler ~ '[\x01-\x1f\x7f-\x9f]' then
    raise exception 'handler: has a control character' using errcode = 'WF002';
  elsif params is null or json_typeof(params) <> 'object' then
    raise exception 'params: must be a JSON object whose keys are the arguments of the handler' using errcode = 'WF002';
  elsif position('\u0000' in params::text) > 0 and params::text ~ '(^|[^\\])(\\\\)*\\u0000' then
    raise exception 'params: has a NUL character, which PostgreSQL cannot store' using errcode = 'WF002';
  elsif params::text like '{"$blob":%' and params::text !~ '^\{"\$blob":"[0-9a-f]{64}","size":\d+\}$' then
    raise exception 'params: the key ''$blob'' is reserved for values in the blob storage' using errcode = 'WF002';
  elsif left(params::text, 60) ~ '^\s*\{\s*"\$(cached|gathered|render)"' then
    raise exception 'params: the key ''%'' is reserved for the engine', substring(params::text from '\$[a-z]+') using errcode = 'WF002';
  elsif priority is null or priority not between -32767 and 32767 then
    raise exception 'priority: must lie between -32767 and 32767' using errcode = 'WF002';
  elsif max_attempts not between 1 and 32767 then
    raise exception 'max_attempts: must lie between 1 and 32767' using errcode = 'WF002';
  elsif delay not between interval '0' and interval '20000 days' then
    raise exception 'delay: must lie between 0 and 20,000 days' using errcode = 'WF002';
  elsif run_at not between '2000-01-01Z' and '2090-01-01Z' then
    raise exception 'run_at: lies too far away' using errcode = 'WF002';
  elsif run_at is not null and delay is not null then
    raise exception 'delay: give either run_at or delay, not both' using errcode = 'WF002';
  elsif timeout <= interval '0' or timeout > interval '20000 days' then
    raise exception 'timeout: must be above zero and at most 20,000 days' using errcode = 'WF002';
  elsif heartbeat_timeout <= interval '0' or heartbeat_timeout > interval '20000 days' then
    raise exception 'heartbeat_timeout: must be above zero and at most 20,000 days' using errcode = 'WF002';
  elsif queue like '@%' then
    raise exception 'queue: names that begin with @ are kept for the engine' using errcode = 'WF002';
  elsif idempotency_key = '' or length(idempotency_key) > 500 then
    raise exception 'idempotency_key: must have 1 to 500 characters' using errcode = 'WF002';
  elsif concurrency_key = '' or length(concurrency_key) > 500 then
    raise exception 'concurrency_key: must have 1 to 500 characters' using errcode = 'WF002';
  end if;
  return true;
end $$;

-- name: put_task
-- Enqueues; with `tell` a worker hears of it with the commit. In a flood hints are better sent apart: all commits share
-- the lock of NOTIFY.
create function weft.put_task(
  handler text, params json, queue text, priority int, idempotency_key text, run_at timestamptz, delay interval,
  max_attempts int, retry json, timeout interval, heartbeat_timeout interval, concurrency_key text, org text, actor text,
  tell boolean
) returns table (id bigint, created boolean) language plpgsql as $$
#variable_conflict use_variable
declare
  -- By an assignment, which is evaluated in place: a `perform` starts an executor.
  is_sound constant boolean := weft.check_task(handler, params, queue, priority, idempotency_key, run_at, delay,
    max_attempts, timeout, heartbeat_timeout, concurrency_key);
  inline constant boolean := length(params::text) <= 256;
  lane record; new_id bigint; at timestamptz := weft.now(); due timestamptz; start weft.task_state := 'ready';
begin
  select q.id, q.org_id, q.max_running_per_key into lane from weft.queue q join weft.org o on o.id = q.org_id
  where o.slug = org and q.name = queue;
  if lane.id is null and not exists (select 1 from weft.org o where o.slug = org) then
    raise exception 'org: there is no org "%"', org using errcode = 'WF002';
  elsif lane.id is null then
    raise exception 'queue: there is no queue "%"', queue using errcode = 'WF001',
      hint = 'Make it with `weft queues create`, or start a worker for it.';
  end if;

  new_id := weft.next_id();
  if idempotency_key is not null then
    loop
      -- Whoever inserts the key makes the task; a concurrent caller waits here until that is decided. Ids cannot tell who
      -- did: two callers may draw the same one.
      insert into weft.idempotency_key (org_id, handler, key, task_id)
      values (lane.org_id, handler, idempotency_key, new_id) on conflict do nothing;
      exit when found;
      -- The lock keeps it from expiring between this look and the answer.
      select k.task_id into id from weft.idempotency_key k
      where k.org_id = lane.org_id and k.handler = put_task.handler and k.key = put_task.idempotency_key for update;
      if found then
        created := false;
        return next;
        return;
      end if;
    end loop;
  end if;

  due := coalesce(run_at, at + delay);
  if due > at then
    start := 'scheduled';
  else
    due := null;
    if concurrency_key is not null then
      start := 'pending';
    end if;
  end if;
  loop
    insert into weft.task as t (id, org_id, queue_id, order_id, created_at, state, rank, max_attempts, handler, params,
      due_at, timeout, heartbeat_timeout, retry, concurrency_key, actor)
    values (new_id, lane.org_id, lane.id, new_id, at, start, -priority, max_attempts, handler,
      case when inline then params end, due, timeout, heartbeat_timeout, retry, concurrency_key, actor)
    on conflict do nothing;
    exit when found;
    -- 4096 ids of this millisecond were used up by SQL callers: take one of the next.
    new_id := weft.next_id();
    update weft.idempotency_key k set task_id = new_id
    where k.org_id = lane.org_id and k.handler = put_task.handler and k.key = put_task.idempotency_key;
  end loop;
  if not inline then
    -- Only here, where it is paid for by few: an exception block is a transaction of its own.
    begin
      insert into weft.task_params (id, org_id, params) values (new_id, lane.org_id, params);
    exception when check_violation then
      -- No partition for the row: nobody has worked for longer than they reach ahead.
      perform weft.ensure_partitions();
      insert into weft.task_params (id, org_id, params) values (new_id, lane.org_id, params);
    end;
  end if;
  if params::text like '{"$blob":%' then
    perform weft.keep_blob(new_id, lane.org_id, params);
  end if;
  if start = 'pending' then
    perform weft.take_slots(array[new_id]);
  end if;
  if tell and start = 'scheduled' then
    perform weft.hint_stager();
  elsif tell then
    perform weft.hint_one(lane.id);
  end if;
  id := new_id;
  created := true;
  return next;
end $$;

-- name: hint
-- Tells one worker per queue. A loop, whose plans are kept: a query would be planned in every call.
create function weft.hint(queues bigint[], except_worker bigint default 0) returns int language plpgsql as $$
declare told int := 0; queue bigint; done bigint[] := '{}';
begin
  foreach queue in array queues loop
    continue when queue = any (done);
    told := told + weft.hint_one(queue, except_worker);
    done := done || queue;
  end loop;
  return told;
end $$;

-- name: orphaning_workers
-- Workers that hold tasks although they are gone: stopped, rescued before, or forgotten. One probe per worker.
create function weft.orphaning_workers() returns setof bigint language sql stable as $$
  with recursive holder as (
    (select t.worker_id from weft.task t where t.worker_id is not null order by t.worker_id limit 1)
    union all
    select (select t.worker_id from weft.task t where t.worker_id > h.worker_id order by t.worker_id limit 1)
    from holder h where h.worker_id is not null
  )
  select h.worker_id from holder h where h.worker_id is not null and not exists (
    select 1 from weft.worker w where w.id = h.worker_id and w.state in ('active', 'idle'))
$$;

-- name: heartbeat
-- Extends the lease of a worker that is not lost, and takes or keeps the lead when that is free. No row: the worker is lost.
-- A worker whose event loop is blocked keeps its tasks, but cannot do the upkeep: it gives the lead up at once.
create function weft.heartbeat(
  me bigint, lease interval, busy boolean, add_completed bigint, add_failed bigint, leader_lease interval, is_blocked boolean
) returns table (held int, leader boolean, token bigint, next_due_at timestamptz, has_outbox boolean, lapsed boolean, limited boolean)
language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare at timestamptz := weft.now(); my_queues bigint[];
begin
  update weft.worker w set until = at + lease, heartbeat_at = at, completed = w.completed + add_completed,
    failed = w.failed + add_failed, state = case when busy then 'active'::weft.worker_state else 'idle' end, blocked = is_blocked
  where w.id = me and w.state in ('active', 'idle')
  returning w.queues into my_queues;
  if not found then
    return;
  end if;
  -- Leadership affects load only, so nobody waits for it: a row that is locked stays with whom it was.
  perform 1 from weft.lease l where l.name = 'maintenance' for update skip locked;
  if is_blocked then
    if found then
      update weft.lease l set until = '-infinity' where l.name = 'maintenance' and l.holder = me;
    end if;
  elsif found then
    update weft.lease l set holder = me, until = at + leader_lease,
      token = l.token + case when l.holder = me then 0 else 1 end
    where l.name = 'maintenance' and (l.holder = me or l.until < at);
  elsif not exists (select 1 from weft.lease l where l.name = 'maintenance') then
    insert into weft.lease (name, holder, until) values ('maintenance', me, at + leader_lease) on conflict do nothing;
  end if;
  select l.token into token from weft.lease l where l.name = 'maintenance' and l.holder = me and l.until > at;
  leader := token is not null;
  if add_completed + add_failed = 0 then
    -- Not amid a flood: the count would differ from the worker's anyway, and with the vacuum horizon held back it reads
    -- every task that the worker has ever had.
    select count(*) into held from weft.task t where t.worker_id = me;
  end if;
  limited := exists (select 1 from weft.queue q where q.id = any (my_queues) and q.max_running is not null);
  if leader then
    select min(t.due_at) into next_due_at from weft.task t where t.state = 'scheduled';
    has_outbox := coalesce((select min(o.available_at) from weft.outbox o where o.state = 'pending') <= at, false);
    lapsed := exists (select 1 from weft.worker w where w.until < at and w.state in ('active', 'idle'))
      or exists (select 1 from weft.worker w where w.state = 'lost' and w.rescued_at is null)
      or exists (select 1 from weft.orphaning_workers())
      or coalesce((select min(t.expires_at) from weft.task t where t.expires_at is not null) < at, false)
      or exists (select 1 from weft.outbox o where o.state = 'processing' and not exists (
           select 1 from weft.worker w where w.id = o.worker_id and w.state in ('active', 'idle') and w.until > at));
  end if;
  return next;
end $$;

-- name: view_tasks
create or replace view weft.tasks as
  select t.id, t.org_id, q.name as queue, t.handler, t.state::text as state, t.reason, -t.rank as priority, t.job_id,
    t.attempt, t.failures, t.crashes, t.max_attempts, t.generation,
    coalesce(t.params, (select p.params from weft.task_params p where p.id = t.id)) as params, null::json as output, null::json as error,
    t.concurrency_key, t.waiting_on, t.worker_id, t.actor, t.created_at, t.due_at, t.claimed_at,
    null::timestamptz as ended_at, t.queue_id, t.timeout, t.heartbeat_timeout, t.retry
  from weft.task t join weft.queue q on q.id = t.queue_id
  union all
  select d.id, d.org_id, q.name, d.handler, d.state::text, d.reason, -d.rank, d.job_id,
    d.attempt, d.failures, d.crashes, d.max_attempts, d.generation,
    coalesce(d.params, (select p.params from weft.task_params p where p.id = d.id)), d.output, d.error,
    d.concurrency_key, 0, d.worker_id, d.actor, d.created_at, null, d.claimed_at,
    d.ended_at, d.queue_id, d.timeout, d.heartbeat_timeout, d.retry
  from weft.task_done d join weft.queue q on q.id = d.queue_id;

-- name: view_attempts
create or replace view weft.attempts as
  select a.task_id, a.attempt, a.org_id, a.worker_id, a.outcome, a.reason, a.started_at, a.ended_at, a.error
  from weft.attempt a;

-- name: view_queues
create view weft.queues as
  select q.id, q.org_id, q.name, q.runtime, q.max_running, q.max_running_per_key, q.paused_at is not null as paused,
    q.paused_at, q.created_at
  from weft.queue q;

-- name: view_workers
create or replace view weft.workers as
  select w.id, w.org_id, w.hostname, w.pid, w.version, w.state::text as state, w.concurrency,
    (select array_agg(q.name order by q.name) from weft.queue q where q.id = any (w.queues) and q.id > 0) as queues, w.handlers,
    w.started_at, w.heartbeat_at as last_heartbeat, w.until, w.completed as tasks_completed, w.failed as tasks_failed,
    exists (select 1 from weft.lease l where l.holder = w.id and l.until > weft.now()) as is_leader
  from weft.worker w;

-- name: view_orgs
create view weft.orgs as select o.id, o.slug, o.name, o.created_at from weft.org o;

-- name: complete
-- The general path of a success: inside the caller's transaction, with the fence; false when it did not land.
create function weft.complete(worker_id bigint, task_id bigint, attempt int, output json) returns boolean
language sql volatile as $$
  select weft.keep_blob(t.id, t.org_id, $4) from weft.task t where t.id = $2 and $4::text like '{"$blob":%';
  select not exists (
    select 1 from weft.finish_and_claim($1, array[$2], array[$3], array[$4], '{}', '{}', '{}', '{}', '{}', 0, false, null)
  )
$$;

-- name: check_json
-- Refuses JSON that the client would refuse: a lone surrogate, an integer beyond 64 bits, a number beyond a double, more
-- than 200 levels, more bytes than are kept in a row. Looks closer only at a text that could hide one of them.
create function weft.check_json(value json, field text) returns void language plpgsql immutable parallel safe as $$
declare given constant text := value::text; bare text; number text;
begin
  if octet_length(given) > 262144 then
    raise exception '%: has % bytes, and may have 262144: only the client moves larger values to the blob storage',
      field, octet_length(given) using errcode = 'WF002';
  end if;
  if given ~ '\\u[dD][89a-fA-F]' then
    -- Without escaped backslashes, then without pairs: what is left stands alone.
    bare := regexp_replace(replace(given, '\\', ' '),
      '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g');
    if bare ~ '\\u[dD][89a-fA-F]' then
      raise exception '%: has a lone surrogate, which is not valid Unicode', field using errcode = 'WF002';
    end if;
  end if;
  if given !~ '[0-9]{19}|[0-9][eE][+-]?[0-9]{3}' and length(given) - length(translate(given, '[{', '')) <= 200 then
    return;
  end if;
  bare := regexp_replace(given, '"(?:[^"\\]|\\.)*"', '""', 'g');
  if exists (
    select 1 from (
      select sum(case when b.mark in ('[', '{') then 1 else -1 end) over (order by b.place) as depth
      from unnest(string_to_array(regexp_replace(bare, '[^][{}]', '', 'g'), null)) with ordinality as b (mark, place)
    ) d where d.depth > 200
  ) then
    raise exception '%: is nested deeper than 200 levels', field using errcode = 'WF002';
  end if;
  for number in
    select n[1] from regexp_matches(bare, '-?[0-9][0-9.]*(?:[eE][+-]?[0-9]+)?', 'g') as n
    where n[1] ~ '[0-9]{19}|[eE]'
  loop
    if number ~ '[.eE]' then
      begin
        perform number::float8;
      exception when numeric_value_out_of_range then
        raise exception '%: has the number %, which is beyond a double', field, left(number, 40) using errcode = 'WF002';
      end;
    elsif length(number) > 20 or number::numeric not between -9223372036854775808 and 18446744073709551615 then
      raise exception '%: has the integer %, which is beyond 64 bits; send it as text', field, left(number, 40)
        using errcode = 'WF002';
    end if;
  end loop;
end $$;

-- name: check_retry
-- Refuses a policy that `weft.Retry` would refuse.
create function weft.check_retry(retry json) returns void language plpgsql immutable parallel safe as $$
declare given record;
begin
  -- Nothing that a policy may hold needs an escape, and not every escape can be read.
  if json_typeof(retry) <> 'object' or position('\u' in retry::text) > 0 then
    raise exception 'retry: must be a JSON object with any of backoff, initial_delay, max_delay, jitter' using errcode = 'WF002';
  end if;
  for given in select e.key, json_typeof(e.value) as kind, e.value #>> '{}' as value from json_each(retry) e loop
    if given.key = 'backoff' then
      if given.kind <> 'string' or given.value not in ('exponential', 'linear', 'fixed') then
        raise exception 'retry.backoff: must be one of exponential, linear, fixed' using errcode = 'WF002';
      end if;
    elsif given.key in ('initial_delay', 'max_delay', 'jitter') then
      -- What is longer or has a greater exponent is out of any range, and could be too much for a number here.
      if given.kind <> 'number' or length(given.value) > 40 or given.value ~ '[eE][+-]?[0-9]{3}' or
         given.value::numeric not between 0 and (case when given.key = 'jitter' then 1 else 366 * 86400 end) then
        raise exception 'retry.%: must be a number between 0 and %', given.key,
          case when given.key = 'jitter' then 1 else 366 * 86400 end using errcode = 'WF002';
      end if;
    else
      raise exception 'retry: has the key "%", and may have backoff, initial_delay, max_delay, jitter', left(given.key, 40)
        using errcode = 'WF002';
    end if;
  end loop;
end $$;

-- name: enqueue
-- The public way to enqueue, with the hint inside the caller's transaction: it is delivered with the commit. It runs with
-- the rights of the schema's owner, so that its callers need none on the tables; every name in it and in what it calls
-- has its schema, and no schema of the caller's is looked into.
create function weft.enqueue(
  handler text, params json default '{}', queue text default 'default', priority int default 0,
  idempotency_key text default null, run_at timestamptz default null, delay interval default null,
  max_attempts int default null, retry json default null, timeout interval default null,
  heartbeat_timeout interval default null, concurrency_key text default null,
  org text default 'default', actor text default session_user
) returns table (id bigint, created boolean) language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
#variable_conflict use_variable
declare held constant bigint := nullif(current_setting('weft.org', true), '')::bigint;
begin
  perform weft.check_json(params, 'params');
  if retry is not null then
    perform weft.check_retry(retry);
  end if;
  if length(actor) > 200 then
    raise exception 'actor: must have at most 200 characters' using errcode = 'WF002';
  end if;
  -- A session that is held to an org knows no other.
  if held is not null and not exists (select 1 from weft.org o where o.slug = org and o.id = held) then
    raise exception 'org: there is no org "%"', org using errcode = 'WF002';
  end if;
  -- Without either, the policy is that of the handler, which only the worker knows.
  return query select t.id, t.created from weft.put_task(handler, params, queue, priority, idempotency_key, run_at, delay,
    coalesce(max_attempts, case when retry is not null then 3 end), retry, timeout, heartbeat_timeout, concurrency_key, org, actor, true) t;
end $$;

-- name: add_effect
-- The public way to add an effect to the outbox, inside the caller's transaction, with the rights of the schema's owner.
create function weft.add_effect(
  kind text, payload json, ordering_key text default null, org text default 'default', actor text default session_user
) returns bigint language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
#variable_conflict use_variable
declare org_id bigint; queue text; new_id bigint; given record; wanted text; first text;
begin
  if kind is null or kind not in ('enqueue_task', 'route_event', 'callback', 'openlineage') then
    raise exception 'kind: "%" is not one of enqueue_task, route_event, callback, openlineage', left(kind, 40) using errcode = 'WF002';
  elsif kind = 'callback' then
    raise exception 'kind: a callback is added by the engine, when a job that was submitted with a callback_url has ended'
      using errcode = 'WF002';
  elsif kind = 'openlineage' then
    raise exception 'kind: an openlineage is added by the engine, when a dataset is written and WEFT_OPENLINEAGE_URL is set; use enqueue_task'
      using errcode = 'WF002';
  elsif kind <> 'enqueue_task' then
    raise exception 'kind: a route_event is added by the engine, when an event is sent, as by `weft events send`; use enqueue_task' using errcode = 'WF002';
  elsif ordering_key = '' or length(ordering_key) > 500 then
    raise exception 'ordering_key: must have 1 to 500 characters' using errcode = 'WF002';
  elsif position('\u0000' in payload::text) > 0 and payload::text ~ '(^|[^\\])(\\\\)*\\u0000' then
    raise exception 'payload: has a NUL character, which PostgreSQL cannot store' using errcode = 'WF002';
  end if;
  if length(actor) > 200 then
    raise exception 'actor: must have at most 200 characters' using errcode = 'WF002';
  end if;
  perform weft.check_json(payload, 'payload');
  if payload is null or json_typeof(payload) <> 'object' or json_typeof(payload -> 'handler') is distinct from 'string' then
    raise exception 'payload: must be a JSON object with the handler to enqueue' using errcode = 'WF002';
  end if;
  for given in select e.key, json_typeof(e.value) as kind from json_each(payload) e loop
    wanted := case
      when given.key in ('handler', 'queue', 'idempotency_key', 'concurrency_key') then 'string'
      when given.key in ('priority', 'delay', 'max_attempts', 'timeout', 'heartbeat_timeout') then 'number'
      when given.key = 'params' then 'object'
    end;
    if wanted is null then
      raise exception 'payload: has the key "%", which is not an argument that enqueue_task takes', left(given.key, 40)
        using errcode = 'WF002';
    elsif given.kind not in (wanted, 'null') then
      raise exception 'payload.%: must be a JSON %', given.key, wanted using errcode = 'WF002';
    end if;
  end loop;
  if json_typeof(payload -> 'params') = 'object' then
    -- As it is called, however it is written: whoever carries the effect out writes it anew.
    first := (select k.key from json_object_keys(payload -> 'params') k (key) limit 1);
    if first in ('$blob', '$cached', '$gathered', '$render') then
      raise exception 'payload.params: the key ''%'' is reserved for the engine', first using errcode = 'WF002';
    end if;
  end if;
  queue := coalesce(payload ->> 'queue', 'default');
  begin
    perform weft.check_task(payload ->> 'handler',
      case when json_typeof(payload -> 'params') = 'object' then payload -> 'params' else '{}' end, queue,
      coalesce((payload ->> 'priority')::int, 0), payload ->> 'idempotency_key', null,
      make_interval(secs => (payload ->> 'delay')::float8), (payload ->> 'max_attempts')::int,
      make_interval(secs => (payload ->> 'timeout')::float8), make_interval(secs => (payload ->> 'heartbeat_timeout')::float8),
      payload ->> 'concurrency_key');
  exception
    when sqlstate 'WF002' then
      raise exception 'payload.%', sqlerrm using errcode = 'WF002';
    when data_exception then
      raise exception 'payload: %', sqlerrm using errcode = 'WF002';
  end;
  -- A session that is held to an org knows no other.
  select o.id into org_id from weft.org o where o.slug = org and o.id = coalesce(nullif(current_setting('weft.org', true), '')::bigint, o.id);
  if org_id is null then
    raise exception 'org: there is no org "%"', org using errcode = 'WF002';
  elsif not exists (select 1 from weft.queue q where q.org_id = org_id and q.name = queue) then
    raise exception 'queue: there is no queue "%"', queue using errcode = 'WF001',
      hint = 'Make it with `weft queues create`, or start a worker for it.';
  end if;
  insert into weft.outbox as o (org_id, kind, payload, ordering_key, actor)
  values (org_id, kind, payload, ordering_key, actor) returning o.id into new_id;
  return new_id;
end $$;

-- name: public_functions
-- What runs with the owner's rights is not for everybody who may look.
revoke execute on function weft.enqueue, weft.add_effect, weft.ensure_partitions from public;

-- name: view_audits
create view weft.audits as
  select a.id, a.org_id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail from weft.audit a;

-- name: refuse_change
create function weft.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'what weft.% holds is never changed', tg_table_name using errcode = '55000';
end $$;

-- name: audit_is_kept
create trigger audit_is_kept before update on weft.audit for each statement execute function weft.refuse_change();

-- name: refuse_write
create function weft.refuse_write(name text) returns void language plpgsql as $$
begin
  raise exception 'weft.% is read-only', name using errcode = '55000', hint = 'Use the client or the command line.';
end $$;

-- name: read_only_views
-- Rules, not triggers: they refuse a statement also when it would touch no row.
do $$
declare view text; verb text;
begin
  foreach view in array array['attempts', 'queues', 'workers', 'orgs', 'tasks', 'audits'] loop
    foreach verb in array array['insert', 'update', 'delete'] loop
      execute format('create rule refuse_%s as on %s to weft.%I do instead select weft.refuse_write(%L)', verb, verb, view, view);
    end loop;
  end loop;
end $$;

-- name: comment_enqueue
comment on function weft.enqueue is 'Puts a task into a queue, inside the caller''s transaction. Returns its id, and whether it was created: a known idempotency key creates nothing and returns the existing task''s id.';

-- name: comment_now
comment on function weft.now is 'The clock that every decision about time asks.';

-- name: comment_tasks
comment on view weft.tasks is 'Every task, live or ended, with its state and, when it has ended, its output or error.';

-- name: comment_attempts
comment on view weft.attempts is 'Every attempt that did not complete, with its error.';

-- name: comment_queues
comment on view weft.queues is 'Every queue, with its limits and whether it is paused.';

-- name: comment_workers
comment on view weft.workers is 'Every worker process that the registry knows, with its lease.';

-- name: comment_orgs
comment on view weft.orgs is 'Every org.';

-- name: comment_add_effect
comment on function weft.add_effect is 'Adds an effect to the outbox, inside the caller''s transaction. Returns its id.';

-- name: comment_audits
comment on view weft.audits is 'What operators did: a row for each cancel, replay, purge, create, pause, resume and limit.';
