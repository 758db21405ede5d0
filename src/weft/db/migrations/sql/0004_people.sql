-- name: platform_role
create type weft.platform_role as enum ('reader', 'writer', 'admin');

-- name: token_role
-- A worker may do what the worker protocol needs and nothing else, so it stands beside the others and not below them.
create type weft.token_role as enum ('reader', 'writer', 'admin', 'worker');

-- name: org_slug
-- It stands in settings, on command lines and in addresses.
alter table weft.org add constraint org_slug_check check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$') not valid;

-- name: user
-- A person, known to the identity provider by `external_id`, as a user of one org; who works for two is a user of each, so that
-- neither learns of the other. Who has left is deactivated and never deleted: what was done by him stays his.
create table weft.user (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  external_id text not null check (external_id <> '' and length(external_id) <= 500),
  email text,
  role weft.platform_role not null,
  deactivated_at timestamptz,
  created_at timestamptz not null default weft.now(),
  actor text not null,
  unique (org_id, external_id),
  unique (org_id, id)
);

-- name: org_role
-- What an org calls a group of its people: who may see what is told by these.
create table weft.org_role (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  slug text not null check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
  name text not null,
  created_at timestamptz not null default weft.now(),
  actor text not null,
  unique (org_id, slug),
  unique (org_id, id)
);

-- name: org_role_membership
-- Of one org on both sides, which the references see to.
create table weft.org_role_membership (
  org_id bigint not null,
  role_id bigint not null,
  user_id bigint not null,
  created_at timestamptz not null default weft.now(),
  actor text not null,
  primary key (role_id, user_id),
  foreign key (org_id, role_id) references weft.org_role (org_id, id) on delete cascade,
  foreign key (org_id, user_id) references weft.user (org_id, id)
);

-- name: org_role_membership_user
create index org_role_membership_user on weft.org_role_membership (user_id);

-- name: token
-- A credential of a program or of a person. Only the digest of its 256 random bits is kept, so it is shown once; `hint` is its
-- beginning, by which people know it again. A token of a person ends with him and never does more than he may.
create table weft.token (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  user_id bigint,
  name text not null check (name <> '' and length(name) <= 200),
  role weft.token_role not null,
  queues text[],
  hint text not null,
  digest bytea not null unique check (octet_length(digest) = 32),
  created_at timestamptz not null default weft.now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz,
  actor text not null,
  foreign key (org_id, user_id) references weft.user (org_id, id),
  check (queues is null or (role = 'worker' and cardinality(queues) > 0)),
  check (role <> 'worker' or user_id is null)
) with (fillfactor = 80);

-- name: token_org
create index token_org on weft.token (org_id, id);

-- name: user_external
create index user_external on weft.user (external_id);

-- name: users
create view weft.users as
  select u.id, u.org_id, u.external_id, u.email, u.role, u.deactivated_at, u.created_at, u.actor,
    array(
      select r.slug from weft.org_role_membership m join weft.org_role r on r.id = m.role_id
      where m.user_id = u.id order by r.slug
    ) as roles
  from weft.user u;

-- name: org_roles
create view weft.org_roles as select r.id, r.org_id, r.slug, r.name, r.created_at, r.actor from weft.org_role r;

-- name: org_role_memberships
create view weft.org_role_memberships as
  select m.org_id, m.role_id, m.user_id, m.created_at, m.actor from weft.org_role_membership m;

-- name: tokens
create view weft.tokens as
  select t.id, t.org_id, t.user_id, t.name, t.role, t.queues, t.hint, t.created_at, t.expires_at, t.revoked_at,
    t.last_used_at, t.actor, u.external_id as user
  from weft.token t left join weft.user u on u.id = t.user_id;

-- name: comment_users
comment on view weft.users is 'Every user, also those who are deactivated.';

-- name: comment_org_roles
comment on view weft.org_roles is 'The roles that orgs have defined for their users.';

-- name: comment_org_role_memberships
comment on view weft.org_role_memberships is 'Which user has which role of the org.';

-- name: comment_tokens
comment on view weft.tokens is 'Every token, without what would let anybody use it.';
