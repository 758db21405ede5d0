-- name: show
select t.name, t.workflow_id, t.target_id, a.kind::text as target_kind, a.version_hash as target_hash, t.version, t.is_protected,
  t.moved_at, t.moved_by, t.deleted_at
from weft.tag t join weft.artifact a on a.id = t.target_id
where t.org_id = $1 and t.name = $2;

-- name: list
select t.name, t.workflow_id, t.target_id, a.kind::text as target_kind, a.version_hash as target_hash, t.version, t.is_protected,
  t.moved_at, t.moved_by, t.deleted_at
from weft.tag t join weft.artifact a on a.id = t.target_id
where t.org_id = $1 and ($2::text is null or t.workflow_id = $2) and t.name > $3 and (t.deleted_at is null or $5)
order by t.name limit $4;

-- name: known
select t.name from weft.tag t where t.org_id = $1 and t.name = any ($2) and (t.deleted_at is null or $3);

-- name: names
select t.name from weft.tag t where t.org_id = $1 and t.deleted_at is null order by t.name limit 1000;

-- name: at_artifacts
select t.target_id, t.name from weft.tag t where t.org_id = $1 and t.target_id = any ($2) and t.deleted_at is null order by t.name;

-- name: moves
-- Where a tag has been, newest first.
select m.version, m.verb::text as verb, m.from_id, m.to_id, m.position, m.back_to, m.moved_at, m.moved_by, m.message
from weft.tag_move m where m.org_id = $1 and m.tag = $2 and m.version < $3 order by m.version desc limit $4;

-- name: move
select * from weft.move_tag($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: undo
select * from weft.undo_tag($1, $2, $3, $4, $5, $6, $7);

-- name: redo
select * from weft.redo_tag($1, $2, $3, $4, $5, $6, $7);

-- name: delete
select * from weft.delete_tag($1, $2, $3, $4, $5, $6);

-- name: undelete
select * from weft.undelete_tag($1, $2, $3, $4);

-- name: protect
update weft.tag t set is_protected = $3 where t.org_id = $1 and t.name = $2 and t.deleted_at is null returning t.name;
