-- name: create
-- Null when its user is deactivated; nobody deactivates him meanwhile.
with owner as (select u.id from weft.user u where u.org_id = $1 and u.id = $2 and u.deactivated_at is null for share)
insert into weft.token (org_id, user_id, name, role, queues, hint, digest, expires_at, actor)
select $1, $2, $3, $4, $5, $6, $7, weft.now() + $8::interval, $9
where $2::bigint is null or exists (select 1 from owner) returning id;

-- name: show
select t.* from weft.tokens t where t.org_id = $1 and t.id = $2;

-- name: list
-- Newest first below a key.
select t.* from weft.tokens t
where t.org_id = $1 and t.id < $2 and ($3::bigint is null or t.user_id = $3)
  and ($4::boolean or (t.revoked_at is null and (t.expires_at is null or t.expires_at > weft.now())))
order by t.id desc limit $5;

-- name: revoke
update weft.token t set revoked_at = weft.now() where t.org_id = $1 and t.id = $2 and t.revoked_at is null returning t.name;

-- name: principal
-- Whom a secret stands for, unless it is revoked or past its time or its user is gone; no more than its user may do now.
select t.org_id, o.slug as org, coalesce(u.external_id, 'token:' || t.name) as actor,
  case when u.id is null then t.role::text else least(t.role::text::weft.platform_role, u.role)::text end as role,
  t.queues, t.user_id, t.id as token_id,
  array(
    select r.slug from weft.org_role_membership m join weft.org_role r on r.id = m.role_id where m.user_id = u.id
  ) as roles,
  coalesce(t.last_used_at < weft.now() - interval '1 minute', true) as is_stale
from weft.token t join weft.org o on o.id = t.org_id left join weft.user u on u.id = t.user_id
where t.digest = $1 and t.revoked_at is null and (t.expires_at is null or t.expires_at > weft.now())
  and (t.user_id is null or u.deactivated_at is null);

-- name: touch
-- Once a minute at most: who asks often does not write each time.
update weft.token t set last_used_at = weft.now()
where t.id = $1 and coalesce(t.last_used_at < weft.now() - interval '1 minute', true);

-- name: tell_refused
select pg_notify('weft_credentials', $1);
