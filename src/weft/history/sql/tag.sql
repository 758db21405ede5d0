-- name: show
-- Where a tag stands, asked for by its name or by that of the workflow whose main line it is.
select t.name, t.workflow_id, t.target_id, t.version, t.moved_at, t.moved_by, t.is_protected, a.kind::text as target_kind,
  encode(a.version_hash, 'hex') as target_hash, t.deleted_at
from weft.tag t join weft.artifact a on a.id = t.target_id
where t.org_id = $1 and t.name in ($2, $2 || '/main') and t.deleted_at is null order by length(t.name) limit 1;

-- name: now
-- What a conflict tells: who moved a tag last, when, to what, why.
select t.name as tag, t.version, t.moved_by, t.moved_at, t.target_id::text as target, encode(a.version_hash, 'hex') as hash,
  t.workflow_id, m.message, m.verb::text as verb
from weft.tag t left join weft.artifact a on a.id = t.target_id
left join weft.tag_move m on m.org_id = t.org_id and m.tag = t.name and m.version = t.version
where t.org_id = $1 and t.name in ($2, $2 || '/main') and t.deleted_at is null order by length(t.name) limit 1;

-- name: list
select t.name, t.workflow_id, t.target_id, t.version, t.moved_at, t.moved_by, t.is_protected, a.kind::text as target_kind,
  encode(a.version_hash, 'hex') as target_hash, t.deleted_at
from weft.tag t join weft.artifact a on a.id = t.target_id
where t.org_id = $1 and t.name > $2 and (t.deleted_at is null or $4)
order by t.name limit $3;

-- name: list_of_workflow
select t.name, t.workflow_id, t.target_id, t.version, t.moved_at, t.moved_by, t.is_protected, a.kind::text as target_kind,
  encode(a.version_hash, 'hex') as target_hash, t.deleted_at
from weft.tag t join weft.artifact a on a.id = t.target_id
where t.org_id = $1 and t.workflow_id = $5 and t.name > $2 and (t.deleted_at is null or $4)
order by t.name limit $3;

-- name: names
select t.name from weft.tag t where t.org_id = $1 and (t.deleted_at is null or $2) order by t.name limit 1000;

-- name: trace
-- What there is of a tag that cannot be shown: it is deleted, or at what is lost.
select t.name, t.deleted_at is not null as is_deleted from weft.tag t
where t.org_id = $1 and t.name in ($2, $2 || '/main') order by t.deleted_at is not null, length(t.name) limit 1;

-- name: at_artifacts
select t.target_id, t.name from weft.tag t where t.org_id = $1 and t.target_id = any ($2) and t.deleted_at is null order by t.name;

-- name: moves
-- Where a tag has been, newest first; that of one that is deleted too.
select m.version, m.verb::text as verb, m.from_id, m.to_id, m.position, m.moved_at, m.moved_by, m.message
from weft.tag_move m where m.org_id = $1 and m.tag = (select weft.tag_named($1, $2, true)) and m.version < $3
order by m.version desc limit $4;

-- name: take_turn
-- Among those who want to change a tag and were too slow; for as long as the transaction lasts. Whoever is not served in
-- time gives up at the server too.
select set_config('lock_timeout', $3, true), pg_advisory_xact_lock(hashtextextended(weft.tag_named($1, $2), $1));

-- name: move
-- A tag of another workflow is moved only by whoever names that. Who moves a tag is kept, here and in what follows.
with t as materialized (
  select t.* from weft.move_tag($1, weft.tag_named($1, $2), $3, $4, $5, $6, case when $7 or $10::text is not null
    then weft.is_forced($1, weft.tag_named($1, $2), (select v.workflow_id from weft.artifact v where v.id = $4 and v.org_id = $1), $7, $10)
    else false end, $8, $9) t
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $8, $3::weft.tag_verb::text, 'tag', t.name, json_build_object('version', t.version, 'target', t.target_id::text), $11, coalesce($12, $9)
  from t where t.name is not null
)
select t.name, t.workflow_id, t.target_id, t.version, t.moved_at, t.moved_by, t.is_protected, a.kind::text as target_kind,
  encode(a.version_hash, 'hex') as target_hash, t.deleted_at
from t left join weft.artifact a on a.id = t.target_id;

-- name: undo
with t as materialized (
  select t.* from weft.undo_tag($1, weft.tag_named($1, $2), $3, $4, $5, $6, $7, $8) t
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $7, 'undo', 'tag', t.name, json_build_object('version', t.version, 'target', t.target_id::text), $9, coalesce($10, $8)
  from t where t.name is not null
)
select t.name, t.workflow_id, t.target_id, t.version, t.moved_at, t.moved_by, t.is_protected, a.kind::text as target_kind,
  encode(a.version_hash, 'hex') as target_hash, t.deleted_at
from t left join weft.artifact a on a.id = t.target_id;

-- name: redo
with t as materialized (
  select t.* from weft.redo_tag($1, weft.tag_named($1, $2), $3, $4, $5, $6, $7, $8) t
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $7, 'redo', 'tag', t.name, json_build_object('version', t.version, 'target', t.target_id::text), $9, coalesce($10, $8)
  from t where t.name is not null
)
select t.name, t.workflow_id, t.target_id, t.version, t.moved_at, t.moved_by, t.is_protected, a.kind::text as target_kind,
  encode(a.version_hash, 'hex') as target_hash, t.deleted_at
from t left join weft.artifact a on a.id = t.target_id;

-- name: delete
with t as materialized (
  select t.* from weft.delete_tag($1, weft.tag_named($1, $2), $3, $4, $5, $6, $7) t
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $6, 'delete', 'tag', t.name, json_build_object('version', t.version, 'target', t.target_id::text), $8, coalesce($9, $7)
  from t where t.name is not null
)
select t.name, t.workflow_id, t.target_id, t.version, t.moved_at, t.moved_by, t.is_protected, a.kind::text as target_kind,
  encode(a.version_hash, 'hex') as target_hash, t.deleted_at
from t left join weft.artifact a on a.id = t.target_id;

-- name: hold
-- A tag until the transaction ends, when it is as the caller expects it; else it is refused.
select weft.lock_tag($1, weft.tag_named($1, $2, $3), $4, $5, true);

-- name: undelete
with t as materialized (
  select t.* from weft.undelete_tag($1, weft.tag_named($1, $2, true), $3, $4) t
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $3, 'undelete', 'tag', t.name, json_build_object('version', t.version, 'target', t.target_id::text), $5, coalesce($6, $4)
  from t where t.name is not null
)
select t.name, t.workflow_id, t.target_id, t.version, t.moved_at, t.moved_by, t.is_protected, a.kind::text as target_kind,
  encode(a.version_hash, 'hex') as target_hash, t.deleted_at
from t left join weft.artifact a on a.id = t.target_id;

-- name: protect
-- Who protects a tag or frees it is kept with what other operators did.
with done as materialized (select weft.protect_tag($1, weft.tag_named($1, $2), $3) as name), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, origin, reason)
  select $1, $4, case when $3 then 'protect' else 'free' end, 'tag', d.name, $5, $6 from done d where d.name is not null
)
select d.name from done d;
