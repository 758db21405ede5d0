CREATE SCHEMA weft;

CREATE SCHEMA weft_data;

CREATE TYPE weft.artifact_kind AS ENUM (
    'version',
    'patch',
    'snapshot'
);

CREATE DOMAIN weft.attempt_number AS integer
	CONSTRAINT attempt_number_check CHECK (((VALUE >= 0) AND (VALUE <= 1000000000)));

CREATE DOMAIN weft.failure_count AS smallint
	CONSTRAINT failure_count_check CHECK (((VALUE >= 0) AND (VALUE <= 32766)));

CREATE TYPE weft.job_state AS ENUM (
    'pending',
    'running',
    'paused',
    'cancelling',
    'completed',
    'failed',
    'cancelled'
);

CREATE TYPE weft.found_job AS (
	id bigint,
	workflow_id text,
	state weft.job_state,
	actor text,
	labels json
);

CREATE TYPE weft.task_state AS ENUM (
    'pending',
    'scheduled',
    'ready',
    'dispatched',
    'claimed',
    'running',
    'waiting',
    'completed',
    'failed',
    'dead',
    'skipped',
    'cancelled'
);

CREATE TYPE weft.found_task AS (
	id bigint,
	org_id bigint,
	queue_id bigint,
	state weft.task_state,
	handler text
);

CREATE DOMAIN weft.handler_name AS text
	CONSTRAINT handler_name_check CHECK ((octet_length(VALUE) <= 800));

CREATE TYPE weft.job_search AS (
	org bigint,
	ways text[],
	worths text[],
	names text[],
	states weft.job_state[],
	workflow text,
	who text,
	wanted jsonb,
	step integer
);

CREATE TYPE weft.outbox_state AS ENUM (
    'pending',
    'processing',
    'done',
    'failed'
);

CREATE TYPE weft.platform_role AS ENUM (
    'reader',
    'writer',
    'admin'
);

CREATE DOMAIN weft.rank_number AS smallint
	CONSTRAINT rank_number_check CHECK ((VALUE > '-32768'::integer));

CREATE DOMAIN weft.span AS interval
	CONSTRAINT span_check CHECK (((VALUE >= '00:00:00'::interval) AND (VALUE <= '20000 days'::interval)));

CREATE TYPE weft.tag_verb AS ENUM (
    'push',
    'patch',
    'move',
    'merge',
    'revert',
    'undo',
    'redo',
    'compact',
    'delete',
    'undelete',
    'deploy',
    'rollback'
);

CREATE TYPE weft.task_search AS (
	org bigint,
	ways text[],
	queues bigint[],
	with_control boolean,
	states weft.task_state[],
	queue bigint,
	what text,
	step integer
);

CREATE TYPE weft.token_role AS ENUM (
    'reader',
    'writer',
    'admin',
    'worker'
);

CREATE DOMAIN weft.waiting_count AS integer
	CONSTRAINT waiting_count_check CHECK ((VALUE >= 0));

CREATE TYPE weft.walked AS (
	ids bigint[],
	rest bigint
);

CREATE TYPE weft.worker_state AS ENUM (
    'active',
    'idle',
    'stopped',
    'lost'
);

CREATE FUNCTION weft.acts_on_task(org bigint, task bigint) RETURNS bigint[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if org is distinct from coalesce(nullif(current_setting('weft.org', true), '')::bigint, org) then
    return '{}';
  end if;
  return array(
    with found as materialized (select a.id, a.org_id from weft.audit a where a.subject_ids @> array[task] and a.subject_kind = 'task')
    select f.id from found f where f.org_id = org);
end $$;

CREATE FUNCTION weft.add_children(me bigint, parent bigint, parent_attempt integer, ids bigint[], items integer[], all_params json[], queue bigint, handler text, priority integer, attempts smallint, retry json, timeout interval, heartbeat interval, dispatch interval, keys text[], most integer, lenient boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.add_effect(kind text, payload json, ordering_key text DEFAULT NULL::text, org text DEFAULT 'default'::text, actor text DEFAULT SESSION_USER) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
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
end $_$;

COMMENT ON FUNCTION weft.add_effect(kind text, payload json, ordering_key text, org text, actor text) IS 'Adds an effect to the outbox, inside the caller''s transaction. Returns its id.';

CREATE TABLE weft.tag (
    org_id bigint NOT NULL,
    name text NOT NULL,
    workflow_id text NOT NULL,
    target_id bigint NOT NULL,
    version bigint NOT NULL,
    "position" bigint NOT NULL,
    is_protected boolean DEFAULT false NOT NULL,
    is_deployed boolean DEFAULT false NOT NULL,
    moved_at timestamp with time zone NOT NULL,
    moved_by text NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT tag_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 800)))
);

CREATE FUNCTION weft.add_move(t weft.tag, verb weft.tag_verb, target bigint, new_position bigint, actor text, message text, expected_hash bytea) RETURNS weft.tag
    LANGUAGE plpgsql
    AS $$
declare at timestamptz := greatest(weft.now(), t.moved_at); came_from bigint := case when t.deleted_at is null then t.target_id end;
  workflow text := (select a.workflow_id from weft.artifact a where a.id = target and a.org_id = t.org_id);
begin
  if workflow is null and verb <> 'delete' then
    raise exception 'there is no version %', target using errcode = 'WF004';
  end if;
  insert into weft.tag_move (org_id, tag, version, verb, from_id, to_id, position, back_to, moved_at, moved_by, message, expected_hash)
  values (t.org_id, t.name, t.version + 1, verb, came_from, case when verb <> 'delete' then target end,
    coalesce(new_position, t.version + 1),
    case when new_position is null and t.deleted_at is null then t.position end, at, actor, message, expected_hash);
  update weft.tag g set target_id = target, workflow_id = coalesce(workflow, t.workflow_id),
    version = t.version + 1, position = coalesce(new_position, t.version + 1),
    moved_at = at, moved_by = actor, deleted_at = case when verb = 'delete' then at end
  where g.org_id = t.org_id and g.name = t.name
  returning * into t;
  return t;
end $$;

CREATE FUNCTION weft.add_rows(version bigint, write bigint, file integer, names text[], rows json) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "DateStyle" TO 'ISO, YMD'
    SET "TimeZone" TO 'UTC'
    AS $_$
declare kept_in text := weft.data_table(version); targets text; given text; added bigint;
begin
  select string_agg(format('%I', n.name), ', ' order by n.place),
    string_agg(case when a.atttypid = 'bytea'::regtype then format('decode(r.value ->> %s, ''hex'')', n.place - 1)
      else format('(r.value ->> %s)::%s', n.place - 1, format_type(a.atttypid, a.atttypmod)) end, ', ' order by n.place)
  into targets, given
  from unnest(names) with ordinality as n (name, place)
    join pg_attribute a on a.attrelid = to_regclass(kept_in) and a.attname = n.name and a.attnum > 0 and not a.attisdropped;
  execute format('insert into %s (_write, _file, %s) select $1, $2, %s from json_array_elements($3) with ordinality as r (value, place) order by r.place',
    kept_in, targets, given) using write, file, rows;
  get diagnostics added = row_count;
  return added;
end $_$;

CREATE FUNCTION weft.add_up(org bigint, name text, count bigint, seconds double precision DEFAULT 0) RETURNS void
    LANGUAGE sql
    AS $$
  insert into weft.tally as t (org_id, name, process, count, seconds) values (org, add_up.name, pg_backend_pid(), add_up.count, add_up.seconds)
  on conflict (org_id, name, process) do update set count = t.count + excluded.count, seconds = t.seconds + excluded.seconds
$$;

CREATE FUNCTION weft.admit_server(role regrole) RETURNS integer
    LANGUAGE plpgsql
    AS $_$
declare count int := weft.wall_in(role); later regproc;
begin
  execute replace($grants$
    grant usage on schema weft to SERVER;
    grant usage on sequence weft.id_sequence to SERVER;
    grant execute on function weft.add_effect, weft.enqueue, weft.ensure_partitions, weft.list_jobs, weft.list_newest_effects,
      weft.list_oldest_effects, weft.list_tasks, weft.acts_on_task, weft.uses_blob to SERVER;
    grant select on weft.artifact_use, weft.attempts, weft.job_events, weft.jobs, weft.schema_revision,
      weft.steps, weft.tasks, weft.tokens, weft.users, weft.workers to SERVER;
    -- Blobs are the same for all orgs: whether anybody uses one may be asked, who does may not.
    grant select (digest) on weft.blob_use to SERVER;
    grant select, insert on weft.job_event, weft.job_label, weft.tag_move to SERVER;
    grant select, update on weft.machine to SERVER;
    grant select, insert, delete on weft.audit, weft.audit_seal, weft.edge, weft.org_role, weft.org_role_membership,
      weft.sign_in, weft.task_params to SERVER;
    grant select, insert, update on weft.handler, weft.lease, weft.org, weft.queue, weft.tag, weft.token, weft.user to SERVER;
    grant select, insert, update, delete on weft.answer, weft.artifact, weft.attempt, weft.awaited, weft.blob, weft.event,
      weft.idempotency_key, weft.job, weft.job_done, weft.key_loan, weft.key_slot, weft.outbox, weft.output_cache,
      weft.queue_slot, weft.step, weft.tally, weft.tally_mark, weft.task, weft.task_blob, weft.task_done, weft.task_log,
      weft.task_reuse, weft.worker, weft.worker_code to SERVER;
  $grants$, 'SERVER', role::text);
  -- What later revisions have added is granted by functions of theirs.
  for later in select p.oid from pg_proc p where p.pronamespace = 'weft'::regnamespace and p.proname like 'grant\_%\_to\_server' loop
    execute format('select %s(%L)', later, role);
  end loop;
  return count;
end $_$;

CREATE FUNCTION weft.admit_waiting(queues bigint[], keys text[], freed integer) RETURNS bigint[]
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.adopt_jobs(me bigint, room integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare gone bigint; count int := 0;
begin
  for gone in
    select -q.id from weft.queue q where q.id < 0 and not exists (
      select 1 from weft.worker w where w.id = -q.id and w.state in ('active', 'idle') and w.until > weft.now())
  loop
    count := count + weft.hand_over(gone, me, room);
    delete from weft.queue q where q.id = -gone and not exists (select 1 from weft.worker w where w.id = gone)
      and not exists (select 1 from weft.task t where t.state = 'ready' and t.queue_id = -gone)
      and not exists (select 1 from weft.job j where j.owner_id = gone);
  end loop;
  return count;
end $$;

CREATE FUNCTION weft.advance_backfill(backfill bigint) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.answer(task_id bigint, ending text, output json, error json, why text) RETURNS boolean
    LANGUAGE plpgsql
    AS $_$
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
end $_$;

CREATE FUNCTION weft.next_id() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
  millisecond constant bigint := 1 << 22;
  last constant bigint := coalesce(nullif(current_setting('weft.last_id', true), ''), '0')::bigint;
  made bigint; moment bigint; kept text;
begin
  for round in 1 .. 5 loop
    moment := weft.first_id_at(weft.now());
    made := moment | nextval('weft.id_sequence');
    if weft.first_id_at(weft.now()) <= moment + millisecond then
      exit when made > last or last > moment + 1000 * millisecond;
      perform pg_sleep(0.001);
    end if;
  end loop;
  -- By an assignment, which is evaluated in place: a `perform` starts an executor.
  kept := set_config('weft.last_id', made::text, false);
  return made;
end $$;

CREATE FUNCTION weft.now() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    RETURN clock_timestamp();

COMMENT ON FUNCTION weft.now() IS 'The clock that every decision about time asks.';

CREATE TABLE weft.audit (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    at timestamp with time zone DEFAULT weft.now() NOT NULL,
    actor text NOT NULL,
    verb text NOT NULL,
    subject_kind text NOT NULL,
    subject_ids bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    subject_name text,
    detail json DEFAULT '{}'::json NOT NULL,
    origin text,
    reason text
);

CREATE FUNCTION weft.audit_hash(a weft.audit) RETURNS bytea
    LANGUAGE sql STABLE
    AS $$
  select sha256(convert_to(json_build_array(a.id::text, a.org_id::text, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'),
    a.actor, a.verb, a.subject_kind, a.subject_ids::text, a.subject_name, a.detail::text, a.origin, a.reason)::text, 'UTF8'))
$$;

CREATE FUNCTION weft.begin_jobs(tasks bigint[], jobs bigint[], orchestrator bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.begin_wait(me bigint, task_id bigint, in_attempt integer, patience interval, kind text, skips boolean, event text, match jsonb, form json) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.cancel_children(parents bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.check_json(value json, field text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
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

CREATE FUNCTION weft.check_retry(retry json) RETURNS void
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
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

CREATE FUNCTION weft.check_task(handler text, params json, queue text, priority integer, idempotency_key text, run_at timestamp with time zone, delay interval, max_attempts integer, timeout interval, heartbeat_timeout interval, concurrency_key text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $_$
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
end $_$;

CREATE FUNCTION weft.close_states(retention interval, of_org bigint) RETURNS SETOF bigint
    LANGUAGE plpgsql
    AS $$
declare past bigint[]; numbers bigint[];
begin
  select array_agg(o.id), array_agg(o.number) into past, numbers from (
    select v.id, max(w.number) as number
    from (select distinct f.version_id from weft.dataset_file f where f.removed_by is not null and (of_org is null or f.org_id = of_org)) f
      join weft.dataset_version v on v.id = f.version_id
      join weft.dataset_write w on w.version_id = v.id and w.written_at < weft.now() - retention
    group by v.id having max(w.number) > v.oldest_write) o;
  perform 1 from weft.dataset d where d.id in (select v.dataset_id from weft.dataset_version v where v.id = any (past)) order by d.id for key share;
  perform 1 from weft.dataset_version v where v.id = any (past) order by v.id for no key update;
  return query update weft.dataset_version v set oldest_write = u.number from unnest(past, numbers) as u (id, number)
    where v.id = u.id and u.number > v.oldest_write returning v.id;
end $$;

CREATE FUNCTION weft.collect_dag(dag bigint, retention interval) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.compact_tag(org bigint, tag_name text, target bigint, expected_version bigint, actor text) RETURNS weft.tag
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, null, true);
begin
  if not exists (select 1 from weft.artifact a join weft.artifact b on b.version_hash = a.version_hash
                 where a.id = t.target_id and b.id = target) then
    raise exception 'tag % means something else than version %', tag_name, target using errcode = 'WF004';
  end if;
  return weft.add_move(t, 'compact', target, t.position, actor, null, null);
end $$;

CREATE FUNCTION weft.complete(worker_id bigint, task_id bigint, attempt integer, output json) RETURNS boolean
    LANGUAGE sql
    AS $_$
  select weft.keep_blob(t.id, t.org_id, $4) from weft.task t where t.id = $2 and $4::text like '{"$blob":%';
  select not exists (
    select 1 from weft.finish_and_claim($1, array[$2], array[$3], array[$4], '{}', '{}', '{}', '{}', '{}', 0, false, null)
  )
$_$;

CREATE FUNCTION weft.content_of(version bigint, keys text[]) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
  select coalesce(bit_xor(p.content), 0) from weft.dataset_partition p where p.version_id = version and p.partition_key = any (keys)
$$;

CREATE FUNCTION weft.control_queue(job bigint) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
  select coalesce((select -j.owner_id from weft.job j where j.id = job), 2)
$$;

CREATE FUNCTION weft.current_org() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (NULLIF(current_setting('weft.org'::text, true), ''::text))::bigint;

CREATE FUNCTION weft.data_table(version bigint) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare found record;
begin
  select v.dataset_id, v.number, v.org_id, d.storage ->> 'kind' as kind into found
  from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id
  where v.id = version and v.org_id = coalesce(weft.current_org(), v.org_id);
  if found.kind is distinct from 'postgres' then
    raise exception 'version: % is none that is kept in the database', version using errcode = 'WF002';
  end if;
  return format('weft_data.d%s_%s', found.dataset_id, found.number);
end $$;

CREATE FUNCTION weft.datasets_of_dag_version(version bigint) RETURNS SETOF bigint
    LANGUAGE sql STABLE
    AS $$
  select o.dataset_id from weft.dag_version_job m join weft.live_output o on o.live_job_id = m.live_job_id where m.dag_version_id = version
  union select i.dataset_id from weft.dag_version_job m join weft.live_input i on i.live_job_id = m.live_job_id where m.dag_version_id = version
$$;

CREATE FUNCTION weft.delete_tag(org bigint, tag_name text, expected_version bigint, force boolean, actor text, message text) RETURNS weft.tag
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, null, force);
begin
  if t.name is null or t.deleted_at is not null then
    return null;
  end if;
  return weft.add_move(t, 'delete', t.target_id, t.position, actor, message, null);
end $$;

CREATE FUNCTION weft.delete_tag(org bigint, tag_name text, expected_version bigint, expected_hash bytea, force boolean, actor text, message text) RETURNS weft.tag
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, expected_hash, force);
begin
  if t.name is null or t.deleted_at is not null then
    return null;
  end if;
  return weft.add_move(t, 'delete', t.target_id, t.position, actor, message, null);
end $$;

CREATE FUNCTION weft.drop_rows(version bigint, write bigint, file integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare kept_in text := weft.data_table(version); gone bigint := 0;
begin
  if to_regclass(kept_in) is not null then
    execute format('delete from %s t where t._write = $1 and (t._file = $2 or $2 is null)', kept_in) using write, file;
    get diagnostics gone = row_count;
  end if;
  return gone;
end $_$;

CREATE FUNCTION weft.drop_table(version bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if exists (select 1 from weft.dataset_version v where v.id = version and v.collected_at is not null) then
    execute format('drop table if exists %s', weft.data_table(version));
  end if;
end $$;

CREATE FUNCTION weft.end_jobs(jobs bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.end_late_jobs(room integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.end_late_starts(room integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.end_late_waits(room integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.end_loans(ids bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.ended_after(child text, moment timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $_$
declare found_one boolean; tail bigint := greatest(0, pg_relation_size(format('weft.%I', child)::regclass) / 8192 - 8);
begin
  execute format('select exists (select 1 from weft.%I d where d.ctid >= $1 and d.ended_at > $2)', child)
    into found_one using format('(%s,0)', tail)::tid, moment;
  if not found_one then
    execute format('select exists (select 1 from weft.%I d where d.ended_at > $1)', child) into found_one using moment;
  end if;
  return found_one;
end $_$;

CREATE FUNCTION weft.ended_since(moment timestamp with time zone) RETURNS TABLE(queue_id bigint, ended bigint)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_indexscan TO 'off'
    SET enable_indexonlyscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.enqueue(handler text, params json DEFAULT '{}'::json, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, idempotency_key text DEFAULT NULL::text, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, retry json DEFAULT NULL::json, timeout interval DEFAULT NULL::interval, heartbeat_timeout interval DEFAULT NULL::interval, concurrency_key text DEFAULT NULL::text, org text DEFAULT 'default'::text, actor text DEFAULT SESSION_USER) RETURNS TABLE(id bigint, created boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $$
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

COMMENT ON FUNCTION weft.enqueue(handler text, params json, queue text, priority integer, idempotency_key text, run_at timestamp with time zone, delay interval, max_attempts integer, retry json, timeout interval, heartbeat_timeout interval, concurrency_key text, org text, actor text) IS 'Puts a task into a queue, inside the caller''s transaction. Returns its id, and whether it was created: a known idempotency key creates nothing and returns the existing task''s id.';

CREATE FUNCTION weft.ensure_partitions(days integer DEFAULT 8) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION weft.fail_job(me bigint, step bigint, in_attempt integer, failed bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.fail_next(failed bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.find_jobs(asked weft.job_search, low bigint, high bigint, is_newest boolean, n integer, room integer) RETURNS weft.walked
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION weft.find_output(task bigint, try integer, wanted bytea, same bytea, within interval, takes boolean) RETURNS TABLE(id bigint, task_id bigint, output json, is_traced boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
  mine record; each weft.output_cache; before record; problems jsonb; at timestamptz := weft.now();
  why text; other bigint; made timestamptz; told jsonb;
begin
  perform set_config('synchronous_commit', 'off', true);
  select t.org_id, t.handler, coalesce(t.node, '') as node,
    case when j.workflow_id is null then '@task/' || t.handler else j.workflow_id || '/' || coalesce(t.node, t.handler) end as producer
  into mine from weft.task t left join weft.job j on j.id = t.job_id where t.id = task;
  if not found then
    return;
  end if;
  if not takes then
    why := 'forced';
  else
    for each in
      select c.* from weft.output_cache c
      where c.org_id = mine.org_id and c.key = wanted and (c.producer is null or c.producer = mine.producer)
      order by c.made_at desc, c.id desc
    loop
      if each.expires_at <= at or each.made_at <= at - within then
        if why is null then
          why := 'expired'; other := each.task_id; made := each.made_at;
        end if;
        continue;
      end if;
      problems := weft.trace_problems(each.org_id, each.trace);
      if problems is null then
        why := 'served'; other := each.task_id; made := each.made_at;
        told := (select jsonb_agg(jsonb_build_object('dataset', r.item -> 'dataset', 'version', r.item -> 'version', 'number', r.item -> 'number', 'write', r.item -> 'write'))
          from (select i.item from jsonb_array_elements(each.trace) as i (item) where i.item ->> 'role' = 'read' limit 10) r);
        if each.used_at < at - interval '1 hour' then
          update weft.output_cache c set used_at = at where c.id = each.id;
        end if;
        id := each.id; task_id := each.task_id; output := each.output; is_traced := each.trace is not null;
        return next;
        exit;
      end if;
      if why is distinct from 'changed' then
        why := 'changed'; other := each.task_id; made := each.made_at; told := problems;
      end if;
    end loop;
  end if;
  if why is null then
    -- What was completed before: of the same params, else by the same node. The rows are compared whole, so that no other index
    -- than the one with these columns gives the order.
    select r.task_id, r.key = wanted as is_same, r.unkept into before from (
      select o.org_id, o.args, o.task_id, o.key, o.unkept from weft.task_reuse o
      where (o.org_id, o.args, o.task_id) < (mine.org_id, same, task) order by o.org_id desc, o.args desc, o.task_id desc limit 20
    ) r where r.org_id = mine.org_id and r.args = same
      and exists (select 1 from weft.task_done d where d.id = r.task_id and d.state = 'completed') order by r.task_id desc limit 1;
    if found then
      other := before.task_id;
      why := case when not before.is_same then 'code' when before.unkept is not null then 'unkept' else 'removed' end;
      told := to_jsonb(before.unkept);
    else
      select r.task_id into other from (
        select o.org_id, o.handler, o.node, o.task_id from weft.task_reuse o
        where (o.org_id, o.handler, o.node, o.task_id) < (mine.org_id, mine.handler, mine.node, task)
        order by o.org_id desc, o.handler desc, o.node desc, o.task_id desc limit 20
      ) r where r.org_id = mine.org_id and r.handler = mine.handler and r.node = mine.node
        and exists (select 1 from weft.task_done d where d.id = r.task_id and d.state = 'completed') order by r.task_id desc limit 1;
      why := case when found then 'params' else 'nothing' end;
    end if;
  end if;
  insert into weft.task_reuse as r (task_id, org_id, attempt, handler, node, key, args, cause, other_id, made_at, detail)
  values (task, mine.org_id, try, mine.handler, mine.node, wanted, same, why, other, made, told)
  on conflict (task_id) do update set attempt = excluded.attempt, key = excluded.key, args = excluded.args, cause = excluded.cause,
    other_id = excluded.other_id, made_at = excluded.made_at, detail = excluded.detail, unkept = null, noted_at = weft.now();
end $$;

CREATE FUNCTION weft.find_tasks(asked weft.task_search, low bigint, high bigint, is_newest boolean, n integer, room integer) RETURNS weft.walked
    LANGUAGE plpgsql STABLE
    AS $$
declare step int := asked.step; turn int := 0; ids bigint[] := '{}'; rest bigint; passed bigint[]; seen int;
begin
  loop
    select array_agg(k.id) filter (where k.passes), count(*), case when is_newest then min(k.id) else max(k.id) end
    into passed, seen, rest
    from weft.look_at_tasks(asked, 1 + turn, low, high, is_newest, step) k;
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

CREATE FUNCTION weft.finish_and_claim(me bigint, ids bigint[], attempts integer[], outputs json[], queues bigint[], rooms integer[], ranks smallint[], orders bigint[], marks bigint[], wanted integer, from_head boolean, patience text) RETURNS TABLE(lost boolean, id bigint, attempt integer, queue_id bigint, rank smallint, order_id bigint, handler text, params json, max_attempts smallint, failures smallint, crashes smallint, timeout interval, heartbeat_timeout interval, retry json, job_id bigint, node text, given json[])
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.first_id_at(moment timestamp with time zone) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (GREATEST((0)::bigint, ((floor((EXTRACT(epoch FROM moment) * (1000)::numeric)))::bigint - '1704067200000'::bigint)) << 22);

CREATE FUNCTION weft.first_in_line(admitted bigint[], queue bigint, room integer, low_rank integer, low_order bigint, low_mark bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.follow_or_leave() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if tg_op = 'DELETE' then
    perform weft.leave_table(old.live_job_id, old.followed);
  elsif new.is_listening then
    perform weft.follow_table(new.live_job_id);
  elsif new.followed is not null then
    perform weft.leave_table(new.live_job_id, new.followed);
  end if;
  return null;
end $$;

CREATE FUNCTION weft.follow_table(job bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
declare s weft.live_source; table_id oid; problem text; wrong text;
begin
  select * into strict s from weft.live_source o where o.live_job_id = job for no key update;
  table_id := to_regclass(s.table_name);
  select case
    when s.org_id <> 1 then 'only DAGs of the org default, which operates the installation, follow tables'
    when c.oid is null then 'is no table of this installation''s database: write it with its schema, such as public.orders'
    when n.nspname in ('weft', 'information_schema') or n.nspname like 'pg\_%' then 'is of PostgreSQL or of Weft itself, and cannot be followed'
    when c.relkind not in ('r', 'p') then 'is no table'
    when not (has_table_privilege(session_user, c.oid, 'select') and has_table_privilege(session_user, c.oid, 'trigger'))
      then format('grant select, trigger on it to %I, as which this is deployed', session_user)
    when not pg_has_role(current_user, c.relowner, 'usage') then format('its owner must be %I, or a role that this is a member of', current_user)
    end into problem
  from (select table_id as oid) t left join pg_class c on c.oid = t.oid left join pg_namespace n on n.oid = c.relnamespace;
  if problem is not null then
    raise exception 'source.table: % %', s.table_name, problem using errcode = 'WF002';
  end if;
  select x.name into wrong from unnest(s.columns || s.lane) as x (name)
  where not exists (select 1 from pg_attribute a where a.attrelid = table_id and a.attname = x.name and a.attnum > 0 and not a.attisdropped) limit 1;
  if wrong is not null then
    raise exception 'source.table: % has no column %', s.table_name, wrong using errcode = 'WF002';
  end if;
  begin
    execute format('create or replace trigger %I after insert on %s referencing new table as added for each statement execute function weft.note_rows(%L)',
      'weft_live_' || job, table_id::regclass, job);
  exception when lock_not_available then
    raise exception 'source.table: % is in use by a transaction that goes on for long: try again when that is over', s.table_name using errcode = 'WF002';
  end;
  update weft.live_source o set followed = table_id where o.live_job_id = job;
end $$;

CREATE TABLE weft.job (
    id bigint NOT NULL,
    org_id bigint NOT NULL,
    end_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    state weft.job_state DEFAULT 'pending'::weft.job_state NOT NULL,
    rank weft.rank_number DEFAULT 0 NOT NULL,
    finishes_independent boolean DEFAULT false NOT NULL,
    started_at timestamp with time zone,
    timeout_at timestamp with time zone,
    verdict weft.job_state,
    failed_id bigint,
    owner_id bigint,
    parent_id bigint,
    snapshot_id bigint,
    version_hash bytea,
    workflow_id text NOT NULL,
    base_kind text NOT NULL,
    base_ref text,
    reason text,
    inputs json NOT NULL,
    patch json,
    tag_positions json,
    labels json,
    callback_url text,
    actor text,
    rerun_of bigint,
    kept_from bigint
)
WITH (fillfactor='50');

CREATE FUNCTION weft.forget_result(job weft.job) RETURNS void
    LANGUAGE sql
    AS $$
  update weft.task t set params = '{}', needs = null where t.id = job.end_id
$$;

CREATE FUNCTION weft.free_slots(queues bigint[], keys text[], freed integer DEFAULT 1) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.grant_datasets_to_server(role regrole) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  execute format('grant select on weft.datasets to %s', role);
  execute format('grant execute on function weft.data_table, weft.prepare_table, weft.add_rows, weft.rows_of, weft.drop_rows, '
    'weft.drop_table, weft.show_table to %s', role);
  execute format('grant select, insert on weft.dataset_write, weft.dataset_write_input, weft.dataset_edge to %s', role);
  execute format('grant select, insert, delete on weft.task_input to %s', role);
  execute format('grant select, insert, update on weft.dataset_seen to %s', role);
  execute format('grant select, insert, update on weft.column_edge to %s', role);
  execute format('grant select, insert, update, delete on weft.dataset, weft.dataset_version, weft.dataset_file, '
    'weft.dataset_partition, weft.staged_write to %s', role);
end $$;

CREATE FUNCTION weft.grant_live_to_server(role regrole) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  execute format('grant select on weft.live_jobs to %s', role);
  execute format('grant select, insert, update, delete on weft.live_dag, weft.dag_version, weft.dag_version_job, weft.dag_version_dataset, '
    'weft.live_job, weft.live_input, weft.live_output, weft.live_source, weft.live_unit, weft.operator_state, weft.staged_live, '
    'weft.live_backfill, weft.live_file to %s', role);
end $$;

CREATE FUNCTION weft.grant_schedules_to_server(role regrole) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  execute format('grant select on weft.schedules to %s', role);
  execute format('grant select, insert, update, delete on weft.schedule, weft.backfill to %s', role);
end $$;

CREATE FUNCTION weft.hand_over(gone bigint, heir bigint, room integer) RETURNS integer
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
declare jobs bigint[]; steps bigint[];
begin
  -- In no order, which would be read from all jobs: nobody is waited for.
  jobs := array(select j.id from weft.job j where j.owner_id = gone limit room for no key update skip locked);
  update weft.job j set owner_id = heir where j.id = any (jobs);
  if heir is not null then
    perform weft.note_event(j.org_id, j.id, 'job.adopted', j.state::text,
      json_build_object('owner_id', heir::text, 'former_id', gone::text)) from weft.job j where j.id = any (jobs);
  end if;
  steps := array(
    select t.id from weft.task t where t.state = 'ready' and t.queue_id = -gone
    order by t.rank, t.order_id, t.id limit room for no key update skip locked);
  update weft.task t set queue_id = coalesce(-heir, 2) where t.id = any (steps);
  if cardinality(steps) > 0 then
    perform weft.hint_one(coalesce(-heir, 2));
  end if;
  return cardinality(jobs) + cardinality(steps);
end $$;

CREATE FUNCTION weft.heartbeat(me bigint, lease interval, busy boolean, add_completed bigint, add_failed bigint, leader_lease interval, is_blocked boolean) RETURNS TABLE(held integer, leader boolean, token bigint, next_due_at timestamp with time zone, has_outbox boolean, lapsed boolean, limited boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.hint(queues bigint[], except_worker bigint DEFAULT 0) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare told int := 0; queue bigint; done bigint[] := '{}';
begin
  foreach queue in array queues loop
    continue when queue = any (done);
    told := told + weft.hint_one(queue, except_worker);
    done := done || queue;
  end loop;
  return told;
end $$;

CREATE FUNCTION weft.hint_live() RETURNS void
    LANGUAGE plpgsql
    AS $$
declare chosen bigint;
begin
  select w.id into chosen from weft.worker w
  where 2 = any (w.queues) and w.state in ('active', 'idle') and w.until > weft.now() order by w.blocked, random() limit 1;
  if chosen is not null then
    perform pg_notify('weft_worker_' || chosen, 'live');
  end if;
end $$;

CREATE FUNCTION weft.hint_one(queue bigint, except_worker bigint DEFAULT 0) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.hint_stager() RETURNS void
    LANGUAGE sql
    AS $$
  select pg_notify('weft_worker_' || l.holder, 'due') from weft.lease l where l.name = 'maintenance' and l.until > weft.now()
$$;

CREATE FUNCTION weft.hold_datasets(org bigint, dag text, names text[], version bigint, is_swap boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE weft.task_input (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    place integer NOT NULL,
    org_id bigint NOT NULL,
    dataset_id bigint NOT NULL,
    version_id bigint NOT NULL,
    write bigint NOT NULL,
    partitions text[],
    pinned text,
    seen bigint,
    read_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    CONSTRAINT task_input_pinned_check CHECK ((pinned = ANY (ARRAY['version'::text, 'write'::text, 'since'::text])))
);

CREATE FUNCTION weft.inputs_of(task bigint, try integer) RETURNS SETOF weft.task_input
    LANGUAGE sql STABLE
    AS $$
  select i.* from weft.task_input i
  where i.task_id = task and (i.attempt = try or i.attempt < try and exists (
    select 1 from weft.step s
    where s.task_id = task and left(s.name, 1) <> '@' and s.attempt >= i.attempt and s.saved_at >= i.read_at))
$$;

CREATE FUNCTION weft.is_forced(org bigint, tag_name text, workflow text, force boolean, replaces text) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag;
begin
  select * into t from weft.tag g where g.org_id = org and g.name = tag_name for update;
  if t.name is null or t.deleted_at is not null or workflow is null or t.workflow_id = workflow then
    return force;
  elsif replaces is distinct from t.workflow_id then
    perform weft.refuse_move('of another workflow', t);
  end if;
  return force or not t.is_protected;
end $$;

CREATE FUNCTION weft.keep_blob(task_id bigint, org_id bigint, reference json) RETURNS void
    LANGUAGE sql
    AS $_$
  insert into weft.blob (digest, bytes) values (reference ->> '$blob', (reference ->> 'size')::bigint) on conflict do nothing;
  insert into weft.task_blob (task_id, digest, org_id) values (task_id, reference ->> '$blob', org_id) on conflict do nothing;
$_$;

CREATE FUNCTION weft.keep_tasks(org bigint, job bigint, by_actor text, ids bigint[], nodes text[], handlers text[], queues bigint[], ranks smallint[], all_params json[], all_needs text[], lenient boolean[], froms bigint[], made json[], reached_ids bigint[], reached_counts integer[]) RETURNS boolean
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
declare at timestamptz := weft.now(); written int;
begin
  insert into weft.task_done (
    id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, failures, crashes, generation, handler,
    params, output, worker_id, job_id, reason, actor, node, needs, allow_failure, kept_id)
  select u.id, org, u.queue, job, at, at, case when u.kept is null then 'skipped' else 'completed' end::weft.task_state,
    0, u.rank, 0, 0, 0, u.handler, case when length(u.params::text) <= 256 then u.params end,
    case when u.kept is not null then coalesce(u.made, o.output) end,
    o.worker_id, job, case when u.kept is null then 'branch_not_taken' else 'kept' end, by_actor, u.node, u.needs::bigint[],
    u.lenient, o.root
  from unnest(ids, nodes, handlers, queues, ranks, all_params, all_needs, lenient, froms, made)
    as u (id, node, handler, queue, rank, params, needs, lenient, kept, made)
  left join lateral (
    select d.id, d.output, d.worker_id, coalesce(d.kept_id, d.id) as root from weft.task_done d
    where d.id = u.kept and d.org_id = org and d.state = 'completed'
  ) o on true
  where u.kept is null or o.id is not null;
  get diagnostics written = row_count;
  if written < cardinality(ids) then
    return false;
  end if;
  insert into weft.task_params (id, org_id, params)
  select u.id, org, u.params from unnest(ids, all_params) as u (id, params) where length(u.params::text) > 256;
  insert into weft.task_blob (task_id, digest, org_id)
  select u.id, b.digest, org from unnest(ids, froms) as u (id, kept)
  cross join lateral (select b.digest from weft.task_blob b where b.task_id = u.kept) b on conflict do nothing;
  update weft.task t set reached = u.n from unnest(reached_ids, reached_counts) as u (id, n) where t.id = u.id;
  return true;
end $$;

CREATE FUNCTION weft.kept_results(parents json) RETURNS TABLE(output json, item integer)
    LANGUAGE sql STABLE STRICT
    AS $$
  select distinct on (d.item) d.output, d.item
  from json_array_elements_text(parents) as p (id) cross join lateral (
    select c.output, c.item, c.state, c.id from weft.task_done c where c.parent_id = p.id::bigint
  ) d
  order by d.item, d.state = 'completed' desc, d.id desc
$$;

CREATE FUNCTION weft.key_is_within(key text, first_key text, last_key text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $_$
  select case when coalesce(first_key, last_key) ~ '^-?[0-9]{1,18}$' and coalesce(last_key, first_key) ~ '^-?[0-9]{1,18}$'
    then case when key ~ '^-?[0-9]{1,18}$' then (first_key is null or key::bigint >= first_key::bigint)
      and (last_key is null or key::bigint <= last_key::bigint) else false end
    else (first_key is null or key >= first_key) and (last_key is null or key <= last_key) end
$_$;

CREATE FUNCTION weft.lane_of(said text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (octet_length(said) <= 400) THEN said ELSE ('md5:'::text || md5(said)) END;

CREATE FUNCTION weft.lasting_queue(queue bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$ select case when queue < 0 then 2 else queue end $$;

CREATE FUNCTION weft.leading_to(firsts bigint[], lasts bigint[]) RETURNS TABLE(first bigint, last bigint)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.leave_table(job bigint, table_id oid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '1s'
    AS $$
begin
  if exists (select 1 from pg_trigger t where t.tgrelid = table_id and t.tgname = 'weft_live_' || job) then
    execute format('drop trigger if exists %I on %s', 'weft_live_' || job, table_id::regclass);
  end if;
exception when lock_not_available or insufficient_privilege then
  null;
end $$;

CREATE FUNCTION weft.lend_key(me bigint, task bigint, its_attempt integer) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.line_of(head bigint, below bigint, count integer) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE
    AS $$
declare open bigint[] := array[head]; last weft.artifact; a weft.artifact;
begin
  select * into last from weft.artifact x where x.id = below;
  while cardinality(open) > 0 and count > 0 loop
    select * into a from weft.artifact x where x.id = any (open) order by x.generation desc, x.id desc limit 1;
    exit when a.id is null;
    -- Only to what is older: damage may have led a line back into itself.
    open := array(select unnest(open) union select x.id from weft.artifact x
                  where x.id in (a.parent_id, a.merged_id) and x.generation < a.generation except values (a.id));
    if below is null or (a.generation, a.id) < (last.generation, last.id) then
      return next a.id;
      count := count - 1;
    end if;
  end loop;
end $$;

CREATE FUNCTION weft.list_jobs(org bigint, states weft.job_state[], workflow text, who text, wanted json, original bigint, low bigint, high bigint, is_newest boolean, n integer, room integer) RETURNS TABLE(rest bigint, id bigint, workflow_id text, state text, reason text, priority smallint, created_at timestamp with time zone, started_at timestamp with time zone, ended_at timestamp with time zone, failed_id bigint, owner_id bigint, base_ref text, actor text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.list_newest_acts(org bigint, what text, task bigint, job bigint, queue text, who text, low bigint, high bigint, n integer) RETURNS SETOF weft.audit
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
  if task is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.id = any (weft.acts_on_task(org, task)) and a.id < high and a.id > low and (what is null or a.verb = what)
        and (who is null or a.actor = who)
      order by a.id desc limit n;
  elsif job is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.subject_kind = 'job' and (a.subject_ids[1], a.id) < (job, high) and (a.subject_ids[1], a.id) > (job, low)
        and (what is null or a.verb = what) and (who is null or a.actor = who)
      order by a.subject_ids[1] desc, a.id desc limit n;
  elsif queue is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.id < high and a.id > low and (what is null or a.verb = what)
        and a.subject_name = queue and a.subject_kind = 'queue' and (who is null or a.actor = who)
      order by a.id desc limit n;
  elsif who is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and (a.actor, a.id) < (who, high) and (a.actor, a.id) > (who, low) and (what is null or a.verb = what)
      order by a.actor desc, a.id desc limit n;
  elsif what is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and (a.verb, a.id) < (what, high) and (a.verb, a.id) > (what, low)
      order by a.verb desc, a.id desc limit n;
  else
    return query select a.* from weft.audit a
      where (a.org_id, a.id) < (org, high) and (a.org_id, a.id) > (org, low)
      order by a.org_id desc, a.id desc limit n;
  end if;
end $$;

CREATE TABLE weft.outbox (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    kind text NOT NULL,
    ordering_key text,
    payload json NOT NULL,
    state weft.outbox_state DEFAULT 'pending'::weft.outbox_state NOT NULL,
    available_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    last_error text,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    processed_at timestamp with time zone,
    worker_id bigint,
    actor text,
    CONSTRAINT outbox_kind_check CHECK ((kind = ANY (ARRAY['enqueue_task'::text, 'route_event'::text, 'callback'::text, 'openlineage'::text])))
)
WITH (fillfactor='70');

CREATE FUNCTION weft.list_newest_effects(org bigint, states weft.outbox_state[], wanted text, low bigint, high bigint, n integer) RETURNS SETOF weft.outbox
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_sort TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.list_oldest_acts(org bigint, what text, task bigint, job bigint, queue text, who text, low bigint, high bigint, n integer) RETURNS SETOF weft.audit
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
  if task is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.id = any (weft.acts_on_task(org, task)) and a.id < high and a.id > low and (what is null or a.verb = what)
        and (who is null or a.actor = who)
      order by a.id limit n;
  elsif job is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.subject_kind = 'job' and (a.subject_ids[1], a.id) < (job, high) and (a.subject_ids[1], a.id) > (job, low)
        and (what is null or a.verb = what) and (who is null or a.actor = who)
      order by a.subject_ids[1], a.id limit n;
  elsif queue is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and a.id < high and a.id > low and (what is null or a.verb = what)
        and a.subject_name = queue and a.subject_kind = 'queue' and (who is null or a.actor = who)
      order by a.id limit n;
  elsif who is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and (a.actor, a.id) < (who, high) and (a.actor, a.id) > (who, low) and (what is null or a.verb = what)
      order by a.actor, a.id limit n;
  elsif what is not null then
    return query select a.* from weft.audit a
      where a.org_id = org and (a.verb, a.id) < (what, high) and (a.verb, a.id) > (what, low)
      order by a.verb, a.id limit n;
  else
    return query select a.* from weft.audit a
      where (a.org_id, a.id) < (org, high) and (a.org_id, a.id) > (org, low)
      order by a.org_id, a.id limit n;
  end if;
end $$;

CREATE FUNCTION weft.list_oldest_effects(org bigint, states weft.outbox_state[], wanted text, low bigint, high bigint, n integer) RETURNS SETOF weft.outbox
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_sort TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
begin
  if org is distinct from coalesce(nullif(current_setting('weft.org', true), '')::bigint, org) then
    return;
  end if;
  return query select f.* from unnest(coalesce(states, enum_range(null::weft.outbox_state))) as s (state)
    cross join unnest(case when wanted is null then array['enqueue_task', 'route_event', 'callback', 'openlineage'] else array[wanted] end) as k (kind)
    cross join lateral (
      select o.* from weft.outbox o
      where o.org_id = org and (o.kind, o.state, o.id) < (k.kind, s.state, high) and (o.kind, o.state, o.id) > (k.kind, s.state, low)
      order by o.kind, o.state, o.id limit n
    ) f order by f.id limit n;
end $$;

CREATE FUNCTION weft.list_tasks(org bigint, states weft.task_state[], queue bigint, what text, low bigint, high bigint, is_newest boolean, n integer, room integer) RETURNS TABLE(rest bigint, id bigint, state text, reason text, queue_name text, handler text, priority integer, attempt integer, failures integer, max_attempts integer, worker_id bigint, created_at timestamp with time zone, due_at timestamp with time zone, claimed_at timestamp with time zone, ended_at timestamp with time zone, error json)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.lock_event(org bigint, event text) RETURNS void
    LANGUAGE sql
    AS $$
  select pg_advisory_xact_lock(hashtextextended('weft.event ' || org || ' ' || event, 0))
$$;

CREATE FUNCTION weft.lock_tag(org bigint, tag_name text, expected_version bigint, expected_hash bytea, force boolean, deploying boolean DEFAULT false) RETURNS weft.tag
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag;
begin
  select * into t from weft.tag g where g.org_id = org and g.name = tag_name for update;
  if t.name is null then
    return null;
  elsif t.is_deployed and not deploying then
    perform weft.refuse_move('deployed', t);
  elsif t.version <> expected_version and not (expected_version = 0 and t.deleted_at is not null) then
    perform weft.refuse_move('moved', t);
  elsif expected_hash is not null
    and not exists (select 1 from weft.artifact a where a.id = t.target_id and a.version_hash = expected_hash) then
    perform weft.refuse_move('moved', t);
  elsif t.is_protected and not force then
    perform weft.refuse_move('protected', t);
  end if;
  return t;
end $$;

CREATE FUNCTION weft.look_at_jobs(asked weft.job_search, turn integer, low bigint, high bigint, is_newest boolean, n integer) RETURNS TABLE(id bigint, passes boolean)
    LANGUAGE sql STABLE
    AS $$
  select k.id, k.state = any (asked.states) and (asked.workflow is null or k.workflow_id = asked.workflow)
    and (asked.who is null or k.actor = asked.who) and (asked.wanted is null or k.labels::jsonb @> asked.wanted)
  from (
    select s.* from weft.scan_newest_jobs(asked, turn, low, high, n) s where is_newest
    union all
    select s.* from weft.scan_oldest_jobs(asked, turn, low, high, n) s where not is_newest
  ) k
$$;

CREATE FUNCTION weft.look_at_tasks(asked weft.task_search, turn integer, low bigint, high bigint, is_newest boolean, n integer) RETURNS TABLE(id bigint, passes boolean)
    LANGUAGE sql STABLE
    AS $$
  select k.id, k.org_id = asked.org and k.state = any (asked.states) and (asked.queue is null or k.queue_id = asked.queue)
    and (asked.what is null or k.handler = asked.what)
  from (
    select s.* from weft.scan_newest_tasks(asked, turn, low, high, n) s where is_newest
    union all
    select s.* from weft.scan_oldest_tasks(asked, turn, low, high, n) s where not is_newest
  ) k
$$;

CREATE FUNCTION weft.make_current(dataset bigint, version bigint, at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare before bigint;
begin
  select d.current_id into before from weft.dataset d where d.id = dataset for no key update;
  if before = version then
    return false;
  end if;
  at := coalesce(at, weft.now());
  insert into weft.dataset_seen (org_id, dataset_id, at, version_id)
  select d.org_id, d.id, at, version from weft.dataset d where d.id = dataset
  on conflict on constraint dataset_seen_pkey do update set version_id = excluded.version_id;
  update weft.dataset_version v set retired_at = at where v.id = before;
  update weft.dataset_version v set current_at = at, retired_at = null where v.id = version;
  update weft.dataset d set current_id = version, updated_at = weft.now() where d.id = dataset;
  perform weft.show_table(dataset);
  return true;
end $$;

CREATE FUNCTION weft.mark_of(partition_key text, path text, write bigint DEFAULT NULL::bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select hashtextextended(partition_key || '/' || path || coalesce(' ' || write, ''), 0) $$;

CREATE TABLE weft.tag_move (
    org_id bigint NOT NULL,
    version bigint NOT NULL,
    "position" bigint NOT NULL,
    back_to bigint,
    from_id bigint,
    to_id bigint,
    moved_at timestamp with time zone NOT NULL,
    verb weft.tag_verb NOT NULL,
    tag text NOT NULL,
    moved_by text NOT NULL,
    expected_hash bytea,
    message text
);

CREATE FUNCTION weft.move_at(org bigint, tag_name text, moment timestamp with time zone) RETURNS weft.tag_move
    LANGUAGE plpgsql STABLE
    AS $$
declare low bigint := 0; high bigint; middle bigint; m weft.tag_move; found_move weft.tag_move;
begin
  select t.version into high from weft.tag t where t.org_id = org and t.name = tag_name and moment is not null;
  while low < high loop
    middle := (low + high + 1) / 2;
    select * into m from weft.tag_move v where v.org_id = org and v.tag = tag_name and v.version = middle;
    if m.moved_at <= moment then
      low := middle;
      found_move := m;
    else
      high := middle - 1;
    end if;
  end loop;
  return found_move;
end $$;

CREATE FUNCTION weft.move_live_tag(org bigint, tag_name text, verb weft.tag_verb, target bigint, by text, said text) RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
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

CREATE FUNCTION weft.move_tag(org bigint, tag_name text, verb weft.tag_verb, target bigint, expected_version bigint, expected_hash bytea, force boolean, actor text, message text) RETURNS weft.tag
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag; workflow text; at timestamptz := weft.now();
begin
  select a.workflow_id into workflow from weft.artifact a where a.id = target and a.org_id = org and a.kind <> 'snapshot';
  if workflow is null then
    raise exception 'there is no version %', target using errcode = 'WF004';
  end if;
  t := weft.lock_tag(org, tag_name, expected_version, expected_hash, force);
  if t.name is null then
    if expected_version > 0 or expected_hash is not null then
      raise exception 'there is no tag %', tag_name using errcode = 'WF005';
    end if;
    perform weft.refuse_lost(org, tag_name);
    insert into weft.tag as g (org_id, name, workflow_id, target_id, version, position, moved_at, moved_by)
    values (org, tag_name, workflow, target, 1, 1, at, actor) on conflict do nothing returning * into t;
    if t.name is not null then
      insert into weft.tag_move (org_id, tag, version, verb, to_id, position, moved_at, moved_by, message)
      values (org, tag_name, 1, verb, target, 1, at, actor, message);
      return t;
    end if;
    -- Somebody else made it meanwhile.
    t := weft.lock_tag(org, tag_name, expected_version, expected_hash, force);
  end if;
  if t.workflow_id <> workflow and not force and t.deleted_at is null then
    perform weft.refuse_move('of another workflow', t);
  end if;
  return weft.add_move(t, verb, target, null, actor, message, expected_hash);
end $$;

CREATE FUNCTION weft.note_event(org bigint, job bigint, type text, state text DEFAULT NULL::text, data json DEFAULT NULL::json, task bigint DEFAULT NULL::bigint, node text DEFAULT NULL::text, checkpoint text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare new_id bigint := weft.next_id();
begin
  insert into weft.job_event (job_id, id, org_id, task_id, type, node, state, data, checkpoint)
  values (job, new_id, org, task, note_event.type, note_event.node, note_event.state, json_strip_nulls(data), note_event.checkpoint);
  -- Of checkpoints there may be many a second, and a notification holds up all commits for a moment.
  if checkpoint is null then
    perform pg_notify('weft_job_events', job::text);
  end if;
  return new_id;
end $$;

CREATE FUNCTION weft.note_failed(ids bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.note_inputs(task bigint, try integer, org bigint, trace jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  insert into weft.task_input (task_id, attempt, place, org_id, dataset_id, version_id, write, partitions, pinned, seen)
  select task, try, row_number() over (order by r.place), org, v.dataset_id, v.id,
    case when r.item ->> 'pinned' = 'write' then (r.item ->> 'write')::bigint else v.last_write end,
    case when jsonb_typeof(r.item -> 'partitions') = 'array' then array(select jsonb_array_elements_text(r.item -> 'partitions')) end,
    r.item ->> 'pinned', v.last_write
  from jsonb_array_elements(trace) with ordinality as r (item, place)
    join weft.dataset_version v on v.id = (r.item ->> 'version')::bigint and v.org_id = org
  where r.item ->> 'role' = 'read'
  on conflict do nothing
$$;

CREATE FUNCTION weft.note_outputs(me bigint, ids bigint[], attempts integer[], keys bytea[], spans interval[], roots bigint[], entries bigint[], most bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $_$
declare each record; made record; found_trace jsonb;
begin
  for each in
    select d.id, d.attempt, d.org_id, d.handler, d.ended_at, d.output, u.key, u.span, u.most,
      case when d.output::text like '{"$blob":%' then d.output ->> '$blob' end as digest,
      case when d.output::text like '{"$blob":%' then (d.output ->> 'size')::bigint else octet_length(d.output::text) end as bytes
    from unnest(ids, attempts, keys, spans, most) as u (id, attempt, key, span, most) cross join lateral (
      select d.id, d.attempt, d.org_id, d.handler, d.ended_at, d.output from weft.task_done d
      where d.id = u.id and d.worker_id = me and d.attempt = u.attempt and d.state = 'completed'
    ) d
    where u.key is not null
    order by d.id
  loop
    if each.bytes > each.most then
      update weft.task_reuse r set unkept = 'large' where r.task_id = each.id;
      continue;
    end if;
    select t.trace, t.producer, t.unkept into made from weft.trace_of(each.id, each.attempt) t;
    if made.unkept is not null then
      update weft.task_reuse r set unkept = made.unkept where r.task_id = each.id;
      continue;
    end if;
    delete from weft.output_cache c where c.org_id = each.org_id and c.key = each.key and c.trace is not null
      and weft.trace_problems(c.org_id, c.trace) is null;
    if made.trace is not null then
      delete from weft.output_cache c where c.org_id = each.org_id and c.key = each.key and c.trace is null;
    end if;
    insert into weft.output_cache as c (org_id, key, handler, task_id, made_at, expires_at, digest, bytes, producer, trace, output)
    values (each.org_id, each.key, each.handler, each.id, each.ended_at, each.ended_at + each.span, each.digest, each.bytes,
      made.producer, made.trace, each.output)
    on conflict (org_id, key) where trace is null do update set
      handler = excluded.handler, task_id = excluded.task_id, made_at = excluded.made_at, used_at = excluded.used_at,
      expires_at = excluded.expires_at, digest = excluded.digest, bytes = excluded.bytes, output = excluded.output;
    delete from weft.output_cache c where c.id in (
      select o.id from weft.output_cache o where o.org_id = each.org_id and o.key = each.key order by o.made_at desc, o.id desc offset 5);
  end loop;
  for each in
    select d.id, d.attempt, d.org_id, u.entry from unnest(ids, attempts, entries) as u (id, attempt, entry) cross join lateral (
      select d.id, d.attempt, d.org_id from weft.task_done d
      where d.id = u.id and d.worker_id = me and d.attempt = u.attempt and d.state = 'completed'
    ) d
    where u.entry is not null
    order by d.id
  loop
    select c.trace into found_trace from weft.output_cache c where c.id = each.entry and c.org_id = each.org_id;
    if found_trace is null or weft.trace_problems(each.org_id, found_trace) is not null then
      raise exception 'what the output in the cache was made of has changed meanwhile' using errcode = 'WF007';
    end if;
    perform weft.note_inputs(each.id, each.attempt, each.org_id, found_trace);
  end loop;
  update weft.task_done d set reason = 'cached',
    kept_id = (select r.id from weft.task_done r where r.id = u.root and r.org_id = d.org_id)
  from unnest(ids, attempts, roots) as u (id, attempt, root)
  where u.root is not null and d.id = u.id and d.worker_id = me and d.attempt = u.attempt and d.state = 'completed';
end $_$;

CREATE FUNCTION weft.note_rows() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare s weft.live_source; has_more boolean; told text; lane text;
begin
  -- Whoever would remove the source waits until this is over.
  perform 1 from weft.live_job j where j.id = tg_argv[0]::bigint for key share;
  select * into s from weft.live_source o where o.live_job_id = tg_argv[0]::bigint and o.is_listening and o.followed = tg_relid;
  if not found then
    return null;
  end if;
  select string_agg(case when a.atttypid < 16384 then format('a.%I', a.attname)
      else format('case when a.%1$I is not null then format(''%%s'', a.%1$I) end as %1$I', a.attname) end, ', ' order by a.attnum),
    max(case when a.attname = s.lane[1] then format('case when a.%1$I is not null then format(''%%s'', a.%1$I) end', a.attname) end)
  into told, lane
  from pg_attribute a where a.attrelid = tg_relid and a.attnum > 0 and not a.attisdropped
    and (s.columns is null or a.attname = any (s.columns) or a.attname = s.lane[1]);
  has_more := exists (select 1 from weft.live_unit u where u.live_job_id = s.live_job_id and u.state = 'new');
  execute format(
    'insert into weft.live_unit (id, org_id, live_job_id, lane, kind, dedupe_key, said)
     select g.id, $1, $2, coalesce(weft.lane_of(g.lane), g.id::text),
       ''row'', ''row:'' || g.id, json_build_object(''rows'', g.rows)
     from (
       select weft.next_id() as id, n.lane, min(n.place) as first, json_agg(n.said order by n.place) as rows
       from (
         select c.*, (row_number() over (partition by c.lane order by c.place) - 1) / 100 as part,
           sum(octet_length(c.said::text)) over (partition by c.lane order by c.place) / 1000000 as size
         from (select row_number() over () as place, %s as lane, (select to_json(r) from (select %s) r) as said from added a) c) n
       group by n.lane, n.part, n.size order by min(n.place)) g
     order by g.first', coalesce(lane, 'null::text'), coalesce(told, ''))
  using s.org_id, s.live_job_id;
  -- A transaction that was told of by NOTIFY cannot be prepared; and while there is more an orchestrator is on its way.
  if not has_more and current_setting('max_prepared_transactions') = '0' then
    perform weft.hint_live();
  end if;
  return null;
end $_$;

CREATE FUNCTION weft.offer_events(events bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.orphaning_workers() RETURNS SETOF bigint
    LANGUAGE sql STABLE
    AS $$
  with recursive holder as (
    (select t.worker_id from weft.task t where t.worker_id is not null order by t.worker_id limit 1)
    union all
    select (select t.worker_id from weft.task t where t.worker_id > h.worker_id order by t.worker_id limit 1)
    from holder h where h.worker_id is not null
  )
  select h.worker_id from holder h where h.worker_id is not null and not exists (
    select 1 from weft.worker w where w.id = h.worker_id and w.state in ('active', 'idle'))
$$;

CREATE FUNCTION weft.output_of(task_id bigint) RETURNS json
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
declare found record;
begin
  select d.output, d.handler into found from weft.task_done d where d.id = task_id;
  return case when found.handler = '@fan_in' and found.output is not null then weft.results_of(found.output) else found.output end;
end $$;

CREATE FUNCTION weft.outputs_of(ids bigint[]) RETURNS json[]
    LANGUAGE sql STABLE
    AS $$
  select array(select weft.output_of(u.id) from unnest(ids) with ordinality as u (id, place) order by u.place)
$$;

CREATE FUNCTION weft.page_of_walks(live weft.walked, done weft.walked, is_newest boolean, n integer) RETURNS weft.walked
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare ids bigint[]; rest bigint := case when is_newest then greatest(live.rest, done.rest) else least(live.rest, done.rest) end;
begin
  ids := array(
    select u.id from unnest(live.ids || done.ids) as u (id) where case when is_newest then u.id >= rest else u.id <= rest end is not false
    order by case when is_newest then -u.id else u.id end limit n + 1);
  return case when cardinality(ids) > n then (ids[1:n], ids[n]) else (ids, rest) end;
end $$;

CREATE FUNCTION weft.params_of(ids bigint[]) RETURNS TABLE(id bigint, params json)
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
begin
  -- One by one, so that each id is looked for in its own partition only.
  return query select p.id, p.params from unnest(ids) as u (id)
    cross join lateral (select t.id, t.params from weft.task_params t where t.id = u.id) p;
end $$;

CREATE FUNCTION weft.parted_at(one bigint, other bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
declare ids bigint[] := array[one, other]; sides int[] := array[1, 2]; side int; a weft.artifact; parent bigint;
begin
  if one = other then
    return one;
  end if;
  while cardinality(ids) > 0 loop
    select x.* into a from weft.artifact x where x.id = any (ids) order by x.generation desc, x.id desc limit 1;
    exit when a.id is null;
    side := sides[array_position(ids, a.id)];
    if side = 3 then
      return a.id;
    end if;
    select coalesce(array_agg(u.id), '{}'), coalesce(array_agg(u.side), '{}') into ids, sides
    from unnest(ids, sides) as u (id, side) where u.id <> a.id;
    for parent in select x.id from weft.artifact x where x.id in (a.parent_id, a.merged_id) and x.generation < a.generation loop
      if parent = any (ids) then
        sides[array_position(ids, parent)] := sides[array_position(ids, parent)] | side;
      else
        ids := ids || parent;
        sides := sides || side;
      end if;
    end loop;
  end loop;
  return null;
end $$;

CREATE FUNCTION weft.parted_places(one bigint, other bigint) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE
    AS $$
declare ids bigint[] := array[one, other]; sides int[] := array[1, 2]; side int; a weft.artifact; parent bigint;
begin
  if one = other then
    return next one;
    return;
  end if;
  while exists (select 1 from unnest(sides) as u (side) where u.side < 4) loop
    select x.* into a from weft.artifact x where x.id = any (ids) order by x.generation desc, x.id desc limit 1;
    exit when a.id is null;
    side := sides[array_position(ids, a.id)];
    if side = 3 then
      return next a.id;
      side := 7;
    end if;
    select coalesce(array_agg(u.id), '{}'), coalesce(array_agg(u.side), '{}') into ids, sides
    from unnest(ids, sides) as u (id, side) where u.id <> a.id;
    for parent in select x.id from weft.artifact x where x.id in (a.parent_id, a.merged_id) and x.generation < a.generation loop
      if parent = any (ids) then
        sides[array_position(ids, parent)] := sides[array_position(ids, parent)] | side;
      else
        ids := ids || parent;
        sides := sides || side;
      end if;
    end loop;
  end loop;
end $$;

CREATE FUNCTION weft.plan_of(head bigint, patch_digest text) RETURNS bytea
    LANGUAGE sql STABLE
    AS $$
  select sha256(convert_to(concat_ws(',', string_agg(m.digest, ',' order by p.seq), patch_digest), 'UTF8'))
  from weft.artifact a
  cross join lateral unnest(coalesce(a.base_id, a.id) || a.chain) with ordinality as p (id, seq)
  join weft.artifact m on m.id = p.id
  where a.id = head
$$;

CREATE FUNCTION weft.prepare_table(version bigint, names text[], types text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '2s'
    AS $_$
declare kept_in text := weft.data_table(version); name text; type text; known text;
begin
  if to_regclass(kept_in) is null then
    perform pg_advisory_xact_lock(hashtextextended('weft.prepare_table ' || version, 0));
    execute format('create table if not exists %s (_write bigint not null, _file int not null, _row bigint not null generated always as identity, '
      'primary key (_write, _file, _row))', kept_in);
  end if;
  for name, type in select * from unnest(names, types) loop
    if type is null or type !~ '^(boolean|smallint|integer|bigint|real|double precision|text|bytea|date|time|timestamp|timestamptz|numeric\(\d{1,3},\d{1,3}\))$' then
      raise exception 'columns: % cannot be kept as %', name, type using errcode = 'WF002';
    end if;
    select format_type(a.atttypid, a.atttypmod) into known from pg_attribute a
    where a.attrelid = to_regclass(kept_in) and a.attname = name and a.attnum > 0 and not a.attisdropped;
    if known is null then
      perform pg_advisory_xact_lock(hashtextextended('weft.prepare_table ' || version, 0));
      execute format('alter table %s add column if not exists %I %s', kept_in, name, type);
    end if;
    select format_type(a.atttypid, a.atttypmod) into known from pg_attribute a
    where a.attrelid = to_regclass(kept_in) and a.attname = name and a.attnum > 0 and not a.attisdropped;
    if replace(replace(known, ' without time zone', ''), 'timestamp with time zone', 'timestamptz') <> type then
      raise exception 'columns: % is kept as %, and this is %: give it another name', name, known, type using errcode = 'WF002';
    end if;
  end loop;
end $_$;

CREATE FUNCTION weft.protect_tag(org bigint, tag_name text, protected boolean) RETURNS text
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag := weft.lock_tag(org, tag_name, null, null, true);
begin
  update weft.tag g set is_protected = protected where g.org_id = org and g.name = t.name and g.deleted_at is null
  returning g.name into tag_name;
  return case when found then tag_name end;
end $$;

CREATE FUNCTION weft.publish_live(ended bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE TABLE weft.task_done (
    id bigint NOT NULL,
    org_id bigint NOT NULL,
    queue_id bigint NOT NULL,
    order_id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    state weft.task_state NOT NULL,
    attempt integer NOT NULL,
    rank smallint NOT NULL,
    max_attempts smallint,
    failures smallint NOT NULL,
    crashes smallint NOT NULL,
    generation smallint NOT NULL,
    handler text NOT NULL,
    params json,
    output json,
    error json,
    worker_id bigint,
    claimed_at timestamp with time zone,
    job_id bigint,
    timeout interval,
    heartbeat_timeout interval,
    retry json,
    concurrency_key text,
    reason text,
    actor text,
    node text,
    parent_id bigint,
    item integer,
    counts_for bigint,
    needs bigint[],
    allow_failure boolean DEFAULT false NOT NULL,
    kept_id bigint
)
PARTITION BY RANGE (id);

CREATE FUNCTION weft.publish_write(done weft.task_done, version bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  v weft.dataset_version; staged weft.staged_write; n bigint; touched text[] := '{}'; changed text[] := '{}'; is_replacing boolean := false; swapping boolean := false;
  replaced text[] := '{}'; is_whole boolean := false; adds_again boolean := false;
  rows_in bigint := 0; bytes_in bigint := 0; files_in bigint := 0; rows_out bigint := 0; bytes_out bigint := 0; files_out bigint := 0;
  counted record; named text; before text;
  -- Taken while nobody else writes: the later a write is, the higher its number.
  at timestamptz := weft.now();
begin
  select * into strict v from weft.dataset_version o where o.id = version;
  before := v.schema_hash;
  select d.name into strict named from weft.dataset d where d.id = v.dataset_id;
  n := v.last_write + 1;
  for staged in
    select * from weft.staged_write s
    where s.task_id = done.id and s.attempt = done.attempt and s.version_id = version and s.partitions is not null order by s.id
  loop
    if staged.follows and not exists (select 1 from weft.dataset d where d.id = v.dataset_id and d.current_id = version) then
      raise exception 'dataset %: it has another version by now', named using errcode = 'WF007';
    end if;
    -- A partition that is not there may have been taken away.
    if staged.seen is not null and exists (
      select 1 from unnest(staged.partitions) as k (key)
        left join weft.dataset_partition p on p.version_id = version and p.partition_key = k.key
      where coalesce(p.last_write, v.lost_by) > staged.seen and coalesce(p.last_write, v.lost_by) < n
    ) then
      raise exception 'dataset %: another task has written into the same partition meanwhile', named using errcode = 'WF007';
    end if;
    if staged.schema_hash is distinct from v.schema_hash and staged.seen_schema is distinct from v.schema_hash then
      raise exception 'dataset %: another task has changed its columns meanwhile', named using errcode = 'WF007';
    end if;
    if staged.schema_hash is distinct from v.schema_hash then
      v.columns_by := n;
    end if;
    if staged.mode = 'append' and staged.seen is null and not (is_whole or staged.partitions <@ replaced) then
      adds_again := true;
    end if;
    if staged.mode = 'replace' then
      is_replacing := true;
      replaced := replaced || staged.partitions;
      if staged.is_whole then
        is_whole := true;
        v.lost_by := n;
      end if;
      -- Of several writes of one attempt into the same partition the last counts: the others leave files that nobody ever sees.
      with removed as (
        update weft.dataset_file f set removed_by = n
        where f.version_id = version and f.removed_by is null and (staged.is_whole or f.partition_key = any (staged.partitions))
        returning f.rows, f.bytes, weft.mark_of(f.partition_key, f.path) as mark
      )
      select count(*) as files, coalesce(sum(r.rows), 0) as rows, coalesce(sum(r.bytes), 0) as bytes, coalesce(bit_xor(r.mark), 0) as marks
      into counted from removed r;
      v.content := v.content # counted.marks;
      files_out := files_out + counted.files;
      rows_out := rows_out + counted.rows;
      bytes_out := bytes_out + counted.bytes;
      with removed as (
        delete from weft.dataset_partition p
        where p.version_id = version and (staged.is_whole or p.partition_key = any (staged.partitions)) returning p.partition_key
      )
      select changed || array_agg(r.partition_key) into changed from removed r;
    end if;
    with added as (
      insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by)
      select version, v.org_id, f.partition, f.path, f.rows, f.bytes, n
      from json_to_recordset(staged.files) as f (partition text, path text, rows bigint, bytes bigint)
      returning rows, bytes, weft.mark_of(partition_key, path) as mark
    )
    select count(*) as files, coalesce(sum(a.rows), 0) as rows, coalesce(sum(a.bytes), 0) as bytes, coalesce(bit_xor(a.mark), 0) as marks
    into counted from added a;
    v.content := v.content # counted.marks;
    files_in := files_in + counted.files;
    rows_in := rows_in + counted.rows;
    bytes_in := bytes_in + counted.bytes;
    insert into weft.dataset_partition as p (version_id, partition_key, org_id, last_write, lost_by, content, rows, bytes, files, written_at)
    select version, k.key, v.org_id, n, case when staged.mode = 'replace' then n else v.lost_by end,
      coalesce(bit_xor(weft.mark_of(k.key, f.path)), 0), coalesce(sum(f.rows), 0), coalesce(sum(f.bytes), 0), count(f.path), at
    from unnest(staged.partitions) as k (key)
      left join json_to_recordset(staged.files) as f (partition text, path text, rows bigint, bytes bigint) on f.partition = k.key
    group by k.key order by k.key
    on conflict (version_id, partition_key) do update set last_write = n, content = p.content # excluded.content, rows = p.rows + excluded.rows,
      bytes = p.bytes + excluded.bytes, files = p.files + excluded.files, written_at = excluded.written_at;
    touched := touched || staged.partitions;
    swapping := swapping or staged.swaps;
    v.columns := staged.columns;
    v.schema_hash := staged.schema_hash;
    insert into weft.column_edge as e (org_id, output_id, output_column, input_id, input_column, job_id, last_at)
    select distinct v.org_id, v.dataset_id, f.output, f.input_id, f.input, done.job_id, done.ended_at
    from json_to_recordset(staged.columns_from) as f (output text, input_id bigint, input text) order by 3, 4, 5
    on conflict (org_id, output_id, output_column, input_id, input_column)
    do update set job_id = excluded.job_id, last_at = excluded.last_at;
  end loop;
  touched := array(select distinct k.key from unnest(touched) as k (key) order by k.key);
  changed := array(select distinct k.key from unnest(touched || changed) as k (key) order by k.key);
  insert into weft.dataset_write (
    version_id, number, org_id, mode, task_id, attempt, job_id, node, handler, partitions, keys, is_whole, adds_again, rows, bytes,
    rows_removed, columns, written_at, actor)
  values (
    version, n, v.org_id, case when is_replacing then 'replace' else 'append' end, done.id, done.attempt, done.job_id, done.node,
    done.handler, cardinality(touched), case when cardinality(changed) <= 100000 then changed end, is_whole, adds_again, rows_in, bytes_in, rows_out,
    case when v.schema_hash is distinct from before then v.columns end, at, coalesce(done.actor, ''));
  insert into weft.dataset_write_input (version_id, number, org_id, place, input_id, input_version_id, input_write, partitions)
  select version, n, v.org_id, row_number() over (order by min(i.attempt), min(i.place)), i.dataset_id, i.version_id, i.write, i.partitions
  from weft.inputs_of(done.id, done.attempt) i group by i.dataset_id, i.version_id, i.write, i.partitions;
  insert into weft.dataset_edge (org_id, input_id, output_id)
  select distinct v.org_id, i.dataset_id, v.dataset_id from weft.inputs_of(done.id, done.attempt) i order by i.dataset_id on conflict do nothing;
  update weft.dataset_version o set last_write = n, rows = o.rows + rows_in - rows_out, bytes = o.bytes + bytes_in - bytes_out,
    files = o.files + files_in - files_out, columns = v.columns, schema_hash = v.schema_hash, content = v.content,
    lost_by = v.lost_by, columns_by = v.columns_by, written_at = at
  where o.id = version;
  if not (swapping and weft.make_current(v.dataset_id, version)) and v.schema_hash is distinct from before then
    perform weft.show_table(v.dataset_id);
  end if;
  perform weft.tell_write(v, named, n, case when is_replacing then 'replace' else 'append' end, touched, rows_in, done.actor);
  delete from weft.staged_write s
  where s.task_id = done.id and s.attempt = done.attempt and s.version_id = version and s.partitions is not null;
end $$;

CREATE FUNCTION weft.publish_writes(ended bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
declare each record; done weft.task_done; versions bigint[]; datasets bigint[];
begin
  select array_agg(distinct s.version_id order by s.version_id) into versions from weft.staged_write s where s.task_id = any (ended);
  if versions is null then
    return;
  end if;
  datasets := array(
    select s.dataset_id from weft.staged_write s where s.task_id = any (ended) and s.partitions is not null
    union select i.dataset_id from weft.task_input i where i.task_id = any (ended));
  if exists (select 1 from weft.staged_write s where s.task_id = any (ended) and s.swaps) then
    perform 1 from weft.dataset d where d.id = any (datasets) order by d.id for no key update;
  else
    perform 1 from weft.dataset d where d.id = any (datasets) order by d.id for key share;
  end if;
  perform 1 from weft.dataset_version v where v.id = any (versions) order by v.id for no key update;
  for each in
    select distinct s.task_id, s.attempt, s.version_id from weft.staged_write s
    where s.task_id = any (ended) and s.partitions is not null order by s.task_id, s.version_id
  loop
    select * into done from weft.task_done d where d.id = each.task_id and d.attempt = each.attempt;
    -- What an attempt before the last has left came to nothing.
    if found then
      perform weft.publish_write(done, each.version_id);
    end if;
  end loop;
end $$;

CREATE FUNCTION weft.put_artifact(org bigint, kind weft.artifact_kind, workflow text, parent bigint, merged bigint, digest text, bytes bigint, content bytea, version_hash bytea, actor text, message text) RETURNS bigint
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
#variable_conflict use_variable
declare new_id bigint := weft.next_id(); p weft.artifact; m weft.artifact;
begin
  perform weft.put_blob(digest, bytes, case when kind = 'patch' then 'application/json-patch+json' else 'application/json' end, content);
  select * into p from weft.artifact a where a.id = parent and a.org_id = org and a.kind <> 'snapshot';
  select * into m from weft.artifact a where a.id = merged and a.org_id = org and a.kind <> 'snapshot';
  if p.id is distinct from parent or m.id is distinct from merged then
    raise exception 'there is no version %', case when m.id is distinct from merged then merged else parent end using errcode = 'WF004';
  end if;
  insert into weft.artifact (id, org_id, kind, generation, workflow_id, parent_id, merged_id, base_id, chain, digest, version_hash,
                             actor, message)
  values (new_id, org, kind, 1 + greatest(coalesce(p.generation, 0), coalesce(m.generation, 0)), workflow, parent, merged,
          case when kind = 'patch' then coalesce(p.base_id, p.id) end, case when kind = 'patch' then p.chain || new_id end,
          digest, version_hash, actor, message);
  return new_id;
end $$;

CREATE FUNCTION weft.put_blob(digest text, bytes bigint, media_type text, content bytea) RETURNS void
    LANGUAGE sql
    AS $$
  insert into weft.blob as b (digest, bytes, media_type, content) values (digest, bytes, media_type, content)
  on conflict on constraint blob_pkey do update
    set put_at = weft.now(), content = coalesce(excluded.content, b.content), media_type = coalesce(b.media_type, excluded.media_type);
$$;

CREATE FUNCTION weft.put_control(org bigint, job bigint, rank smallint, handler text, params json) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.put_job(job weft.job, patience interval, key text, ids bigint[], nodes text[], handlers text[], queues bigint[], ranks smallint[], params json[], waits integer[], needs text[], attempts smallint[], retries json[], timeouts interval[], heartbeats interval[], dispatches interval[], keys text[], lenient boolean[], prevs bigint[], nexts bigint[], branches text[], request bytea) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.put_snapshot(org bigint, head bigint, workflow text, patch_digest text, patch_bytes bigint, patch_content bytea, digest text, bytes bigint, content bytea, version_hash bytea, actor text, message text) RETURNS bigint
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
#variable_conflict use_variable
declare of_id bigint := head; plan bytea := weft.plan_of(head, patch_digest); new_id bigint;
begin
  if not exists (select 1 from weft.artifact a where a.id = head and a.org_id = org) then
    raise exception 'there is no version %', head using errcode = 'WF004';
  end if;
  if patch_digest is not null then
    of_id := weft.put_artifact(org, 'patch', workflow, head, null, patch_digest, patch_bytes, patch_content,
                               version_hash, actor, message);
  end if;
  perform weft.put_blob(digest, bytes, 'application/json', content);
  insert into weft.artifact (id, org_id, kind, generation, workflow_id, parent_id, digest, version_hash, plan_hash, actor)
  select weft.next_id(), org, 'snapshot', a.generation + 1, workflow, of_id, digest, version_hash, plan, actor
  from weft.artifact a where a.id = of_id
  on conflict do nothing returning id into new_id;
  if new_id is null then
    -- Somebody else was quicker: theirs stands, with their patch.
    delete from weft.artifact a where a.id = of_id and of_id <> head;
    select a.id into new_id from weft.artifact a where a.org_id = org and a.plan_hash = plan and a.kind = 'snapshot';
  end if;
  return new_id;
end $$;

CREATE FUNCTION weft.put_task(handler text, params json, queue text, priority integer, idempotency_key text, run_at timestamp with time zone, delay interval, max_attempts integer, retry json, timeout interval, heartbeat_timeout interval, concurrency_key text, org text, actor text, tell boolean) RETURNS TABLE(id bigint, created boolean)
    LANGUAGE plpgsql
    AS $_$
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
end $_$;

CREATE FUNCTION weft.put_task_by_request(request bytea, handler text, params json, queue text, priority integer, idempotency_key text, run_at timestamp with time zone, delay interval, max_attempts integer, retry json, timeout interval, heartbeat_timeout interval, concurrency_key text, org text, actor text, tell boolean) RETURNS TABLE(id bigint, created boolean, known bytea)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_variable
begin
  select t.id, t.created into id, created from weft.put_task(handler, params, queue, priority, idempotency_key, run_at, delay,
    max_attempts, retry, timeout, heartbeat_timeout, concurrency_key, org, actor, tell) t;
  if created then
    update weft.idempotency_key k set request = request
    where k.org_id = (select o.id from weft.org o where o.slug = org) and k.handler = handler and k.key = idempotency_key;
  else
    select k.request into known from weft.idempotency_key k
    where k.org_id = (select o.id from weft.org o where o.slug = org) and k.handler = handler and k.key = idempotency_key;
  end if;
  return next;
end $$;

CREATE FUNCTION weft.reach_next(ended bigint[], taken integer[], reaching boolean, own bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.redo_tag(org bigint, tag_name text, steps integer, expected_version bigint, expected_hash bytea, force boolean, actor text, message text) RETURNS weft.tag
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, expected_hash, force); forth record;
begin
  if t.name is null or t.deleted_at is not null then
    raise exception 'there is no tag %', tag_name using errcode = 'WF005';
  end if;
  for step in 1 .. steps loop
    select m.version, m.to_id into forth from weft.tag_move m
    where hashtextextended(m.tag, m.back_to) = hashtextextended(tag_name, t.position)
      and m.org_id = org and m.tag = tag_name and m.back_to = t.position
    order by m.version desc limit 1;
    if forth.version is null then
      if step = 1 then
        raise exception 'tag %: nothing to redo', tag_name using errcode = 'WF006';
      end if;
      exit;
    end if;
    t := weft.add_move(t, 'redo', forth.to_id, forth.version, actor, message, null);
  end loop;
  return t;
end $$;

CREATE FUNCTION weft.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  raise exception 'what weft.% holds is never changed', tg_table_name using errcode = '55000';
end $$;

CREATE FUNCTION weft.refuse_lost(org bigint, tag_name text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare lost text := (
  select m.tag from weft.tag_move m where m.org_id = org and m.tag in (tag_name, tag_name || '/main')
    and not exists (select 1 from weft.tag t where t.org_id = org and t.name = m.tag) limit 1);
begin
  if lost is not null then
    raise exception 'tag %: lost', lost using errcode = 'WF003', detail = json_build_object('why', 'lost');
  end if;
end $$;

CREATE FUNCTION weft.refuse_move(why text, t weft.tag) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  raise exception 'tag %: %', t.name, why using errcode = 'WF003', detail = (
    select json_build_object('why', why, 'version', t.version, 'moved_by', t.moved_by, 'moved_at', t.moved_at,
      'target', t.target_id::text, 'hash', encode(a.version_hash, 'hex'), 'workflow_id', t.workflow_id,
      'message', m.message, 'verb', m.verb)::text
    from (select t.target_id as id) x left join weft.artifact a on a.id = x.id
    left join weft.tag_move m on m.org_id = t.org_id and m.tag = t.name and m.version = t.version);
end $$;

CREATE FUNCTION weft.refuse_write(name text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  raise exception 'weft.% is read-only', name using errcode = '55000', hint = 'Use the client or the command line.';
end $$;

CREATE FUNCTION weft.register_files(version bigint, listed json, kept json, hash text, by text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare v weft.dataset_version; n bigint; touched text[]; before text[]; marks bigint; rows_in bigint; bytes_in bigint; files_in bigint; rows_out bigint; named text;
begin
  select * into strict v from weft.dataset_version o where o.id = version for no key update;
  select d.name into strict named from weft.dataset d where d.id = v.dataset_id;
  n := v.last_write + 1;
  rows_out := v.rows;
  update weft.dataset_file f set removed_by = n where f.version_id = version and f.removed_by is null;
  with removed as (delete from weft.dataset_partition p where p.version_id = version returning p.partition_key)
  select array_agg(r.partition_key) into before from removed r;
  insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by)
  select version, v.org_id, f.partition, f.path, f.rows, f.bytes, n
  from json_to_recordset(listed) as f (partition text, path text, rows bigint, bytes bigint);
  insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, lost_by, content, rows, bytes, files, written_at)
  select version, f.partition_key, v.org_id, n, n, bit_xor(weft.mark_of(f.partition_key, f.path, n)), sum(f.rows), sum(f.bytes), count(*), weft.now()
  from weft.dataset_file f
  where f.version_id = version and f.removed_by is null group by f.partition_key;
  select array_agg(p.partition_key order by p.partition_key), sum(p.rows), sum(p.bytes), sum(p.files), coalesce(bit_xor(p.content), 0) into touched, rows_in, bytes_in, files_in, marks
  from weft.dataset_partition p where p.version_id = version;
  before := array(select distinct k.key from unnest(touched || before) as k (key) order by k.key);
  insert into weft.dataset_write (
    version_id, number, org_id, mode, partitions, keys, is_whole, rows, bytes, rows_removed, columns, written_at, actor)
  values (version, n, v.org_id, 'register', cardinality(touched), case when cardinality(before) <= 100000 then before end, true, rows_in, bytes_in, rows_out,
    case when hash is distinct from v.schema_hash then kept end, weft.now(), by);
  update weft.dataset_version o set last_write = n, rows = rows_in, bytes = bytes_in, files = files_in, columns = kept, schema_hash = hash, content = marks,
    lost_by = n, columns_by = case when hash is distinct from v.schema_hash then n else v.columns_by end, written_at = weft.now() where o.id = version;
  perform weft.tell_write(v, named, n, 'register', touched, rows_in, by);
  return n;
end $$;

CREATE FUNCTION weft.release_next(ended bigint[], taken integer[], own bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare missed bigint[] := weft.reach_next(ended, taken, true, own);
begin
  if missed is not null then
    perform weft.skip_later(weft.skip_tasks(missed, 'branch_not_taken', 100, own), 'branch_not_taken');
  end if;
end $$;

CREATE FUNCTION weft.results_of(reference json) RETURNS json
    LANGUAGE sql STABLE
    AS $_$
  select json_build_object('$gathered', coalesce(json_agg(r.output order by p.place, r.item), '[]'))
  from json_array_elements(reference -> '$results') with ordinality as p (part, place)
  cross join lateral (
    select d.output, d.item from weft.task_done d where d.parent_id = (p.part ->> 'each')::bigint
    union all
    select weft.output_of(d.id), 0 from weft.task_done d where d.id = (p.part ->> 'of')::bigint
    union all
    select k.output, k.item from weft.kept_results(p.part -> 'all') k
  ) r
$_$;

CREATE FUNCTION weft.resume_job(org bigint, job bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.return_loans(queues bigint[], keys text[], rooms integer[]) RETURNS SETOF integer
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.roll_back_version(version bigint, back_to bigint, by text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare v weft.dataset_version; n bigint; touched text[]; rows_in bigint; bytes_in bigint; files_in bigint; rows_out bigint; bytes_out bigint; files_out bigint; marks bigint; left_over bigint;
begin
  select * into strict v from weft.dataset_version o where o.id = version for no key update;
  if back_to < v.oldest_write or v.collected_at is not null then
    raise exception 'what it was then has been collected' using errcode = 'WF002';
  end if;
  n := v.last_write + 1;
  with gone as (
    update weft.dataset_file f set removed_by = n where f.version_id = version and f.removed_by is null and f.added_by > back_to
    returning f.partition_key, f.rows, f.bytes, weft.mark_of(f.partition_key, f.path, case when v.is_outside then f.added_by end) as mark
  ), back as (
    insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by)
    select f.version_id, f.org_id, f.partition_key, f.path, f.rows, f.bytes, n from weft.dataset_file f
    where f.version_id = version and f.added_by <= back_to and f.removed_by > back_to
    returning partition_key, rows, bytes, weft.mark_of(partition_key, path, case when v.is_outside then n end) as mark
  )
  select array(select g.partition_key from gone g union select b.partition_key from back b),
    coalesce((select sum(b.rows) from back b), 0), coalesce((select sum(b.bytes) from back b), 0), (select count(*) from back),
    coalesce((select sum(g.rows) from gone g), 0), coalesce((select sum(g.bytes) from gone g), 0), (select count(*) from gone),
    coalesce((select bit_xor(g.mark) from gone g), 0) # coalesce((select bit_xor(b.mark) from back b), 0)
  into touched, rows_in, bytes_in, files_in, rows_out, bytes_out, files_out, marks;
  -- Partitions that were empty have no files by which they could be told: what is in them now is what was.
  delete from weft.dataset_partition p where p.version_id = version and p.partition_key = any (touched);
  insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, lost_by, content, rows, bytes, files, written_at)
  select version, f.partition_key, v.org_id, n, n,
    bit_xor(weft.mark_of(f.partition_key, f.path, case when v.is_outside then f.added_by end)), sum(f.rows), sum(f.bytes), count(*), weft.now()
  from weft.dataset_file f
  where f.version_id = version and f.removed_by is null and f.partition_key = any (touched) group by f.partition_key;
  get diagnostics left_over = row_count;
  insert into weft.dataset_write (version_id, number, org_id, mode, partitions, keys, rows, bytes, rows_removed, written_at, actor)
  values (version, n, v.org_id, 'rollback', cardinality(touched), case when cardinality(touched) <= 100000 then touched end, rows_in, bytes_in, rows_out, weft.now(), by);
  -- What comes back is made of what it was made of when it was written.
  insert into weft.dataset_write_input (version_id, number, org_id, place, input_id, input_version_id, input_write, partitions)
  select version, n, v.org_id, row_number() over (), i.input_id, i.input_version_id, i.input_write, i.partitions
  from (
    select distinct i.input_id, i.input_version_id, i.input_write, i.partitions from weft.dataset_write_input i
    where i.version_id = version and i.number in (
      select f.added_by from weft.dataset_file f where f.version_id = version and f.added_by <= back_to and f.removed_by > back_to)
  ) i;
  update weft.dataset_version o set last_write = n, rows = o.rows + rows_in - rows_out, bytes = o.bytes + bytes_in - bytes_out,
    files = o.files + files_in - files_out, content = o.content # marks, written_at = weft.now(),
    lost_by = case when left_over < cardinality(touched) then n else o.lost_by end where o.id = version;
  perform weft.tell_written(v.dataset_id);
  return n;
end $$;

CREATE FUNCTION weft.route_event(event_id bigint, after bigint, room integer, OUT answered integer, OUT last bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE weft.live_job (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    dag_id bigint NOT NULL,
    name text NOT NULL,
    config_hash text NOT NULL,
    nonce integer DEFAULT 0 NOT NULL,
    activation text NOT NULL,
    runtime text NOT NULL,
    operator text NOT NULL,
    handler weft.handler_name NOT NULL,
    queue_id bigint NOT NULL,
    document json NOT NULL,
    strategy text,
    on_failure text DEFAULT 'hold'::text NOT NULL,
    max_concurrency integer NOT NULL,
    max_backlog integer NOT NULL,
    max_attempts smallint,
    retry jsonb,
    timeout weft.span,
    heartbeat_timeout weft.span,
    rank weft.rank_number DEFAULT 0 NOT NULL,
    idle_after interval,
    state text DEFAULT 'pending'::text NOT NULL,
    paused_at timestamp with time zone,
    last_active_at timestamp with time zone,
    completed bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    last_error text,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    actor text NOT NULL,
    CONSTRAINT live_job_activation_check CHECK ((activation = ANY (ARRAY['source'::text, 'reactive'::text]))),
    CONSTRAINT live_job_max_attempts_check CHECK ((max_attempts > 0)),
    CONSTRAINT live_job_max_backlog_check CHECK ((max_backlog > 0)),
    CONSTRAINT live_job_max_concurrency_check CHECK ((max_concurrency > 0)),
    CONSTRAINT live_job_on_failure_check CHECK ((on_failure = ANY (ARRAY['hold'::text, 'skip'::text]))),
    CONSTRAINT live_job_runtime_check CHECK ((runtime = ANY (ARRAY['worker'::text, 'inline'::text]))),
    CONSTRAINT live_job_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'running'::text, 'idle'::text, 'draining'::text, 'stopped'::text]))),
    CONSTRAINT live_job_strategy_check CHECK ((strategy = ANY (ARRAY['update'::text, 'partition'::text])))
)
WITH (fillfactor='70');

CREATE FUNCTION weft.route_input(l weft.live_job, at_place integer, room integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.rows_of(version bigint, writes bigint[], files integer[], names text[], after bigint, most integer) RETURNS TABLE(number bigint, texts text[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "DateStyle" TO 'ISO, YMD'
    SET "TimeZone" TO 'UTC'
    SET extra_float_digits TO '1'
    AS $_$
declare kept_in text := weft.data_table(version); taken text; known int;
begin
  select string_agg(case a.atttypid when 'bytea'::regtype then format('encode(t.%I, ''hex'')', n.name)
    when 'timestamptz'::regtype then format('(t.%I at time zone ''UTC'')::text', n.name) else format('t.%I::text', n.name) end,
    ', ' order by n.place), count(*) into taken, known
  from unnest(names) with ordinality as n (name, place)
    join pg_attribute a on a.attrelid = to_regclass(kept_in) and a.attname = n.name and a.attnum > 0 and not a.attisdropped;
  if to_regclass(kept_in) is null then
    return;
  elsif known <> cardinality(names) then
    raise exception 'columns: the table has only % of %', known, names using errcode = 'WF002';
  end if;
  return query execute format(
    'select t._row, array[%s]::text[] from unnest($1, $2) as f (write, number) join %s t on t._write = f.write and t._file = f.number '
    'where t._row > $3 order by t._row limit $4', taken, kept_in) using writes, files, after, most;
end $_$;

CREATE FUNCTION weft.scan_newest_jobs(asked weft.job_search, turn integer, low bigint, high bigint, n integer) RETURNS SETOF weft.found_job
    LANGUAGE plpgsql STABLE
    SET enable_sort TO 'off'
    AS $$
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

CREATE FUNCTION weft.scan_newest_tasks(asked weft.task_search, turn integer, low bigint, high bigint, n integer) RETURNS SETOF weft.found_task
    LANGUAGE plpgsql STABLE
    SET enable_sort TO 'off'
    AS $$
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

CREATE FUNCTION weft.scan_oldest_jobs(asked weft.job_search, turn integer, low bigint, high bigint, n integer) RETURNS SETOF weft.found_job
    LANGUAGE plpgsql STABLE
    SET enable_sort TO 'off'
    AS $$
declare org bigint := asked.org; worth text := asked.worths[turn]; label text := asked.names[turn];
begin
  case asked.ways[turn]
  when 'live' then
    return query select j.id, j.workflow_id, j.state, j.actor, j.labels from weft.job j
      where (j.org_id, j.id) < (org, high) and (j.org_id, j.id) > (org, low) order by j.org_id, j.id limit n;
  when 'state' then
    return query select f.* from unnest(asked.states) as s (state) cross join lateral (
      select d.id, d.workflow_id, d.state, d.actor, d.labels from weft.job_done d
      where d.org_id = org and (d.state, d.id) < (s.state, high) and (d.state, d.id) > (s.state, low) and d.id < high and d.id > low
      order by d.state, d.id limit n) f order by f.id limit n;
  when 'workflow' then
    return query select f.* from unnest(asked.states) as s (state) cross join lateral (
      select d.id, d.workflow_id, d.state, d.actor, d.labels from weft.job_done d
      where d.org_id = org and (d.workflow_id, d.state, d.id) < (worth, s.state, high)
        and (d.workflow_id, d.state, d.id) > (worth, s.state, low) and d.id < high and d.id > low
      order by d.workflow_id, d.state, d.id limit n) f order by f.id limit n;
  when 'actor' then
    return query select f.* from unnest(asked.states) as s (state) cross join lateral (
      select d.id, d.workflow_id, d.state, d.actor, d.labels from weft.job_done d
      where d.org_id = org and (d.actor, d.state, d.id) < (worth, s.state, high)
        and (d.actor, d.state, d.id) > (worth, s.state, low) and d.id < high and d.id > low
      order by d.actor, d.state, d.id limit n) f order by f.id limit n;
  when 'label' then
    return query select f.job_id, d.workflow_id, d.state, d.actor, d.labels from (
      select f.job_id from unnest(asked.states) as s (state) cross join lateral (
        select l.job_id from weft.job_label l
        where l.org_id = org and l.name = label and l.value = worth and l.ending = s.state
          and l.job_id < high and l.job_id > low
        order by l.job_id limit n) f order by f.job_id limit n
    ) f left join lateral (select d.* from weft.job_done d where d.id = f.job_id) d on true order by f.job_id;
  when 'rerun_of' then
    -- They are few: found first, then put in order.
    return query with f as materialized (
      select j.id, j.workflow_id, j.state, j.actor, j.labels from weft.job j where j.rerun_of = worth::bigint and j.org_id = org
      union all
      select d.id, d.workflow_id, d.state, d.actor, d.labels from weft.job_done d where d.rerun_of = worth::bigint and d.org_id = org)
    select f.* from f where f.id < high and f.id > low order by f.id limit n;
  end case;
end $$;

CREATE FUNCTION weft.scan_oldest_tasks(asked weft.task_search, turn integer, low bigint, high bigint, n integer) RETURNS SETOF weft.found_task
    LANGUAGE plpgsql STABLE
    SET enable_sort TO 'off'
    AS $$
declare org bigint := asked.org;
begin
  case asked.ways[turn]
  when 'live' then
    return query select t.id, t.org_id, t.queue_id, t.state, t.handler::text from weft.task t
      where t.id < high and t.id > low order by t.id limit n;
  when 'held' then
    -- They are few: found first, then put in order.
    return query with f as materialized (
      select t.id, t.org_id, t.queue_id, t.state, t.handler::text from weft.task t where t.worker_id is not null)
    select f.* from f where f.org_id = org and f.id < high and f.id > low order by f.id limit n;
  when 'ended' then
    return query select d.id, d.org_id, d.queue_id, d.state, d.handler from weft.task_done d
      where d.id < high and d.id > low order by d.id limit n;
  when 'queues' then
    return query select f.* from (
      select f.* from unnest(asked.queues) as q (id) cross join lateral (
        select d.id, d.org_id, d.queue_id, d.state, d.handler from weft.task_done d
        where (d.queue_id, d.id) < (q.id, high) and (d.queue_id, d.id) > (q.id, low) and d.id < high and d.id > low
        order by d.queue_id, d.id limit n) f
      union all
      select f.* from (
        select d.id, d.org_id, d.queue_id, d.state, d.handler from weft.task_done d
        where (d.queue_id = 2 or d.queue_id < 0) and asked.with_control
          and (d.org_id, d.id) < (org, high) and (d.org_id, d.id) > (org, low) and d.id < high and d.id > low
        order by d.org_id, d.id limit n) f
    ) f order by f.id limit n;
  when 'states' then
    return query select f.* from unnest(asked.states) as s (state) cross join lateral (
      select d.id, d.org_id, d.queue_id, d.state, d.handler from weft.task_done d
      where d.state <> 'completed' and d.org_id = org
        and (d.state, d.id) < (s.state, high) and (d.state, d.id) > (s.state, low) and d.id < high and d.id > low
      order by d.state, d.id limit n) f order by f.id limit n;
  end case;
end $$;

CREATE FUNCTION weft.seal_audit(room integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare of record; oldest xid8 := pg_snapshot_xmin(pg_current_snapshot()); count int := 0;
begin
  for of in
    select o.id as org_id, coalesce(l.number, 0) + 1 as number, coalesce(l.digest, sha256(int8send(o.id))) as before,
      coalesce(l.before_id, 0) as before_id, n.ids, n.hashes,
      greatest(low.id, least(coalesce(s.seen_to, 0), case when cardinality(n.ids) = room then n.ids[room] end)) as done_to
    from weft.org o
    left join lateral (
      select e.number, e.digest, e.done_to, greatest(e.before_id, e.ids[cardinality(e.ids)]) as before_id
      from weft.audit_seal e where e.org_id = o.id order by e.number desc limit 1
    ) l on true
    left join lateral (
      select e.seen_to from weft.audit_seal e where e.org_id = o.id and e.next_xid <= oldest order by e.number desc limit 1
    ) s on true
    cross join lateral (select coalesce(l.done_to, 0) as id) low
    cross join lateral (
      select array_agg(a.id order by a.id) as ids, array_agg(weft.audit_hash(a) order by a.id) as hashes
      from (
        select a.id from weft.audit a where a.org_id = o.id and a.id >= low.id
        except select sealed.id from weft.audit_seal e cross join lateral unnest(e.ids) as sealed (id)
          where e.org_id = o.id and e.ids[cardinality(e.ids)] >= low.id
        order by id limit room
      ) e join weft.audit a on a.id = e.id
    ) n
    where n.ids is not null
  loop
    -- An act has its id before its transaction has a number, and clocks may be set back: by no more than a minute.
    insert into weft.audit_seal (org_id, number, ids, hashes, before, before_id, digest, next_xid, seen_to, done_to)
    values (of.org_id, of.number, of.ids, of.hashes, of.before, of.before_id,
      weft.seal_digest(of.org_id, of.number, of.before, of.before_id, of.done_to, of.ids, of.hashes),
      pg_snapshot_xmax(pg_current_snapshot()), weft.first_id_at(weft.now() - interval '1 minute'), of.done_to)
    on conflict do nothing;
    if found then
      count := count + cardinality(of.ids);
    end if;
  end loop;
  return count;
end $$;

CREATE FUNCTION weft.seal_digest(org bigint, number bigint, before bytea, before_id bigint, done_to bigint, ids bigint[], hashes bytea[]) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS $$
  select sha256(before || int8send(org) || int8send(number) || int8send(before_id) || int8send(done_to) || coalesce((
    select string_agg(int8send(u.id) || u.hash, ''::bytea order by u.place)
    from unnest(ids, hashes) with ordinality as u (id, hash, place)), ''::bytea))
$$;

CREATE FUNCTION weft.send_events(org bigint, names text[], payloads jsonb[], sender text, keys text[], room integer) RETURNS TABLE(id bigint, answered integer, is_new boolean, is_same boolean)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.settle_dag(dag bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.share_out(queues bigint[], rooms integer[], ranks smallint[], orders bigint[], marks bigint[], wanted integer) RETURNS integer[]
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE weft.job_done (
    id bigint NOT NULL,
    org_id bigint NOT NULL,
    end_id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    state weft.job_state NOT NULL,
    rank smallint NOT NULL,
    finishes_independent boolean NOT NULL,
    started_at timestamp with time zone,
    failed_id bigint,
    owner_id bigint,
    parent_id bigint,
    snapshot_id bigint,
    version_hash bytea,
    workflow_id text NOT NULL,
    base_kind text NOT NULL,
    base_ref text,
    reason text,
    inputs json NOT NULL,
    result json,
    error json,
    patch json,
    tag_positions json,
    labels json,
    callback_url text,
    actor text,
    rerun_of bigint
)
PARTITION BY RANGE (id);

CREATE VIEW weft.jobs AS
 SELECT id,
    org_id,
    workflow_id,
    state,
    reason,
    priority,
    inputs,
    result,
    error,
    created_at,
    started_at,
    ended_at,
    failed_id,
    owner_id,
    parent_id,
    base_kind,
    base_ref,
    snapshot_id,
    version_hash,
    labels,
    actor,
    end_id,
    rerun_of,
    patch,
    tag_positions,
    callback_url
   FROM ( SELECT j.id,
            j.org_id,
            j.workflow_id,
            (j.state)::text AS state,
            j.reason,
            (- (j.rank)::smallint) AS priority,
            j.inputs,
            NULL::json AS result,
            NULL::json AS error,
            j.created_at,
            j.started_at,
            NULL::timestamp with time zone AS ended_at,
            j.failed_id,
            j.owner_id,
            j.parent_id,
            j.base_kind,
            j.base_ref,
            j.snapshot_id,
            encode(j.version_hash, 'hex'::text) AS version_hash,
            j.labels,
            j.actor,
            j.end_id,
            j.rerun_of,
            j.patch,
            j.tag_positions,
            j.callback_url
           FROM weft.job j
        UNION ALL
         SELECT d.id,
            d.org_id,
            d.workflow_id,
            (d.state)::text AS state,
            d.reason,
            (- d.rank) AS priority,
            d.inputs,
            d.result,
            d.error,
            d.created_at,
            d.started_at,
            d.ended_at,
            d.failed_id,
            d.owner_id,
            d.parent_id,
            d.base_kind,
            d.base_ref,
            d.snapshot_id,
            encode(d.version_hash, 'hex'::text) AS version_hash,
            d.labels,
            d.actor,
            d.end_id,
            d.rerun_of,
            d.patch,
            d.tag_positions,
            d.callback_url
           FROM weft.job_done d) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.jobs IS 'Every job, live or ended, with its state and, when it has ended, its result or error.';

CREATE FUNCTION weft.show_jobs(org bigint, jobs bigint[]) RETURNS SETOF weft.jobs
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
begin
  -- One by one: of an array it is not known in which partitions its ids are.
  return query select j.* from unnest(jobs) as u (id) cross join lateral (
    select j.* from weft.jobs j where j.org_id = org and j.id = u.id) j;
end $$;

CREATE FUNCTION weft.show_table(dataset bigint, is_shown boolean DEFAULT true) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '2s'
    AS $$
declare found record; named text; taken text; shown text; readers text[]; reader text;
begin
  select d.name, d.storage ->> 'kind' as kind, d.deleted_at, o.slug, v.id as version, v.columns into found
  from weft.dataset d join weft.org o on o.id = d.org_id left join weft.dataset_version v on v.id = d.current_id
  where d.id = dataset and d.org_id = coalesce(weft.current_org(), d.org_id);
  if found.kind is distinct from 'postgres' then
    return;
  end if;
  named := format('%s.%s', found.slug, found.name);
  if octet_length(named) > 63 then
    named := 'd' || dataset;
  end if;
  if found.columns is null or found.deleted_at is not null or not is_shown then
    execute format('drop view if exists weft_data.%I', named);
    return;
  end if;
  select string_agg(format('t.%I', c.value ->> 'name'), ', ' order by c.place) into taken
  from json_array_elements(found.columns -> 'columns') with ordinality as c (value, place);
  shown := format('view weft_data.%I as select %s from %s t join weft.dataset_file f on f.version_id = %s and f.removed_by is null '
    'and f.path = t._write || ''-'' || t._file || ''.rows''', named, taken, weft.data_table(found.version), found.version);
  begin
    execute 'create or replace ' || shown;
  exception when invalid_table_definition then
    select array_agg(case a.grantee when 0 then 'public' else a.grantee::regrole::text end) into readers
    from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.oid = format('weft_data.%I', named)::regclass and a.privilege_type = 'SELECT' and a.grantee <> c.relowner;
    execute format('drop view weft_data.%I', named);
    execute 'create ' || shown;
    foreach reader in array coalesce(readers, '{}') loop
      execute format('grant select on weft_data.%I to %s', named, reader);
    end loop;
  end;
exception
  -- A worker of others may tell of columns that it never has prepared: there is nothing to show then.
  when undefined_table or undefined_column then
    execute format('drop view if exists weft_data.%I', named);
  when lock_not_available then
    raise exception 'dataset %: somebody reads through its view', found.name using errcode = 'WF007';
  when dependent_objects_still_exist then
    raise exception 'dataset %: other views are made of its view, and need the columns that it has', found.name using errcode = 'WF007';
end $$;

CREATE FUNCTION weft.skip_by_step(me bigint, step bigint, in_attempt integer, ids bigint[], why text, again boolean, room integer) RETURNS bigint[]
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
declare job bigint;
begin
  select t.job_id into job from weft.task t
  where t.id = step and coalesce(t.worker_id, 0) = me and t.attempt = in_attempt and t.state = 'running' for update;
  if not found then
    return null;
  end if;
  if again then
    ids := ids || array(
      select t.id from weft.task t where t.job_id = job and t.state = 'pending' and t.waiting_on = 0
        and t.reason is not distinct from nullif(why, 'branch_not_taken') order by t.id);
  end if;
  return weft.skip_tasks(ids, why, room, '{}');
end $$;

CREATE FUNCTION weft.skip_later(ids bigint[], why text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  if cardinality(ids) > 0 then
    perform weft.put_control(t.org_id, t.job_id, min(t.rank)::smallint, '@skip',
      json_build_object('ids', json_agg(t.id::text order by t.id), 'why', why))
    from weft.task t where t.id = any (ids) group by t.org_id, t.job_id;
  end if;
end $$;

CREATE FUNCTION weft.skip_tasks(ids bigint[], why text, room integer, own bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE TABLE weft.event (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    name text NOT NULL,
    payload jsonb NOT NULL,
    at timestamp with time zone DEFAULT weft.now() NOT NULL,
    answered integer DEFAULT 0 NOT NULL,
    actor text,
    idempotency_key text,
    sources integer DEFAULT 0 NOT NULL,
    CONSTRAINT event_name_check CHECK (((name <> ''::text) AND (length(name) <= 200)))
);

CREATE FUNCTION weft.sources_of_event(event bigint) RETURNS integer
    LANGUAGE sql STRICT
    BEGIN ATOMIC
 SELECT e.sources
    FROM weft.event e
   WHERE (e.id = sources_of_event.event);
END;

CREATE FUNCTION weft.spawn(me bigint, parent bigint, parent_attempt integer, call text, handler text, queue text, params json, priority integer, attempts smallint, retry json, timeout interval, heartbeat interval, key text, lenient boolean) RETURNS TABLE(id bigint, known_handler text, has_key boolean)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.standing_of_live_job(job bigint, OUT units bigint, OUT held bigint, OUT writes bigint, OUT since timestamp with time zone, OUT is_behind boolean) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION weft.swap_dag(dag bigint, to_version bigint, verb weft.tag_verb DEFAULT 'deploy'::weft.tag_verb, by text DEFAULT NULL::text, said text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.swap_when_caught_up(dag bigint, lag interval) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.sweep_job(job_id bigint, room integer) RETURNS boolean
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.tag_named(org bigint, name text, with_deleted boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
begin
  return coalesce((
    select t.name from weft.tag t
    where t.org_id = org and t.name in (tag_named.name, tag_named.name || '/main') and (t.deleted_at is null or with_deleted)
    order by t.deleted_at is not null, length(t.name) limit 1), name);
end $$;

CREATE FUNCTION weft.take_key(me bigint, task bigint, its_attempt integer) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION weft.take_slots(ids bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.tell_event(told weft.event, room integer, OUT answered integer, OUT last bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE weft.dataset_version (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    dataset_id bigint NOT NULL,
    number integer NOT NULL,
    config_hash text NOT NULL,
    schema_hash text,
    columns json,
    range_start bigint,
    range_end bigint,
    location text NOT NULL,
    is_outside boolean DEFAULT false NOT NULL,
    last_write bigint DEFAULT 0 NOT NULL,
    content bigint DEFAULT 0 NOT NULL,
    lost_by bigint DEFAULT 0 NOT NULL,
    columns_by bigint DEFAULT 0 NOT NULL,
    oldest_write bigint DEFAULT 0 NOT NULL,
    collected_at timestamp with time zone,
    rows bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    files bigint DEFAULT 0 NOT NULL,
    written_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    current_at timestamp with time zone,
    retired_at timestamp with time zone,
    actor text NOT NULL,
    CONSTRAINT dataset_version_number_check CHECK ((number > 0))
)
WITH (fillfactor='70');

CREATE FUNCTION weft.tell_write(v weft.dataset_version, named text, n bigint, how text, touched text[], rows bigint, by text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare event bigint;
begin
  insert into weft.event (org_id, name, payload, actor) values (v.org_id, 'dataset.written', jsonb_build_object(
    'dataset', named, 'version', v.number, 'write', n, 'mode', how,
    'partitions', case when cardinality(touched) <= 1000 then to_jsonb(touched) end, 'rows', rows), by)
  returning id into event;
  insert into weft.outbox (org_id, kind, payload, actor) values (v.org_id, 'route_event', json_build_object('event_id', event::text), by);
  perform weft.tell_written(v.dataset_id);
end $$;

CREATE FUNCTION weft.tell_written(dataset bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  if exists (select 1 from weft.live_input i where i.dataset_id = tell_written.dataset) then
    perform weft.hint_live();
  end if;
end $$;

CREATE FUNCTION weft.time_of_id(id bigint) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN to_timestamp((((((id >> 22) + '1704067200000'::bigint))::numeric / 1000.0))::double precision);

CREATE FUNCTION weft.trace_of(task bigint, try integer, OUT trace jsonb, OUT producer text, OUT unkept text) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare each record; items jsonb := '[]';
begin
  if exists (
    with recursive made as (
      select k.id from weft.task_done k where k.parent_id = task and k.id > task
      union all
      select k.id from made m join weft.task_done k on k.parent_id = m.id and k.id > m.id
    )
    select 1 from made m where exists (select 1 from weft.task_input i where i.task_id = m.id)
      or exists (
        select 1 from weft.task_done t join weft.dataset_write w on w.org_id = t.org_id and w.task_id = t.id where t.id = m.id)
  ) then
    unkept := 'made';
    return;
  end if;
  for each in
    select i.dataset_id, i.version_id, i.write, i.partitions, i.pinned, coalesce(i.seen, i.write) as seen,
      d.current_id, v.id, v.number, v.last_write, v.lost_by, v.columns_by, v.schema_hash, v.content
    from weft.inputs_of(task, try) i left join weft.dataset_version v on v.id = i.version_id left join weft.dataset d on d.id = v.dataset_id
    order by i.attempt, i.place
  loop
    if each.id is null or each.columns_by > each.seen or coalesce(each.pinned, 'since') = 'since' and each.current_id is distinct from each.id
      or each.pinned is distinct from 'write' and ((each.partitions is null or each.pinned = 'since') and each.last_write > each.write
        or each.partitions is not null and (each.lost_by > each.write or exists (
          select 1 from weft.dataset_partition p
          where p.version_id = each.id and p.partition_key = any (each.partitions) and p.last_write > each.write)))
    then
      unkept := 'moved';
      return;
    end if;
    items := items || jsonb_build_object(
      'role', 'read', 'dataset', each.dataset_id, 'version', each.id, 'number', each.number, 'write', each.write,
      'partitions', each.partitions, 'pinned', each.pinned, 'schema', each.schema_hash,
      'content', case when each.partitions is null then each.content else weft.content_of(each.id, each.partitions) end);
  end loop;
  for each in
    select w.number as write, w.mode, w.keys, w.is_whole, w.adds_again, v.id, v.dataset_id, v.number, v.last_write, v.content,
      d.current_id, d.producer_dag, d.producer_node
    from weft.task_done t join weft.dataset_write w on w.org_id = t.org_id and w.task_id = t.id and w.attempt = t.attempt
      join weft.dataset_version v on v.id = w.version_id join weft.dataset d on d.id = v.dataset_id
    where t.id = task and t.attempt = try order by v.id
  loop
    if each.adds_again then
      unkept := 'adds';
      return;
    end if;
    if each.current_id is distinct from each.id or each.is_whole and each.last_write > each.write or not each.is_whole and (each.keys is null
      or each.mode = 'replace' and (
        select count(*) from weft.dataset_partition p
        where p.version_id = each.id and p.partition_key = any (each.keys) and p.last_write = each.write) < cardinality(each.keys))
    then
      unkept := 'moved';
      return;
    end if;
    producer := each.producer_dag || '/' || each.producer_node;
    items := items || jsonb_build_object(
      'role', case when each.is_whole then 'whole' when each.mode = 'replace' then 'replaced' else 'added' end,
      'dataset', each.dataset_id, 'version', each.id, 'number', each.number, 'write', each.write, 'partitions', each.keys, 'producer', producer,
      'content', case when each.is_whole then each.content else weft.content_of(each.id, each.keys) end);
  end loop;
  trace := nullif(items, '[]');
end $$;

CREATE FUNCTION weft.trace_problems(org bigint, trace jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
declare each record; now record; last record; late record; stands boolean; found jsonb;
begin
  for each in
    select * from jsonb_to_recordset(trace) as r (
      role text, dataset bigint, version bigint, number int, write bigint, partitions text[], pinned text, schema text,
      producer text, content bigint)
  loop
    select v.id, v.collected_at, v.oldest_write, v.schema_hash, v.content, v.last_write as own_write, d.current_id, d.deleted_at,
      d.producer_dag || '/' || d.producer_node as producer, s.id as seen_id, s.number, s.last_write into now
    from weft.dataset d left join weft.dataset_version v on v.id = each.version and v.dataset_id = d.id
      left join weft.dataset_version s on s.id = case when coalesce(each.pinned, 'since') = 'since' then d.current_id else v.id end
    where d.org_id = org and d.id = each.dataset;
    stands := case
      when now.id is null or now.collected_at is not null or now.deleted_at is not null then false
      when coalesce(each.pinned, 'since') = 'since' and now.current_id is distinct from now.id then false
      when each.role = 'read' and now.schema_hash is distinct from each.schema then false
      when each.role <> 'read' and each.producer is distinct from now.producer then false
      when each.pinned = 'write' then now.oldest_write <= each.write
      when each.pinned = 'since' then now.own_write = each.write
      when each.role = 'added' then cardinality(each.partitions) = (
        select count(*) from weft.dataset_partition p
        where p.version_id = now.id and p.partition_key = any (each.partitions) and p.lost_by <= each.write)
      when each.role = 'whole' or each.partitions is null then now.content = each.content
      else weft.content_of(now.id, each.partitions) = each.content end;
    continue when stands;
    -- Of some partitions these are read, and of all the last that was written.
    if each.role = 'whole' or each.partitions is null then
      select p.last_write, p.partition_key into last from weft.dataset_partition p
      where p.version_id = now.seen_id order by p.last_write desc, p.partition_key desc limit 1;
    else
      select o.last_write, o.partition_key into last from (
        select p.last_write, p.partition_key from weft.dataset_partition p
        where p.version_id = now.seen_id and p.partition_key = any (each.partitions) offset 0
      ) o order by o.last_write desc limit 1;
    end if;
    select w.task_id, w.mode, last.partition_key into late from weft.dataset_write w
    where w.version_id = now.seen_id and w.number = last.last_write and (now.seen_id <> each.version or last.last_write > each.write);
    found := coalesce(found, '[]') || jsonb_build_object(
      'role', each.role, 'dataset', each.dataset, 'number', each.number, 'write', each.write, 'now_number',
      case when now.deleted_at is null then now.number end,
      'now_write', now.last_write, 'partition', nullif(late.partition_key, ''), 'by', late.task_id, 'mode', late.mode);
    exit when jsonb_array_length(found) = 3;
  end loop;
  return found;
end $$;

CREATE FUNCTION weft.turn_live_job(job bigint, room integer, is_thorough boolean, OUT begun integer, OUT is_more boolean) RETURNS record
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
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

CREATE FUNCTION weft.undelete_tag(org bigint, tag_name text, actor text, message text) RETURNS weft.tag
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag := weft.lock_tag(org, tag_name, null, null, true);
begin
  if t.name is null then
    perform weft.refuse_lost(org, tag_name);
  end if;
  if t.name is null or t.deleted_at is null then
    return null;
  end if;
  return weft.add_move(t, 'undelete', t.target_id, t.position, actor, message, null);
end $$;

CREATE FUNCTION weft.undo_tag(org bigint, tag_name text, steps integer, expected_version bigint, expected_hash bytea, force boolean, actor text, message text) RETURNS weft.tag
    LANGUAGE plpgsql
    SET lock_timeout TO '3s'
    AS $$
declare t weft.tag := weft.lock_tag(org, tag_name, expected_version, expected_hash, force); back bigint; target bigint;
begin
  if t.name is null or t.deleted_at is not null then
    raise exception 'there is no tag %', tag_name using errcode = 'WF005';
  end if;
  for step in 1 .. steps loop
    back := t.position;
    loop
      select m.back_to into back from weft.tag_move m where m.org_id = org and m.tag = tag_name and m.version = back;
      exit when back is null;
      select m.to_id into target from weft.tag_move m where m.org_id = org and m.tag = tag_name and m.version = back;
      exit when exists (select 1 from weft.artifact a where a.id = target and a.org_id = org);
    end loop;
    if back is null then
      if step = 1 then
        raise exception 'tag %: nothing to undo', tag_name using errcode = 'WF006';
      end if;
      exit;
    end if;
    t := weft.add_move(t, 'undo', target, back, actor, message, null);
  end loop;
  return t;
end $$;

CREATE FUNCTION weft.unit_of_partition(l weft.live_job, at_place integer, key text, backfill bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE weft.live_backfill (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    live_job_id bigint NOT NULL,
    place integer NOT NULL,
    first_key text COLLATE pg_catalog."C",
    last_key text COLLATE pg_catalog."C",
    next_key text COLLATE pg_catalog."C",
    at_once integer NOT NULL,
    partitions integer NOT NULL,
    made integer DEFAULT 0 NOT NULL,
    last_unit bigint,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    ended_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    actor text NOT NULL,
    CONSTRAINT live_backfill_at_once_check CHECK ((at_once > 0))
);

CREATE FUNCTION weft.units_of_backfill(b weft.live_backfill, OUT units integer, OUT held integer) RETURNS record
    LANGUAGE sql STABLE
    AS $$
  select count(*), count(*) filter (where u.state = 'held') from weft.live_unit u
  where u.live_job_id = b.live_job_id and u.state <> 'done' and (u.backfill_id = b.id
    or b.ended_at is null and u.id < b.last_unit and u.kind in ('partition', 'bootstrap') and weft.key_is_within(u.lane, b.first_key, b.last_key))
$$;

CREATE TABLE weft.artifact (
    id bigint NOT NULL,
    org_id bigint NOT NULL,
    parent_id bigint,
    merged_id bigint,
    base_id bigint,
    chain bigint[],
    depth smallint GENERATED ALWAYS AS (COALESCE(cardinality(chain), 0)) STORED NOT NULL,
    kind weft.artifact_kind NOT NULL,
    generation integer NOT NULL,
    workflow_id text NOT NULL,
    digest text NOT NULL,
    version_hash bytea NOT NULL,
    plan_hash bytea,
    actor text NOT NULL,
    message text,
    meta json,
    CONSTRAINT artifact_check CHECK (((octet_length(version_hash) = 32) AND (octet_length(plan_hash) = 32))),
    CONSTRAINT artifact_check1 CHECK (((kind = 'patch'::weft.artifact_kind) = ((base_id IS NOT NULL) AND (parent_id IS NOT NULL) AND (chain IS NOT NULL)))),
    CONSTRAINT artifact_check2 CHECK ((chain[cardinality(chain)] = id)),
    CONSTRAINT artifact_check3 CHECK (((kind = 'snapshot'::weft.artifact_kind) = (plan_hash IS NOT NULL)))
);

CREATE TABLE weft.output_cache (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    key bytea NOT NULL,
    handler text NOT NULL,
    task_id bigint NOT NULL,
    made_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    expires_at timestamp with time zone,
    digest text,
    bytes bigint DEFAULT 0 NOT NULL,
    producer text,
    trace jsonb,
    output json NOT NULL,
    CONSTRAINT output_cache_key_check CHECK ((octet_length(key) = 32))
);

CREATE TABLE weft.task_blob (
    task_id bigint NOT NULL,
    digest text NOT NULL,
    org_id bigint NOT NULL
);

CREATE TABLE weft.task_log (
    task_id bigint NOT NULL,
    org_id bigint NOT NULL,
    attempt integer NOT NULL,
    digest text NOT NULL,
    bytes bigint NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL
);

CREATE VIEW weft.blob_use AS
 SELECT r.digest,
    r.org_id,
    'task'::text AS used_by,
    r.task_id AS user_id
   FROM weft.task_blob r
UNION ALL
 SELECT l.digest,
    l.org_id,
    'log'::text AS used_by,
    l.task_id AS user_id
   FROM weft.task_log l
UNION ALL
 SELECT a.digest,
    a.org_id,
    'artifact'::text AS used_by,
    a.id AS user_id
   FROM weft.artifact a
UNION ALL
 SELECT c.digest,
    c.org_id,
    'cache'::text AS used_by,
    c.task_id AS user_id
   FROM weft.output_cache c
  WHERE (c.digest IS NOT NULL);

CREATE FUNCTION weft.uses_blob(org bigint, wanted text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ((org = COALESCE(weft.current_org(), org)) AND (EXISTS (SELECT 1 FROM weft.blob_use u WHERE ((u.digest = uses_blob.wanted) AND (u.org_id = uses_blob.org)))));

CREATE FUNCTION weft.wait_for_answer(me bigint, task_id bigint, in_attempt integer, patience interval) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  update weft.task t set state = 'waiting', worker_id = null, expires_at = weft.now() + patience
  where t.id = task_id and coalesce(t.worker_id, 0) = me and t.attempt = in_attempt and t.state = 'running';
  return found;
end $$;

CREATE FUNCTION weft.wall_in(role regrole) RETURNS integer
    LANGUAGE plpgsql
    AS $_$
declare found record; wall text := 'wall_' || role::oid; count int := 0;
begin
  for found in
    select c.relname as name, o.own, case c.relname
      -- Orchestrators and their queues serve all orgs.
      when 'queue' then format('%s or id = 2 or id < 0', o.own) when 'worker' then format('%s or 2 = any (queues)', o.own)
      else o.own end as seen,
      c.relrowsecurity and exists (select 1 from pg_policy p where p.polrelid = c.oid and p.polroles = array[role::oid]
        and not p.polpermissive and p.polname like 'wall\_%') as is_walled
    from pg_class c cross join lateral (
      select format('%s = coalesce((select weft.current_org()), %1$s)', case c.relname when 'org' then 'id' else 'org_id' end) as own
    ) o
    where c.relnamespace = 'weft'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and (
      c.relname = 'org' or exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'org_id' and not a.attisdropped))
  loop
    count := count + 1;
    continue when found.is_walled;
    execute format('alter table weft.%I enable row level security', found.name);
    execute format('drop policy if exists anyone on weft.%I', found.name);
    execute format('create policy anyone on weft.%I using (true)', found.name);
    execute format('drop policy if exists %I on weft.%I', wall, found.name);
    execute format('create policy %I on weft.%I as restrictive to %s using (%s) with check (%s)', wall, found.name, role, found.seen, found.own);
  end loop;
  return count;
end $_$;

CREATE TABLE weft.answer (
    org_id bigint NOT NULL,
    key bytea NOT NULL,
    request bytea NOT NULL,
    status smallint,
    body bytea,
    etag text,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL
);

CREATE TABLE weft.dag_version (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    dag_id bigint NOT NULL,
    number integer NOT NULL,
    artifact_id bigint NOT NULL,
    state text DEFAULT 'building'::text NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    live_at timestamp with time zone,
    retired_at timestamp with time zone,
    actor text NOT NULL,
    message text,
    CONSTRAINT dag_version_number_check CHECK ((number > 0)),
    CONSTRAINT dag_version_state_check CHECK ((state = ANY (ARRAY['building'::text, 'live'::text, 'retired'::text, 'abandoned'::text])))
);

CREATE VIEW weft.artifact_use AS
 SELECT artifact_id,
    org_id,
    used_by,
    user_name
   FROM ( SELECT m.to_id AS artifact_id,
            m.org_id,
            'tag'::text AS used_by,
            m.tag AS user_name
           FROM weft.tag_move m
          WHERE (m.to_id IS NOT NULL)
        UNION ALL
         SELECT t.target_id,
            t.org_id,
            'tag'::text,
            t.name
           FROM weft.tag t
        UNION ALL
         SELECT a.parent_id,
            a.org_id,
            (a.kind)::text AS kind,
            (a.id)::text AS id
           FROM weft.artifact a
          WHERE (a.parent_id IS NOT NULL)
        UNION ALL
         SELECT a.merged_id,
            a.org_id,
            (a.kind)::text AS kind,
            (a.id)::text AS id
           FROM weft.artifact a
          WHERE (a.merged_id IS NOT NULL)
        UNION ALL
         SELECT a.base_id,
            a.org_id,
            (a.kind)::text AS kind,
            (a.id)::text AS id
           FROM weft.artifact a
          WHERE (a.base_id IS NOT NULL)
        UNION ALL
         SELECT j.snapshot_id,
            j.org_id,
            'job'::text,
            (j.id)::text AS id
           FROM weft.job j
          WHERE (j.snapshot_id IS NOT NULL)
        UNION ALL
         SELECT d.snapshot_id,
            d.org_id,
            'job'::text,
            (d.id)::text AS id
           FROM weft.job_done d
          WHERE (d.snapshot_id IS NOT NULL)
        UNION ALL
         SELECT v_1.artifact_id,
            v_1.org_id,
            'dag'::text,
            (v_1.id)::text AS id
           FROM weft.dag_version v_1) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

CREATE TABLE weft.attempt (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    org_id bigint NOT NULL,
    worker_id bigint,
    outcome text NOT NULL,
    reason text,
    started_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    error json,
    job_id bigint
)
PARTITION BY RANGE (task_id);

CREATE VIEW weft.attempts AS
 SELECT task_id,
    attempt,
    org_id,
    worker_id,
    outcome,
    reason,
    started_at,
    ended_at,
    error
   FROM ( SELECT a.task_id,
            a.attempt,
            a.org_id,
            a.worker_id,
            a.outcome,
            a.reason,
            a.started_at,
            a.ended_at,
            a.error
           FROM weft.attempt a) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.attempts IS 'Every attempt that did not complete, with its error.';

CREATE TABLE weft.audit_seal (
    org_id bigint NOT NULL,
    number bigint NOT NULL,
    sealed_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    ids bigint[] NOT NULL,
    hashes bytea[] NOT NULL,
    before bytea NOT NULL,
    before_id bigint NOT NULL,
    digest bytea NOT NULL,
    next_xid xid8 NOT NULL,
    seen_to bigint NOT NULL,
    done_to bigint NOT NULL,
    CONSTRAINT audit_seal_check CHECK ((cardinality(hashes) = cardinality(ids))),
    CONSTRAINT audit_seal_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT audit_seal_ids_check CHECK ((cardinality(ids) > 0)),
    CONSTRAINT audit_seal_number_check CHECK ((number > 0))
);

CREATE VIEW weft.audits AS
 SELECT id,
    org_id,
    at,
    actor,
    verb,
    subject_kind,
    subject_ids,
    subject_name,
    detail,
    origin,
    reason
   FROM weft.audit a;

COMMENT ON VIEW weft.audits IS 'What was done by whom: a row for each act that changes something, but for tasks and effects, which have it themselves.';

CREATE TABLE weft.awaited (
    task_id bigint NOT NULL,
    org_id bigint NOT NULL,
    job_id bigint NOT NULL,
    since timestamp with time zone DEFAULT weft.now() NOT NULL,
    kind text NOT NULL,
    skips boolean DEFAULT false NOT NULL,
    event text,
    match jsonb DEFAULT '{}'::jsonb NOT NULL,
    form json DEFAULT '{}'::json NOT NULL,
    CONSTRAINT awaited_kind_check CHECK ((kind = ANY (ARRAY['approval'::text, 'event'::text])))
);

CREATE TABLE weft.backfill (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    schedule_id bigint NOT NULL,
    cron text,
    every interval,
    timezone text NOT NULL,
    anchor timestamp with time zone NOT NULL,
    since timestamp with time zone NOT NULL,
    until timestamp with time zone NOT NULL,
    at_once integer NOT NULL,
    ticks integer NOT NULL,
    made integer DEFAULT 0 NOT NULL,
    missed integer DEFAULT 0 NOT NULL,
    next_at timestamp with time zone,
    running bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    last_error text,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    ended_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    actor text NOT NULL,
    CONSTRAINT backfill_at_once_check CHECK ((at_once > 0))
);

CREATE TABLE weft.blob (
    digest text NOT NULL,
    bytes bigint NOT NULL,
    put_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    media_type text,
    content bytea
)
WITH (toast_tuple_target='8160');
ALTER TABLE ONLY weft.blob ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE weft.column_edge (
    org_id bigint NOT NULL,
    output_id bigint NOT NULL,
    output_column text NOT NULL,
    input_id bigint NOT NULL,
    input_column text NOT NULL,
    job_id bigint,
    last_at timestamp with time zone NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE weft.dag_version_dataset (
    dag_version_id bigint NOT NULL,
    dataset_id bigint NOT NULL,
    version_id bigint NOT NULL,
    org_id bigint NOT NULL
);

CREATE TABLE weft.dag_version_job (
    dag_version_id bigint NOT NULL,
    live_job_id bigint NOT NULL,
    org_id bigint NOT NULL,
    settings json NOT NULL
);

CREATE TABLE weft.dataset (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    name text NOT NULL,
    description text,
    producer_dag text,
    producer_node text,
    producer_output integer,
    storage json NOT NULL,
    read_roles text[] DEFAULT '{}'::text[] NOT NULL,
    unique_key text[],
    last_version integer DEFAULT 0 NOT NULL,
    current_id bigint,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    updated_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    deleted_at timestamp with time zone,
    actor text NOT NULL
);

CREATE TABLE weft.dataset_edge (
    org_id bigint NOT NULL,
    input_id bigint NOT NULL,
    output_id bigint NOT NULL,
    first_at timestamp with time zone DEFAULT weft.now() NOT NULL
);

CREATE TABLE weft.dataset_file (
    version_id bigint NOT NULL,
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    partition_key text NOT NULL COLLATE pg_catalog."C",
    path text NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    added_by bigint NOT NULL,
    removed_by bigint
);

CREATE TABLE weft.dataset_partition (
    version_id bigint NOT NULL,
    partition_key text NOT NULL COLLATE pg_catalog."C",
    org_id bigint NOT NULL,
    last_write bigint NOT NULL,
    lost_by bigint DEFAULT 0 NOT NULL,
    content bigint DEFAULT 0 NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    files integer NOT NULL,
    written_at timestamp with time zone NOT NULL
);

CREATE TABLE weft.dataset_seen (
    org_id bigint NOT NULL,
    dataset_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    version_id bigint NOT NULL
);

CREATE TABLE weft.dataset_write (
    version_id bigint NOT NULL,
    number bigint NOT NULL,
    org_id bigint NOT NULL,
    mode text NOT NULL,
    task_id bigint,
    attempt integer,
    job_id bigint,
    node text,
    handler text,
    partitions integer NOT NULL,
    keys text[],
    is_whole boolean DEFAULT false NOT NULL,
    adds_again boolean DEFAULT false NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    rows_removed bigint NOT NULL,
    columns json,
    written_at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    CONSTRAINT dataset_write_mode_check CHECK ((mode = ANY (ARRAY['append'::text, 'replace'::text, 'rollback'::text, 'register'::text])))
);

CREATE TABLE weft.dataset_write_input (
    version_id bigint NOT NULL,
    number bigint NOT NULL,
    org_id bigint NOT NULL,
    place integer NOT NULL,
    input_id bigint NOT NULL,
    input_version_id bigint NOT NULL,
    input_write bigint NOT NULL,
    partitions text[]
);

CREATE VIEW weft.datasets AS
 SELECT d.id,
    d.org_id,
    d.name,
    d.description,
    d.producer_dag,
    d.producer_node,
    d.producer_output,
    d.storage,
    d.read_roles,
    d.unique_key,
    v.number AS version,
    v.last_write AS write,
    v.columns,
    v.rows,
    v.bytes,
    v.files,
    v.written_at,
    d.created_at,
    d.updated_at,
    d.actor
   FROM (weft.dataset d
     LEFT JOIN weft.dataset_version v ON ((v.id = d.current_id)))
  WHERE ((d.org_id = COALESCE(( SELECT weft.current_org() AS current_org), d.org_id)) AND (d.deleted_at IS NULL));

COMMENT ON VIEW weft.datasets IS 'Named tables of data, each with the version that readers see.';

CREATE TABLE weft.edge (
    prev bigint NOT NULL,
    next bigint NOT NULL,
    org_id bigint NOT NULL,
    branches smallint[]
);

CREATE TABLE weft.handler (
    org_id bigint NOT NULL,
    name text NOT NULL,
    known_at timestamp with time zone DEFAULT weft.now() NOT NULL
);

CREATE SEQUENCE weft.id_sequence
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    MAXVALUE 4095
    CACHE 1
    CYCLE;

CREATE TABLE weft.idempotency_key (
    org_id bigint NOT NULL,
    handler text NOT NULL,
    key text NOT NULL,
    task_id bigint NOT NULL,
    ended_at timestamp with time zone,
    job_id bigint,
    request bytea
);

CREATE TABLE weft.job_event (
    job_id bigint NOT NULL,
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    at timestamp with time zone DEFAULT weft.now() NOT NULL,
    task_id bigint,
    type text NOT NULL,
    node text,
    state text,
    data json,
    checkpoint text,
    CONSTRAINT job_event_type_check CHECK ((type ~ '^(job|task)\.[a-z_]+$'::text))
)
PARTITION BY RANGE (job_id);

CREATE TABLE weft.step (
    task_id bigint NOT NULL,
    name text NOT NULL,
    org_id bigint NOT NULL,
    job_id bigint,
    attempt integer NOT NULL,
    saved_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    took interval,
    bytes bigint NOT NULL,
    data json NOT NULL,
    CONSTRAINT step_name_check CHECK (((name <> ''::text) AND (length(name) <= 220)))
)
PARTITION BY RANGE (task_id);

CREATE TABLE weft.task (
    id bigint NOT NULL,
    org_id bigint NOT NULL,
    queue_id bigint NOT NULL,
    order_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    state weft.task_state NOT NULL,
    waiting_on weft.waiting_count DEFAULT 0 NOT NULL,
    attempt weft.attempt_number DEFAULT 0 NOT NULL,
    rank weft.rank_number DEFAULT 0 NOT NULL,
    max_attempts smallint,
    failures weft.failure_count DEFAULT 0 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    generation smallint DEFAULT 0 NOT NULL,
    handler weft.handler_name NOT NULL,
    params json,
    worker_id bigint,
    claimed_at timestamp with time zone,
    due_at timestamp with time zone,
    expires_at timestamp with time zone,
    job_id bigint,
    timeout weft.span,
    heartbeat_timeout weft.span,
    retry json,
    concurrency_key text,
    reason text,
    actor text,
    node text,
    parent_id bigint,
    item integer,
    counts_for bigint,
    reached integer DEFAULT 0 NOT NULL,
    needs bigint[],
    allow_failure boolean DEFAULT false NOT NULL,
    dispatch_timeout interval,
    resting_attempt integer
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.2');

CREATE VIEW weft.job_events AS
 SELECT job_id,
    org_id,
    id,
    at,
    type,
    state,
    node,
    item,
    task_id,
    attempt,
    data,
    checkpoint
   FROM ( SELECT j.job_id,
            j.org_id,
            ((j.job_id || '.'::text) || s.type) AS id,
            s.at,
            ('job.'::text || s.type) AS type,
            s.state,
            NULL::text AS node,
            NULL::integer AS item,
            NULL::bigint AS task_id,
            NULL::integer AS attempt,
            json_strip_nulls(s.data) AS data,
            NULL::text AS checkpoint
           FROM (( SELECT j_1.id AS job_id,
                    j_1.org_id,
                    j_1.created_at,
                    j_1.started_at,
                    NULL::timestamp with time zone AS ended_at,
                    NULL::text AS ending,
                    j_1.actor,
                    NULL::text AS reason,
                    NULL::bigint AS failed_id,
                    NULL::json AS error
                   FROM weft.job j_1
                UNION ALL
                 SELECT d.id,
                    d.org_id,
                    d.created_at,
                    d.started_at,
                    d.ended_at,
                    (d.state)::text AS state,
                    d.actor,
                    d.reason,
                    d.failed_id,
                    d.error
                   FROM weft.job_done d) j
             CROSS JOIN LATERAL ( VALUES ('submitted'::text,'pending'::text,j.created_at,json_build_object('by', j.actor)), ('started'::text,'running'::text,j.started_at,NULL::json), (j.ending,j.ending,j.ended_at,json_build_object('reason', j.reason, 'failed_id', (j.failed_id)::text, 'type', (j.error ->> 'type'::text), 'message', (j.error ->> 'message'::text)))) s(type, state, at, data))
          WHERE (s.at IS NOT NULL)
        UNION ALL
         SELECT t.job_id,
            t.org_id,
            (((t.id || '.'::text) || t.attempt) || '.running'::text) AS id,
            t.claimed_at AS at,
            'task.claimed'::text AS type,
            'running'::text AS state,
            t.node,
            t.item,
            t.id AS task_id,
            t.attempt,
            json_strip_nulls(json_build_object('worker_id', (t.worker_id)::text)) AS data,
            NULL::text AS checkpoint
           FROM weft.task t
          WHERE ((t.node IS NOT NULL) AND (t.claimed_at IS NOT NULL) AND (NOT (EXISTS ( SELECT 1
                   FROM weft.attempt a
                  WHERE ((a.task_id = t.id) AND (a.attempt = (t.attempt)::integer))))))
        UNION ALL
         SELECT d.job_id,
            d.org_id,
            (((d.id || '.'::text) || d.attempt) || '.running'::text) AS id,
            d.claimed_at AS at,
            'task.claimed'::text AS type,
            'running'::text AS state,
            d.node,
            d.item,
            d.id AS task_id,
            d.attempt,
            json_strip_nulls(json_build_object('worker_id', (d.worker_id)::text)) AS data,
            NULL::text AS checkpoint
           FROM weft.task_done d
          WHERE ((d.node IS NOT NULL) AND (d.claimed_at IS NOT NULL) AND ((d.state = 'completed'::weft.task_state) OR (NOT (EXISTS ( SELECT 1
                   FROM weft.attempt a
                  WHERE ((a.task_id = d.id) AND (a.attempt = d.attempt)))))))
        UNION ALL
         SELECT d.job_id,
            d.org_id,
            ((d.id || '.'::text) || d.state) AS id,
            d.ended_at AS at,
            ('task.'::text || d.state) AS type,
            (d.state)::text AS state,
            d.node,
            d.item,
            d.id AS task_id,
            d.attempt,
            json_strip_nulls(json_build_object('reason', d.reason, 'kept_id', (d.kept_id)::text, 'type', (d.error ->> 'type'::text), 'message', (d.error ->> 'message'::text), 'items',
                CASE
                    WHEN (d.handler = '@fan_out'::text) THEN (d.output -> 'count'::text)
                    ELSE NULL::json
                END)) AS data,
            NULL::text AS checkpoint
           FROM weft.task_done d
          WHERE (d.node IS NOT NULL)
        UNION ALL
         SELECT a.job_id,
            a.org_id,
            (((a.task_id || '.'::text) || a.attempt) || '.running'::text) AS id,
            a.started_at AS at,
            'task.claimed'::text AS type,
            'running'::text AS state,
            t.node,
            t.item,
            a.task_id,
            a.attempt,
            json_strip_nulls(json_build_object('worker_id', (a.worker_id)::text)) AS data,
            NULL::text AS checkpoint
           FROM (weft.attempt a
             CROSS JOIN LATERAL ( SELECT t_1.node,
                    t_1.item
                   FROM weft.task t_1
                  WHERE ((t_1.id = a.task_id) AND (t_1.node IS NOT NULL))
                UNION ALL
                 SELECT d.node,
                    d.item
                   FROM weft.task_done d
                  WHERE ((d.id = a.task_id) AND (d.node IS NOT NULL))) t)
          WHERE (a.started_at IS NOT NULL)
        UNION ALL
         SELECT a.job_id,
            a.org_id,
            ((((a.task_id || '.'::text) || a.attempt) || '.'::text) || a.outcome) AS id,
            a.ended_at AS at,
            ('attempt.'::text || a.outcome) AS type,
            a.outcome AS state,
            t.node,
            t.item,
            a.task_id,
            a.attempt,
            json_strip_nulls(json_build_object('reason', a.reason, 'worker_id', (a.worker_id)::text, 'type', (a.error ->> 'type'::text), 'message', (a.error ->> 'message'::text))) AS data,
            NULL::text AS checkpoint
           FROM (weft.attempt a
             CROSS JOIN LATERAL ( SELECT t_1.node,
                    t_1.item
                   FROM weft.task t_1
                  WHERE ((t_1.id = a.task_id) AND (t_1.node IS NOT NULL))
                UNION ALL
                 SELECT d.node,
                    d.item
                   FROM weft.task_done d
                  WHERE ((d.id = a.task_id) AND (d.node IS NOT NULL))) t)
        UNION ALL
         SELECT s.job_id,
            s.org_id,
            ((((s.task_id || '.'::text) || EXTRACT(epoch FROM s.saved_at)) || '.'::text) || s.name) AS id,
            s.saved_at AS at,
            'task.saved'::text AS type,
            'running'::text AS state,
            t.node,
            t.item,
            s.task_id,
            s.attempt,
            json_build_object('bytes', s.bytes) AS data,
            s.name AS checkpoint
           FROM (weft.step s
             CROSS JOIN LATERAL ( SELECT t_1.node,
                    t_1.item
                   FROM weft.task t_1
                  WHERE ((t_1.id = s.task_id) AND (t_1.node IS NOT NULL))
                UNION ALL
                 SELECT d.node,
                    d.item
                   FROM weft.task_done d
                  WHERE ((d.id = s.task_id) AND (d.node IS NOT NULL))) t)
          WHERE (s.name !~~ '@%'::text)
        UNION ALL
         SELECT e.job_id,
            e.org_id,
            (e.id)::text AS id,
            e.at,
            e.type,
            e.state,
            e.node,
            NULL::integer AS item,
            e.task_id,
            NULL::integer AS attempt,
            e.data,
            e.checkpoint
           FROM weft.job_event e) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.job_events IS 'What happened in each job, in order of `at` and then `id`.';

CREATE TABLE weft.job_label (
    job_id bigint NOT NULL,
    org_id bigint NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    ending weft.job_state NOT NULL
)
PARTITION BY RANGE (job_id);

CREATE TABLE weft.key_loan (
    task_id bigint NOT NULL,
    org_id bigint NOT NULL,
    queue_id bigint NOT NULL,
    key text NOT NULL,
    is_wanted boolean DEFAULT false NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE weft.key_slot (
    queue_id bigint NOT NULL,
    org_id bigint NOT NULL,
    key text NOT NULL,
    held integer DEFAULT 0 NOT NULL,
    max_running integer,
    CONSTRAINT key_slot_held_check CHECK ((held >= 0)),
    CONSTRAINT key_slot_max_running_check CHECK ((max_running > 0))
)
WITH (fillfactor='50');

CREATE TABLE weft.lease (
    name text NOT NULL,
    holder bigint NOT NULL,
    token bigint DEFAULT 1 NOT NULL,
    until timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE weft.live_dag (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    name text NOT NULL,
    version_id bigint,
    building_id bigint,
    last_version integer DEFAULT 0 NOT NULL,
    paused_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    actor text NOT NULL
);

CREATE TABLE weft.live_file (
    live_job_id bigint NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    org_id bigint NOT NULL,
    tag text NOT NULL,
    is_emitted boolean NOT NULL,
    seen_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    CONSTRAINT live_file_path_check CHECK (((length(path) >= 1) AND (length(path) <= 600)))
);

CREATE TABLE weft.live_input (
    live_job_id bigint NOT NULL,
    place integer NOT NULL,
    org_id bigint NOT NULL,
    dataset_id bigint NOT NULL,
    version_id bigint,
    is_internal boolean NOT NULL,
    routed_write bigint,
    boot_write bigint,
    boot_after text COLLATE pg_catalog."C",
    left_ids bigint[] DEFAULT '{}'::bigint[] NOT NULL
)
WITH (fillfactor='70');

CREATE VIEW weft.live_jobs AS
 SELECT j.id,
    j.org_id,
    d.name AS dag,
    j.name,
    j.config_hash,
    j.activation,
    j.runtime,
    j.operator,
    j.strategy,
    j.state,
    j.paused_at,
    j.max_concurrency,
    j.completed,
    j.failed,
    j.last_error,
    j.last_active_at,
    j.created_at,
    j.actor
   FROM (weft.live_job j
     JOIN weft.live_dag d ON ((d.id = j.dag_id)))
  WHERE (j.org_id = COALESCE(( SELECT weft.current_org() AS current_org), j.org_id));

COMMENT ON VIEW weft.live_jobs IS 'Deployed nodes of live DAGs, each with what has become of it.';

CREATE TABLE weft.live_output (
    live_job_id bigint NOT NULL,
    place integer NOT NULL,
    org_id bigint NOT NULL,
    dataset_id bigint NOT NULL,
    version_id bigint NOT NULL
);

CREATE TABLE weft.live_source (
    live_job_id bigint NOT NULL,
    org_id bigint NOT NULL,
    kind text NOT NULL,
    is_listening boolean DEFAULT false NOT NULL,
    manner json,
    deaf_since timestamp with time zone,
    cron text,
    every interval,
    timezone text,
    anchor timestamp with time zone,
    catch_up text,
    next_at timestamp with time zone,
    missed bigint DEFAULT 0 NOT NULL,
    event text,
    match jsonb,
    hook json,
    table_name text,
    columns text[],
    followed oid,
    backlog integer DEFAULT 0 NOT NULL,
    lane text[],
    rest_until timestamp with time zone,
    caught_up_at timestamp with time zone,
    CONSTRAINT live_source_catch_up_check CHECK ((catch_up = ANY (ARRAY['none'::text, 'latest'::text, 'all'::text]))),
    CONSTRAINT live_source_kind_check CHECK ((kind = ANY (ARRAY['cron'::text, 'interval'::text, 'event'::text, 'files'::text, 'table'::text, 'continuous'::text])))
)
WITH (fillfactor='70');

CREATE TABLE weft.live_unit (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    live_job_id bigint NOT NULL,
    lane text,
    kind text NOT NULL,
    dedupe_key text NOT NULL,
    state text DEFAULT 'new'::text NOT NULL,
    said json NOT NULL,
    since timestamp with time zone DEFAULT weft.now() NOT NULL,
    run_at timestamp with time zone,
    task_id bigint,
    is_boot boolean DEFAULT false NOT NULL,
    backfill_id bigint,
    CONSTRAINT live_unit_kind_check CHECK ((kind = ANY (ARRAY['bootstrap'::text, 'update'::text, 'partition'::text, 'event'::text, 'tick'::text, 'slice'::text, 'file'::text, 'row'::text]))),
    CONSTRAINT live_unit_state_check CHECK ((state = ANY (ARRAY['new'::text, 'waiting'::text, 'ready'::text, 'running'::text, 'done'::text, 'held'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE weft.machine (
    number smallint NOT NULL,
    holder text,
    until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT machine_number_check CHECK (((number >= 1) AND (number <= 1023)))
)
WITH (fillfactor='50');

CREATE TABLE weft.operator_state (
    live_job_id bigint NOT NULL,
    state_key text DEFAULT 'default'::text NOT NULL,
    org_id bigint NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    state json NOT NULL,
    updated_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    CONSTRAINT operator_state_state_key_check CHECK (((octet_length(state_key) >= 1) AND (octet_length(state_key) <= 800)))
)
WITH (fillfactor='70');

CREATE TABLE weft.org (
    id bigint NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    settings json DEFAULT '{}'::json NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL
);

CREATE TABLE weft.org_role (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    actor text NOT NULL,
    CONSTRAINT org_role_slug_check CHECK ((slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'::text))
);

CREATE TABLE weft.org_role_membership (
    org_id bigint NOT NULL,
    role_id bigint NOT NULL,
    user_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    actor text NOT NULL
);

CREATE VIEW weft.org_role_memberships AS
 SELECT org_id,
    role_id,
    user_id,
    created_at,
    actor
   FROM weft.org_role_membership m;

COMMENT ON VIEW weft.org_role_memberships IS 'Which user has which role of the org.';

CREATE VIEW weft.org_roles AS
 SELECT id,
    org_id,
    slug,
    name,
    created_at,
    actor
   FROM weft.org_role r;

COMMENT ON VIEW weft.org_roles IS 'The roles that orgs have defined for their users.';

CREATE VIEW weft.orgs AS
 SELECT id,
    slug,
    name,
    created_at
   FROM weft.org o;

COMMENT ON VIEW weft.orgs IS 'Every org.';

CREATE VIEW weft.patch_chain_member AS
 SELECT a.org_id,
    a.id AS head_id,
    (m.seq)::smallint AS seq,
    m.member_id
   FROM (weft.artifact a
     CROSS JOIN LATERAL unnest(a.chain) WITH ORDINALITY m(member_id, seq));

CREATE TABLE weft.queue (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    name text NOT NULL,
    runtime text DEFAULT 'worker'::text NOT NULL,
    max_running integer,
    max_running_per_key integer,
    paused_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    actor text,
    CONSTRAINT queue_max_running_check CHECK ((max_running >= 0)),
    CONSTRAINT queue_max_running_per_key_check CHECK ((max_running_per_key > 0)),
    CONSTRAINT queue_name_check CHECK (((name <> ''::text) AND (length(name) <= 200)))
);

CREATE TABLE weft.queue_slot (
    queue_id bigint NOT NULL,
    worker_id bigint NOT NULL,
    org_id bigint NOT NULL,
    slots integer NOT NULL,
    CONSTRAINT queue_slot_slots_check CHECK ((slots >= 0))
)
WITH (fillfactor='50');

CREATE VIEW weft.queues AS
 SELECT id,
    org_id,
    name,
    runtime,
    max_running,
    max_running_per_key,
    (paused_at IS NOT NULL) AS paused,
    paused_at,
    created_at
   FROM weft.queue q;

COMMENT ON VIEW weft.queues IS 'Every queue, with its limits and whether it is paused.';

CREATE TABLE weft.schedule (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    name text NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    tag text NOT NULL,
    inputs json NOT NULL,
    cron text,
    every interval,
    timezone text NOT NULL,
    anchor timestamp with time zone NOT NULL,
    catch_up text NOT NULL,
    overlap text NOT NULL,
    priority smallint NOT NULL,
    next_at timestamp with time zone NOT NULL,
    paused_at timestamp with time zone,
    last_at timestamp with time zone,
    last_job_id bigint,
    last_error text,
    missed bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    actor text NOT NULL,
    CONSTRAINT schedule_catch_up_check CHECK ((catch_up = ANY (ARRAY['none'::text, 'latest'::text, 'all'::text]))),
    CONSTRAINT schedule_check CHECK (((cron IS NULL) <> (every IS NULL))),
    CONSTRAINT schedule_overlap_check CHECK ((overlap = ANY (ARRAY['allow'::text, 'skip'::text])))
)
WITH (fillfactor='70');

CREATE VIEW weft.schedules AS
 SELECT id,
    org_id,
    name,
    tag,
    inputs,
    cron,
    every,
    timezone,
    catch_up,
    overlap,
    priority,
    next_at,
    paused_at,
    last_at,
    last_job_id,
    last_error,
    missed,
    created_at,
    actor
   FROM weft.schedule s
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.schedules IS 'Workflows that begin by themselves, with the next tick of each.';

CREATE TABLE weft.schema_revision (
    version_num character varying(32) NOT NULL,
    digest text
);

CREATE TABLE weft.sign_in (
    digest bytea NOT NULL,
    org_id bigint NOT NULL,
    user_id bigint,
    name text NOT NULL,
    role weft.platform_role NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    CONSTRAINT sign_in_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT sign_in_name_check CHECK (((name <> ''::text) AND (length(name) <= 200)))
);

CREATE TABLE weft.staged_live (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    org_id bigint NOT NULL,
    live_job_id bigint NOT NULL,
    states json DEFAULT '[]'::json NOT NULL,
    units json DEFAULT '[]'::json NOT NULL,
    callbacks json DEFAULT '[]'::json NOT NULL,
    files json DEFAULT '[]'::json NOT NULL,
    rest interval,
    is_caught_up boolean
);

CREATE TABLE weft.staged_write (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    dataset_id bigint NOT NULL,
    version_id bigint NOT NULL,
    follows boolean NOT NULL,
    swaps boolean DEFAULT false NOT NULL,
    mode text NOT NULL,
    partitions text[],
    is_whole boolean DEFAULT false NOT NULL,
    files json,
    added bigint DEFAULT 0 NOT NULL,
    seen bigint,
    seen_schema text,
    columns json,
    schema_hash text,
    columns_from json,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    CONSTRAINT staged_write_mode_check CHECK ((mode = ANY (ARRAY['append'::text, 'replace'::text])))
);

CREATE VIEW weft.steps AS
 SELECT task_id,
    org_id,
    name,
    attempt,
    saved_at,
    took,
    bytes,
    data
   FROM ( SELECT s.task_id,
            s.org_id,
            s.name,
            s.attempt,
            s.saved_at,
            s.took,
            s.bytes,
            s.data
           FROM weft.step s) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.steps IS 'Every step and checkpoint that tasks have saved, and what their attempts have measured.';

CREATE TABLE weft.tally (
    org_id bigint NOT NULL,
    name text NOT NULL,
    process integer NOT NULL,
    count bigint DEFAULT 0 NOT NULL,
    seconds double precision DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE weft.tally_mark (
    name text NOT NULL,
    id bigint NOT NULL
);

CREATE TABLE weft.task_params (
    id bigint NOT NULL,
    org_id bigint NOT NULL,
    params json NOT NULL
)
PARTITION BY RANGE (id);

CREATE TABLE weft.task_reuse (
    task_id bigint NOT NULL,
    org_id bigint NOT NULL,
    attempt integer NOT NULL,
    handler text NOT NULL,
    node text NOT NULL,
    key bytea NOT NULL,
    args bytea NOT NULL,
    cause text NOT NULL,
    other_id bigint,
    made_at timestamp with time zone,
    detail jsonb,
    unkept text,
    noted_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    CONSTRAINT task_reuse_cause_check CHECK ((cause = ANY (ARRAY['served'::text, 'forced'::text, 'changed'::text, 'expired'::text, 'unkept'::text, 'removed'::text, 'code'::text, 'params'::text, 'nothing'::text]))),
    CONSTRAINT task_reuse_unkept_check CHECK ((unkept = ANY (ARRAY['large'::text, 'adds'::text, 'moved'::text, 'made'::text])))
);

CREATE VIEW weft.tasks AS
 SELECT id,
    org_id,
    queue,
    handler,
    state,
    reason,
    priority,
    job_id,
    attempt,
    failures,
    crashes,
    max_attempts,
    generation,
    params,
    output,
    error,
    concurrency_key,
    waiting_on,
    worker_id,
    actor,
    created_at,
    due_at,
    claimed_at,
    ended_at,
    queue_id,
    timeout,
    heartbeat_timeout,
    retry
   FROM ( SELECT t.id,
            t.org_id,
            q.name AS queue,
            t.handler,
            (t.state)::text AS state,
            t.reason,
            (- (t.rank)::smallint) AS priority,
            t.job_id,
            t.attempt,
            t.failures,
            t.crashes,
            t.max_attempts,
            t.generation,
            COALESCE(t.params, ( SELECT p.params
                   FROM weft.task_params p
                  WHERE (p.id = t.id))) AS params,
            NULL::json AS output,
            NULL::json AS error,
            t.concurrency_key,
            t.waiting_on,
            t.worker_id,
            t.actor,
            t.created_at,
            t.due_at,
            t.claimed_at,
            NULL::timestamp with time zone AS ended_at,
            t.queue_id,
            t.timeout,
            t.heartbeat_timeout,
            t.retry
           FROM (weft.task t
             JOIN weft.queue q ON ((q.id = t.queue_id)))
        UNION ALL
         SELECT d.id,
            d.org_id,
            q.name AS queue,
            d.handler,
            (d.state)::text AS state,
            d.reason,
            (- d.rank) AS priority,
            d.job_id,
            d.attempt,
            d.failures,
            d.crashes,
            d.max_attempts,
            d.generation,
            COALESCE(d.params, ( SELECT p.params
                   FROM weft.task_params p
                  WHERE (p.id = d.id))) AS params,
            d.output,
            d.error,
            d.concurrency_key,
            0 AS waiting_on,
            d.worker_id,
            d.actor,
            d.created_at,
            NULL::timestamp with time zone AS due_at,
            d.claimed_at,
            d.ended_at,
            d.queue_id,
            d.timeout,
            d.heartbeat_timeout,
            d.retry
           FROM (weft.task_done d
             JOIN weft.queue q ON ((q.id = d.queue_id)))) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.tasks IS 'Every task, live or ended, with its state and, when it has ended, its output or error.';

CREATE TABLE weft.token (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    user_id bigint,
    name text NOT NULL,
    role weft.token_role NOT NULL,
    queues text[],
    hint text NOT NULL,
    digest bytea NOT NULL,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    actor text NOT NULL,
    CONSTRAINT token_check CHECK (((queues IS NULL) OR ((role = 'worker'::weft.token_role) AND (cardinality(queues) > 0)))),
    CONSTRAINT token_check1 CHECK (((role <> 'worker'::weft.token_role) OR (user_id IS NULL))),
    CONSTRAINT token_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT token_name_check CHECK (((name <> ''::text) AND (length(name) <= 200)))
)
WITH (fillfactor='80');

CREATE TABLE weft."user" (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    external_id text NOT NULL,
    email text,
    role weft.platform_role NOT NULL,
    deactivated_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    actor text NOT NULL,
    CONSTRAINT user_external_id_check CHECK (((external_id <> ''::text) AND (length(external_id) <= 500)))
);

CREATE VIEW weft.tokens AS
 SELECT id,
    org_id,
    user_id,
    name,
    role,
    queues,
    hint,
    created_at,
    expires_at,
    revoked_at,
    last_used_at,
    actor,
    "user"
   FROM ( SELECT t.id,
            t.org_id,
            t.user_id,
            t.name,
            t.role,
            t.queues,
            t.hint,
            t.created_at,
            t.expires_at,
            t.revoked_at,
            t.last_used_at,
            t.actor,
            u.external_id AS "user"
           FROM (weft.token t
             LEFT JOIN weft."user" u ON ((u.id = t.user_id)))) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.tokens IS 'Every token, without what would let anybody use it.';

CREATE VIEW weft.users AS
 SELECT id,
    org_id,
    external_id,
    email,
    role,
    deactivated_at,
    created_at,
    actor,
    roles
   FROM ( SELECT u.id,
            u.org_id,
            u.external_id,
            u.email,
            u.role,
            u.deactivated_at,
            u.created_at,
            u.actor,
            ARRAY( SELECT r.slug
                   FROM (weft.org_role_membership m
                     JOIN weft.org_role r ON ((r.id = m.role_id)))
                  WHERE (m.user_id = u.id)
                  ORDER BY r.slug) AS roles
           FROM weft."user" u) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.users IS 'Every user, also those who are deactivated.';

CREATE TABLE weft.worker (
    id bigint DEFAULT weft.next_id() NOT NULL,
    org_id bigint NOT NULL,
    until timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    started_at timestamp with time zone DEFAULT weft.now() NOT NULL,
    completed bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    state weft.worker_state DEFAULT 'active'::weft.worker_state NOT NULL,
    saturated boolean DEFAULT false NOT NULL,
    blocked boolean DEFAULT false NOT NULL,
    concurrency integer NOT NULL,
    pid integer NOT NULL,
    hostname text NOT NULL,
    version text NOT NULL,
    queues bigint[] NOT NULL,
    handlers text[] NOT NULL,
    rescued_at timestamp with time zone,
    token_id bigint
)
WITH (fillfactor='50');

CREATE TABLE weft.worker_code (
    worker_id bigint NOT NULL,
    org_id bigint NOT NULL,
    handler text NOT NULL,
    code bytea NOT NULL,
    gone_at timestamp with time zone
);

CREATE VIEW weft.workers AS
 SELECT id,
    org_id,
    hostname,
    pid,
    version,
    state,
    concurrency,
    queues,
    handlers,
    started_at,
    last_heartbeat,
    until,
    tasks_completed,
    tasks_failed,
    is_leader
   FROM ( SELECT w.id,
            w.org_id,
            w.hostname,
            w.pid,
            w.version,
            (w.state)::text AS state,
            w.concurrency,
            ( SELECT array_agg(q.name ORDER BY q.name) AS array_agg
                   FROM weft.queue q
                  WHERE ((q.id = ANY (w.queues)) AND (q.id > 0))) AS queues,
            w.handlers,
            w.started_at,
            w.heartbeat_at AS last_heartbeat,
            w.until,
            w.completed AS tasks_completed,
            w.failed AS tasks_failed,
            (EXISTS ( SELECT 1
                   FROM weft.lease l
                  WHERE ((l.holder = w.id) AND (l.until > weft.now())))) AS is_leader
           FROM weft.worker w) v
  WHERE (org_id = COALESCE(( SELECT weft.current_org() AS current_org), org_id));

COMMENT ON VIEW weft.workers IS 'Every worker process that the registry knows, with its lease.';

ALTER TABLE ONLY weft.answer
    ADD CONSTRAINT answer_pkey PRIMARY KEY (org_id, key);

ALTER TABLE ONLY weft.artifact
    ADD CONSTRAINT artifact_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (task_id, attempt);

ALTER TABLE ONLY weft.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.audit_seal
    ADD CONSTRAINT audit_seal_pkey PRIMARY KEY (org_id, number);

ALTER TABLE ONLY weft.awaited
    ADD CONSTRAINT awaited_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY weft.backfill
    ADD CONSTRAINT backfill_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.blob
    ADD CONSTRAINT blob_pkey PRIMARY KEY (digest);

ALTER TABLE ONLY weft.column_edge
    ADD CONSTRAINT column_edge_pkey PRIMARY KEY (org_id, output_id, output_column, input_id, input_column);

ALTER TABLE ONLY weft.dag_version
    ADD CONSTRAINT dag_version_dag_id_number_key UNIQUE (dag_id, number);

ALTER TABLE ONLY weft.dag_version_dataset
    ADD CONSTRAINT dag_version_dataset_pkey PRIMARY KEY (dag_version_id, dataset_id);

ALTER TABLE ONLY weft.dag_version_job
    ADD CONSTRAINT dag_version_job_pkey PRIMARY KEY (dag_version_id, live_job_id);

ALTER TABLE ONLY weft.dag_version
    ADD CONSTRAINT dag_version_org_id_id_key UNIQUE (org_id, id);

ALTER TABLE ONLY weft.dag_version
    ADD CONSTRAINT dag_version_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.dataset_edge
    ADD CONSTRAINT dataset_edge_pkey PRIMARY KEY (org_id, output_id, input_id);

ALTER TABLE ONLY weft.dataset_file
    ADD CONSTRAINT dataset_file_pkey PRIMARY KEY (version_id, id);

ALTER TABLE ONLY weft.dataset
    ADD CONSTRAINT dataset_org_id_id_key UNIQUE (org_id, id);

ALTER TABLE ONLY weft.dataset
    ADD CONSTRAINT dataset_org_id_name_key UNIQUE (org_id, name);

ALTER TABLE ONLY weft.dataset
    ADD CONSTRAINT dataset_org_id_producer_dag_producer_node_producer_output_key UNIQUE (org_id, producer_dag, producer_node, producer_output);

ALTER TABLE ONLY weft.dataset_partition
    ADD CONSTRAINT dataset_partition_pkey PRIMARY KEY (version_id, partition_key);

ALTER TABLE ONLY weft.dataset
    ADD CONSTRAINT dataset_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.dataset_seen
    ADD CONSTRAINT dataset_seen_pkey PRIMARY KEY (dataset_id, at);

ALTER TABLE ONLY weft.dataset_version
    ADD CONSTRAINT dataset_version_dataset_id_config_hash_range_start_range_en_key UNIQUE NULLS NOT DISTINCT (dataset_id, config_hash, range_start, range_end);

ALTER TABLE ONLY weft.dataset_version
    ADD CONSTRAINT dataset_version_dataset_id_number_key UNIQUE (dataset_id, number);

ALTER TABLE ONLY weft.dataset_version
    ADD CONSTRAINT dataset_version_org_id_id_key UNIQUE (org_id, id);

ALTER TABLE ONLY weft.dataset_version
    ADD CONSTRAINT dataset_version_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.dataset_write_input
    ADD CONSTRAINT dataset_write_input_pkey PRIMARY KEY (version_id, number, place);

ALTER TABLE ONLY weft.dataset_write
    ADD CONSTRAINT dataset_write_pkey PRIMARY KEY (version_id, number);

ALTER TABLE ONLY weft.edge
    ADD CONSTRAINT edge_pkey PRIMARY KEY (prev, next);

ALTER TABLE ONLY weft.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.handler
    ADD CONSTRAINT handler_pkey PRIMARY KEY (org_id, name);

ALTER TABLE ONLY weft.idempotency_key
    ADD CONSTRAINT idempotency_key_pkey PRIMARY KEY (org_id, handler, key);

ALTER TABLE ONLY weft.job_done
    ADD CONSTRAINT job_done_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.job_event
    ADD CONSTRAINT job_event_pkey PRIMARY KEY (job_id, id);

ALTER TABLE ONLY weft.job_label
    ADD CONSTRAINT job_label_pkey PRIMARY KEY (org_id, name, value, ending, job_id);

ALTER TABLE ONLY weft.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.key_loan
    ADD CONSTRAINT key_loan_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY weft.key_slot
    ADD CONSTRAINT key_slot_pkey PRIMARY KEY (queue_id, key);

ALTER TABLE ONLY weft.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (name);

ALTER TABLE ONLY weft.live_backfill
    ADD CONSTRAINT live_backfill_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.live_dag
    ADD CONSTRAINT live_dag_org_id_id_key UNIQUE (org_id, id);

ALTER TABLE ONLY weft.live_dag
    ADD CONSTRAINT live_dag_org_id_name_key UNIQUE (org_id, name);

ALTER TABLE ONLY weft.live_dag
    ADD CONSTRAINT live_dag_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.live_file
    ADD CONSTRAINT live_file_pkey PRIMARY KEY (live_job_id, path);

ALTER TABLE ONLY weft.live_input
    ADD CONSTRAINT live_input_pkey PRIMARY KEY (live_job_id, place);

ALTER TABLE ONLY weft.live_job
    ADD CONSTRAINT live_job_dag_id_name_config_hash_key UNIQUE (dag_id, name, config_hash);

ALTER TABLE ONLY weft.live_job
    ADD CONSTRAINT live_job_org_id_id_key UNIQUE (org_id, id);

ALTER TABLE ONLY weft.live_job
    ADD CONSTRAINT live_job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.live_output
    ADD CONSTRAINT live_output_pkey PRIMARY KEY (live_job_id, place);

ALTER TABLE ONLY weft.live_source
    ADD CONSTRAINT live_source_pkey PRIMARY KEY (live_job_id);

ALTER TABLE ONLY weft.live_unit
    ADD CONSTRAINT live_unit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.machine
    ADD CONSTRAINT machine_pkey PRIMARY KEY (number);

ALTER TABLE ONLY weft.operator_state
    ADD CONSTRAINT operator_state_pkey PRIMARY KEY (live_job_id, state_key);

ALTER TABLE ONLY weft.org
    ADD CONSTRAINT org_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.org_role_membership
    ADD CONSTRAINT org_role_membership_pkey PRIMARY KEY (role_id, user_id);

ALTER TABLE ONLY weft.org_role
    ADD CONSTRAINT org_role_org_id_id_key UNIQUE (org_id, id);

ALTER TABLE ONLY weft.org_role
    ADD CONSTRAINT org_role_org_id_slug_key UNIQUE (org_id, slug);

ALTER TABLE ONLY weft.org_role
    ADD CONSTRAINT org_role_pkey PRIMARY KEY (id);

ALTER TABLE weft.org
    ADD CONSTRAINT org_slug_check CHECK ((slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'::text)) NOT VALID;

ALTER TABLE ONLY weft.org
    ADD CONSTRAINT org_slug_key UNIQUE (slug);

ALTER TABLE ONLY weft.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.output_cache
    ADD CONSTRAINT output_cache_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.queue
    ADD CONSTRAINT queue_org_id_name_key UNIQUE (org_id, name);

ALTER TABLE ONLY weft.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.queue_slot
    ADD CONSTRAINT queue_slot_pkey PRIMARY KEY (queue_id, worker_id);

ALTER TABLE ONLY weft.schedule
    ADD CONSTRAINT schedule_org_id_id_key UNIQUE (org_id, id);

ALTER TABLE ONLY weft.schedule
    ADD CONSTRAINT schedule_org_id_name_key UNIQUE (org_id, name);

ALTER TABLE ONLY weft.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.schema_revision
    ADD CONSTRAINT schema_revision_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY weft.sign_in
    ADD CONSTRAINT sign_in_pkey PRIMARY KEY (digest);

ALTER TABLE ONLY weft.staged_live
    ADD CONSTRAINT staged_live_pkey PRIMARY KEY (task_id, attempt);

ALTER TABLE ONLY weft.staged_write
    ADD CONSTRAINT staged_write_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.step
    ADD CONSTRAINT step_pkey PRIMARY KEY (task_id, name);

ALTER TABLE ONLY weft.tag_move
    ADD CONSTRAINT tag_move_pkey PRIMARY KEY (org_id, tag, version);

ALTER TABLE ONLY weft.tag
    ADD CONSTRAINT tag_pkey PRIMARY KEY (org_id, name);

ALTER TABLE ONLY weft.tally_mark
    ADD CONSTRAINT tally_mark_pkey PRIMARY KEY (name);

ALTER TABLE ONLY weft.tally
    ADD CONSTRAINT tally_pkey PRIMARY KEY (org_id, name, process);

ALTER TABLE ONLY weft.task_blob
    ADD CONSTRAINT task_blob_pkey PRIMARY KEY (task_id, digest);

ALTER TABLE ONLY weft.task_done
    ADD CONSTRAINT task_done_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.task_input
    ADD CONSTRAINT task_input_pkey PRIMARY KEY (task_id, attempt, place);

ALTER TABLE ONLY weft.task_log
    ADD CONSTRAINT task_log_pkey PRIMARY KEY (task_id, attempt);

ALTER TABLE ONLY weft.task_params
    ADD CONSTRAINT task_params_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.task_reuse
    ADD CONSTRAINT task_reuse_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY weft.token
    ADD CONSTRAINT token_digest_key UNIQUE (digest);

ALTER TABLE ONLY weft.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft."user"
    ADD CONSTRAINT user_org_id_external_id_key UNIQUE (org_id, external_id);

ALTER TABLE ONLY weft."user"
    ADD CONSTRAINT user_org_id_id_key UNIQUE (org_id, id);

ALTER TABLE ONLY weft."user"
    ADD CONSTRAINT user_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weft.worker_code
    ADD CONSTRAINT worker_code_pkey PRIMARY KEY (worker_id, handler);

ALTER TABLE ONLY weft.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);

CREATE INDEX answer_age ON weft.answer USING btree (created_at);

CREATE INDEX artifact_digest ON weft.artifact USING hash (digest);

CREATE INDEX artifact_list ON weft.artifact USING btree (org_id, id);

CREATE INDEX artifact_list_of_workflow ON weft.artifact USING btree (org_id, workflow_id, id);

CREATE INDEX artifact_meaning ON weft.artifact USING btree (substr(version_hash, 1, 4));

CREATE INDEX artifact_merged ON weft.artifact USING btree (merged_id) WHERE (merged_id IS NOT NULL);

CREATE INDEX artifact_parent ON weft.artifact USING btree (parent_id, kind);

CREATE UNIQUE INDEX artifact_plan ON weft.artifact USING btree (org_id, plan_hash) WHERE (kind = 'snapshot'::weft.artifact_kind);

CREATE INDEX attempt_job ON ONLY weft.attempt USING btree (job_id, ended_at, started_at) WHERE (job_id IS NOT NULL);

CREATE INDEX audit_actor ON weft.audit USING btree (org_id, actor, id);

CREATE INDEX audit_job ON weft.audit USING btree (org_id, (subject_ids[1]), id) WHERE (subject_kind = 'job'::text);

CREATE INDEX audit_name ON weft.audit USING btree (org_id, subject_name, id) WHERE (subject_name IS NOT NULL);

CREATE INDEX audit_org ON weft.audit USING btree (org_id, id);

CREATE INDEX audit_seal_last ON weft.audit_seal USING btree (org_id, (ids[cardinality(ids)]));

CREATE INDEX audit_subject ON weft.audit USING gin (subject_ids) WITH (gin_pending_list_limit='64') WHERE (subject_kind = 'task'::text);

CREATE INDEX audit_verb ON weft.audit USING btree (org_id, verb, id);

CREATE INDEX awaited_approval ON weft.awaited USING btree (org_id, task_id) WHERE (kind = 'approval'::text);

CREATE INDEX awaited_event ON weft.awaited USING btree (org_id, event) WHERE (event IS NOT NULL);

CREATE INDEX awaited_job ON weft.awaited USING btree (job_id);

CREATE INDEX backfill_open ON weft.backfill USING btree (id) WHERE (ended_at IS NULL);

CREATE INDEX backfill_schedule ON weft.backfill USING btree (org_id, schedule_id, id);

CREATE INDEX blob_put ON weft.blob USING brin (put_at);

CREATE INDEX column_edge_input ON weft.column_edge USING btree (org_id, input_id, input_column, output_id, output_column);

CREATE INDEX dag_version_artifact ON weft.dag_version USING btree (artifact_id);

CREATE INDEX dag_version_dataset_version ON weft.dag_version_dataset USING btree (version_id);

CREATE INDEX dag_version_job_of ON weft.dag_version_job USING btree (live_job_id);

CREATE INDEX dataset_edge_input ON weft.dataset_edge USING btree (org_id, input_id, output_id);

CREATE INDEX dataset_file_added ON weft.dataset_file USING btree (version_id, added_by);

CREATE INDEX dataset_file_partition ON weft.dataset_file USING btree (version_id, partition_key, id) WHERE (removed_by IS NOT NULL);

CREATE INDEX dataset_file_path ON weft.dataset_file USING btree (version_id, path);

CREATE INDEX dataset_file_removed ON weft.dataset_file USING btree (version_id, removed_by) WHERE (removed_by IS NOT NULL);

CREATE INDEX dataset_file_standing ON weft.dataset_file USING btree (version_id, partition_key, id) WHERE (removed_by IS NULL);

CREATE INDEX dataset_partition_latest ON weft.dataset_partition USING btree (version_id, last_write, partition_key);

CREATE INDEX dataset_write_at ON weft.dataset_write USING btree (version_id, written_at);

CREATE INDEX dataset_write_columns ON weft.dataset_write USING btree (version_id, number) WHERE (columns IS NOT NULL);

CREATE INDEX dataset_write_input_of ON weft.dataset_write_input USING btree (input_version_id, input_write);

CREATE INDEX dataset_write_task ON weft.dataset_write USING btree (org_id, task_id) WHERE (task_id IS NOT NULL);

CREATE INDEX edge_next ON weft.edge USING btree (next);

CREATE UNIQUE INDEX event_key ON weft.event USING btree (org_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);

CREATE INDEX event_name ON weft.event USING btree (org_id, name, id);

CREATE INDEX idempotency_key_task ON weft.idempotency_key USING btree (task_id);

CREATE INDEX job_done_actor ON ONLY weft.job_done USING btree (org_id, actor, state, id);

CREATE INDEX job_done_parent ON ONLY weft.job_done USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX job_done_rerun_of ON ONLY weft.job_done USING btree (rerun_of) WHERE (rerun_of IS NOT NULL);

CREATE INDEX job_done_snapshot ON ONLY weft.job_done USING btree (snapshot_id);

CREATE INDEX job_done_state ON ONLY weft.job_done USING btree (org_id, state, id);

CREATE INDEX job_done_workflow ON ONLY weft.job_done USING btree (org_id, workflow_id, state, id);

CREATE INDEX job_kept_from ON weft.job USING btree (kept_from) WHERE (kept_from IS NOT NULL);

CREATE INDEX job_org ON weft.job USING btree (org_id, id);

CREATE INDEX job_owner ON weft.job USING btree (owner_id) WHERE (owner_id IS NOT NULL);

CREATE INDEX job_parent ON weft.job USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX job_rerun_of ON weft.job USING btree (rerun_of) WHERE (rerun_of IS NOT NULL);

CREATE INDEX job_snapshot ON weft.job USING btree (snapshot_id);

CREATE INDEX job_timeout ON weft.job USING btree (timeout_at) WHERE (timeout_at IS NOT NULL);

CREATE INDEX key_loan_wanted ON weft.key_loan USING btree (queue_id, key, task_id);

CREATE INDEX live_backfill_job ON weft.live_backfill USING btree (org_id, live_job_id, id);

CREATE INDEX live_backfill_open ON weft.live_backfill USING btree (id) WHERE (ended_at IS NULL);

CREATE INDEX live_input_dataset ON weft.live_input USING btree (dataset_id);

CREATE INDEX live_job_active ON weft.live_job USING btree (id) WHERE (state <> 'stopped'::text);

CREATE INDEX live_output_dataset ON weft.live_output USING btree (dataset_id);

CREATE INDEX live_output_version ON weft.live_output USING btree (version_id);

CREATE INDEX live_source_due ON weft.live_source USING btree (next_at) WHERE (is_listening AND (next_at IS NOT NULL));

CREATE INDEX live_source_event ON weft.live_source USING btree (org_id, event) WHERE (is_listening AND (event IS NOT NULL));

CREATE INDEX live_unit_backfill ON weft.live_unit USING btree (backfill_id) WHERE (backfill_id IS NOT NULL);

CREATE INDEX live_unit_held ON weft.live_unit USING btree (live_job_id, id) WHERE (state = 'held'::text);

CREATE UNIQUE INDEX live_unit_key ON weft.live_unit USING btree (live_job_id, dedupe_key) WHERE (state = ANY (ARRAY['new'::text, 'waiting'::text, 'ready'::text]));

CREATE INDEX live_unit_lane ON weft.live_unit USING btree (live_job_id, lane, id);

CREATE INDEX live_unit_news ON weft.live_unit USING btree (live_job_id, id) WHERE (state = ANY (ARRAY['new'::text, 'done'::text]));

CREATE INDEX live_unit_ready ON weft.live_unit USING btree (live_job_id, id) WHERE (state = 'ready'::text);

CREATE INDEX live_unit_running ON weft.live_unit USING btree (live_job_id, id) WHERE (state = 'running'::text);

CREATE INDEX live_unit_task ON weft.live_unit USING btree (task_id) WHERE (task_id IS NOT NULL);

CREATE INDEX org_role_membership_user ON weft.org_role_membership USING btree (user_id);

CREATE INDEX outbox_due ON weft.outbox USING btree (available_at, id) WHERE (state = 'pending'::weft.outbox_state);

CREATE INDEX outbox_order ON weft.outbox USING btree (org_id, ordering_key, id) WHERE ((state <> 'done'::weft.outbox_state) AND (ordering_key IS NOT NULL));

CREATE INDEX outbox_org ON weft.outbox USING btree (org_id, kind, state, id);

CREATE INDEX outbox_processing ON weft.outbox USING btree (worker_id) WHERE (state = 'processing'::weft.outbox_state);

CREATE INDEX output_cache_digest ON weft.output_cache USING btree (digest) WHERE (digest IS NOT NULL);

CREATE INDEX output_cache_expires ON weft.output_cache USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX output_cache_handler ON weft.output_cache USING btree (org_id, handler);

CREATE INDEX output_cache_key ON weft.output_cache USING btree (org_id, key, made_at, id);

CREATE INDEX output_cache_made ON weft.output_cache USING btree (made_at) WHERE (expires_at IS NULL);

CREATE UNIQUE INDEX output_cache_plain ON weft.output_cache USING btree (org_id, key) WHERE (trace IS NULL);

CREATE INDEX output_cache_used ON weft.output_cache USING btree (org_id, used_at, id) INCLUDE (bytes);

CREATE INDEX schedule_due ON weft.schedule USING btree (next_at) WHERE (paused_at IS NULL);

CREATE INDEX staged_write_task ON weft.staged_write USING btree (task_id);

CREATE INDEX step_job ON ONLY weft.step USING btree (job_id, saved_at) WHERE ((job_id IS NOT NULL) AND (name !~~ '@%'::text));

CREATE INDEX tag_move_back ON weft.tag_move USING btree (hashtextextended(tag, back_to)) WHERE (back_to IS NOT NULL);

CREATE INDEX tag_move_to ON weft.tag_move USING btree (to_id);

CREATE INDEX tag_target ON weft.tag USING btree (target_id);

CREATE INDEX tag_workflow ON weft.tag USING btree (org_id, workflow_id, name);

CREATE INDEX task_blob_digest ON weft.task_blob USING btree (digest);

CREATE INDEX task_done_control ON ONLY weft.task_done USING btree (org_id, id) WHERE ((queue_id = 2) OR (queue_id < 0));

CREATE INDEX task_done_dead ON ONLY weft.task_done USING btree (org_id, id) WHERE (state = ANY (ARRAY['failed'::weft.task_state, 'dead'::weft.task_state]));

CREATE INDEX task_done_job ON ONLY weft.task_done USING btree (job_id, ended_at, claimed_at) WHERE (job_id IS NOT NULL);

CREATE INDEX task_done_parent ON ONLY weft.task_done USING btree (parent_id, item) WHERE (parent_id IS NOT NULL);

CREATE INDEX task_done_queue ON ONLY weft.task_done USING btree (queue_id, id);

CREATE INDEX task_done_unsuccessful ON ONLY weft.task_done USING btree (org_id, state, id) WHERE (state <> 'completed'::weft.task_state);

CREATE INDEX task_due ON weft.task USING btree (due_at) WHERE (state = 'scheduled'::weft.task_state);

CREATE INDEX task_expiry ON weft.task USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX task_job ON weft.task USING btree (job_id, id) WHERE (job_id IS NOT NULL);

CREATE INDEX task_key ON weft.task USING btree (queue_id, concurrency_key, rank, order_id, id) WHERE ((state = 'pending'::weft.task_state) AND (reason = 'concurrency_key'::text));

CREATE INDEX task_log_created ON weft.task_log USING btree (created_at);

CREATE INDEX task_log_digest ON weft.task_log USING btree (digest);

CREATE INDEX task_ready ON weft.task USING btree (queue_id, rank, order_id, id) WHERE (state = 'ready'::weft.task_state);

CREATE INDEX task_reuse_args ON weft.task_reuse USING btree (org_id, args, task_id);

CREATE INDEX task_reuse_node ON weft.task_reuse USING btree (org_id, handler, node, task_id);

CREATE INDEX task_worker ON weft.task USING btree (worker_id) WHERE (worker_id IS NOT NULL);

CREATE INDEX token_org ON weft.token USING btree (org_id, id);

CREATE INDEX user_external ON weft."user" USING btree (external_id);

CREATE INDEX worker_code_gone ON weft.worker_code USING btree (gone_at);

CREATE INDEX worker_code_handler ON weft.worker_code USING btree (org_id, handler, worker_id);

CREATE RULE refuse_delete AS
    ON DELETE TO weft.attempts DO INSTEAD  SELECT weft.refuse_write('attempts'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.audits DO INSTEAD  SELECT weft.refuse_write('audits'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.datasets DO INSTEAD  SELECT weft.refuse_write('datasets'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.job_events DO INSTEAD  SELECT weft.refuse_write('job_events'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.jobs DO INSTEAD  SELECT weft.refuse_write('jobs'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.live_jobs DO INSTEAD  SELECT weft.refuse_write('live_jobs'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.orgs DO INSTEAD  SELECT weft.refuse_write('orgs'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.queues DO INSTEAD  SELECT weft.refuse_write('queues'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.schedules DO INSTEAD  SELECT weft.refuse_write('schedules'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.steps DO INSTEAD  SELECT weft.refuse_write('steps'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.tasks DO INSTEAD  SELECT weft.refuse_write('tasks'::text) AS refuse_write;

CREATE RULE refuse_delete AS
    ON DELETE TO weft.workers DO INSTEAD  SELECT weft.refuse_write('workers'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.attempts DO INSTEAD  SELECT weft.refuse_write('attempts'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.audits DO INSTEAD  SELECT weft.refuse_write('audits'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.datasets DO INSTEAD  SELECT weft.refuse_write('datasets'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.job_events DO INSTEAD  SELECT weft.refuse_write('job_events'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.jobs DO INSTEAD  SELECT weft.refuse_write('jobs'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.live_jobs DO INSTEAD  SELECT weft.refuse_write('live_jobs'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.orgs DO INSTEAD  SELECT weft.refuse_write('orgs'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.queues DO INSTEAD  SELECT weft.refuse_write('queues'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.schedules DO INSTEAD  SELECT weft.refuse_write('schedules'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.steps DO INSTEAD  SELECT weft.refuse_write('steps'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.tasks DO INSTEAD  SELECT weft.refuse_write('tasks'::text) AS refuse_write;

CREATE RULE refuse_insert AS
    ON INSERT TO weft.workers DO INSTEAD  SELECT weft.refuse_write('workers'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.attempts DO INSTEAD  SELECT weft.refuse_write('attempts'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.audits DO INSTEAD  SELECT weft.refuse_write('audits'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.datasets DO INSTEAD  SELECT weft.refuse_write('datasets'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.job_events DO INSTEAD  SELECT weft.refuse_write('job_events'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.jobs DO INSTEAD  SELECT weft.refuse_write('jobs'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.live_jobs DO INSTEAD  SELECT weft.refuse_write('live_jobs'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.orgs DO INSTEAD  SELECT weft.refuse_write('orgs'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.queues DO INSTEAD  SELECT weft.refuse_write('queues'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.schedules DO INSTEAD  SELECT weft.refuse_write('schedules'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.steps DO INSTEAD  SELECT weft.refuse_write('steps'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.tasks DO INSTEAD  SELECT weft.refuse_write('tasks'::text) AS refuse_write;

CREATE RULE refuse_update AS
    ON UPDATE TO weft.workers DO INSTEAD  SELECT weft.refuse_write('workers'::text) AS refuse_write;

CREATE TRIGGER audit_is_kept BEFORE UPDATE ON weft.audit FOR EACH STATEMENT EXECUTE FUNCTION weft.refuse_change();

CREATE TRIGGER job_event_is_kept BEFORE DELETE OR UPDATE ON weft.job_event FOR EACH ROW EXECUTE FUNCTION weft.refuse_change();

CREATE TRIGGER job_event_is_not_emptied BEFORE TRUNCATE ON weft.job_event FOR EACH STATEMENT EXECUTE FUNCTION weft.refuse_change();

CREATE TRIGGER seals_are_kept BEFORE UPDATE ON weft.audit_seal FOR EACH STATEMENT EXECUTE FUNCTION weft.refuse_change();

CREATE TRIGGER source_follows AFTER INSERT OR UPDATE OF is_listening ON weft.live_source FOR EACH ROW WHEN ((new.kind = 'table'::text)) EXECUTE FUNCTION weft.follow_or_leave();

CREATE TRIGGER source_is_gone AFTER DELETE ON weft.live_source FOR EACH ROW WHEN (((old.kind = 'table'::text) AND (old.followed IS NOT NULL))) EXECUTE FUNCTION weft.follow_or_leave();

CREATE TRIGGER tag_move_is_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON weft.tag_move FOR EACH STATEMENT EXECUTE FUNCTION weft.refuse_change();

ALTER TABLE ONLY weft.answer
    ADD CONSTRAINT answer_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.artifact
    ADD CONSTRAINT artifact_digest_fkey FOREIGN KEY (digest) REFERENCES weft.blob(digest);

ALTER TABLE ONLY weft.artifact
    ADD CONSTRAINT artifact_merged_id_fkey FOREIGN KEY (merged_id) REFERENCES weft.artifact(id);

ALTER TABLE ONLY weft.artifact
    ADD CONSTRAINT artifact_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.artifact
    ADD CONSTRAINT artifact_parent_id_fkey FOREIGN KEY (parent_id) REFERENCES weft.artifact(id);

ALTER TABLE ONLY weft.audit
    ADD CONSTRAINT audit_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.audit_seal
    ADD CONSTRAINT audit_seal_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.backfill
    ADD CONSTRAINT backfill_org_id_schedule_id_fkey FOREIGN KEY (org_id, schedule_id) REFERENCES weft.schedule(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.column_edge
    ADD CONSTRAINT column_edge_org_id_input_id_fkey FOREIGN KEY (org_id, input_id) REFERENCES weft.dataset(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.column_edge
    ADD CONSTRAINT column_edge_org_id_output_id_fkey FOREIGN KEY (org_id, output_id) REFERENCES weft.dataset(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dag_version
    ADD CONSTRAINT dag_version_artifact_id_fkey FOREIGN KEY (artifact_id) REFERENCES weft.artifact(id);

ALTER TABLE ONLY weft.dag_version_dataset
    ADD CONSTRAINT dag_version_dataset_org_id_dag_version_id_fkey FOREIGN KEY (org_id, dag_version_id) REFERENCES weft.dag_version(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dag_version_dataset
    ADD CONSTRAINT dag_version_dataset_org_id_version_id_fkey FOREIGN KEY (org_id, version_id) REFERENCES weft.dataset_version(org_id, id);

ALTER TABLE ONLY weft.dag_version_job
    ADD CONSTRAINT dag_version_job_org_id_dag_version_id_fkey FOREIGN KEY (org_id, dag_version_id) REFERENCES weft.dag_version(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dag_version_job
    ADD CONSTRAINT dag_version_job_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dag_version
    ADD CONSTRAINT dag_version_org_id_dag_id_fkey FOREIGN KEY (org_id, dag_id) REFERENCES weft.live_dag(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dataset_edge
    ADD CONSTRAINT dataset_edge_org_id_input_id_fkey FOREIGN KEY (org_id, input_id) REFERENCES weft.dataset(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dataset_edge
    ADD CONSTRAINT dataset_edge_org_id_output_id_fkey FOREIGN KEY (org_id, output_id) REFERENCES weft.dataset(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dataset_file
    ADD CONSTRAINT dataset_file_org_id_version_id_fkey FOREIGN KEY (org_id, version_id) REFERENCES weft.dataset_version(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dataset
    ADD CONSTRAINT dataset_org_id_current_id_fkey FOREIGN KEY (org_id, current_id) REFERENCES weft.dataset_version(org_id, id) ON DELETE SET NULL (current_id) DEFERRABLE INITIALLY DEFERRED;

ALTER TABLE ONLY weft.dataset
    ADD CONSTRAINT dataset_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.dataset_partition
    ADD CONSTRAINT dataset_partition_org_id_version_id_fkey FOREIGN KEY (org_id, version_id) REFERENCES weft.dataset_version(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dataset_seen
    ADD CONSTRAINT dataset_seen_org_id_dataset_id_fkey FOREIGN KEY (org_id, dataset_id) REFERENCES weft.dataset(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dataset_version
    ADD CONSTRAINT dataset_version_org_id_dataset_id_fkey FOREIGN KEY (org_id, dataset_id) REFERENCES weft.dataset(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dataset_write_input
    ADD CONSTRAINT dataset_write_input_version_id_number_fkey FOREIGN KEY (version_id, number) REFERENCES weft.dataset_write(version_id, number) ON DELETE CASCADE;

ALTER TABLE ONLY weft.dataset_write
    ADD CONSTRAINT dataset_write_org_id_version_id_fkey FOREIGN KEY (org_id, version_id) REFERENCES weft.dataset_version(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.event
    ADD CONSTRAINT event_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.job
    ADD CONSTRAINT job_snapshot_id_fkey FOREIGN KEY (snapshot_id) REFERENCES weft.artifact(id);

ALTER TABLE ONLY weft.key_loan
    ADD CONSTRAINT key_loan_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES weft.queue(id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.key_slot
    ADD CONSTRAINT key_slot_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES weft.queue(id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.live_backfill
    ADD CONSTRAINT live_backfill_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.live_dag
    ADD CONSTRAINT live_dag_org_id_building_id_fkey FOREIGN KEY (org_id, building_id) REFERENCES weft.dag_version(org_id, id) DEFERRABLE INITIALLY DEFERRED;

ALTER TABLE ONLY weft.live_dag
    ADD CONSTRAINT live_dag_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.live_dag
    ADD CONSTRAINT live_dag_org_id_version_id_fkey FOREIGN KEY (org_id, version_id) REFERENCES weft.dag_version(org_id, id) DEFERRABLE INITIALLY DEFERRED;

ALTER TABLE ONLY weft.live_file
    ADD CONSTRAINT live_file_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.live_input
    ADD CONSTRAINT live_input_org_id_dataset_id_fkey FOREIGN KEY (org_id, dataset_id) REFERENCES weft.dataset(org_id, id);

ALTER TABLE ONLY weft.live_input
    ADD CONSTRAINT live_input_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.live_job
    ADD CONSTRAINT live_job_org_id_dag_id_fkey FOREIGN KEY (org_id, dag_id) REFERENCES weft.live_dag(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.live_output
    ADD CONSTRAINT live_output_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.live_output
    ADD CONSTRAINT live_output_org_id_version_id_fkey FOREIGN KEY (org_id, version_id) REFERENCES weft.dataset_version(org_id, id);

ALTER TABLE ONLY weft.live_source
    ADD CONSTRAINT live_source_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.live_unit
    ADD CONSTRAINT live_unit_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.operator_state
    ADD CONSTRAINT operator_state_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.org_role_membership
    ADD CONSTRAINT org_role_membership_org_id_role_id_fkey FOREIGN KEY (org_id, role_id) REFERENCES weft.org_role(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.org_role_membership
    ADD CONSTRAINT org_role_membership_org_id_user_id_fkey FOREIGN KEY (org_id, user_id) REFERENCES weft."user"(org_id, id);

ALTER TABLE ONLY weft.org_role
    ADD CONSTRAINT org_role_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.output_cache
    ADD CONSTRAINT output_cache_digest_fkey FOREIGN KEY (digest) REFERENCES weft.blob(digest);

ALTER TABLE ONLY weft.output_cache
    ADD CONSTRAINT output_cache_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.queue
    ADD CONSTRAINT queue_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.queue_slot
    ADD CONSTRAINT queue_slot_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES weft.queue(id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.schedule
    ADD CONSTRAINT schedule_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.sign_in
    ADD CONSTRAINT sign_in_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.sign_in
    ADD CONSTRAINT sign_in_org_id_user_id_fkey FOREIGN KEY (org_id, user_id) REFERENCES weft."user"(org_id, id);

ALTER TABLE ONLY weft.staged_live
    ADD CONSTRAINT staged_live_org_id_live_job_id_fkey FOREIGN KEY (org_id, live_job_id) REFERENCES weft.live_job(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY weft.staged_write
    ADD CONSTRAINT staged_write_org_id_version_id_fkey FOREIGN KEY (org_id, version_id) REFERENCES weft.dataset_version(org_id, id);

ALTER TABLE ONLY weft.tag_move
    ADD CONSTRAINT tag_move_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.tag_move
    ADD CONSTRAINT tag_move_to_id_fkey FOREIGN KEY (to_id) REFERENCES weft.artifact(id);

ALTER TABLE ONLY weft.tag
    ADD CONSTRAINT tag_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.tag
    ADD CONSTRAINT tag_target_id_fkey FOREIGN KEY (target_id) REFERENCES weft.artifact(id);

ALTER TABLE ONLY weft.tally
    ADD CONSTRAINT tally_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.task_blob
    ADD CONSTRAINT task_blob_digest_fkey FOREIGN KEY (digest) REFERENCES weft.blob(digest);

ALTER TABLE ONLY weft.task_log
    ADD CONSTRAINT task_log_digest_fkey FOREIGN KEY (digest) REFERENCES weft.blob(digest);

ALTER TABLE ONLY weft.task_reuse
    ADD CONSTRAINT task_reuse_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.token
    ADD CONSTRAINT token_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.token
    ADD CONSTRAINT token_org_id_user_id_fkey FOREIGN KEY (org_id, user_id) REFERENCES weft."user"(org_id, id);

ALTER TABLE ONLY weft."user"
    ADD CONSTRAINT user_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);

ALTER TABLE ONLY weft.worker
    ADD CONSTRAINT worker_org_id_fkey FOREIGN KEY (org_id) REFERENCES weft.org(id);
