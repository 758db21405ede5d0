-- name: drop_functions
drop function weft.protect_tag, weft.undelete_tag, weft.delete_tag, weft.redo_tag, weft.undo_tag, weft.compact_tag, weft.move_tag, weft.add_move,
  weft.lock_tag, weft.refuse_lost, weft.refuse_move, weft.move_at, weft.tag_named,
  weft.parted_at, weft.line_of, weft.put_snapshot, weft.put_artifact, weft.plan_of, weft.put_blob, weft.time_of_id;

-- name: drop_tables
drop view weft.artifact_use, weft.patch_chain_member, weft.blob_use;
drop table weft.tag_move, weft.tag, weft.artifact;

-- name: drop_types
drop type weft.tag_verb, weft.artifact_kind;

-- name: drop_contents
delete from weft.blob b where b.content is not null;

-- name: drop_blob_put
drop index weft.blob_put;

-- name: blob_put
create index blob_put on weft.blob (put_at);

-- name: drop_blob_content_inline
alter table weft.blob reset (toast_tuple_target);

-- name: drop_blob_content
alter table weft.blob drop column content, drop column media_type;
