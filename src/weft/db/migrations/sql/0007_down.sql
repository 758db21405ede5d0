-- name: publish_nothing
create or replace function weft.publish_live(ended bigint[]) returns void language sql as '';

-- name: forget_settings
alter function weft.publish_live reset all;

-- name: offer_nothing
create or replace function weft.offer_event(event bigint) returns void language sql as '';

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

-- name: drop_live
drop view weft.live_jobs;
drop function weft.grant_live_to_server, weft.settle_dag, weft.swap_dag, weft.turn_live_job, weft.route_input, weft.hint_live;
alter table weft.live_dag drop column version_id, drop column building_id;
drop table weft.staged_live, weft.operator_state, weft.live_unit, weft.live_source, weft.live_output, weft.live_input,
  weft.dag_version_dataset, weft.dag_version_job, weft.live_job, weft.dag_version, weft.live_dag;
