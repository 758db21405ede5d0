-- name: create
-- Null when its user is deactivated; nobody deactivates him meanwhile. Those of the org that nobody used in time are forgotten
-- on the way.
with late as (delete from weft.sign_in s where s.org_id = $1 and s.expires_at < weft.now()),
owner as (select u.id from weft.user u where u.org_id = $1 and u.id = $2 and u.deactivated_at is null for share)
insert into weft.sign_in (org_id, user_id, name, role, digest, expires_at, actor)
select $1, $2, $3, $4, $5, weft.now() + $6::interval, $7
where $2::bigint is null or exists (select 1 from owner) returning expires_at;

-- name: take
-- Whoever comes first has it, and nobody after him; nor anybody when its user is gone. He is let in as no more than he is now.
delete from weft.sign_in s where s.digest = $1 and s.expires_at > weft.now()
  and not exists (select 1 from weft.user u where u.id = s.user_id and u.deactivated_at is not null)
returning s.org_id, s.user_id, s.name,
  least(s.role, (select u.role from weft.user u where u.id = s.user_id))::text as role, s.actor;
