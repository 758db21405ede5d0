-- name: hold
-- For as long as the session lasts, or until it is held to another.
select set_config('weft.org', $1, false);

-- name: hold_transaction
select set_config('weft.org', $1, true);

-- name: is_walled
-- Whether the rows of tables are held back from this role, whichever they are.
select row_security_active('weft.task');

-- name: lacking
-- What of this role's sessions no wall holds to an org: tables that have one, and do not hold back the rows of others.
select c.relname as name, current_user as role, (select rolsuper from pg_roles where rolname = current_user) as is_superuser,
  pg_has_role(current_user, c.relowner, 'usage') as is_owner
from pg_class c
where c.relnamespace = 'weft'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
  and (c.relname = 'org' or exists (
    select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'org_id' and not a.attisdropped))
  and not (row_security_active(c.oid) and exists (
    select 1 from pg_policy p where p.polrelid = c.oid and not p.polpermissive and p.polname like 'wall\_%'
      and exists (select 1 from unnest(p.polroles) r where pg_has_role(current_user, r, 'usage'))))
order by c.relname;

-- name: build_again
-- Walls in the tables that have come since, for each role that has walls; before they were there is nothing to do.
do $$
declare found regrole;
begin
  for found in select distinct r::regrole from pg_policy p join pg_class c on c.oid = p.polrelid cross join unnest(p.polroles) r
    where c.relnamespace = 'weft'::regnamespace and not p.polpermissive and p.polname like 'wall\_%'
  loop
    perform weft.wall_in(found);
  end loop;
end $$;

-- name: has_role
select exists (select 1 from pg_roles where rolname = $1);
