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

-- name: one_at_a_time
-- Who deletes roles of an org, and who gives them to users or lets datasets be seen by them.
select pg_advisory_xact_lock(hashtextextended('weft.roles ' || $1::bigint, 0));

-- name: keep
-- No role of an org is deleted meanwhile.
select pg_advisory_xact_lock_shared(hashtextextended('weft.roles ' || $1::bigint, 0));

-- name: delete
delete from weft.org_role r where r.org_id = $1 and r.slug = $2 returning r.id;

-- name: forget_readers
-- Nobody sees a dataset by a role that is gone, nor by another of its name that is made later.
update weft.dataset d set read_roles = array_remove(d.read_roles, $2)
where d.id in (select o.id from weft.dataset o where o.org_id = $1 and $2 = any (o.read_roles) order by o.id for no key update);

-- name: grant
-- Null when he has it already.
insert into weft.org_role_membership (org_id, role_id, user_id, actor) values ($1, $2, $3, $4)
on conflict do nothing returning role_id;

-- name: revoke
delete from weft.org_role_membership m where m.org_id = $1 and m.role_id = $2 and m.user_id = $3 returning m.role_id;
