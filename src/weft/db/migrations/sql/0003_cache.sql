-- name: output_cache
-- Outputs that serve again: by the hash of handler, code and params, the task that made it, and what it has read and written of
-- datasets. Of what had to do with none there is one output for a hash, else a few of different states. An output stands by
-- itself: it outlives its task. Without `expires_at` it goes with the retention.
create table weft.output_cache (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  key bytea not null check (octet_length(key) = 32),
  handler text not null,
  task_id bigint not null,
  made_at timestamptz not null,
  -- Behind by an hour at most.
  used_at timestamptz not null default weft.now(),
  expires_at timestamptz,
  digest text references weft.blob,
  -- Of the value, wherever it is kept.
  bytes bigint not null default 0,
  -- Who alone may write what its task has written.
  producer text,
  trace jsonb,
  output json not null
);

-- name: output_cache_key
create index output_cache_key on weft.output_cache (org_id, key, made_at, id);

-- name: output_cache_plain
create unique index output_cache_plain on weft.output_cache (org_id, key) where trace is null;

-- name: output_cache_used
create index output_cache_used on weft.output_cache (org_id, used_at, id) include (bytes);

-- name: output_cache_handler
create index output_cache_handler on weft.output_cache (org_id, handler);

-- name: output_cache_expires
create index output_cache_expires on weft.output_cache (expires_at) where expires_at is not null;

-- name: output_cache_made
create index output_cache_made on weft.output_cache (made_at) where expires_at is null;

-- name: output_cache_digest
create index output_cache_digest on weft.output_cache (digest) where digest is not null;

-- name: blob_use_with_cache
-- Who uses which blob: each room adds its own here, and what is listed is never collected.
create or replace view weft.blob_use as
select r.digest, r.org_id, 'task' as used_by, r.task_id as user_id from weft.task_blob r
union all select l.digest, l.org_id, 'log', l.task_id from weft.task_log l
union all select a.digest, a.org_id, 'artifact', a.id from weft.artifact a
union all select c.digest, c.org_id, 'cache', c.task_id from weft.output_cache c where c.digest is not null;

-- name: task_reuse
-- What was found for a task in the cache when its last attempt began, or why nothing was: by this it is told later why it ran or
-- did not. Only of tasks that have a cache.
create table weft.task_reuse (
  task_id bigint primary key,
  org_id bigint not null references weft.org,
  attempt int not null,
  handler text not null,
  node text not null,
  key bytea not null,
  -- The hash of handler and params without the code.
  args bytea not null,
  cause text not null check (cause in ('served', 'forced', 'changed', 'expired', 'unkept', 'removed', 'code', 'params', 'nothing')),
  other_id bigint,
  made_at timestamptz,
  detail jsonb,
  -- Why its own output does not serve others.
  unkept text check (unkept in ('large', 'adds', 'moved', 'made')),
  noted_at timestamptz not null default weft.now()
);

-- name: task_reuse_args
create index task_reuse_args on weft.task_reuse (org_id, args, task_id);

-- name: task_reuse_node
create index task_reuse_node on weft.task_reuse (org_id, handler, node, task_id);

-- name: trace_of
-- What an attempt that has completed has read and written, if its output serves for as long as that stands, and who alone may
-- write that; else why it does not serve. Nothing, before there are datasets.
create function weft.trace_of(task bigint, try int, out trace jsonb, out producer text, out unkept text) language sql as 'select null::jsonb, null, null';

-- name: trace_problems
-- What does not stand any more of what a task has read and written; null when all does.
create function weft.trace_problems(org bigint, trace jsonb) returns jsonb language sql as 'select null::jsonb';

-- name: note_inputs
-- That a task which has the output of another has read what that has read.
create function weft.note_inputs(task bigint, try int, org bigint, trace jsonb) returns void language sql as '';

-- name: find_output
-- The output that serves a task, the newest first: not past its own time, made within the given one, and what it was made of
-- stands. Whatever is found is noted for the task, and why nothing is; after a crash of the server that may be forgotten.
create function weft.find_output(task bigint, try int, wanted bytea, same bytea, within interval, takes boolean)
returns table (id bigint, task_id bigint, output json, is_traced boolean) language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
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

-- name: note_outputs
-- Of tasks that this transaction has completed, by worker and attempt: those with a key give their outputs to later ones, in the
-- place of those that stand, unless they have more bytes than they may; those with a root have got theirs from it, if it is of
-- their org: whoever says so may be mistaken. Void, with everything else that the transaction does, when what the `entries` were
-- made of has changed: then the task is tried again. Equal ones that end together leave one output.
create function weft.note_outputs(
  me bigint, ids bigint[], attempts int[], keys bytea[], spans interval[], roots bigint[], entries bigint[], most bigint[]
) returns void language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
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
end $$;
