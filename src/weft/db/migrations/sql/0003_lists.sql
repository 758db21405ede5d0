-- name: job_label
-- By which labels a job is found that has ended, and how it did; gone with its day.
create table weft.job_label (
  job_id bigint not null,
  org_id bigint not null,
  name text not null,
  value text not null,
  ending weft.job_state not null,
  primary key (org_id, name, value, ending, job_id)
) partition by range (job_id);

-- name: job_label_partitions
select weft.ensure_partitions();

-- name: job_org
-- Those that have not ended are looked through in order: they are few beside the others, and what an index has of them is
-- written again whenever something of that changes.
create index job_org on weft.job (org_id, id);

-- name: job_done_state
-- Each list of those that have is read in the order of one of these, and no further than its page. The state stands in all:
-- what is asked of a workflow or of somebody is mostly what failed, and that may be little among much.
drop index weft.job_done_unsuccessful;
drop index weft.job_done_workflow;
create index job_done_state on weft.job_done (org_id, state, id);
create index job_done_workflow on weft.job_done (org_id, workflow_id, state, id);
create index job_done_actor on weft.job_done (org_id, actor, state, id);

-- name: task_done_dead
-- Dead letters of an org. What stands in the condition of an index is no comparison that a wall would keep from it.
create index task_done_dead on weft.task_done (org_id, id) where state in ('failed', 'dead');

-- name: awaited_approval
-- What waits for a person, of an org in order.
create index awaited_approval on weft.awaited (org_id, task_id) where kind = 'approval';

-- name: found_job
-- What of a job says whether it passes.
create type weft.found_job as (id bigint, workflow_id text, state weft.job_state, actor text, labels json);

-- name: job_search
-- What a list of jobs asks for, the ways by which those are looked for in turn, with the value and the label of each, and how
-- many are looked at first.
create type weft.job_search as (
  org bigint, ways text[], worths text[], names text[], states weft.job_state[], workflow text, who text, wanted jsonb, step int
);

-- name: walked
-- What a walk has found, and from where the next goes on: null when nothing is left.
create type weft.walked as (ids bigint[], rest bigint);

-- name: scan_newest_jobs
-- At most `n` jobs between two ids, both left out, by one of the ways alone: the newest of them, in order. Rows are
-- compared as a whole and put in order by all that the index has, so that no other index fits: which one is read is never
-- left to what statistics say, and a rare value costs no more than a frequent one. What is found is little to sort. A part of
-- list_jobs, under its settings.
create function weft.scan_newest_jobs(asked weft.job_search, turn int, low bigint, high bigint, n int)
returns setof weft.found_job language plpgsql stable set enable_sort = off as $$
declare org bigint := asked.org; worth text := asked.worths[turn]; label text := asked.names[turn];
begin
  case asked.ways[turn]
  when 'live' then
    return query select j.id, j.workflow_id, j.state, j.actor, j.labels from weft.job j
      where (j.org_id, j.id) < (org, high) and (j.org_id, j.id) > (org, low) order by j.org_id desc, j.id desc limit n;
  when 'state' then
    return query select f.* from unnest(asked.states) as s (state) cross join lateral (
      select d.id, d.workflow_id, d.state, d.actor, d.labels from weft.job_done d
      where d.org_id = org and (d.state, d.id) < (s.state, high) and (d.state, d.id) > (s.state, low) and d.id < high and d.id > low
      order by d.state desc, d.id desc limit n) f order by f.id desc limit n;
  when 'workflow' then
    return query select f.* from unnest(asked.states) as s (state) cross join lateral (
      select d.id, d.workflow_id, d.state, d.actor, d.labels from weft.job_done d
      where d.org_id = org and (d.workflow_id, d.state, d.id) < (worth, s.state, high)
        and (d.workflow_id, d.state, d.id) > (worth, s.state, low) and d.id < high and d.id > low
      order by d.workflow_id desc, d.state desc, d.id desc limit n) f order by f.id desc limit n;
  when 'actor' then
    return query select f.* from unnest(asked.states) as s (state) cross join lateral (
      select d.id, d.workflow_id, d.state, d.actor, d.labels from weft.job_done d
      where d.org_id = org and (d.actor, d.state, d.id) < (worth, s.state, high)
        and (d.actor, d.state, d.id) > (worth, s.state, low) and d.id < high and d.id > low
      order by d.actor desc, d.state desc, d.id desc limit n) f order by f.id desc limit n;
  when 'label' then
    return query select f.job_id, d.workflow_id, d.state, d.actor, d.labels from (
      select f.job_id from unnest(asked.states) as s (state) cross join lateral (
        select l.job_id from weft.job_label l
        where l.org_id = org and l.name = label and l.value = worth and l.ending = s.state
          and l.job_id < high and l.job_id > low
        order by l.job_id desc limit n) f order by f.job_id desc limit n
    ) f left join lateral (select d.* from weft.job_done d where d.id = f.job_id) d on true order by f.job_id desc;
  when 'rerun_of' then
    -- They are few: found first, then put in order.
    return query with f as materialized (
      select j.id, j.workflow_id, j.state, j.actor, j.labels from weft.job j where j.rerun_of = worth::bigint and j.org_id = org
      union all
      select d.id, d.workflow_id, d.state, d.actor, d.labels from weft.job_done d where d.rerun_of = worth::bigint and d.org_id = org)
    select f.* from f where f.id < high and f.id > low order by f.id desc limit n;
  end case;
end $$;

-- name: scan_oldest_jobs
-- The same from the other end.
do $$
begin
  execute replace(replace(pg_get_functiondef('weft.scan_newest_jobs'::regproc), 'newest', 'oldest'), ' desc', '');
end $$;

-- name: look_at_jobs
-- At most `n` jobs by one of the ways, and whether each passes all that is asked.
create function weft.look_at_jobs(asked weft.job_search, turn int, low bigint, high bigint, is_newest boolean, n int)
returns table (id bigint, passes boolean) language sql stable as $$
  select k.id, k.state = any (asked.states) and (asked.workflow is null or k.workflow_id = asked.workflow)
    and (asked.who is null or k.actor = asked.who) and (asked.wanted is null or k.labels::jsonb @> asked.wanted)
  from (
    select s.* from weft.scan_newest_jobs(asked, turn, low, high, n) s where is_newest
    union all
    select s.* from weft.scan_oldest_jobs(asked, turn, low, high, n) s where not is_newest
  ) k
$$;

-- name: find_jobs
-- Up to `n` jobs that pass all that is asked, or a few more, and where the next are to be looked for: earlier than at the n-th
-- when `room` rows were looked at. Several ways are gone in turn, each from where the one before has come to: who has few goes
-- far with each step, so that it costs what the shortest of them costs, whichever that is.
create function weft.find_jobs(asked weft.job_search, low bigint, high bigint, is_newest boolean, n int, room int)
returns weft.walked language plpgsql stable as $$
declare step int := asked.step; turn int := 0; ids bigint[] := '{}'; rest bigint; passed bigint[]; seen int;
begin
  loop
    select array_agg(k.id) filter (where k.passes), count(*), case when is_newest then min(k.id) else max(k.id) end
    into passed, seen, rest
    from weft.look_at_jobs(asked, 1 + turn, low, high, is_newest, step) k;
    ids := ids || passed;
    room := room - seen;
    if seen < step then
      return (ids, null::bigint);
    end if;
    if cardinality(ids) >= n or room <= 0 then
      return (ids, rest);
    end if;
    if is_newest then
      high := rest;
    else
      low := rest;
    end if;
    turn := (turn + 1) % cardinality(asked.ways);
    if turn = 0 then
      step := least(4 * step, greatest(room, 400));
    end if;
  end loop;
end $$;

-- name: page_of_walks
-- At most `n` of what was found of those that live and of those that have ended, in order. What one walk has found beyond
-- where the other has come to is found again.
create function weft.page_of_walks(live weft.walked, done weft.walked, is_newest boolean, n int)
returns weft.walked language plpgsql immutable as $$
declare ids bigint[]; rest bigint := case when is_newest then greatest(live.rest, done.rest) else least(live.rest, done.rest) end;
begin
  ids := array(
    select u.id from unnest(live.ids || done.ids) as u (id) where case when is_newest then u.id >= rest else u.id <= rest end is not false
    order by case when is_newest then -u.id else u.id end limit n + 1);
  return case when cardinality(ids) > n then (ids[1:n], ids[n]) else (ids, rest) end;
end $$;

-- name: list_jobs
-- At most `n` jobs of an org that pass all filters, the newest or the oldest between two ids, both left out, in order; with
-- each, and alone when there is none, where the next page begins, null after the last. There may be fewer than `n` before
-- that: no page looks at more than `room` jobs. With the rights of the schema's owner: what passes a wall is found by an
-- index only if nothing else could tell of what is behind it, and nothing does that compares states. A session that is held
-- to an org gets no other here.
create function weft.list_jobs(
  org bigint, states weft.job_state[], workflow text, who text, wanted json, original bigint, low bigint, high bigint,
  is_newest boolean, n int, room int
) returns table (
  rest bigint, id bigint, workflow_id text, state text, reason text, priority smallint, created_at timestamptz, started_at timestamptz,
  ended_at timestamptz, failed_id bigint, owner_id bigint, base_ref text, actor text
) language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  ways text[]; names text[]; worths text[]; endings weft.job_state[]; live weft.walked; done weft.walked; page weft.walked;
begin
  if org is distinct from coalesce(nullif(current_setting('weft.org', true), '')::bigint, org) then
    return;
  end if;
  states := coalesce(states, enum_range(null::weft.job_state));
  endings := array(select s from unnest(states) s where s in ('completed', 'failed', 'cancelled'));
  if cardinality(endings) < cardinality(states) and original is null then
    live := weft.find_jobs((org, array['live'], null, null, states, workflow, who, wanted::jsonb, greatest(n, 400)), low, high, is_newest,
      n, 12 * room);
  end if;
  if cardinality(endings) > 0 or original is not null then
    select array_agg(f.way), array_agg(f.name), array_agg(f.worth) into ways, names, worths from (
      select 'rerun_of', null, original::text where original is not null
      union all select 'workflow', null, workflow where workflow is not null and original is null
      union all select 'actor', null, who where who is not null and original is null
      union all select 'label', l.key, l.value from json_each_text(wanted) l where original is null
      -- The others have the state in their index.
      union all select 'state', null, null where coalesce(workflow, who, wanted::text, original::text) is null
    ) f (way, name, worth);
    done := weft.find_jobs((org, ways, worths, names, case when original is null then endings else states end, workflow, who,
      wanted::jsonb, case when cardinality(ways) > 1 then greatest(n, 400) else n end), low, high, is_newest, n, room);
  end if;
  page := weft.page_of_walks(live, done, is_newest, n);
  return query select page.rest, f.* from (select) as one left join lateral (
    select j.* from unnest(page.ids) as u (id) cross join lateral (
      select j.id, j.workflow_id, j.state::text, j.reason, -j.rank as priority, j.created_at, j.started_at, null::timestamptz as ended_at,
        j.failed_id, j.owner_id, j.base_ref, j.actor
      from weft.job j where j.id = u.id
      union all
      select d.id, d.workflow_id, d.state::text, d.reason, -d.rank, d.created_at, d.started_at, d.ended_at, d.failed_id, d.owner_id,
        d.base_ref, d.actor
      from weft.job_done d where d.id = u.id
    ) j
  ) f on true order by case when is_newest then -f.id else f.id end;
end $$;

-- name: lists_are_granted
revoke execute on function weft.list_jobs from public;
