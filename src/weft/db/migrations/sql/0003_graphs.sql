-- name: spawn
-- A further task of a job, made by one that runs, by its worker and attempt, while the job goes on. It counts for what comes
-- after the one that made it, or after that for which that one counts. `call` is known from an earlier attempt: then nothing
-- is made, and what was made is returned, and whether the one that makes it has a concurrency key. No row when the task is no longer the caller's.
create function weft.spawn(
  me bigint, parent bigint, parent_attempt int, call text, handler text, queue text, params json, priority int,
  attempts smallint, retry json, timeout interval, heartbeat interval, key text, lenient boolean
) returns table (id bigint, known_handler text, has_key boolean) language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_variable
declare of weft.task; job_rank smallint; lane bigint; root bigint; new_id bigint; is_short boolean := length(params::text) <= 256;
begin
  select * into of from weft.task t where t.id = parent and coalesce(t.worker_id, 0) = me and t.attempt = parent_attempt
    and t.state = 'running' for no key update;
  if of.id is null then
    return;
  end if;
  root := coalesce(of.counts_for, parent);
  -- Tasks before their job, as by whoever finishes them.
  perform 1 from weft.task t where t.id in (select e.next from weft.edge e where e.prev = root) order by t.id for no key update;
  select j.rank into job_rank from weft.job j where j.id = of.job_id and j.state in ('pending', 'running', 'paused') for share;
  if not found then
    return;
  end if;
  select k.task_id into new_id from weft.idempotency_key k
  where k.org_id = of.org_id and k.handler = '@spawn' and k.key = parent || ' ' || call;
  if found then
    return query select t.id, t.handler::text, of.concurrency_key is not null from weft.task t where t.id = new_id
      union all select d.id, d.handler, of.concurrency_key is not null from weft.task_done d where d.id = new_id;
    return;
  end if;
  select q.id into lane from weft.queue q where q.org_id = of.org_id and q.name = queue;
  if not found then
    raise exception 'queue: there is no queue "%"', queue using errcode = 'WF001';
  end if;
  update weft.task t set waiting_on = t.waiting_on + 1 where t.id in (select e.next from weft.edge e where e.prev = root);
  loop
    new_id := weft.next_id();
    insert into weft.task as t (id, org_id, queue_id, order_id, state, rank, max_attempts, handler, params, job_id, timeout,
      heartbeat_timeout, retry, concurrency_key, actor, node, parent_id, counts_for, allow_failure)
    values (new_id, of.org_id, lane, of.order_id, case when key is null then 'ready' else 'pending' end::weft.task_state,
      greatest(-32767, least(32767, job_rank - priority)), attempts, handler, case when is_short then params end, of.job_id, timeout, heartbeat, retry, key,
      of.actor, of.node, parent, root, lenient)
    on conflict do nothing;
    exit when found;
  end loop;
  insert into weft.idempotency_key (org_id, handler, key, task_id, job_id)
  values (of.org_id, '@spawn', parent || ' ' || call, new_id, of.job_id);
  if not is_short then
    insert into weft.task_params (id, org_id, params) values (new_id, of.org_id, params);
  end if;
  if key is not null then
    perform weft.take_slots(array[new_id]);
  end if;
  perform weft.hint_one(lane);
  return query select new_id, handler, of.concurrency_key is not null;
end $$;

-- name: leading_to
-- Which of some tasks lead to which of others, over any number of tasks that live. The plan is pinned, also by `offset 0`
-- and a subquery, which are no joins: without statistics each step of a long way read the whole table.
create function weft.leading_to(firsts bigint[], lasts bigint[]) returns table (first bigint, last bigint) language plpgsql stable
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set enable_material = off set jit = off as $$
begin
  return query
    with recursive walk (origin, id) as (
      select u.id, u.id from unnest(firsts) as u (id)
      union
      select w.origin, e.next from walk w cross join lateral (
        select e.next from weft.edge e where e.prev = w.id offset 0
      ) e where (select true from weft.task t where t.id = e.next)
    )
    select w.origin, w.id from walk w where w.id = any (lasts) and w.id <> w.origin;
end $$;
