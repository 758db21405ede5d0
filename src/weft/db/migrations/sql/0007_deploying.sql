-- name: live_backfill
-- Partitions of the inputs of a live job that are to be computed anew, a few at once; `next_key` is the last of which there is a unit.
create table weft.live_backfill (
  id bigint primary key default weft.next_id(),
  org_id bigint not null,
  live_job_id bigint not null,
  place int not null,
  -- From and to which key, both of them too; null for no end.
  first_key text collate "C",
  last_key text collate "C",
  next_key text collate "C",
  at_once int not null check (at_once > 0),
  partitions int not null,
  made int not null default 0,
  -- Units of its partitions that are older were there already, or others want them too: it has not ended before them.
  last_unit bigint,
  created_at timestamptz not null default weft.now(),
  ended_at timestamptz,
  cancelled_at timestamptz,
  actor text not null,
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade
);

-- name: live_backfill_open
create index live_backfill_open on weft.live_backfill (id) where ended_at is null;

-- name: live_backfill_job
create index live_backfill_job on weft.live_backfill (org_id, live_job_id, id);

-- name: live_unit_backfill
create index live_unit_backfill on weft.live_unit (backfill_id) where backfill_id is not null;

-- name: move_live_tag
-- Lets the tag of a live DAG say which version is in effect; nobody else moves it. The first version makes it.
create function weft.move_live_tag(org bigint, tag_name text, verb weft.tag_verb, target bigint, by text, said text) returns void
language plpgsql set lock_timeout = '3s' as $$
declare t weft.tag := weft.lock_tag(org, tag_name, null, null, true, true); at timestamptz := weft.now();
begin
  if t.name is null then
    insert into weft.tag (org_id, name, workflow_id, target_id, version, position, is_protected, is_deployed, moved_at, moved_by)
    select org, tag_name, a.workflow_id, target, 1, 1, true, true, at, by from weft.artifact a where a.id = target and a.org_id = org;
    insert into weft.tag_move (org_id, tag, version, verb, to_id, position, moved_at, moved_by, message)
    values (org, tag_name, 1, verb, target, 1, at, by, said);
  elsif not t.is_deployed then
    perform weft.refuse_move('there', t);
  elsif t.target_id <> target then
    perform weft.add_move(t, verb, target, null, by, said, null);
  end if;
end $$;

-- name: datasets_of_dag_version
-- What the jobs of a version of a DAG write and read.
create function weft.datasets_of_dag_version(version bigint) returns setof bigint language sql stable as $$
  select o.dataset_id from weft.dag_version_job m join weft.live_output o on o.live_job_id = m.live_job_id where m.dag_version_id = version
  union select i.dataset_id from weft.dag_version_job m join weft.live_input i on i.live_job_id = m.live_job_id where m.dag_version_id = version
$$;

-- name: hold_datasets
-- Datasets of some names, of a version of a DAG, and all that the DAG has ever written: nobody else changes or deletes them. They are
-- held before anything that belongs to them, in one order, and at once as strongly as it takes to let readers see other versions of
-- them: DAGs that read each other are deployed at the same time.
create function weft.hold_datasets(org bigint, dag text, names text[], version bigint, is_swap boolean) returns void language plpgsql as $$
declare held bigint[];
begin
  held := array(
    select d.id from weft.dataset d where d.org_id = org and d.producer_dag = dag
    union select d.id from weft.dataset d where d.org_id = org and d.name = any (names)
    union select u.id from weft.datasets_of_dag_version(version) u (id));
  if is_swap then
    perform 1 from weft.dataset d where d.id = any (held) order by d.id for update;
  else
    perform 1 from weft.dataset d where d.id = any (held) order by d.id for no key update;
  end if;
end $$;

-- name: settle_dag
-- Lets those jobs of a DAG go on that belong to the version in effect or to the one being built, as these say, and the others
-- drain. A source that listens again is told of the events that were sent meanwhile: none is sent while that is done.
create function weft.settle_dag(dag bigint) returns void language plpgsql as $$
declare wanted bigint[]; each record;
begin
  wanted := array(
    select m.live_job_id from weft.live_dag d join weft.dag_version_job m on m.dag_version_id in (d.version_id, d.building_id) where d.id = dag);
  -- Before anything else, as whoever sends does, and in the same order.
  perform weft.lock_event(e.org_id, e.event) from (
    select distinct s.org_id, s.event from weft.live_source s join weft.live_job j on j.id = s.live_job_id
    where j.dag_id = dag and s.event is not null and (s.is_listening or j.id = any (wanted)) order by s.event) e;
  perform 1 from weft.live_job j where j.dag_id = dag order by j.id for no key update;
  update weft.live_job j set state = 'pending' where j.dag_id = dag and j.id = any (wanted) and j.state in ('draining', 'stopped');
  update weft.live_job j set state = 'draining' where j.dag_id = dag and j.id <> all (wanted) and j.state not in ('draining', 'stopped');
  update weft.live_job j set runtime = s.runtime, queue_id = s.queue_id, rank = s.rank, timeout = s.timeout,
    heartbeat_timeout = s.heartbeat_timeout, max_attempts = s.max_attempts, retry = s.retry, on_failure = s.on_failure,
    max_concurrency = s.max_concurrency, max_backlog = s.max_backlog, idle_after = s.idle_after
  from (
    select distinct on (m.live_job_id) m.live_job_id, m.settings from weft.live_dag d
      join weft.dag_version_job m on m.dag_version_id in (d.version_id, d.building_id)
    where d.id = dag order by m.live_job_id, m.dag_version_id = d.version_id desc
  ) o cross join lateral json_to_record(o.settings) as s (runtime text, queue_id bigint, rank smallint, timeout interval,
    heartbeat_timeout interval, max_attempts smallint, retry jsonb, on_failure text, max_concurrency int, max_backlog int,
    idle_after interval)
  where j.id = o.live_job_id and (j.runtime, j.queue_id, j.rank, j.timeout, j.heartbeat_timeout, j.max_attempts, j.retry, j.on_failure,
      j.max_concurrency, j.max_backlog, j.idle_after) is distinct from (s.runtime, s.queue_id, s.rank, s.timeout, s.heartbeat_timeout,
      s.max_attempts, s.retry, s.on_failure, s.max_concurrency, s.max_backlog, s.idle_after);
  update weft.live_source s set manner = n.manner, kind = coalesce(n.manner ->> 'kind', s.kind), catch_up = n.manner ->> 'catch_up',
    hook = n.manner -> 'hmac', cron = n.cron, every = n.every, timezone = n.timezone,
    anchor = case when n.is_moved then weft.now() else s.anchor end, next_at = case when n.is_moved then 'epoch' else s.next_at end
  from (
    select o.*, (o.cron, o.every, o.timezone) is distinct from (b.cron, b.every, b.timezone) as is_moved from (
      select distinct on (m.live_job_id) m.live_job_id, m.settings -> 'source' as manner, m.settings -> 'source' ->> 'schedule' as cron,
        make_interval(secs => (m.settings -> 'source' ->> 'every')::float8) as every,
        case when m.settings -> 'source' ->> 'kind' is not null then coalesce(m.settings -> 'source' ->> 'timezone', 'UTC') end as timezone
      from weft.live_dag d join weft.dag_version_job m on m.dag_version_id in (d.version_id, d.building_id)
      where d.id = dag order by m.live_job_id, m.dag_version_id = d.version_id desc
    ) o join weft.live_source b on b.live_job_id = o.live_job_id
    where b.manner::jsonb is distinct from o.manner::jsonb
  ) n
  where s.live_job_id = n.live_job_id;
  for each in
    select s.live_job_id, s.is_listening from weft.live_source s join weft.live_job j on j.id = s.live_job_id
    where j.dag_id = dag and s.is_listening <> (j.id = any (wanted)) order by s.live_job_id
  loop
    if not each.is_listening then
      insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said, since)
      select e.org_id, s.live_job_id, coalesce(weft.lane_of(e.payload #>> s.lane), e.id::text), 'event', 'event:' || e.id,
        json_build_object('event', e.name, 'id', e.id::text, 'payload', e.payload, 'at', e.at), e.at
      from weft.live_source s join weft.event e on e.org_id = s.org_id and e.name = s.event and e.at > s.deaf_since
      where s.live_job_id = each.live_job_id and (s.match is null or e.payload @> s.match) order by e.id on conflict do nothing;
    end if;
    update weft.live_source s set is_listening = not each.is_listening, deaf_since = case when each.is_listening then weft.now() end
    where s.live_job_id = each.live_job_id;
  end loop;
  perform weft.hint_live();
end $$;

-- name: swap_dag
-- Lets readers see the datasets of a version of a DAG, all at once: what it does not consist of drains, what it does goes on.
create function weft.swap_dag(dag bigint, to_version bigint, verb weft.tag_verb default 'deploy', by text default null, said text default null)
returns void language plpgsql as $$
declare d weft.live_dag; v weft.dag_version; each record; at timestamptz;
begin
  select * into strict d from weft.live_dag o where o.id = dag for no key update;
  select * into strict v from weft.dag_version o where o.id = to_version and o.dag_id = dag;
  perform 1 from weft.dataset o where o.org_id = d.org_id and o.producer_dag = d.name order by o.id for update;
  at := weft.now();
  -- What no job writes any more stays the DAG's, as none of its outputs.
  update weft.dataset o set producer_output = null where o.org_id = d.org_id and o.producer_dag = d.name;
  for each in
    select p.dataset_id, p.version_id, j.name, o.place, j.document -> 'unique_key' as key
    from weft.dag_version_dataset p join weft.dag_version_job m on m.dag_version_id = p.dag_version_id
      join weft.live_output o on o.live_job_id = m.live_job_id and o.version_id = p.version_id join weft.live_job j on j.id = m.live_job_id
    where p.dag_version_id = to_version order by p.dataset_id
  loop
    perform weft.make_current(each.dataset_id, each.version_id, at);
    update weft.dataset o set producer_dag = d.name, producer_node = each.name, producer_output = each.place,
      unique_key = case json_typeof(each.key) when 'array' then array(select json_array_elements_text(each.key)) end
    where o.id = each.dataset_id;
  end loop;
  update weft.dag_version o set state = 'retired', retired_at = weft.now() where o.id = d.version_id and o.id <> to_version;
  update weft.dag_version o set state = 'abandoned', retired_at = weft.now() where o.id = d.building_id and o.id <> to_version;
  update weft.dag_version o set state = 'live', live_at = weft.now(), retired_at = null where o.id = to_version;
  update weft.live_dag o set version_id = to_version, building_id = null where o.id = dag;
  perform weft.move_live_tag(d.org_id, d.name || '/live', verb, v.artifact_id, coalesce(by, v.actor), coalesce(said, v.message));
  perform weft.settle_dag(dag);
end $$;

-- name: standing_of_live_job
-- What has come to a live job and is not done: how many units, how many of them held, how many writes that are no units yet, since
-- when the oldest of all is there, and whether it still takes up what stood there when it began.
create function weft.standing_of_live_job(
  job bigint, out units bigint, out held bigint, out writes bigint, out since timestamptz, out is_behind boolean
) language plpgsql stable as $$
declare first_write timestamptz;
begin
  select count(*) filter (where u.kind <> 'slice'), count(*) filter (where u.state = 'held'), min(u.since) filter (where u.kind <> 'slice'),
    coalesce(bool_or(u.is_boot), false)
  into units, held, since, is_behind from weft.live_unit u where u.live_job_id = job and u.state <> 'done';
  select coalesce(sum(v.last_write - case when v.id = i.version_id then coalesce(i.routed_write, 0) else 0 end), 0), min(f.written_at),
    is_behind or coalesce(bool_or(i.routed_write is null or v.id is distinct from i.version_id), false)
  into writes, first_write, is_behind
  from weft.live_input i join weft.dataset d on d.id = i.dataset_id
    join weft.dataset_version v on v.id = case when i.is_internal then i.version_id else d.current_id end
    left join lateral (
      select w.written_at from weft.dataset_write w
      where w.version_id = v.id and w.number > case when v.id = i.version_id then coalesce(i.routed_write, 0) else 0 end
      order by w.number limit 1) f on true
  where i.live_job_id = job;
  since := least(since, first_write);
  is_behind := is_behind or exists (
    select 1 from weft.live_source s where s.live_job_id = job and s.kind in ('continuous', 'files') and s.caught_up_at is null);
end $$;

-- name: swap_when_caught_up
-- Brings the version of a DAG that is being built into effect when all of its jobs that are not in effect yet have caught up: nothing
-- of them is held, and nothing is older than so long. False when that is not so, or another is at it.
create function weft.swap_when_caught_up(dag bigint, lag interval) returns boolean language plpgsql as $$
declare d weft.live_dag;
begin
  select * into d from weft.live_dag o where o.id = dag and o.building_id is not null for no key update skip locked;
  if not found or exists (
    select 1 from weft.dag_version_job m cross join lateral weft.standing_of_live_job(m.live_job_id) s
    where m.dag_version_id = d.building_id and (s.is_behind or s.held > 0 or s.since < weft.now() - lag)
      and not exists (select 1 from weft.dag_version_job o where o.dag_version_id = d.version_id and o.live_job_id = m.live_job_id)
  ) then
    return false;
  end if;
  perform weft.swap_dag(dag, d.building_id);
  return true;
end $$;

-- name: unit_of_partition
-- A unit by which a partition of an input is computed anew, as it is by now; null when there is one already that has not begun.
-- That does not go then with the backfill that has made it.
create function weft.unit_of_partition(l weft.live_job, at_place int, key text, backfill bigint) returns bigint language plpgsql as $$
declare made bigint;
begin
  with wanted as materialized (
    select case l.strategy when 'partition' then 'partition' else 'bootstrap' end as kind,
      case l.strategy when 'partition' then 'partition:' || key else 'bootstrap:' || i.dataset_id || ':' || v.number || ':' || key end as dedupe_key,
      json_build_object('dataset', d.name, 'version', v.number, 'write', v.last_write, 'partitions', array[key]) as said
    from weft.live_input i join weft.dataset d on d.id = i.dataset_id join weft.dataset_version v on v.id = i.version_id
    where i.live_job_id = l.id and i.place = at_place
  ), added as (
    insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said, backfill_id)
    select l.org_id, l.id, key, w.kind, w.dedupe_key, w.said, backfill from wanted w on conflict do nothing returning id
  ), shared as (
    update weft.live_unit u set backfill_id = null from wanted w
    where u.live_job_id = l.id and u.dedupe_key = w.dedupe_key and u.state in ('new', 'waiting', 'ready') and not exists (select 1 from added)
  )
  select a.id into made from added a;
  return made;
end $$;

-- name: key_is_within
-- Whether a key is from one to another, both of them too: as numbers where these are whole numbers, else as texts.
create function weft.key_is_within(key text, first_key text, last_key text) returns boolean language sql immutable as $$
  select case when coalesce(first_key, last_key) ~ '^-?[0-9]{1,18}$' and coalesce(last_key, first_key) ~ '^-?[0-9]{1,18}$'
    then case when key ~ '^-?[0-9]{1,18}$' then (first_key is null or key::bigint >= first_key::bigint)
      and (last_key is null or key::bigint <= last_key::bigint) else false end
    else (first_key is null or key >= first_key) and (last_key is null or key <= last_key) end
$$;

-- name: units_of_backfill
-- How many units of a backfill are not done, and how many of them are held: those that it has made, and as long as it has not ended
-- those that were there before it came to their partitions.
create function weft.units_of_backfill(b weft.live_backfill, out units int, out held int) language sql stable as $$
  select count(*), count(*) filter (where u.state = 'held') from weft.live_unit u
  where u.live_job_id = b.live_job_id and u.state <> 'done' and (u.backfill_id = b.id
    or b.ended_at is null and u.id < b.last_unit and u.kind in ('partition', 'bootstrap') and weft.key_is_within(u.lane, b.first_key, b.last_key))
$$;

-- name: advance_backfill
-- Makes units for as many more partitions of a backfill as may be open at once, or ends it; returns how many. One at a time: others
-- pass it over.
create function weft.advance_backfill(backfill bigint) returns int language plpgsql as $$
declare b weft.live_backfill; l weft.live_job; open_units int; key text; count int := 0; version bigint;
begin
  -- The job first: whoever removes it removes its backfills with it.
  select * into l from weft.live_job j where j.id = (select o.live_job_id from weft.live_backfill o where o.id = backfill) for no key update;
  select * into b from weft.live_backfill o where o.id = backfill and o.ended_at is null for no key update skip locked;
  if not found or l.state in ('draining', 'stopped') then
    return 0;
  end if;
  select count(*) into open_units from weft.live_unit u where u.backfill_id = b.id and u.state <> 'done';
  select i.version_id into version from weft.live_input i where i.live_job_id = l.id and i.place = b.place;
  for key in
    select p.partition_key from weft.dataset_partition p
    where p.version_id = version and (b.next_key is null or p.partition_key > b.next_key)
      and weft.key_is_within(p.partition_key, b.first_key, b.last_key)
    order by p.partition_key limit greatest(b.at_once - open_units, 0)
  loop
    perform weft.unit_of_partition(l, b.place, key, b.id);
    b.next_key := key;
    count := count + 1;
  end loop;
  update weft.live_backfill o set next_key = b.next_key, made = o.made + count, last_unit = case when count > 0 then weft.next_id() else o.last_unit end,
    ended_at = case when count = 0 and (weft.units_of_backfill(b)).units = 0 then weft.now() end
  where o.id = b.id;
  if count > 0 then
    perform weft.hint_live();
  end if;
  return count;
end $$;

-- name: collect_dag
-- Removes versions of a DAG that have not been in effect for long, and jobs that have stopped and belong to no version that is left,
-- with all that they remember; what they have written can go then. Returns how many of both.
create function weft.collect_dag(dag bigint, retention interval) returns int language plpgsql as $$
declare d weft.live_dag; gone int; jobs bigint[];
begin
  select * into d from weft.live_dag o where o.id = dag for no key update skip locked;
  if not found then
    return 0;
  end if;
  delete from weft.dag_version v where v.dag_id = dag and v.state in ('retired', 'abandoned') and v.retired_at < weft.now() - retention
    and v.id is distinct from d.version_id and v.id is distinct from d.building_id;
  get diagnostics gone = row_count;
  -- What another job still reads stays until that has gone.
  jobs := array(
    select j.id from weft.live_job j
    where j.dag_id = dag and j.state = 'stopped' and not exists (select 1 from weft.dag_version_job m where m.live_job_id = j.id)
      and not exists (
        select 1 from weft.live_output o join weft.live_input i on i.version_id = o.version_id and i.is_internal
        where o.live_job_id = j.id and i.live_job_id <> j.id)
    order by j.id for update);
  perform 1 from weft.dataset_version v where v.id in (select o.version_id from weft.live_output o where o.live_job_id = any (jobs))
  order by v.id for no key update;
  -- One that was never current counts as retired from the beginning.
  update weft.dataset_version v set retired_at = v.created_at from weft.live_output o
  where o.live_job_id = any (jobs) and v.id = o.version_id and v.retired_at is null
    and not exists (select 1 from weft.dataset s where s.current_id = v.id);
  delete from weft.live_job j where j.id = any (jobs);
  return gone + cardinality(jobs);
end $$;
