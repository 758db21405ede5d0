-- name: open_write
-- A write into a dataset that an attempt has begun which still runs.
select s.task_id from weft.staged_write s join weft.task t on t.id = s.task_id and t.attempt = s.attempt and t.state = 'running'
where s.org_id = $1 and s.dataset_id = $2 order by s.id limit 1;

-- name: live_user
-- A live DAG that writes or reads a dataset, in the version that is in effect or being built.
select g.name from (
  select o.live_job_id from weft.live_output o where o.org_id = $1 and o.dataset_id = $2
  union all select i.live_job_id from weft.live_input i where i.org_id = $1 and i.dataset_id = $2) u
  join weft.dag_version_job m on m.live_job_id = u.live_job_id join weft.live_dag g on m.dag_version_id in (g.version_id, g.building_id)
order by g.name limit 1;

-- name: hand_over
update weft.dataset d set producer_dag = $3, producer_node = $4, updated_at = weft.now(), producer_output = (
  select coalesce(max(o.producer_output) + 1, 0) from weft.dataset o where o.org_id = $1 and o.producer_dag = $3 and o.producer_node = $4)
where d.org_id = $1 and d.id = $2 returning d.id;

-- name: delete
-- Its name is free from here on; all that it has is kept until it is collected.
update weft.dataset d set name = d.name || '@' || d.id, deleted_at = weft.now(), updated_at = weft.now()
where d.org_id = $1 and d.id = $2 and d.deleted_at is null returning d.id;

-- name: deleted
-- The one of that name that was deleted last, unless it has been collected.
select d.id from weft.dataset d
where d.org_id = $1 and d.name = $2 || '@' || d.id and d.deleted_at is not null and (d.current_id is not null or d.last_version = 0)
  and not exists (select 1 from weft.dataset_version v where v.id = d.current_id and v.collected_at is not null)
order by d.deleted_at desc limit 1 for no key update;

-- name: undelete
update weft.dataset d set name = $3, deleted_at = null, updated_at = weft.now()
where d.org_id = $1 and d.id = $2 and d.deleted_at is not null returning d.id;

-- name: show_table
select weft.show_table($1);

-- name: hide_table
select weft.show_table($1, false);
