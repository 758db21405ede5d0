-- name: drop_views
drop view weft.tokens, weft.org_role_memberships, weft.org_roles, weft.users;

-- name: drop_answers
drop table weft.answer;

-- name: drop_tables
drop table weft.token, weft.org_role_membership, weft.org_role, weft.user;

-- name: drop_org_slug
alter table weft.org drop constraint org_slug_check;

-- name: drop_types
drop type weft.token_role, weft.platform_role;

-- name: drop_worker_token
alter table weft.worker drop column token_id;
