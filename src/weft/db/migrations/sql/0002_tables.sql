-- name: blob_content
-- A blob up to the inline limit is kept in its row, compressed; a larger one in the blob storage.
alter table weft.blob add column media_type text, add column content bytea;

-- name: blob_content_storage
-- Compressed already: PostgreSQL need not try again.
alter table weft.blob alter column content set storage external;

-- name: artifact_kind
create type weft.artifact_kind as enum ('version', 'patch', 'snapshot');

-- name: artifact
-- What the history consists of: a version is a whole document, a patch the operations that make one of its parent, a
-- snapshot the document that a version and its patches give. `version_hash` is of what the document means.
create table weft.artifact (
  id bigint primary key,
  org_id bigint not null references weft.org,
  parent_id bigint references weft.artifact,
  merged_id bigint references weft.artifact,
  base_id bigint references weft.artifact,
  depth smallint not null default 0,
  kind weft.artifact_kind not null,
  workflow_id text not null,
  digest text not null references weft.blob,
  version_hash bytea not null,
  plan_hash bytea,
  actor text not null,
  message text,
  meta json,
  check (octet_length(version_hash) = 32 and octet_length(plan_hash) = 32),
  check ((kind = 'patch') = (base_id is not null and parent_id is not null and depth > 0)),
  check ((kind = 'version') = (plan_hash is null))
);

-- name: artifact_digest
create index artifact_digest on weft.artifact (digest);

-- name: artifact_plan
-- One snapshot a plan.
create unique index artifact_plan on weft.artifact (org_id, plan_hash) where kind = 'snapshot';

-- name: patch_chain_member
-- The patches that give a patch's document, in their order, in one read.
create table weft.patch_chain_member (
  org_id bigint not null,
  head_id bigint not null references weft.artifact on delete cascade,
  member_id bigint not null references weft.artifact,
  seq smallint not null,
  primary key (head_id, seq)
);

-- name: tag
-- Where a name stands now. `version` counts its moves; `position` is the move that undo would take back.
create table weft.tag (
  org_id bigint not null references weft.org,
  name text not null check (octet_length(name) between 1 and 800),
  workflow_id text not null,
  target_id bigint not null references weft.artifact,
  version bigint not null,
  position bigint not null,
  is_protected boolean not null default false,
  moved_at timestamptz not null,
  moved_by text not null,
  deleted_at timestamptz,
  primary key (org_id, name)
);

-- name: tag_workflow
create index tag_workflow on weft.tag (org_id, workflow_id);

-- name: tag_verb
create type weft.tag_verb as enum (
  'push', 'patch', 'move', 'merge', 'revert', 'undo', 'redo', 'compact', 'delete', 'undelete'
);

-- name: tag_move
-- Where a name has been: a row a move, never changed. `position` is the move in effect after it, as `tag` has it;
-- `back_to` the one in effect before it, to which undo goes back.
create table weft.tag_move (
  org_id bigint not null references weft.org,
  version bigint not null,
  position bigint not null,
  back_to bigint,
  from_id bigint references weft.artifact,
  to_id bigint references weft.artifact,
  moved_at timestamptz not null,
  verb weft.tag_verb not null,
  tag text not null,
  moved_by text not null,
  expected_hash bytea,
  message text,
  primary key (org_id, tag, version)
);

-- name: tag_move_time
create index tag_move_time on weft.tag_move (org_id, tag, moved_at);

-- name: tag_move_back
-- What redo looks for: the newest of the moves that went on from a position.
create index tag_move_back on weft.tag_move (org_id, tag, back_to, version) where position = version;

-- name: tag_move_is_kept
create trigger tag_move_is_kept before update or delete or truncate on weft.tag_move
  for each statement execute function weft.refuse_change();
