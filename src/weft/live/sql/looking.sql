-- name: list
-- Live DAGs by name after one, with what is in effect, and how far their jobs are.
select d.id, d.name, v.number as version, b.number as building, d.paused_at, v.artifact_id, v.live_at, count(j.id)::int as jobs,
  coalesce(sum(s.units), 0)::bigint as units, coalesce(sum(s.held), 0)::bigint as held, coalesce(sum(s.writes), 0)::bigint as writes,
  min(s.since) as oldest_at, d.created_at, d.actor
from weft.live_dag d left join weft.dag_version v on v.id = d.version_id left join weft.dag_version b on b.id = d.building_id
  left join weft.dag_version_job m on m.dag_version_id = v.id left join weft.live_job j on j.id = m.live_job_id
  left join lateral weft.standing_of_live_job(j.id) s on true
where d.org_id = $1 and d.name > $2 and ($3::text is null or d.name = $3)
group by d.id, v.id, b.id order by d.name limit $4;

-- name: jobs
-- The jobs of the version in effect and of the one being built, and those that have not stopped yet, by name after one. A source is
-- lost whose task is held by a worker that gives no sign of life any more, until another has taken it, and pending while no worker of
-- its queue is there.
select j.id, j.name, j.config_hash, j.activation, j.operator, j.runtime, j.strategy,
  case when j.state = 'running' and exists (
    select 1 from weft.live_unit u join weft.task t on t.id = u.task_id left join weft.worker w on w.id = t.worker_id
    where u.live_job_id = j.id and u.state = 'running' and (t.state = 'running' and w.until < weft.now() or t.state = 'ready' and t.crashes > 0))
    then 'lost'
    when j.state = 'running' and j.activation = 'source' and not exists (
      select 1 from weft.worker w where j.queue_id = any (w.queues) and w.state in ('active', 'idle') and w.until > weft.now())
    then 'pending' else j.state end as state,
  coalesce((select m.dag_version_id = d.version_id from weft.dag_version_job m where m.live_job_id = j.id and m.dag_version_id = d.version_id), false) as is_live,
  coalesce((select true from weft.dag_version_job m where m.live_job_id = j.id and m.dag_version_id = d.building_id), false) as is_building,
  j.paused_at, s.units, s.held, s.writes, s.since as oldest_at, s.is_behind, j.completed, j.failed, j.last_error,
  j.last_active_at, nullif(o.next_at, 'epoch') as next_at,
  array(select r.name from weft.live_input i join weft.dataset r on r.id = i.dataset_id
    where i.live_job_id = j.id and ($5::text[] is null or r.read_roles && $5) order by i.place) as inputs,
  array(select r.name || '@' || v.number from weft.live_output i join weft.dataset r on r.id = i.dataset_id
      join weft.dataset_version v on v.id = i.version_id
    where i.live_job_id = j.id and ($5::text[] is null or r.read_roles && $5) order by i.place) as outputs,
  j.created_at, j.actor, s.units >= j.max_backlog as is_full
from weft.live_dag d join weft.live_job j on j.dag_id = d.id left join weft.live_source o on o.live_job_id = j.id
  cross join lateral weft.standing_of_live_job(j.id) s
where d.org_id = $1 and d.name = $2 and (j.name, j.id) > ($3, $4) and (j.state <> 'stopped' or exists (
    select 1 from weft.dag_version_job m where m.live_job_id = j.id and m.dag_version_id in (d.version_id, d.building_id)))
order by j.name, j.id limit $6;

-- name: measure
-- Live jobs by what becomes of them, units that have failed and are held, and since when the first waits that could begin.
select count(*) filter (where j.state = 'pending') as pending, count(*) filter (where j.state = 'running') as running,
  count(*) filter (where j.state = 'idle') as idle, count(*) filter (where j.state = 'draining') as draining,
  coalesce(sum((select count(*) from weft.live_unit u where u.live_job_id = j.id and u.state = 'held')), 0)::bigint as held,
  coalesce(greatest(0, extract(epoch from weft.now() - min(f.since))), 0)::float8 as lag
from weft.live_job j join weft.live_dag d on d.id = j.dag_id left join lateral (
    select least(
      (select u.since from weft.live_unit u where u.live_job_id = j.id and u.state = 'ready' and (u.run_at is null or u.run_at <= weft.now())
       order by u.id limit 1),
      (select u.since from weft.live_unit u where u.live_job_id = j.id and u.state = 'new' order by u.id limit 1)) as since
  ) f on j.paused_at is null and d.paused_at is null
where j.org_id = $1 and j.state <> 'stopped';

-- name: names
-- Of live DAGs: that one first, for whoever asks whether it is there.
select d.name from weft.live_dag d where d.org_id = $1 order by d.name <> $2, d.name limit 1000;

-- name: job
-- The job of that name: of the version that is said, else of the one in effect, else of the one being built, else the last of all.
select j.*, d.name as dag, d.version_id from weft.live_dag d join weft.live_job j on j.dag_id = d.id
where d.org_id = $1 and d.name = $2 and j.name = $3 and ($4::int is null or exists (
  select 1 from weft.dag_version_job m join weft.dag_version v on v.id = m.dag_version_id where m.live_job_id = j.id and v.number = $4))
order by exists (select 1 from weft.dag_version_job m where m.live_job_id = j.id and m.dag_version_id = d.version_id) desc,
  exists (select 1 from weft.dag_version_job m where m.live_job_id = j.id and m.dag_version_id = d.building_id) desc, j.id desc
limit 1;

-- name: job_names
select distinct j.name from weft.live_dag d join weft.live_job j on j.dag_id = d.id where d.org_id = $1 and d.name = $2 order by 1 limit 1000;

-- name: units
-- Units that are not done, in their order after one; of those whose tasks have failed with what went wrong.
select u.id, u.kind, u.lane, u.state, u.since, u.run_at, u.task_id, u.said,
  case when u.state = 'held' then (select coalesce((d.error ->> 'type') || ': ' || (d.error ->> 'message'), d.reason, d.state::text)
    from weft.task_done d where d.id = u.task_id) end as error
from weft.live_unit u
where u.org_id = $1 and u.live_job_id = $2 and u.id > $3 and u.state <> 'done' and ($4::text is null or u.state = $4) order by u.id limit $5;

-- name: states
-- What an operator remembers, by key after one.
select o.state_key as key, o.version, o.state, o.updated_at from weft.operator_state o
where o.org_id = $1 and o.live_job_id = $2 and o.state_key > $3 order by o.state_key limit $4;

-- name: versions
-- The versions of a DAG that are kept, newest first.
select v.id, v.number, v.state, v.artifact_id, encode(a.version_hash, 'hex') as version_hash, v.created_at, v.live_at, v.retired_at, v.actor,
  v.message from weft.dag_version v join weft.artifact a on a.id = v.artifact_id
where v.org_id = $1 and v.dag_id = $2 and v.number < $3 order by v.number desc limit $4;
