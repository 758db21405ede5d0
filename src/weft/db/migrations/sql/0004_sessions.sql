-- name: sign_in
-- A code by which somebody is let in once, within minutes, and gets a token of his own for it. Only its digest is kept.
create table weft.sign_in (
  digest bytea primary key check (octet_length(digest) = 32),
  org_id bigint not null references weft.org,
  user_id bigint,
  name text not null check (name <> '' and length(name) <= 200),
  role weft.platform_role not null,
  created_at timestamptz not null default weft.now(),
  expires_at timestamptz not null,
  actor text not null,
  foreign key (org_id, user_id) references weft.user (org_id, id)
);
