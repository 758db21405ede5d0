-- name: live_dag
-- A graph of jobs that go on for ever: which of its versions is in effect, and which is being built beside it.
create table weft.live_dag (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  name text not null,
  version_id bigint,
  building_id bigint,
  last_version int not null default 0,
  paused_at timestamptz,
  created_at timestamptz not null default weft.now(),
  actor text not null,
  unique (org_id, name),
  unique (org_id, id)
);

-- name: dag_version
-- One deployed state of a live DAG: the document, the jobs that it consists of, and the versions of datasets that belong to it.
create table weft.dag_version (
  id bigint primary key default weft.next_id(),
  org_id bigint not null,
  dag_id bigint not null,
  number int not null check (number > 0),
  artifact_id bigint not null references weft.artifact,
  state text not null default 'building' check (state in ('building', 'live', 'retired', 'abandoned')),
  created_at timestamptz not null default weft.now(),
  live_at timestamptz,
  retired_at timestamptz,
  actor text not null,
  message text,
  foreign key (org_id, dag_id) references weft.live_dag (org_id, id) on delete cascade,
  unique (dag_id, number),
  unique (org_id, id)
);

-- name: dag_version_artifact
create index dag_version_artifact on weft.dag_version (artifact_id);

-- name: live_dag_versions
alter table weft.live_dag
  add foreign key (org_id, version_id) references weft.dag_version (org_id, id) deferrable initially deferred,
  add foreign key (org_id, building_id) references weft.dag_version (org_id, id) deferrable initially deferred;

-- name: artifact_use_with_dags
-- Who uses which artifact: each room adds its own here, and what is listed is never removed.
create or replace view weft.artifact_use as select v.* from (
  select m.to_id as artifact_id, m.org_id, 'tag' as used_by, m.tag as user_name from weft.tag_move m where m.to_id is not null
  union all select t.target_id, t.org_id, 'tag', t.name from weft.tag t
  union all select a.parent_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.parent_id is not null
  union all select a.merged_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.merged_id is not null
  union all select a.base_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.base_id is not null
  union all select j.snapshot_id, j.org_id, 'job', j.id::text from weft.job j where j.snapshot_id is not null
  union all select d.snapshot_id, d.org_id, 'job', d.id::text from weft.job_done d where d.snapshot_id is not null
  union all select v.artifact_id, v.org_id, 'dag', v.id::text from weft.dag_version v
) v where v.org_id = coalesce((select weft.current_org()), v.org_id);

-- name: live_job
-- A deployed node of a live DAG, known by its name and all that it means: one that a deploy leaves as it is goes on untouched.
create table weft.live_job (
  id bigint primary key default weft.next_id(),
  org_id bigint not null,
  dag_id bigint not null,
  name text not null,
  config_hash text not null,
  -- How often it was asked to begin anew; a part of the hash.
  nonce int not null default 0,
  activation text not null check (activation in ('source', 'reactive')),
  runtime text not null check (runtime in ('worker', 'inline')),
  operator text not null,
  handler weft.handler_name not null,
  queue_id bigint not null,
  -- As it was written, with what was left out; it never changes.
  document json not null,
  strategy text check (strategy in ('update', 'partition')),
  on_failure text not null default 'hold' check (on_failure in ('hold', 'skip')),
  max_concurrency int not null check (max_concurrency > 0),
  max_backlog int not null check (max_backlog > 0),
  -- Null: as its operator says; so does what the policy leaves out.
  max_attempts smallint check (max_attempts > 0),
  retry jsonb,
  timeout weft.span,
  heartbeat_timeout weft.span,
  rank weft.rank_number not null default 0,
  -- Null: it never is.
  idle_after interval,
  state text not null default 'pending' check (state in ('pending', 'running', 'idle', 'draining', 'stopped')),
  paused_at timestamptz,
  last_active_at timestamptz,
  completed bigint not null default 0,
  failed bigint not null default 0,
  last_error text,
  created_at timestamptz not null default weft.now(),
  actor text not null,
  foreign key (org_id, dag_id) references weft.live_dag (org_id, id) on delete cascade,
  unique (dag_id, name, config_hash),
  unique (org_id, id)
) with (fillfactor = 70);

-- name: live_job_active
create index live_job_active on weft.live_job (id) where state <> 'stopped';

-- name: dag_version_job
-- A job of a version, and how it is executed there: what does not change what its datasets have is not a part of its hash.
create table weft.dag_version_job (
  dag_version_id bigint not null,
  live_job_id bigint not null,
  org_id bigint not null,
  settings json not null,
  primary key (dag_version_id, live_job_id),
  foreign key (org_id, dag_version_id) references weft.dag_version (org_id, id) on delete cascade,
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade
);

-- name: dag_version_job_of
create index dag_version_job_of on weft.dag_version_job (live_job_id);

-- name: dag_version_dataset
-- Which versions of which datasets readers see while a version of a DAG is in effect.
create table weft.dag_version_dataset (
  dag_version_id bigint not null,
  dataset_id bigint not null,
  version_id bigint not null,
  org_id bigint not null,
  primary key (dag_version_id, dataset_id),
  foreign key (org_id, dag_version_id) references weft.dag_version (org_id, id) on delete cascade,
  foreign key (org_id, version_id) references weft.dataset_version (org_id, id)
);

-- name: dag_version_dataset_version
create index dag_version_dataset_version on weft.dag_version_dataset (version_id);

-- name: live_input
-- What a live job reads: a version of a dataset, and up to which of its writes all have become units. While `routed_write` is
-- null, what stood at `boot_write` becomes units, partition by partition. An input from outside of the DAG has the version that
-- is current; then `left_ids` are those whose partitions are looked through too: what the current one does not have any more.
create table weft.live_input (
  live_job_id bigint not null,
  place int not null,
  org_id bigint not null,
  dataset_id bigint not null,
  version_id bigint,
  is_internal boolean not null,
  routed_write bigint,
  boot_write bigint,
  boot_after text collate "C",
  left_ids bigint[] not null default '{}',
  primary key (live_job_id, place),
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade,
  foreign key (org_id, dataset_id) references weft.dataset (org_id, id)
) with (fillfactor = 70);

-- name: live_input_dataset
create index live_input_dataset on weft.live_input (dataset_id);

-- name: live_output
create table weft.live_output (
  live_job_id bigint not null,
  place int not null,
  org_id bigint not null,
  dataset_id bigint not null,
  version_id bigint not null,
  primary key (live_job_id, place),
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade,
  foreign key (org_id, version_id) references weft.dataset_version (org_id, id)
);

-- name: live_output_dataset
create index live_output_dataset on weft.live_output (dataset_id);

-- name: live_output_version
create index live_output_version on weft.live_output (version_id);

-- name: live_source
-- What makes a live job begin that reads no dataset.
create table weft.live_source (
  live_job_id bigint primary key,
  org_id bigint not null,
  kind text not null check (kind in ('cron', 'interval', 'event', 'files', 'table', 'continuous')),
  is_listening boolean not null default false,
  -- When it looks or ticks and how it is told something, as it is written: what may change while it goes on.
  manner json,
  -- From when on it has not listened: what came since is made up for when it listens again.
  deaf_since timestamptz,
  cron text,
  every interval,
  timezone text,
  anchor timestamptz,
  catch_up text check (catch_up in ('none', 'latest', 'all')),
  -- When the next tick is; the epoch when its times have changed, and the next is to be found.
  next_at timestamptz,
  missed bigint not null default 0,
  event text,
  match jsonb,
  -- How those sign who send such events without a token.
  hook json,
  -- Of a table: its name as it was written, which of its columns are told, and which table that is while it is followed.
  table_name text,
  columns text[],
  followed oid,
  -- How many units were open and not new at the last turn.
  backlog int not null default 0,
  -- Where in what comes it is said which unit it belongs behind.
  lane text[],
  -- No slice begins before; whether the last has found that nothing more is there.
  rest_until timestamptz,
  caught_up_at timestamptz,
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade
) with (fillfactor = 70);

-- name: live_source_due
create index live_source_due on weft.live_source (next_at) where is_listening and next_at is not null;

-- name: live_source_event
create index live_source_event on weft.live_source (org_id, event) where is_listening and event is not null;

-- name: live_unit
-- One unit of work of a live job. Whoever causes it adds it as `new`, in the same transaction; the rest is the router's. Units
-- of one lane run one after the other, in their order; one without a lane after all before it, and before all after it.
create table weft.live_unit (
  id bigint primary key default weft.next_id(),
  org_id bigint not null,
  live_job_id bigint not null,
  lane text,
  kind text not null check (kind in ('bootstrap', 'update', 'partition', 'event', 'tick', 'slice', 'file', 'row')),
  dedupe_key text not null,
  state text not null default 'new' check (state in ('new', 'waiting', 'ready', 'running', 'done', 'held')),
  said json not null,
  since timestamptz not null default weft.now(),
  run_at timestamptz,
  task_id bigint,
  -- Whether it is of what stood there when the job began: until none of these is left, the job has not caught up.
  is_boot boolean not null default false,
  -- The backfill that has made it, while nobody else wants it.
  backfill_id bigint,
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- name: live_unit_key
-- One of what has not begun.
create unique index live_unit_key on weft.live_unit (live_job_id, dedupe_key) where state in ('new', 'waiting', 'ready');

-- name: live_unit_lane
create index live_unit_lane on weft.live_unit (live_job_id, lane, id);

-- name: live_unit_news
create index live_unit_news on weft.live_unit (live_job_id, id) where state in ('new', 'done');

-- name: live_unit_ready
create index live_unit_ready on weft.live_unit (live_job_id, id) where state = 'ready';

-- name: live_unit_running
create index live_unit_running on weft.live_unit (live_job_id, id) where state = 'running';

-- name: live_unit_held
create index live_unit_held on weft.live_unit (live_job_id, id) where state = 'held';

-- name: live_unit_task
create index live_unit_task on weft.live_unit (task_id) where task_id is not null;

-- name: operator_state
-- What an operator remembers from unit to unit, by a key; `version` counts its changes.
create table weft.operator_state (
  live_job_id bigint not null,
  state_key text not null default 'default' check (octet_length(state_key) between 1 and 800),
  org_id bigint not null,
  version bigint not null default 1,
  state json not null,
  updated_at timestamptz not null default weft.now(),
  primary key (live_job_id, state_key),
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade
) with (fillfactor = 70);

-- name: live_file
-- A file as a source has seen it last, and whether there has been a unit of it.
create table weft.live_file (
  live_job_id bigint not null,
  -- In the order in which folders and buckets are looked through.
  path text collate "C" not null check (length(path) between 1 and 600),
  org_id bigint not null,
  -- What is another when the file is.
  tag text not null,
  is_emitted boolean not null,
  seen_at timestamptz not null default weft.now(),
  primary key (live_job_id, path),
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade
);

-- name: staged_live
-- What an attempt is about to change of its live job: published by the transaction that completes its task.
create table weft.staged_live (
  task_id bigint not null,
  attempt int not null,
  org_id bigint not null,
  live_job_id bigint not null,
  -- Each with the version that was seen, 0 for none.
  states json not null default '[]',
  units json not null default '[]',
  -- What receivers outside are told, each in the order of its key.
  callbacks json not null default '[]',
  -- Each with its tag; without one it is gone.
  files json not null default '[]',
  rest interval,
  is_caught_up boolean,
  primary key (task_id, attempt),
  foreign key (org_id, live_job_id) references weft.live_job (org_id, id) on delete cascade
);

-- name: hint_live
-- Tells one orchestrator that a live job has something to do.
create function weft.hint_live() returns void language plpgsql as $$
declare chosen bigint;
begin
  select w.id into chosen from weft.worker w
  where 2 = any (w.queues) and w.state in ('active', 'idle') and w.until > weft.now() order by w.blocked, random() limit 1;
  if chosen is not null then
    perform pg_notify('weft_worker_' || chosen, 'live');
  end if;
end $$;

-- name: tell_written
-- Tells an orchestrator when live jobs react to a dataset that was written.
create or replace function weft.tell_written(dataset bigint) returns void language plpgsql as $$
begin
  if exists (select 1 from weft.live_input i where i.dataset_id = tell_written.dataset) then
    perform weft.hint_live();
  end if;
end $$;

-- name: publish_live
-- What the tasks of live jobs that end here have staged comes into effect with their outcomes, and their units are done. Void,
-- with everything else that the transaction does, when a state is not any more what was seen: then the task is tried again.
create or replace function weft.publish_live(ended bigint[]) returns void language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare units bigint[]; told weft.staged_live; each record;
begin
  units := array(select u.id from weft.live_unit u where u.task_id = any (ended) and u.state in ('running', 'held') order by u.id for no key update);
  if cardinality(units) = 0 then
    return;
  end if;
  for told in
    select s.* from weft.staged_live s join weft.task_done d on d.id = s.task_id and d.attempt = s.attempt
    where s.task_id = any (ended) order by s.live_job_id, s.task_id
  loop
    for each in select * from json_to_recordset(told.states) as x (key text, seen bigint, state json) order by x.key loop
      if each.seen = 0 then
        insert into weft.operator_state (live_job_id, state_key, org_id, state)
        values (told.live_job_id, each.key, told.org_id, each.state) on conflict do nothing;
      else
        update weft.operator_state o set state = each.state, version = o.version + 1, updated_at = weft.now()
        where o.live_job_id = told.live_job_id and o.state_key = each.key and o.version = each.seen;
      end if;
      if not found then
        raise exception 'state %: another unit has changed it meanwhile', each.key using errcode = 'WF007';
      end if;
    end loop;
    insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said)
    select told.org_id, told.live_job_id, x.lane, x.kind, x.dedupe_key, x.said
    from rows from (json_to_recordset(told.units) as (lane text, kind text, dedupe_key text, said json))
      with ordinality as x (lane, kind, dedupe_key, said, place)
    order by x.place on conflict do nothing;
    -- A version that is built beside the one in effect tells nobody.
    insert into weft.outbox (org_id, kind, payload, ordering_key, actor)
    select told.org_id, 'callback', x.payload, 'live:' || j.id || ':' || x.key, j.actor
    from weft.live_job j join weft.live_dag d on d.id = j.dag_id
      cross join rows from (json_to_recordset(told.callbacks) as (key text, payload json)) with ordinality as x (key, payload, place)
    where j.id = told.live_job_id and (d.version_id is null
      or exists (select 1 from weft.dag_version_job m where m.dag_version_id = d.version_id and m.live_job_id = j.id))
    order by x.place;
    if json_array_length(told.files) > 0 then
      delete from weft.live_file f using json_to_recordset(told.files) as x (path text, tag text)
      where x.tag is null and f.live_job_id = told.live_job_id and f.path = x.path;
      insert into weft.live_file (live_job_id, path, org_id, tag, is_emitted)
      select told.live_job_id, x.path, told.org_id, x.tag, x.is_emitted
      from json_to_recordset(told.files) as x (path text, tag text, is_emitted boolean) where x.tag is not null
      on conflict (live_job_id, path) do update set tag = excluded.tag, is_emitted = excluded.is_emitted, seen_at = excluded.seen_at;
    end if;
    if told.rest is not null or told.is_caught_up is not null then
      update weft.live_source o set rest_until = weft.now() + told.rest,
        caught_up_at = case when told.is_caught_up then coalesce(o.caught_up_at, weft.now()) else o.caught_up_at end
      where o.live_job_id = told.live_job_id;
    end if;
  end loop;
  delete from weft.staged_live s where s.task_id = any (ended);
  update weft.live_unit u set state = 'done' where u.id = any (units);
  perform weft.hint_live();
end $$;

-- name: lane_of
-- A lane by what an event says of it; what is too long for an index is told by its digest.
create function weft.lane_of(said text) returns text language sql immutable parallel safe
return case when octet_length(said) <= 400 then said else 'md5:' || md5(said) end;

-- name: event_sources
-- How many sources of live DAGs have taken an event.
alter table weft.event add column sources int not null default 0;

-- name: sources_of_event
-- Of an event that was accepted by the same statement, too.
create function weft.sources_of_event(event bigint) returns int language sql volatile strict
begin atomic
  select e.sources from weft.event e where e.id = event;
end;

-- name: offer_events
-- Events that were accepted become units of each source that listens for such ones. Void, with all that the transaction does, when
-- one of these has no room for more: whoever sends is told, and comes again. A version that is being built keeps nobody from
-- sending: where it has no room it does not listen any more, and is told when it comes into effect.
create or replace function weft.offer_events(events bigint[]) returns void language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare crowded text; full_id bigint;
begin
  loop
    select d.name || '/' || j.name, j.id into crowded, full_id
    from (
      select distinct s.live_job_id from weft.event e join weft.live_source s on s.org_id = e.org_id and s.event = e.name and s.is_listening
      where e.id = any (events) and (s.match is null or e.payload @> s.match)) m
      join weft.live_source s on s.live_job_id = m.live_job_id join weft.live_job j on j.id = m.live_job_id join weft.live_dag d on d.id = j.dag_id
    where s.backlog + (
      select count(*) from (
        select 1 from weft.live_unit u where u.live_job_id = j.id and u.state = 'new' limit greatest(0, j.max_backlog - s.backlog)) n
      ) >= j.max_backlog
    limit 1;
    exit when crowded is null;
    update weft.live_source s set is_listening = false, deaf_since = (
      select min(e.at) - interval '1 microsecond' from weft.event e where e.id = any (events) and e.name = s.event)
    from weft.live_job j join weft.live_dag d on d.id = j.dag_id
    where s.live_job_id = full_id and j.id = full_id and d.version_id is not null
      and not exists (select 1 from weft.dag_version_job m where m.dag_version_id = d.version_id and m.live_job_id = j.id);
    if not found then
      raise exception '%', crowded using errcode = 'WF008';
    end if;
  end loop;
  with taken as (
    insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said, since)
    select e.org_id, s.live_job_id, coalesce(weft.lane_of(e.payload #>> s.lane), e.id::text), 'event', 'event:' || e.id,
      json_build_object('event', e.name, 'id', e.id::text, 'payload', e.payload, 'at', e.at), e.at
    from weft.event e join weft.live_source s on s.org_id = e.org_id and s.event = e.name and s.is_listening
    where e.id = any (events) and (s.match is null or e.payload @> s.match) order by e.id on conflict do nothing
    returning substr(dedupe_key, 7)::bigint as event_id
  )
  update weft.event e set sources = t.count from (select event_id, count(*)::int as count from taken group by event_id) t where e.id = t.event_id;
  if found then
    perform weft.hint_live();
  end if;
end $$;

-- name: route_input
-- Makes units of what was written into an input of a live job, so many at most; returns how many, or null when that was all.
-- An input that is new to the job begins with what stands there.
create function weft.route_input(l weft.live_job, at_place int, room int) returns int language plpgsql as $$
#variable_conflict use_column
declare i weft.live_input; named text; current bigint; v weft.dataset_version; made int := 0; last bigint; last_key text;
begin
  select * into strict i from weft.live_input n where n.live_job_id = l.id and n.place = at_place;
  select d.name, d.current_id into strict named, current from weft.dataset d where d.id = i.dataset_id;
  -- Told with what becomes of it below, by one update: after a second one of the row its dataset would be locked for the reference,
  -- and whoever swaps locks datasets before jobs.
  if not i.is_internal and current is distinct from i.version_id then
    i.left_ids := case when l.strategy = 'partition' and i.version_id is not null then i.left_ids || i.version_id else '{}' end;
    i.version_id := current;
    i.routed_write := null;
    i.boot_write := null;
    i.boot_after := null;
  end if;
  if i.version_id is null then
    update weft.live_input n set version_id = null, routed_write = null, boot_write = null, boot_after = null, left_ids = i.left_ids
    where n.live_job_id = l.id and n.place = at_place and n.version_id is not null;
    return null;
  end if;
  select * into strict v from weft.dataset_version o where o.id = i.version_id;
  if i.routed_write is null then
    if i.boot_write is null then
      i.boot_write := v.last_write;
    end if;
    with standing as materialized (
      select distinct k.key from unnest(v.id || i.left_ids) as o (id) cross join lateral (
        select p.partition_key as key from weft.dataset_partition p
        where p.version_id = o.id and (i.boot_after is null or p.partition_key > i.boot_after) order by p.partition_key limit room) k
      order by k.key limit room
    ), added as (
      insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said, since, is_boot)
      select l.org_id, l.id, s.key, case l.strategy when 'partition' then 'partition' else 'bootstrap' end,
        case l.strategy when 'partition' then 'partition:' || s.key else 'bootstrap:' || i.dataset_id || ':' || v.number || ':' || s.key end,
        json_build_object('dataset', named, 'version', v.number, 'write', i.boot_write, 'partitions', array[s.key]), weft.now(), true
      from standing s order by s.key
      on conflict (live_job_id, dedupe_key) where state in ('new', 'waiting', 'ready') do update set is_boot = true, said = excluded.said, backfill_id = null
    )
    select count(*), max(s.key) into made, last_key from standing s;
    update weft.live_input n set version_id = i.version_id, boot_write = i.boot_write, boot_after = coalesce(last_key, i.boot_after),
      routed_write = case when made < room then i.boot_write end, left_ids = case when made < room then '{}' else i.left_ids end
    where n.live_job_id = l.id and n.place = at_place;
    return case when made < room then null else made end;
  end if;
  if l.strategy = 'partition' then
    with written as materialized (
      select w.number, w.keys, w.written_at from weft.dataset_write w
      where w.version_id = v.id and w.number > i.routed_write order by w.number limit room
    ), touched as (
      select k.key, max(w.number) as number, min(w.written_at) as since from written w cross join lateral (
        select unnest(w.keys) as key union all
        select p.partition_key from weft.dataset_partition p where w.keys is null and p.version_id = v.id and p.last_write >= w.number) k
      group by k.key
    ), added as (
      insert into weft.live_unit as u (org_id, live_job_id, lane, kind, dedupe_key, said, since)
      select l.org_id, l.id, t.key, 'partition', 'partition:' || t.key,
        json_build_object('dataset', named, 'version', v.number, 'write', t.number, 'partitions', array[t.key]), t.since
      from touched t order by t.number, t.key
      on conflict (live_job_id, dedupe_key) where state in ('new', 'waiting', 'ready') do update set said = excluded.said, backfill_id = null
    )
    select count(*), max(w.number) into made, last from written w;
  else
    with written as materialized (
      select w.number, w.keys, w.written_at from weft.dataset_write w
      where w.version_id = v.id and w.number > i.routed_write order by w.number limit room
    ), added as (
      insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said, since)
      select l.org_id, l.id, case when cardinality(w.keys) = 1 then w.keys[1] end, 'update',
        'cursor:' || i.dataset_id || ':' || v.number || ':' || w.number,
        json_build_object('dataset', named, 'version', v.number, 'write', w.number,
          'partitions', case when cardinality(w.keys) <= 1000 then w.keys end), w.written_at
      from written w order by w.number on conflict do nothing
    )
    select count(*), max(w.number) into made, last from written w;
  end if;
  if last is not null then
    update weft.live_input n set routed_write = last where n.live_job_id = l.id and n.place = at_place;
  end if;
  return case when made < room then null else made end;
end $$;

-- name: turn_live_job
-- One turn of a live job, by whoever gets its lock: takes away what is done, makes units of what was written, and tasks of the
-- units that are first in their lanes, as far as there is room; whoever is thorough looks at the tasks too that it has made. Returns how many tasks have begun, and whether there is more to do.
create function weft.turn_live_job(job bigint, room int, is_thorough boolean, out begun int, out is_more boolean) language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set jit = off as $$
declare
  l weft.live_job; lanes text[]; had_barrier boolean; gone int; lost int; open_units int; running int; news bigint[]; heads bigint[]; others bigint[]; barrier bigint;
  first bigint;  at_place int; is_asked boolean; settled int; standing int; problem text;
begin
  begun := 0;
  is_more := false;
  select * into l from weft.live_job j where j.id = job for no key update skip locked;
  if not found or l.state = 'stopped' then
    return;
  end if;

  lost := 0;
  if is_thorough then
    -- Tasks that have ended without a word: those that failed, were cancelled or given up. One that is sent round again goes on.
    with silent as (
      select u.id, d.state as ended, coalesce((d.error ->> 'type') || ': ' || (d.error ->> 'message'), d.reason, d.state::text, 'its task is gone') as error
      from weft.live_unit u left join weft.task_done d on d.id = u.task_id
      where u.live_job_id = job and u.state = 'running' and not exists (select 1 from weft.task t where t.id = u.task_id)
    ), noted as (
      update weft.live_unit u set state = case when o.ended = 'completed' or l.on_failure = 'skip' then 'done' else 'held' end
      from silent o where u.id = o.id and u.state = 'running' returning u.task_id, o.ended, o.error
    )
    select count(*) filter (where n.ended is distinct from 'completed'), max(n.error) into lost, problem from noted n;
    if lost > 0 then
      update weft.live_job j set failed = j.failed + lost, last_error = left(problem, 2000) where j.id = job;
    end if;
    update weft.live_unit u set state = 'running' from weft.task t
    where u.live_job_id = job and u.state = 'held' and t.id = u.task_id;
  end if;

  -- What is done goes; so does what failed for a partition that has been written anew, unless it is tried again just now.
  with old as (
    delete from weft.live_unit u where u.id = any (array(
      select o.id from weft.live_unit o where o.live_job_id = job and o.state = 'done' order by o.id limit 10 * room))
    returning u.lane, u.task_id
  )
  select array_agg(distinct o.lane) filter (where o.lane is not null), bool_or(o.lane is null), count(*) into lanes, had_barrier, gone from old o;
  is_more := gone = 10 * room;
  if l.strategy = 'partition' then
    with old as (
      delete from weft.live_unit u where u.live_job_id = job and u.state = 'held' and not exists (select 1 from weft.task t where t.id = u.task_id)
        and exists (select 1 from weft.live_unit n where n.live_job_id = job and n.lane = u.lane and n.id > u.id) returning u.lane
    )
    select lanes || array_agg(o.lane) into lanes from old o;
  end if;

  is_asked := l.state <> 'draining' and l.paused_at is null
    and exists (select 1 from weft.live_dag d where d.id = l.dag_id and d.paused_at is null);
  if is_asked then
    select count(*) into open_units from (select 1 from weft.live_unit u where u.live_job_id = job limit l.max_backlog) o;
    for at_place in select n.place from weft.live_input n where n.live_job_id = job order by n.place loop
      exit when open_units >= l.max_backlog;
      settled := weft.route_input(l, at_place, least(room, l.max_backlog - open_units));
      is_more := is_more or settled is not null;
      -- How many there were is not told when that was all; the next input has the room that is left.
      if settled is not null then
        open_units := open_units + settled;
      elsif exists (select 1 from weft.live_input n where n.live_job_id = job and n.place > at_place) then
        select count(*) into open_units from (select 1 from weft.live_unit u where u.live_job_id = job limit l.max_backlog) o;
      end if;
    end loop;
    -- A source that goes on for ever does so in slices, one after the other.
    insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said, run_at)
    select l.org_id, job, '', 'slice', 'slice', '{}', s.rest_until from weft.live_source s
    where s.live_job_id = job and s.kind in ('continuous', 'files') and open_units < l.max_backlog
      and not exists (select 1 from weft.live_unit u where u.live_job_id = job and u.lane = '' and u.kind = 'slice') on conflict do nothing;
  end if;

  -- Which of the new are first in their lanes, and which of those that waited behind what is gone.
  news := array(select u.id from weft.live_unit u where u.live_job_id = job and u.state = 'new' order by u.id limit room);
  is_more := is_more or cardinality(news) = room;
  select min(u.id) into barrier from weft.live_unit u where u.live_job_id = job and u.lane is null and u.state <> 'done';
  if barrier is not null then
    select min(u.id) into first from weft.live_unit u where u.live_job_id = job and u.state <> 'done';
  end if;
  heads := array(
    select w.id from unnest(lanes) as k (lane) cross join lateral (
      select u.id from weft.live_unit u where u.live_job_id = job and u.lane = k.lane and u.state = 'waiting' order by u.id limit 1) w);
  if had_barrier then
    heads := heads || array(
      select distinct on (u.lane) u.id from weft.live_unit u
      where u.live_job_id = job and u.state = 'waiting' and u.lane is not null and (barrier is null or u.id < barrier) order by u.lane, u.id);
  end if;
  select array_agg(c.id) filter (where c.is_first), array_agg(c.id) filter (where not c.is_first) into heads, others from (
    select u.id, case
        when u.lane is null then u.id = first
        else (barrier is null or u.id < barrier) and not exists (
          select 1 from weft.live_unit b where b.live_job_id = job and b.lane = u.lane and b.id <> u.id
            and (b.id < u.id and b.state <> 'done' or b.state in ('ready', 'running', 'held'))) end as is_first
    from weft.live_unit u where u.id = any (news || heads || barrier) and u.state in ('new', 'waiting')) c;
  update weft.live_unit u set state = 'waiting' where u.id = any (others) and u.state = 'new';

  select count(*) into running from weft.live_unit u where u.live_job_id = job and u.state = 'running';
  if is_asked and running < l.max_concurrency then
    with chosen as materialized (
      select u.id, u.lane, u.kind, u.said, weft.next_id() as task_id from (
        select * from (
          (select * from weft.live_unit r where r.live_job_id = job and r.state = 'ready' and (r.run_at is null or r.run_at <= weft.now())
            order by r.id limit least(room, l.max_concurrency - running))
          union all
          (select * from weft.live_unit h where h.id = any (heads) and (h.run_at is null or h.run_at <= weft.now()))) o
        order by o.id limit least(room, l.max_concurrency - running)) u
    ), tasks as (
      insert into weft.task (id, org_id, queue_id, order_id, state, rank, max_attempts, retry, handler, timeout, heartbeat_timeout, actor)
      select c.task_id, l.org_id, l.queue_id, c.task_id, 'ready', l.rank, l.max_attempts, coalesce(l.retry, '{}')::json,
        -- What looks for files is the same for all, and what it finds is the operator's.
        case when c.kind = 'slice' and exists (select 1 from weft.live_source s where s.live_job_id = job and s.kind = 'files')
          then 'live.scan_files' else l.handler end,
        l.timeout, l.heartbeat_timeout, l.actor
      from chosen c
    ), params as (
      insert into weft.task_params (id, org_id, params)
      select c.task_id, l.org_id, json_build_object('live_job', job::text, 'unit',
        json_build_object('id', c.id::text, 'kind', c.kind, 'lane', c.lane, 'said',
          -- A slice is told how its source looks by now.
          case when c.kind = 'slice' then (select coalesce(s.manner, c.said) from weft.live_source s where s.live_job_id = job) else c.said end))
      from chosen c
    ), taken as (
      update weft.live_unit u set state = 'running', task_id = c.task_id from chosen c where u.id = c.id
    )
    select count(*) into begun from chosen;
    if begun > 0 then
      perform weft.hint_one(l.queue_id);
    end if;
    is_more := is_more or begun = room;
  end if;
  update weft.live_unit u set state = 'ready' where u.id = any (heads) and u.state in ('new', 'waiting');

  -- By this it is told whether there is room for more events.
  if exists (select 1 from weft.live_source s where s.live_job_id = job and s.event is not null) then
    select count(*) into standing from (
      select 1 from weft.live_unit u where u.live_job_id = job and u.state in ('waiting', 'ready', 'running', 'held') limit l.max_backlog) o;
    update weft.live_source s set backlog = standing where s.live_job_id = job and s.backlog <> standing;
  end if;

  running := running + begun;
  gone := gone - case l.on_failure when 'skip' then lost else 0 end;
  update weft.live_job j set completed = j.completed + gone, last_active_at = case when running > 0 or gone > 0 then weft.now() else j.last_active_at end,
    state = case
      when j.state = 'draining' then case when running = 0 then 'stopped' else 'draining' end
      when running > 0 or j.activation = 'source' then 'running'
      when j.state = 'pending' then 'pending'
      when j.idle_after <= weft.now() - coalesce(j.last_active_at, j.created_at) then 'idle'
      else j.state end
  where j.id = job and (gone > 0 or begun > 0 or j.state = 'draining' or running > 0 and j.last_active_at < weft.now() - interval '1 second'
    or j.state <> 'idle' and j.idle_after <= weft.now() - coalesce(j.last_active_at, j.created_at) or j.state = 'pending' and j.activation = 'source');
end $$;

-- name: view_live_jobs
create view weft.live_jobs as
select j.id, j.org_id, d.name as dag, j.name, j.config_hash, j.activation, j.runtime, j.operator, j.strategy, j.state, j.paused_at, j.max_concurrency,
  j.completed, j.failed, j.last_error, j.last_active_at, j.created_at, j.actor
from weft.live_job j join weft.live_dag d on d.id = j.dag_id where j.org_id = coalesce((select weft.current_org()), j.org_id);

-- name: comment_live_jobs
comment on view weft.live_jobs is 'Deployed nodes of live DAGs, each with what has become of it.';

-- name: live_jobs_are_read
do $$
declare verb text;
begin
  foreach verb in array array['insert', 'update', 'delete'] loop
    execute format('create rule refuse_%s as on %s to weft.live_jobs do instead select weft.refuse_write(''live_jobs'')', verb, verb);
  end loop;
end $$;

-- name: grant_live_to_server
-- Called by `weft.admit_server`.
create function weft.grant_live_to_server(role regrole) returns void language plpgsql as $$
begin
  execute format('grant select on weft.live_jobs to %s', role);
  execute format('grant select, insert, update, delete on weft.live_dag, weft.dag_version, weft.dag_version_job, weft.dag_version_dataset, '
    'weft.live_job, weft.live_input, weft.live_output, weft.live_source, weft.live_unit, weft.operator_state, weft.staged_live, '
    'weft.live_backfill, weft.live_file to %s', role);
end $$;

-- name: only_the_owner_grants
revoke execute on function weft.grant_live_to_server from public;
