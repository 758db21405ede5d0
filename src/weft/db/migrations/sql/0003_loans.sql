-- name: key_loan
-- The slots of concurrency keys that running tasks have given back while they wait for tasks that they made. Such a task has
-- no key in its row, and so no slot, however it ends; here is the key that it takes again before it goes on. Wanted: it would.
create table weft.key_loan (
  task_id bigint primary key,
  org_id bigint not null,
  queue_id bigint not null references weft.queue on delete cascade,
  key text not null,
  is_wanted boolean not null default false
) with (fillfactor = 50);

-- name: key_loan_wanted
create index key_loan_wanted on weft.key_loan (queue_id, key, task_id);

-- name: drop_admit_waiting
drop function weft.admit_waiting;

-- name: admit_waiting
-- Gives back slots of concurrency keys, `freed` per entry, and chooses the tasks that get them: first those that lent theirs
-- and would go on, which have them with this; then of those that have not begun, locked and counted, but still pending: the
-- caller makes them ready or claims them. Keys are locked in order, after tasks.
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
  taken := array_fill(0, array[cardinality(returned)]);
  if exists (select 1 from weft.key_loan) then
    for place in select g.p, count(*)::int as n from weft.return_loans(slot_queues, slot_keys, rooms) as g (p) group by 1 loop
      taken[place.p] := place.n;
      rooms[place.p] := rooms[place.p] - place.n;
    end loop;
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
  for place in select p, count(*) as n from unnest(places) as x (p) group by 1 loop
    taken[place.p] := taken[place.p] + place.n;
  end loop;
  if taken <> returned then
    update weft.key_slot s set held = s.held - u.returned + u.taken
    from unnest(slot_queues, slot_keys, returned, taken) as u (queue_id, key, returned, taken)
    where s.queue_id = u.queue_id and s.key = u.key and u.taken <> u.returned;
  end if;
  return coalesce(admitted, '{}');
end $$;

-- name: return_loans
-- running, which lent its key and would go on → with its key again, the oldest first, as many as there is room for; their
-- workers are told. One that somebody has locked is passed over, for the keys are locked by the caller: it asks again itself.
-- Returns for each the place of its key.
create function weft.return_loans(queues bigint[], keys text[], rooms int[]) returns setof int language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare given bigint[]; places int[];
begin
  select array_agg(w.id), array_agg(u.place::int) into given, places
  from unnest(queues, keys, rooms) with ordinality as u (queue_id, key, room, place)
  cross join lateral (
    select t.id from weft.key_loan l join weft.task t on t.id = l.task_id
    where l.queue_id = u.queue_id and l.key = u.key and l.is_wanted
      and t.state = 'running' and t.concurrency_key is null
    order by l.task_id limit u.room
    for update of l, t skip locked
  ) w;
  if given is null then
    return;
  end if;
  update weft.task t set concurrency_key = keys[places[array_position(given, t.id)]] where t.id = any (given);
  delete from weft.key_loan l where l.task_id = any (given);
  perform pg_notify('weft_worker_' || t.worker_id, format('key %s %s', t.id, t.attempt)) from weft.task t where t.id = any (given);
  return query select unnest(places);
end $$;

-- name: lend_key
-- running, by its worker and attempt, with a slot of its concurrency key → without, until it takes it again; whoever waits for
-- the key may have it. Not the slot of an item of a fan_out: nothing that it makes needs that. False when there is none.
create function weft.lend_key(me bigint, task bigint, its_attempt int) returns boolean language plpgsql as $$
declare of weft.task;
begin
  select * into of from weft.task t where t.id = task and coalesce(t.worker_id, 0) = me and t.attempt = its_attempt
    and t.state = 'running' and t.concurrency_key is distinct from '@' || t.parent_id for no key update;
  if of.concurrency_key is null then
    return false;
  end if;
  insert into weft.key_loan (task_id, org_id, queue_id, key) values (task, of.org_id, of.queue_id, of.concurrency_key);
  update weft.task t set concurrency_key = null where t.id = task;
  perform weft.free_slots(array[of.queue_id], array[of.concurrency_key]);
  return true;
end $$;

-- name: take_key
-- running, by its worker and attempt, which lent its key → with a slot of it again, when there is one, else it is wanted from
-- now on. Whether it has the slot; null when the task is no longer the caller's.
create function weft.take_key(me bigint, task bigint, its_attempt int) returns boolean language plpgsql as $$
declare of weft.task; loan weft.key_loan; room int;
begin
  select * into of from weft.task t where t.id = task and coalesce(t.worker_id, 0) = me and t.attempt = its_attempt
    and t.state = 'running' for no key update;
  if of.id is null then
    return null;
  end if;
  select * into loan from weft.key_loan l where l.task_id = task;
  if loan.task_id is null then
    -- It was given back already, by whoever had it.
    return true;
  end if;
  -- The row may have been pruned as idle, and must be locked.
  insert into weft.key_slot (queue_id, key, org_id) values (loan.queue_id, loan.key, loan.org_id)
    on conflict (queue_id, key) do update set held = weft.key_slot.held;
  update weft.key_slot s set held = s.held + 1 from weft.queue q
  where s.queue_id = loan.queue_id and s.key = loan.key and q.id = s.queue_id
    and s.held < coalesce(s.max_running, q.max_running_per_key, 2147483647);
  if not found then
    update weft.key_loan l set is_wanted = true where l.task_id = task and not l.is_wanted;
    return false;
  end if;
  update weft.task t set concurrency_key = loan.key where t.id = task;
  delete from weft.key_loan l where l.task_id = task;
  return true;
end $$;

-- name: end_loans
-- No longer running, and locked by the caller → with the keys that they lent; what is ready asks for a slot.
create function weft.end_loans(ids bigint[]) returns void language plpgsql as $$
declare freed bigint[];
begin
  if not exists (select 1 from weft.key_loan l where l.task_id = any (ids)) then
    return;
  end if;
  select array_agg(t.id order by t.id) into freed from weft.task t join weft.key_loan l on l.task_id = t.id
  where t.id = any (ids) and t.state = 'ready';
  update weft.task t set concurrency_key = l.key
  from weft.key_loan l where l.task_id = any (ids) and t.id = l.task_id and t.state <> 'running';
  delete from weft.key_loan l where l.task_id = any (ids);
  if freed is not null then
    perform weft.take_slots(freed);
  end if;
end $$;
