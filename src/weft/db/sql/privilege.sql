-- name: on_relation
select p.name, case when c.relkind = 'S' then has_sequence_privilege(c.oid, p.name) else has_table_privilege(c.oid, p.name) end
from pg_class c
cross join lateral unnest(
  case c.relkind when 'S' then '{usage}' when 'v' then '{select}' else '{select,insert,update,delete}' end::text[]
) with ordinality p (name, place)
where c.relnamespace = to_regnamespace('weft') and c.relname = $1
order by p.place;

-- name: on_schema
select p.name, has_schema_privilege($1, p.name)
from unnest('{usage,create}'::text[]) with ordinality p (name, place)
where to_regnamespace($1) is not null
order by p.place;

-- name: role
select current_user::text;
