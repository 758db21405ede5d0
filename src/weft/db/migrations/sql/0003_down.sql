-- name: drop_lists_of_artifacts
drop index weft.artifact_list, weft.artifact_list_of_workflow;

-- name: drop_lists_of_tasks
drop function weft.list_tasks, weft.find_tasks, weft.look_at_tasks, weft.scan_newest_tasks, weft.scan_oldest_tasks,
  weft.list_newest_effects, weft.list_oldest_effects;
drop type weft.found_task, weft.task_search;
drop index weft.task_done_unsuccessful, weft.task_done_control, weft.outbox_org;

-- name: drop_lists
drop function weft.list_jobs, weft.page_of_walks, weft.find_jobs, weft.look_at_jobs, weft.scan_newest_jobs, weft.scan_oldest_jobs;
drop type weft.found_job, weft.job_search, weft.walked;
drop index weft.task_done_dead;
drop table weft.job_label;

-- name: drop_loans
drop function weft.end_loans, weft.take_key, weft.lend_key, weft.return_loans, weft.admit_waiting;
drop table weft.key_loan;

-- name: drop_cache
drop function weft.note_outputs, weft.find_output, weft.trace_of, weft.trace_problems, weft.note_inputs;
drop table weft.task_reuse, weft.output_cache;

-- name: drop_job_events
drop view weft.job_events;
drop function weft.note_event, weft.add_up;
drop table weft.job_event, weft.tally, weft.tally_mark;

-- name: drop_steps
drop view weft.steps;
drop table weft.step;

-- name: drop_jobs
drop function weft.leading_to, weft.spawn, weft.skip_by_step;
drop function weft.show_jobs;
drop view weft.jobs;
drop function weft.publish_live, weft.offer_events, weft.publish_writes, weft.lasting_queue, weft.adopt_jobs, weft.hand_over, weft.control_queue, weft.end_late_waits, weft.end_late_starts, weft.send_events, weft.tell_event, weft.route_event, weft.begin_wait, weft.lock_event, weft.cancel_children, weft.answer, weft.wait_for_answer, weft.end_late_jobs, weft.resume_job, weft.begin_jobs, weft.put_job, weft.add_children, weft.sweep_job, weft.fail_job, weft.forget_result, weft.note_failed, weft.end_jobs, weft.outputs_of, weft.output_of, weft.results_of,
  weft.skip_later, weft.fail_next, weft.skip_tasks, weft.release_next, weft.reach_next, weft.put_control, weft.finish_and_claim;
drop function weft.keep_tasks, weft.kept_results;
drop table weft.event, weft.awaited, weft.job_done, weft.job, weft.worker_code;
drop type weft.job_state;

-- name: drop_definitions
drop function weft.is_forced, weft.parted_places, weft.delete_tag(bigint, text, bigint, bytea, boolean, text, text);

-- name: drop_tasks_of_jobs
delete from weft.task where job_id is not null;
delete from weft.queue where id = 2 or id < 0;
alter table weft.edge drop column branches;
delete from weft.idempotency_key where job_id is not null;
alter table weft.idempotency_key drop column job_id, drop column request;
alter table weft.task_done drop column node, drop column parent_id, drop column item, drop column counts_for, drop column needs,
  drop column allow_failure, drop column kept_id;
alter table weft.task drop column node, drop column parent_id, drop column item, drop column counts_for, drop column reached,
  drop column needs, drop column allow_failure, drop column dispatch_timeout;

-- name: drop_order_of_events
alter table weft.attempt drop column job_id;
drop index weft.task_done_job;

-- name: drop_digest
alter table weft.schema_revision drop column digest;
