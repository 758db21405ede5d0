-- name: current_org
-- The org that a session acts for, by which a server's sessions are held to it; null for those that are held to none.
create function weft.current_org() returns bigint language sql stable parallel safe
return nullif(current_setting('weft.org', true), '')::bigint;

-- name: views_of_one_org
-- Views see all that their owner sees: a session that acts for an org is held to it here. Not blob_use, of which a server may
-- read the digests alone: whoever collects blobs must see the uses of all orgs.
do $$
declare name text;
begin
  foreach name in array array['tasks', 'attempts', 'jobs', 'steps', 'job_events', 'workers', 'users', 'tokens', 'artifact_use'] loop
    execute format(
      'create or replace view weft.%I as select v.* from (%s) v where v.org_id = coalesce((select weft.current_org()), v.org_id)',
      name, rtrim(pg_get_viewdef(format('weft.%I', name)::regclass), ';'));
  end loop;
end $$;

-- name: uses_blob
-- Whether anything of an org refers to a blob, with the rights of the schema's owner, for no other sees who uses what. A
-- session that is held to an org is told of no other.
create function weft.uses_blob(org bigint, wanted text) returns boolean language sql stable security definer
  set search_path = pg_catalog, pg_temp
return org = coalesce(weft.current_org(), org)
  and exists (select 1 from weft.blob_use u where u.digest = wanted and u.org_id = org);

-- name: uses_are_granted
revoke execute on function weft.uses_blob from public;

-- name: wall_in
-- Holds a role, such as that of a server, to the org that its session acts for, in every table that has one; returns how many.
-- Nothing changes for other roles, nor for the owner. A table that has its wall is not locked again.
create function weft.wall_in(role regrole) returns int language plpgsql as $$
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
end $$;

-- name: admit_server
-- Gives a role all that a server needs, and holds it to the org that its session acts for; returns in how many tables.
-- The walls come first: whoever waits for a table that it then changes the rights of could wait for its vacuum, and that for this.
create function weft.admit_server(role regrole) returns int language plpgsql as $$
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
end $$;

-- name: only_the_owner_builds_walls
revoke execute on function weft.wall_in, weft.admit_server from public;
