-- name: now
select weft.now();

-- name: pause
-- One that is not paused.
update weft.live_dag d set paused_at = weft.now() where d.org_id = $1 and d.name = $2 and d.paused_at is null returning d.id;

-- name: resume
-- One that is paused.
update weft.live_dag d set paused_at = null where d.org_id = $1 and d.name = $2 and d.paused_at is not null returning d.id;

-- name: pause_job
-- One that is not paused.
update weft.live_job j set paused_at = weft.now() where j.org_id = $1 and j.id = $2 and j.paused_at is null returning j.id;

-- name: resume_job
-- One that is paused.
update weft.live_job j set paused_at = null where j.org_id = $1 and j.id = $2 and j.paused_at is not null returning j.id;

-- name: hint
select weft.hint_live();

-- name: lock_job
-- Nobody gives it a turn meanwhile.
select j.id from weft.live_job j where j.org_id = $1 and j.id = $2 for no key update;

-- name: held
-- Units of a job that are held, and not tried again just now, so many after one, or one of them alone.
select u.id, u.task_id, exists (select 1 from weft.task_done d where d.id = u.task_id) as has_task from weft.live_unit u
where u.org_id = $1 and u.live_job_id = $2 and u.state = 'held' and u.id > $3 and ($4::bigint is null or u.id = $4)
  and not exists (select 1 from weft.task t where t.id = u.task_id) order by u.id limit $5;

-- name: begin_anew
-- Held units whose tasks are not there any more; not where another has taken their place.
update weft.live_unit u set state = 'new', task_id = null
where u.org_id = $1 and u.id = any ($2) and u.state = 'held' and not exists (
  select 1 from weft.live_unit o where o.live_job_id = u.live_job_id and o.dedupe_key = u.dedupe_key and o.state in ('new', 'waiting', 'ready'));

-- name: skip
-- One that is held, and not tried again just now, or has not begun.
update weft.live_unit u set state = 'done'
where u.org_id = $1 and u.live_job_id = $2 and u.id = $3 and u.state in ('held', 'new', 'waiting', 'ready')
  and not exists (select 1 from weft.task t where t.id = u.task_id) returning u.id;

-- name: state_of_unit
-- One whose task goes on again is running, whoever has noted that.
select case when u.state = 'held' and exists (select 1 from weft.task t where t.id = u.task_id) then 'running' else u.state end from weft.live_unit u where u.org_id = $1 and u.live_job_id = $2 and u.id = $3;

-- name: input
-- The first input of a job that has partitions by now, or that of a name.
select i.place, i.version_id, d.name, ($4::text[] is null or d.read_roles && $4) as is_seen from weft.live_input i join weft.dataset d on d.id = i.dataset_id
where i.org_id = $1 and i.live_job_id = $2 and i.version_id is not null and ($3::text is null or d.name = $3) order by i.place limit 1;

-- name: unknown_partitions
select u.key from unnest($3::text[]) as u (key) where not exists (
  select 1 from weft.dataset_partition p where p.org_id = $1 and p.version_id = $2 and p.partition_key = u.key) order by u.key limit 5;

-- name: count_partitions
-- Of an input, from and to a key, both of them too.
select count(*)::int from weft.dataset_partition p
where p.org_id = $1 and p.version_id = $2 and weft.key_is_within(p.partition_key, $3, $4);

-- name: compute_partitions
-- Units for partitions of an input, as it is by now; how many, without those that wait already.
select count(weft.unit_of_partition(j, $3, u.key, null))::int from weft.live_job j cross join unnest($4::text[]) as u (key)
where j.org_id = $1 and j.id = $2;

-- name: count_unasked
-- For how many partitions of an input that would make units, by the keys which `weft.unit_of_partition` gives these.
select count(*)::int from weft.live_job j join weft.live_input i on i.live_job_id = j.id join weft.dataset_version v on v.id = i.version_id
  cross join unnest($4::text[]) as p (key)
where j.org_id = $1 and j.id = $2 and i.place = $3 and not exists (
  select 1 from weft.live_unit u where u.live_job_id = j.id and u.state in ('new', 'waiting', 'ready')
    and u.dedupe_key = case j.strategy when 'partition' then 'partition:' || p.key
      else 'bootstrap:' || i.dataset_id || ':' || v.number || ':' || p.key end);

-- name: add_backfill
insert into weft.live_backfill (org_id, live_job_id, place, first_key, last_key, at_once, partitions, actor)
values ($1, $2, $3, $4, $5, $6, $7, $8) returning id;

-- name: backfills
-- The backfills of a DAG, newest first, or one of them; which partitions they are of for those who see the input.
select b.id, j.name as job, case when s.is_seen then b.first_key end as first_key, case when s.is_seen then b.last_key end as last_key,
  b.at_once, b.partitions, b.made, o.units as running, o.held, b.created_at, b.ended_at, b.cancelled_at, b.actor
from weft.live_backfill b join weft.live_job j on j.id = b.live_job_id join weft.live_dag d on d.id = j.dag_id
  cross join lateral weft.units_of_backfill(b) o cross join lateral (
    select $6::text[] is null or exists (
      select 1 from weft.live_input i join weft.dataset r on r.id = i.dataset_id
      where i.live_job_id = b.live_job_id and i.place = b.place and r.read_roles && $6) as is_seen) s
where b.org_id = $1 and d.name = $2 and b.id < $3 and ($4::bigint is null or b.id = $4) order by b.id desc limit $5;

-- name: lock_backfilled
-- The job of a backfill, before that: nobody gives it a turn meanwhile.
select j.id from weft.live_job j
where j.id = (select b.live_job_id from weft.live_backfill b where b.org_id = $1 and b.id = $2) for no key update;

-- name: cancel_backfill
-- One that has not ended.
update weft.live_backfill b set cancelled_at = weft.now(), ended_at = weft.now()
where b.org_id = $1 and b.id = $2 and b.ended_at is null returning b.id;

-- name: leave_units
-- Those of a backfill that have not begun.
update weft.live_unit u set state = 'done' where u.org_id = $1 and u.backfill_id = $2 and u.state in ('new', 'waiting', 'ready') returning u.id;

-- name: open_backfills
-- Of all orgs, in any order.
select b.id from weft.live_backfill b where b.ended_at is null order by random() limit $1;

-- name: advance_backfill
select weft.advance_backfill($1);

-- name: collectable
-- Live DAGs that have versions or jobs which are of no use any more.
select d.id from weft.live_dag d
where ($3::bigint is null or d.org_id = $3) and (exists (
    select 1 from weft.dag_version v where v.dag_id = d.id and v.state in ('retired', 'abandoned') and v.retired_at < weft.now() - $1::interval)
  or exists (select 1 from weft.live_job j where j.dag_id = d.id and j.state = 'stopped'
    and not exists (select 1 from weft.dag_version_job m where m.live_job_id = j.id)))
order by d.id limit $2;

-- name: collect
select weft.collect_dag($1, $2);
