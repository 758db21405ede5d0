-- name: drop_functions
drop function weft.undelete_tag, weft.delete_tag, weft.redo_tag, weft.undo_tag, weft.compact_tag, weft.move_tag, weft.add_move,
  weft.lock_tag, weft.refuse_move, weft.put_artifact, weft.put_blob, weft.time_of_id;

-- name: drop_tables
drop table weft.tag_move, weft.tag, weft.patch_chain_member, weft.artifact;

-- name: drop_types
drop type weft.tag_verb, weft.artifact_kind;

-- name: drop_contents
delete from weft.blob b where b.content is not null;

-- name: drop_blob_content
alter table weft.blob drop column content, drop column media_type;
