-- name: add
-- Null when there is one of that name, or of that id: who is named by it is nobody else.
insert into weft.user (org_id, external_id, email, role, actor) select $1, $2, $3, $4, $5
where not exists (select 1 from weft.user u where u.org_id = $1 and u.id = $6)
on conflict (org_id, external_id) do nothing returning id;

-- name: show
-- By the name of the identity provider, unless it is null, or by the id.
select u.* from weft.users u where u.org_id = $1 and (u.external_id = $2 or u.id = $3);

-- name: list
select u.* from weft.users u
where u.org_id = $1 and u.external_id > $2 and ($3::text is null or u.role::text = $3) and ($4::boolean or u.deactivated_at is null)
order by u.external_id limit $5;

-- name: change
-- What is null stays as it is.
update weft.user u set role = coalesce($3::text::weft.platform_role, u.role), email = coalesce($4, u.email)
where u.org_id = $1 and u.id = $2 returning u.id;

-- name: deactivate
update weft.user u set deactivated_at = weft.now() where u.org_id = $1 and u.id = $2 and u.deactivated_at is null
returning u.id;

-- name: end_tokens
-- Whatever he could be let in by is good no more, also when he is activated again; returns how many tokens that were.
with codes as (delete from weft.sign_in s where s.org_id = $1 and s.user_id = $2),
ended as (
  update weft.token t set revoked_at = weft.now() where t.org_id = $1 and t.user_id = $2 and t.revoked_at is null
    and (t.expires_at is null or t.expires_at > weft.now()) returning t.id
)
select count(*)::int from ended;

-- name: activate
update weft.user u set deactivated_at = null where u.org_id = $1 and u.id = $2 and u.deactivated_at is not null
returning u.id;

-- name: principal
-- Whom an identity provider has vouched for, while he is active: a row for each org that he is a user of.
select u.org_id, o.slug as org, u.external_id as actor, u.role::text as role, u.id as user_id,
  array(
    select r.slug from weft.org_role_membership m join weft.org_role r on r.id = m.role_id where m.user_id = u.id
  ) as roles
from weft.user u join weft.org o on o.id = u.org_id
where u.external_id = $1 and u.deactivated_at is null and ($2::text is null or o.slug = $2);
