-- name: create
-- Null when there is one of that name.
insert into weft.org_role (org_id, slug, name, actor) values ($1, $2, $3, $4)
on conflict (org_id, slug) do nothing returning id;

-- name: show
select r.id, r.slug, r.name,
  (select count(*)::int from weft.org_role_membership m where m.role_id = r.id) as users, r.created_at
from weft.org_role r where r.org_id = $1 and r.slug = $2;

-- name: list
select r.id, r.slug, r.name,
  (select count(*)::int from weft.org_role_membership m where m.role_id = r.id) as users, r.created_at
from weft.org_role r where r.org_id = $1 and r.slug > $2 order by r.slug limit $3;

-- name: delete
delete from weft.org_role r where r.org_id = $1 and r.slug = $2 returning r.id;

-- name: grant
-- Null when he has it already.
insert into weft.org_role_membership (org_id, role_id, user_id, actor) values ($1, $2, $3, $4)
on conflict do nothing returning role_id;

-- name: revoke
delete from weft.org_role_membership m where m.org_id = $1 and m.role_id = $2 and m.user_id = $3 returning m.role_id;
