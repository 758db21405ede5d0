-- name: blob_content
-- A blob up to the inline limit is kept in its row, compressed; a larger one in the blob storage.
alter table weft.blob add column media_type text, add column content bytea;

-- name: blob_content_storage
-- Compressed already: PostgreSQL need not try again.
alter table weft.blob alter column content set storage external;

-- name: blob_content_inline
-- What fits into a page is read with it, and patches fill the rest of the page of a document.
alter table weft.blob set (toast_tuple_target = 8160);

-- name: blob_put_old
-- There is a blob for each version and patch now: which are old is told by their pages, in a hundredth of the room.
drop index weft.blob_put;

-- name: blob_put
create index blob_put on weft.blob using brin (put_at);

-- name: artifact_kind
create type weft.artifact_kind as enum ('version', 'patch', 'snapshot');

-- name: artifact
-- What the history consists of: a version is a whole document, a patch the operations that make one of its parent, a
-- snapshot the document that its parent gives. `version_hash` is of what the document means, `plan_hash` of what a snapshot
-- is made of, `chain` of a patch are the patches on its base, in their order, itself the last. `generation` is one more than
-- that of any parent: what came first is told by it, and not by the clock that is in the ids. `base_id` refers to one of
-- those that the parents lead to, which they keep.
create table weft.artifact (
  id bigint primary key,
  org_id bigint not null references weft.org,
  parent_id bigint references weft.artifact,
  merged_id bigint references weft.artifact,
  base_id bigint,
  chain bigint[],
  depth smallint not null generated always as (coalesce(cardinality(chain), 0)) stored,
  kind weft.artifact_kind not null,
  generation int not null,
  workflow_id text not null,
  digest text not null references weft.blob,
  version_hash bytea not null,
  plan_hash bytea,
  actor text not null,
  message text,
  meta json,
  check (octet_length(version_hash) = 32 and octet_length(plan_hash) = 32),
  check ((kind = 'patch') = (base_id is not null and parent_id is not null and chain is not null)),
  check (chain[cardinality(chain)] = id),
  check ((kind = 'snapshot') = (plan_hash is not null))
);

-- name: artifact_digest
create index artifact_digest on weft.artifact using hash (digest);

-- name: artifact_meaning
-- By the beginning of what a document means, as people name it.
create index artifact_meaning on weft.artifact (substr(version_hash, 1, 4));

-- name: artifact_plan
-- One snapshot a plan.
create unique index artifact_plan on weft.artifact (org_id, plan_hash) where kind = 'snapshot';

-- name: artifact_parent
-- What was made of an artifact: its snapshot, and, when it is to be removed, whether there is anything.
create index artifact_parent on weft.artifact (parent_id, kind);

-- name: artifact_merged
create index artifact_merged on weft.artifact (merged_id) where merged_id is not null;

-- name: patch_chain_member
-- The patches that give a patch's document, a row each.
create view weft.patch_chain_member as
select a.org_id, a.id as head_id, m.seq::smallint as seq, m.member_id
from weft.artifact a cross join lateral unnest(a.chain) with ordinality as m (member_id, seq);

-- name: blob_use
-- Who uses which blob: each room adds its own here, and what is listed is never collected.
create or replace view weft.blob_use as
select r.digest, r.org_id, 'task' as used_by, r.task_id as user_id from weft.task_blob r
union all select l.digest, l.org_id, 'log', l.task_id from weft.task_log l
union all select a.digest, a.org_id, 'artifact', a.id from weft.artifact a;

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
  -- It says which version of a live DAG is in effect: moved by that alone, and by nobody's force.
  is_deployed boolean not null default false,
  moved_at timestamptz not null,
  moved_by text not null,
  deleted_at timestamptz,
  primary key (org_id, name)
);

-- name: tag_workflow
create index tag_workflow on weft.tag (org_id, workflow_id, name);

-- name: tag_target
create index tag_target on weft.tag (target_id);

-- name: tag_verb
create type weft.tag_verb as enum (
  'push', 'patch', 'move', 'merge', 'revert', 'undo', 'redo', 'compact', 'delete', 'undelete', 'deploy', 'rollback'
);

-- name: tag_move
-- Where a name has been: a row a move, never changed. `position` is the move in effect after it, as `tag` has it;
-- `back_to` the one in effect before it, to which undo goes back. `from_id` is the `to_id` of the move before.
create table weft.tag_move (
  org_id bigint not null references weft.org,
  version bigint not null,
  position bigint not null,
  back_to bigint,
  from_id bigint,
  to_id bigint references weft.artifact,
  moved_at timestamptz not null,
  verb weft.tag_verb not null,
  tag text not null,
  moved_by text not null,
  expected_hash bytea,
  message text,
  primary key (org_id, tag, version)
);

-- name: tag_move_back
-- What redo looks for: the newest of the moves that went on from a position; there are few of each. By a number of tag
-- and position, a quarter of the room that they take.
create index tag_move_back on weft.tag_move (hashtextextended(tag, back_to)) where back_to is not null;

-- name: tag_move_to
-- Whether a tag was ever at an artifact that is to be removed.
create index tag_move_to on weft.tag_move (to_id);

-- name: artifact_use
-- Who uses which artifact: each room adds its own here, and what is listed is never removed.
create or replace view weft.artifact_use as
select m.to_id as artifact_id, m.org_id, 'tag' as used_by, m.tag as user_name from weft.tag_move m where m.to_id is not null
union all select t.target_id, t.org_id, 'tag', t.name from weft.tag t
union all select a.parent_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.parent_id is not null
union all select a.merged_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.merged_id is not null
union all select a.base_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.base_id is not null;

-- name: tag_move_is_kept
create trigger tag_move_is_kept before update or delete or truncate on weft.tag_move
  for each statement execute function weft.refuse_change();
