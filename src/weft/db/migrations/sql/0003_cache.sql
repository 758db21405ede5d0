-- name: output_cache
-- Outputs that serve again: by the hash of handler, code and params, the last that was made of them and the task that made
-- it. An output stands by itself: it outlives its task. Without `expires_at` it goes with the retention.
create table weft.output_cache (
  org_id bigint not null references weft.org,
  key bytea not null check (octet_length(key) = 32),
  handler text not null,
  task_id bigint not null,
  made_at timestamptz not null,
  expires_at timestamptz,
  digest text references weft.blob,
  output json not null,
  primary key (org_id, key)
);

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

-- name: note_outputs
-- Of tasks that this transaction has completed, by worker and attempt: those with a key give their outputs to later ones,
-- those with a root have got theirs from it, if it is of their org: whoever says so may be mistaken. Equal ones that end
-- together leave one output.
create function weft.note_outputs(me bigint, ids bigint[], attempts int[], keys bytea[], spans interval[], roots bigint[])
returns void language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
begin
  insert into weft.output_cache as c (org_id, key, handler, task_id, made_at, expires_at, digest, output)
  select distinct on (d.org_id, u.key) d.org_id, u.key, d.handler, d.id, d.ended_at, d.ended_at + u.span,
    case when d.output::text like '{"$blob":%' then d.output ->> '$blob' end, d.output
  from unnest(ids, attempts, keys, spans) as u (id, attempt, key, span) cross join lateral (
    select d.id, d.org_id, d.handler, d.ended_at, d.output from weft.task_done d
    where d.id = u.id and d.worker_id = me and d.attempt = u.attempt and d.state = 'completed'
  ) d
  where u.key is not null
  order by d.org_id, u.key, d.id
  on conflict (org_id, key) do update set
    handler = excluded.handler, task_id = excluded.task_id, made_at = excluded.made_at, expires_at = excluded.expires_at,
    digest = excluded.digest, output = excluded.output;
  update weft.task_done d set reason = 'cached',
    kept_id = (select r.id from weft.task_done r where r.id = u.root and r.org_id = d.org_id)
  from unnest(ids, attempts, roots) as u (id, attempt, root)
  where u.root is not null and d.id = u.id and d.worker_id = me and d.attempt = u.attempt and d.state = 'completed';
end $$;
