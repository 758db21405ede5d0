-- docs: begin enqueue
create role shop_web login;
grant usage on schema weft to shop_web;
grant execute on function weft.enqueue, weft.add_effect to shop_web;
-- docs: end enqueue

-- docs: begin client
grant select on weft.org, weft.queue, weft.worker, weft.lease, weft.schema_revision to shop_web;
grant usage on sequence weft.id_sequence to shop_web;
grant insert, select, update on weft.task, weft.idempotency_key, weft.key_slot to shop_web;
grant insert on weft.task_params to shop_web;
grant execute on function weft.ensure_partitions to shop_web;
grant select, update on weft.machine to shop_web;
grant insert, select, update on weft.blob to shop_web;
grant insert, select on weft.task_blob to shop_web;
-- docs: end client

-- docs: begin read
create role shop_report login;
grant usage on schema weft to shop_report;
grant select on weft.tasks, weft.attempts, weft.steps, weft.queues, weft.workers, weft.orgs, weft.audits, weft.jobs,
  weft.job_events, weft.schedules, weft.datasets, weft.live_jobs to shop_report;
-- docs: end read

-- docs: begin work
create role shop_worker login;
grant usage on schema weft to shop_worker;
grant usage on sequence weft.id_sequence to shop_worker;
grant select on weft.schema_revision, weft.org, weft.tasks, weft.attempts, weft.steps, weft.workers to shop_worker;
grant execute on function weft.enqueue, weft.add_effect, weft.ensure_partitions to shop_worker;
grant select, insert, delete on weft.audit, weft.audit_seal to shop_worker;
grant select, insert, delete on weft.edge to shop_worker;
grant select, insert, delete on weft.task_params to shop_worker;
grant select, insert, update, delete on weft.attempt to shop_worker;
grant select, update on weft.machine to shop_worker;
grant select, insert, update on weft.queue, weft.handler, weft.lease to shop_worker;
grant select, insert, update, delete on weft.task, weft.task_done, weft.idempotency_key, weft.worker, weft.queue_slot,
  weft.key_slot, weft.key_loan, weft.outbox, weft.task_log, weft.blob, weft.task_blob, weft.step to shop_worker;
grant select on weft.jobs, weft.artifact, weft.artifact_use to shop_worker;
grant select (digest) on weft.blob_use to shop_worker;
grant select, insert, update, delete on weft.job, weft.job_done, weft.awaited, weft.worker_code to shop_worker;
grant select, insert, update, delete on weft.event to shop_worker;
grant select, insert, update, delete on weft.output_cache, weft.task_reuse to shop_worker;
grant select, delete on weft.answer to shop_worker;
grant select, insert on weft.job_event to shop_worker;
grant select, update on weft.schedule, weft.backfill to shop_worker;
grant select, insert, update, delete on weft.dataset, weft.dataset_version, weft.dataset_file, weft.dataset_partition,
  weft.staged_write to shop_worker;
grant select, insert on weft.dataset_write, weft.dataset_write_input, weft.dataset_edge to shop_worker;
grant select, insert, delete on weft.task_input to shop_worker;
grant select, insert, update on weft.dataset_seen to shop_worker;
grant select, insert, update on weft.column_edge to shop_worker;
grant execute on function weft.data_table, weft.prepare_table, weft.add_rows, weft.rows_of, weft.drop_rows,
  weft.drop_table, weft.show_table to shop_worker;
grant select, insert, update, delete on weft.live_dag, weft.dag_version, weft.dag_version_job, weft.dag_version_dataset,
  weft.live_job, weft.live_input, weft.live_output, weft.live_source, weft.live_unit, weft.live_backfill, weft.operator_state,
  weft.staged_live to shop_worker;
grant select, insert, update on weft.tag to shop_worker;
grant insert on weft.tag_move, weft.artifact to shop_worker;
grant select, insert on weft.job_label to shop_worker;
grant select, insert, update, delete on weft.tally, weft.tally_mark to shop_worker;
grant select on weft.job_events to shop_worker;
grant execute on function weft.list_tasks, weft.list_newest_effects, weft.list_oldest_effects, weft.acts_on_task,
  weft.uses_blob to shop_worker;
-- docs: end work

-- docs: begin workflows
create role shop_flows login;
grant usage on schema weft to shop_flows;
grant usage on sequence weft.id_sequence to shop_flows;
grant select on weft.schema_revision, weft.org, weft.artifact_use to shop_flows;
grant select (digest) on weft.blob_use to shop_flows;
grant select, insert, update on weft.blob, weft.tag to shop_flows;
grant select, insert on weft.tag_move to shop_flows;
grant insert on weft.audit to shop_flows;
grant select, insert, update, delete on weft.artifact to shop_flows;
grant select, delete on weft.task_blob to shop_flows;
grant select on weft.task, weft.task_done to shop_flows;
grant delete on weft.blob to shop_flows;
grant select, insert, update, delete on weft.schedule, weft.backfill to shop_flows;
grant select, insert, update, delete on weft.live_dag, weft.dag_version, weft.dag_version_job, weft.dag_version_dataset,
  weft.live_job, weft.live_input, weft.live_output, weft.live_source, weft.live_unit, weft.live_backfill to shop_flows;
grant select on weft.operator_state to shop_flows;
grant select, insert, update on weft.dataset, weft.dataset_version, weft.dataset_seen to shop_flows;
grant select on weft.job to shop_flows;
-- docs: end workflows

-- docs: begin server
create role shop_server login;
select weft.admit_server('shop_server');
-- docs: end server
