-- name: job_label
-- By which labels a job is found, and how it ended, pending while it has not; gone with its day.
create table weft.job_label (
  job_id bigint not null,
  org_id bigint not null,
  name text not null,
  value text not null,
  ending weft.job_state not null default 'pending',
  primary key (org_id, name, value, ending, job_id)
) partition by range (job_id);

-- name: job_label_partitions
select weft.ensure_partitions();

-- name: job_state
-- Each list of jobs is read in the order of one of these, and no further than its page. The state stands in all of them:
-- what is asked of a workflow or of somebody is mostly what failed, and that may be little among much.
create index job_state on weft.job (org_id, state, id);
create index job_workflow on weft.job (org_id, workflow_id, state, id);
create index job_actor on weft.job (org_id, actor, state, id);

-- name: job_done_state
drop index weft.job_done_unsuccessful;
drop index weft.job_done_workflow;
create index job_done_state on weft.job_done (org_id, state, id);
create index job_done_workflow on weft.job_done (org_id, workflow_id, state, id);
create index job_done_actor on weft.job_done (org_id, actor, state, id);

-- name: job_key
-- What jobs are found by.
create view weft.job_key with (security_invoker = true) as
  select j.id, j.org_id, j.workflow_id, j.state, j.actor, j.rerun_of, j.labels from weft.job j
  union all
  select d.id, d.org_id, d.workflow_id, d.state, d.actor, d.rerun_of, d.labels from weft.job_done d;

-- name: scan_jobs
-- At most `n` jobs between two ids, both left out, by one of the filters alone: the newest of them, or the oldest, in order.
-- Rows are compared as a whole and put in order by all that the index has, so that no other index fits: which one is read
-- is never left to what statistics say, and a rare value costs no more than a frequent one. What is found is little to sort.
create function weft.scan_jobs(
  org bigint, filter text, value text, label text, states weft.job_state[], low bigint, high bigint, is_newest boolean, n int
) returns setof weft.job_key language plpgsql stable
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off as $$
declare endings weft.job_state[];
begin
  case filter
  when 'state' then
    if is_newest then
      return query select f.* from unnest(states) as s (state) cross join lateral (
        select k.* from weft.job_key k
        where k.org_id = org and (k.state, k.id) < (s.state, high) and (k.state, k.id) > (s.state, low) and k.id < high and k.id > low
        order by k.state desc, k.id desc limit n) f order by f.id desc limit n;
    else
      return query select f.* from unnest(states) as s (state) cross join lateral (
        select k.* from weft.job_key k
        where k.org_id = org and (k.state, k.id) < (s.state, high) and (k.state, k.id) > (s.state, low) and k.id < high and k.id > low
        order by k.state, k.id limit n) f order by f.id limit n;
    end if;
  when 'workflow' then
    if is_newest then
      return query select f.* from unnest(states) as s (state) cross join lateral (
        select k.* from weft.job_key k
        where k.org_id = org and (k.workflow_id, k.state, k.id) < (value, s.state, high)
          and (k.workflow_id, k.state, k.id) > (value, s.state, low) and k.id < high and k.id > low
        order by k.workflow_id desc, k.state desc, k.id desc limit n) f order by f.id desc limit n;
    else
      return query select f.* from unnest(states) as s (state) cross join lateral (
        select k.* from weft.job_key k
        where k.org_id = org and (k.workflow_id, k.state, k.id) < (value, s.state, high)
          and (k.workflow_id, k.state, k.id) > (value, s.state, low) and k.id < high and k.id > low
        order by k.workflow_id, k.state, k.id limit n) f order by f.id limit n;
    end if;
  when 'actor' then
    if is_newest then
      return query select f.* from unnest(states) as s (state) cross join lateral (
        select k.* from weft.job_key k
        where k.org_id = org and (k.actor, k.state, k.id) < (value, s.state, high)
          and (k.actor, k.state, k.id) > (value, s.state, low) and k.id < high and k.id > low
        order by k.actor desc, k.state desc, k.id desc limit n) f order by f.id desc limit n;
    else
      return query select f.* from unnest(states) as s (state) cross join lateral (
        select k.* from weft.job_key k
        where k.org_id = org and (k.actor, k.state, k.id) < (value, s.state, high)
          and (k.actor, k.state, k.id) > (value, s.state, low) and k.id < high and k.id > low
        order by k.actor, k.state, k.id limit n) f order by f.id limit n;
    end if;
  when 'label' then
    endings := array(
      select distinct case when s in ('completed', 'failed', 'cancelled') then s else 'pending' end from unnest(states) s);
    if is_newest then
      return query select f.job_id, k.org_id, k.workflow_id, k.state, k.actor, k.rerun_of, k.labels from (
        select f.job_id from unnest(endings) as e (ending) cross join lateral (
          select l.job_id from weft.job_label l
          where l.org_id = org and l.name = scan_jobs.label and l.value = scan_jobs.value and l.ending = e.ending
            and l.job_id < high and l.job_id > low
          order by l.job_id desc limit n) f order by f.job_id desc limit n
      ) f left join lateral (select k.* from weft.job_key k where k.id = f.job_id) k on true order by f.job_id desc;
    else
      return query select f.job_id, k.org_id, k.workflow_id, k.state, k.actor, k.rerun_of, k.labels from (
        select f.job_id from unnest(endings) as e (ending) cross join lateral (
          select l.job_id from weft.job_label l
          where l.org_id = org and l.name = scan_jobs.label and l.value = scan_jobs.value and l.ending = e.ending
            and l.job_id < high and l.job_id > low
          order by l.job_id limit n) f order by f.job_id limit n
      ) f left join lateral (select k.* from weft.job_key k where k.id = f.job_id) k on true order by f.job_id;
    end if;
  when 'rerun_of' then
    -- They are few: found first, then put in order.
    return query with f as materialized (select k.* from weft.job_key k where k.rerun_of = value::bigint)
    select f.* from f where f.id < high and f.id > low order by case when is_newest then -f.id else f.id end limit n;
  end case;
end $$;

-- name: list_jobs
-- At most `n` jobs of an org that pass all filters, the newest or the oldest between two ids, both left out, in order.
-- With several filters they are asked in turn, each from where the one before has come to: who has few goes far with each
-- step, so that a page costs what the rarest of them costs, whichever that is.
create function weft.list_jobs(
  org bigint, states weft.job_state[], workflow text, who text, wanted json, original bigint, low bigint, high bigint,
  is_newest boolean, n int
) returns setof weft.jobs language plpgsql stable
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  filters text[]; names text[]; worths text[]; found bigint[] := '{}'; passed bigint[];
  step int := n; turn int := 0; seen int; last bigint;
begin
  states := coalesce(states, enum_range(null::weft.job_state));
  select array_agg(f.filter), array_agg(f.name), array_agg(f.worth) into filters, names, worths from (
    select 'rerun_of', null, original::text where original is not null
    union all select 'workflow', null, workflow where workflow is not null and original is null
    union all select 'actor', null, who where who is not null and original is null
    union all select 'label', l.key, l.value from json_each_text(wanted) l where original is null
    -- The others have the state in their index.
    union all select 'state', null, null where coalesce(workflow, who, wanted::text, original::text) is null
  ) f (filter, name, worth);
  if cardinality(filters) > 1 then
    step := greatest(n, 100);
  end if;
  loop
    select array_agg(k.id) filter (where k.org_id = org and k.state = any (states)
        and (workflow is null or k.workflow_id = workflow) and (who is null or k.actor = who)
        and (wanted is null or k.labels::jsonb @> wanted::jsonb)),
      count(*), case when is_newest then min(k.id) else max(k.id) end
    into passed, seen, last
    from weft.scan_jobs(org, filters[1 + turn], worths[1 + turn], names[1 + turn], states, low, high, is_newest, step) k;
    found := found || passed;
    exit when seen < step or cardinality(found) >= n;
    if is_newest then
      high := last;
    else
      low := last;
    end if;
    turn := (turn + 1) % cardinality(filters);
    if turn = 0 and cardinality(filters) > 1 then
      step := least(2 * step, 16000);
    end if;
  end loop;
  return query select j.* from unnest(found) as f (id) cross join lateral (select j.* from weft.jobs j where j.id = f.id) j
  order by case when is_newest then -f.id else f.id end limit n;
end $$;
