-- name: task_done_unsuccessful
-- What did not complete, of an org in the order of each state.
drop index weft.task_done_unsuccessful;
create index task_done_unsuccessful on weft.task_done (org_id, state, id) where state <> 'completed';

-- name: task_done_control
-- The engine's own steps lie in a queue that all orgs have in common; other tasks of an org are found by its queues. What a
-- worker completes is in neither of the two.
create index task_done_control on weft.task_done (org_id, id) where queue_id = 2 or queue_id < 0;

-- name: found_task
-- What of a task says whether it passes.
create type weft.found_task as (id bigint, org_id bigint, queue_id bigint, state weft.task_state, handler text);

-- name: task_search
-- What a list of tasks asks for, the ways by which those are looked for in turn, the queues that one of them goes through, and
-- how many are looked at first.
create type weft.task_search as (
  org bigint, ways text[], queues bigint[], with_control boolean, states weft.task_state[], queue bigint, what text, step int
);

-- name: scan_newest_tasks
-- At most `n` tasks between two ids, both left out, by one way of looking alone: the newest of them, in order. Rows are
-- compared as a whole and put in order by all that the index has, so that no other index fits. Of those that live all are
-- looked through, whosoever they are, as nothing that costs their workers a write leads to them; what is held by workers is
-- little. A part of list_tasks, under its settings.
create function weft.scan_newest_tasks(asked weft.task_search, turn int, low bigint, high bigint, n int)
returns setof weft.found_task language plpgsql stable set enable_sort = off as $$
declare org bigint := asked.org;
begin
  case asked.ways[turn]
  when 'live' then
    return query select t.id, t.org_id, t.queue_id, t.state, t.handler::text from weft.task t
      where t.id < high and t.id > low order by t.id desc limit n;
  when 'held' then
    -- They are few: found first, then put in order.
    return query with f as materialized (
      select t.id, t.org_id, t.queue_id, t.state, t.handler::text from weft.task t where t.worker_id is not null)
    select f.* from f where f.org_id = org and f.id < high and f.id > low order by f.id desc limit n;
  when 'ended' then
    return query select d.id, d.org_id, d.queue_id, d.state, d.handler from weft.task_done d
      where d.id < high and d.id > low order by d.id desc limit n;
  when 'queues' then
    return query select f.* from (
      select f.* from unnest(asked.queues) as q (id) cross join lateral (
        select d.id, d.org_id, d.queue_id, d.state, d.handler from weft.task_done d
        where (d.queue_id, d.id) < (q.id, high) and (d.queue_id, d.id) > (q.id, low) and d.id < high and d.id > low
        order by d.queue_id desc, d.id desc limit n) f
      union all
      select f.* from (
        select d.id, d.org_id, d.queue_id, d.state, d.handler from weft.task_done d
        where (d.queue_id = 2 or d.queue_id < 0) and asked.with_control
          and (d.org_id, d.id) < (org, high) and (d.org_id, d.id) > (org, low) and d.id < high and d.id > low
        order by d.org_id desc, d.id desc limit n) f
    ) f order by f.id desc limit n;
  when 'states' then
    return query select f.* from unnest(asked.states) as s (state) cross join lateral (
      select d.id, d.org_id, d.queue_id, d.state, d.handler from weft.task_done d
      where d.state <> 'completed' and d.org_id = org
        and (d.state, d.id) < (s.state, high) and (d.state, d.id) > (s.state, low) and d.id < high and d.id > low
      order by d.state desc, d.id desc limit n) f order by f.id desc limit n;
  end case;
end $$;

-- name: scan_oldest_tasks
-- The same from the other end.
do $$
begin
  execute replace(replace(pg_get_functiondef('weft.scan_newest_tasks'::regproc), 'newest', 'oldest'), ' desc', '');
end $$;

-- name: look_at_tasks
-- At most `n` tasks by one of the ways, and whether each passes all that is asked.
create function weft.look_at_tasks(asked weft.task_search, turn int, low bigint, high bigint, is_newest boolean, n int)
returns table (id bigint, passes boolean) language sql stable as $$
  select k.id, k.org_id = asked.org and k.state = any (asked.states) and (asked.queue is null or k.queue_id = asked.queue)
    and (asked.what is null or k.handler = asked.what)
  from (
    select s.* from weft.scan_newest_tasks(asked, turn, low, high, n) s where is_newest
    union all
    select s.* from weft.scan_oldest_tasks(asked, turn, low, high, n) s where not is_newest
  ) k
$$;

-- name: find_tasks
-- The same walk as that for jobs.
do $$
begin
  execute replace(pg_get_functiondef('weft.find_jobs'::regproc), 'job', 'task');
end $$;

-- name: list_tasks
-- At most `n` tasks of an org that pass all filters, the newest or the oldest between two ids, both left out, in order; with
-- each, and alone when there is none, where the next page begins, null after the last. There may be fewer than `n` before
-- that: no page looks at more than `room` tasks that have ended, and some more of those that have not. With the rights of the
-- schema's owner, as list_jobs, and for the same reason: a session that is held to an org gets no other here.
create function weft.list_tasks(
  org bigint, states weft.task_state[], queue bigint, what text, low bigint, high bigint, is_newest boolean, n int, room int
) returns table (
  rest bigint, id bigint, state text, reason text, queue_name text, handler text, priority int, attempt int, failures int,
  max_attempts int, worker_id bigint, created_at timestamptz, due_at timestamptz, claimed_at timestamptz, ended_at timestamptz,
  error json
) language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  ways text[]; queues bigint[]; endings weft.task_state[]; live weft.walked; done weft.walked; page weft.walked;
begin
  if org is distinct from coalesce(nullif(current_setting('weft.org', true), '')::bigint, org) then
    return;
  end if;
  states := coalesce(states, enum_range(null::weft.task_state));
  endings := array(select s from unnest(states) s where s in ('completed', 'failed', 'dead', 'cancelled', 'skipped'));
  if cardinality(endings) < cardinality(states) then
    ways := case when states <@ (endings || array['claimed', 'running']::weft.task_state[]) then array['held'] else array['live'] end;
    live := weft.find_tasks((org, ways, null, false, states, queue, what,
      case when what is not null or ways[1] = 'live' then greatest(n, 400) else n end), low, high, is_newest, n, 12 * room);
  end if;
  if cardinality(endings) > 0 then
    -- A queue that an org has is its own. Those of one that has more than a few are no shorter a way than all that has ended.
    queues := case when queue is null then array(select q.id from weft.queue q where q.org_id = org and q.id <> 2 and q.id > 0 limit 101)
      when queue <> 2 then array[queue] else '{}' end;
    ways := case when 'completed' <> all (endings) then array['states'] when queue is null then array['ended'] else array[]::text[] end
      || case when cardinality(queues) <= 100 then array['queues'] else array[]::text[] end;
    done := weft.find_tasks((org, ways, queues, coalesce(queue, 2) = 2, endings, queue, what,
      case when what is not null then greatest(n, 400) else n end), low, high, is_newest, n, room);
  end if;
  page := weft.page_of_walks(live, done, is_newest, n);
  return query select page.rest, f.* from (select) as one left join lateral (
    select t.id, t.state, t.reason, q.name, t.handler, t.priority, t.attempt, t.failures, t.max_attempts, t.worker_id, t.created_at,
      t.due_at, t.claimed_at, t.ended_at, t.error
    from unnest(page.ids) as u (id) cross join lateral (
      select t.id, t.state::text, t.reason, t.handler::text, -t.rank::int as priority, t.attempt::int, t.failures::int, t.max_attempts::int,
        t.worker_id, t.created_at, t.due_at, t.claimed_at, null::timestamptz as ended_at, null::json as error, t.queue_id
      from weft.task t where t.id = u.id
      union all
      select d.id, d.state::text, d.reason, d.handler, -d.rank::int, d.attempt, d.failures::int, d.max_attempts::int, d.worker_id,
        d.created_at, null, d.claimed_at, d.ended_at, d.error, d.queue_id
      from weft.task_done d where d.id = u.id
    ) t join weft.queue q on q.id = t.queue_id
  ) f on true order by case when is_newest then -f.id else f.id end;
end $$;

-- name: outbox_org
-- The effects of an org in the order of each kind and state.
create index outbox_org on weft.outbox (org_id, kind, state, id);

-- name: list_newest_effects
-- At most `n` effects of an org, of one kind or of all that the table takes, between two ids, both left out: the newest of
-- them, in order. With the rights of the schema's owner, as list_jobs.
create function weft.list_newest_effects(org bigint, states weft.outbox_state[], wanted text, low bigint, high bigint, n int)
returns setof weft.outbox language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  if org is distinct from coalesce(nullif(current_setting('weft.org', true), '')::bigint, org) then
    return;
  end if;
  return query select f.* from unnest(coalesce(states, enum_range(null::weft.outbox_state))) as s (state)
    cross join unnest(case when wanted is null then array['enqueue_task', 'route_event', 'callback', 'openlineage'] else array[wanted] end) as k (kind)
    cross join lateral (
      select o.* from weft.outbox o
      where o.org_id = org and (o.kind, o.state, o.id) < (k.kind, s.state, high) and (o.kind, o.state, o.id) > (k.kind, s.state, low)
      order by o.kind desc, o.state desc, o.id desc limit n
    ) f order by f.id desc limit n;
end $$;

-- name: list_oldest_effects
-- The same from the other end.
do $$
begin
  execute replace(replace(pg_get_functiondef('weft.list_newest_effects'::regproc), 'newest', 'oldest'), ' desc', '');
end $$;

-- name: lists_are_granted
revoke execute on function weft.list_tasks, weft.list_newest_effects, weft.list_oldest_effects from public;
