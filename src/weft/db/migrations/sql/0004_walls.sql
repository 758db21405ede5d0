-- name: current_org
-- The org that a session acts for, by which a server's sessions are held to it; null for those that are held to none.
create function weft.current_org() returns bigint language sql stable parallel safe
return nullif(current_setting('weft.org', true), '')::bigint;

-- name: views_of_one_org
-- Views see all that their owner sees: a session that acts for an org is held to it here.
do $$
declare name text;
begin
  foreach name in array array['tasks', 'attempts', 'jobs', 'steps', 'job_events', 'workers', 'users', 'tokens'] loop
    execute format(
      'create or replace view weft.%I as select v.* from (%s) v where v.org_id = coalesce((select weft.current_org()), v.org_id)',
      name, rtrim(pg_get_viewdef(format('weft.%I', name)::regclass), ';'));
  end loop;
end $$;

-- name: wall_in
-- Holds a role, such as that of a server, to the org that its session acts for, in every table that has one; returns how many.
-- Nothing changes for other roles, nor for the owner. To be called again when a migration has added tables.
create function weft.wall_in(role regrole) returns int language plpgsql as $$
declare found record; wall text := 'wall_' || role::oid; count int := 0;
begin
  for found in
    select c.relname as name, o.own, case c.relname
      -- Orchestrators and their queues serve all orgs.
      when 'queue' then format('%s or id = 2 or id < 0', o.own) when 'worker' then format('%s or 2 = any (queues)', o.own)
      else o.own end as seen
    from pg_class c cross join lateral (
      select format('%s = coalesce((select weft.current_org()), %1$s)', case c.relname when 'org' then 'id' else 'org_id' end) as own
    ) o
    where c.relnamespace = 'weft'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and (
      c.relname = 'org' or exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'org_id' and not a.attisdropped))
  loop
    execute format('alter table weft.%I enable row level security', found.name);
    execute format('drop policy if exists anyone on weft.%I', found.name);
    execute format('create policy anyone on weft.%I using (true)', found.name);
    execute format('drop policy if exists %I on weft.%I', wall, found.name);
    execute format('create policy %I on weft.%I as restrictive to %s using (%s) with check (%s)', wall, found.name, role, found.seen, found.own);
    count := count + 1;
  end loop;
  return count;
end $$;

-- name: only_the_owner_builds_walls
revoke execute on function weft.wall_in from public;
