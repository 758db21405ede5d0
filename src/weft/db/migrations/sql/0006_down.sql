-- name: publish_nothing
create or replace function weft.publish_writes(ended bigint[]) returns void language sql as '';

-- name: forget_settings
alter function weft.publish_writes reset all;

-- name: drop_datasets
drop function weft.trace_of, weft.trace_problems, weft.note_inputs, weft.inputs_of, weft.content_of, weft.mark_of,
  weft.grant_datasets_to_server, weft.publish_write, weft.make_current, weft.roll_back_version, weft.tell_write, weft.tell_written,
  weft.register_files, weft.close_states, weft.prepare_table, weft.add_rows, weft.rows_of, weft.drop_rows, weft.drop_table, weft.show_table, weft.data_table;
drop schema weft_data cascade;
drop view weft.datasets;
alter table weft.dataset drop column current_id;
drop table weft.dataset_seen, weft.staged_write, weft.task_input, weft.column_edge, weft.dataset_edge, weft.dataset_partition, weft.dataset_file, weft.dataset_write_input,
  weft.dataset_write, weft.dataset_version, weft.dataset;
