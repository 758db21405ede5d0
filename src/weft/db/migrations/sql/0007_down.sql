-- name: publish_nothing
create or replace function weft.publish_live(ended bigint[]) returns void language sql as '';

-- name: forget_settings
alter function weft.publish_live reset all;

-- name: offer_nothing
create or replace function weft.offer_events(events bigint[]) returns void language sql as '';

-- name: count_no_sources
drop function weft.sources_of_event;
alter table weft.event drop column sources;

-- name: tell_nobody
create or replace function weft.tell_written(dataset bigint) returns void language sql as '';

-- name: artifact_use_without_dags
create or replace view weft.artifact_use as select v.* from (
  select m.to_id as artifact_id, m.org_id, 'tag' as used_by, m.tag as user_name from weft.tag_move m where m.to_id is not null
  union all select t.target_id, t.org_id, 'tag', t.name from weft.tag t
  union all select a.parent_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.parent_id is not null
  union all select a.merged_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.merged_id is not null
  union all select a.base_id, a.org_id, a.kind::text, a.id::text from weft.artifact a where a.base_id is not null
  union all select j.snapshot_id, j.org_id, 'job', j.id::text from weft.job j where j.snapshot_id is not null
  union all select d.snapshot_id, d.org_id, 'job', d.id::text from weft.job_done d where d.snapshot_id is not null
) v where v.org_id = coalesce((select weft.current_org()), v.org_id);

-- name: follow_nothing
update weft.live_source set is_listening = false where kind = 'table';
drop trigger source_follows on weft.live_source;
drop trigger source_is_gone on weft.live_source;
drop function weft.follow_or_leave, weft.leave_table, weft.follow_table, weft.note_rows cascade;

-- name: drop_live
drop view weft.live_jobs;
drop function weft.grant_live_to_server, weft.collect_dag, weft.advance_backfill, weft.units_of_backfill, weft.key_is_within, weft.unit_of_partition, weft.swap_when_caught_up,
  weft.standing_of_live_job, weft.settle_dag, weft.hold_datasets, weft.datasets_of_dag_version, weft.swap_dag, weft.move_live_tag, weft.turn_live_job, weft.route_input, weft.lane_of, weft.hint_live;
alter table weft.live_dag drop column version_id, drop column building_id;
drop table weft.live_file, weft.live_backfill, weft.staged_live, weft.operator_state, weft.live_unit, weft.live_source, weft.live_output, weft.live_input,
  weft.dag_version_dataset, weft.dag_version_job, weft.live_job, weft.dag_version, weft.live_dag;
