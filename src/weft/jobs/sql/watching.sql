-- name: note_event
select weft.note_event($1, $2, $3, $4, $5, $6, $7);

-- name: events
-- The events of jobs, of each from a moment on, whether it has ended, and which transactions may still tell of earlier
-- ones: all as one look. A row without an event where there is none. Of the tasks that have ended it reads those that are
-- told, because so many have ended by the time `last` that no page has room for more.
with look as materialized (
  select weft.now() as now, pg_snapshot_xmin(s)::text::bigint as oldest, pg_snapshot_xmax(s)::text::bigint as next
  from pg_current_snapshot() s
), asked as materialized (
  select a.job_id, a.since, a.room, a.place, exists (select 1 from weft.job_done d where d.id = a.job_id) as is_over,
    coalesce((
      select d.ended_at from weft.task_done d where d.job_id = a.job_id and d.node is not null and d.ended_at >= a.since
      order by d.ended_at offset a.room - 1 limit 1), 'infinity') as last
  from unnest($2::bigint[], $3::timestamptz[], $4::int[]) with ordinality as a (job_id, since, room, place)
)
select a.place, l.now, l.oldest, l.next, a.is_over, e.id, e.at, e.type, e.state, e.node, e.item, e.task_id, e.attempt, e.data,
  e.checkpoint
from look l cross join asked a left join lateral (
  select e.id, e.at, e.type, e.state, e.node, e.item, e.task_id, e.attempt, e.data, e.checkpoint
  from weft.job_events e where e.org_id = $1 and e.job_id = a.job_id and e.at >= a.since and e.at <= a.last
  order by e.at, e.id collate "C" limit a.room
) e on true
order by a.place, e.at, e.id collate "C";

-- name: mark_of_jobs
-- What is another when a job was made or has ended, or one of the newest that have not has changed.
select (
  select coalesce(sum(t.count), 0) from weft.tally t where t.org_id = $1 and t.name like 'jobs\_%'
) || ' ' || (
  select count(*) || ' ' || coalesce(sum(j.row), 0) || ' ' || coalesce(max(j.id), 0)
  from (select j.id, j.xmin::text::bigint as row from weft.job j where j.org_id = $1 order by j.id desc limit 1000) j
) as mark;

-- name: open_tasks
-- What has not ended of a job, or of one node of it, after a key: the first task of each node, state and reason, and how many
-- are like it. Of a job those that do not merely wait for others, while there is one.
with alike as (
  select min(t.id) as id, t.node, t.handler, t.state::text as state, t.waiting_on > 0 as has_to_wait, count(*)::int as count
  from weft.task t where t.org_id = $1 and t.job_id = $2 and ($3::text is null or t.node = $3)
  group by t.node, t.handler, t.state, t.reason, t.waiting_on > 0, t.parent_id is null
)
select a.id, a.node, a.handler, a.state, a.count from alike a
where a.id > $4 and (not a.has_to_wait or $3::text is not null or not exists (select 1 from alike o where not o.has_to_wait))
order by a.id limit $5;

-- name: ended_node
-- How a node has ended.
select d.state::text as state, d.reason, d.kept_id from weft.task_done d
where d.org_id = $1 and d.job_id = $2 and d.node = $3 and d.parent_id is null;

-- name: node_names
select distinct o.node from (
  select t.node from weft.task t where t.org_id = $1 and t.job_id = $2
  union all select d.node from weft.task_done d where d.org_id = $1 and d.job_id = $2
) o where o.node is not null order by 1;

-- name: attempts
-- The attempts of a job's tasks, or of those of one node, in the order in which they began, after a key, all without a limit;
-- not those of the engine's own.
with tasks as (
  select t.id, t.node, t.item, t.attempt::int as attempt, t.claimed_at, null::timestamptz as ended_at from weft.task t
  where t.org_id = $1 and t.job_id = $2 and t.attempt > 0 and t.node is not null and t.handler not like '@%'
    and ($3::text is null or t.node = $3)
  union all
  select d.id, d.node, d.item, d.attempt, d.claimed_at, d.ended_at from weft.task_done d
  where d.org_id = $1 and d.job_id = $2 and d.attempt > 0 and d.node is not null and d.handler not like '@%'
    and ($3::text is null or d.node = $3)
), begun as (
  select t.id, t.node, t.item, a.attempt, a.started_at, a.ended_at from tasks t join weft.attempt a on a.task_id = t.id
)
select a.task_id, a.node, a.item, a.attempt, a.started_at, a.ended_at from (
  select b.id as task_id, b.node, b.item, b.attempt, b.started_at, b.ended_at from begun b
  union all
  select t.id, t.node, t.item, t.attempt, t.claimed_at, t.ended_at from tasks t
  where not exists (select 1 from begun b where b.id = t.id and b.attempt = t.attempt)
) a
where (coalesce(a.started_at, 'infinity'), a.task_id, a.attempt) > ($4::text::timestamptz, $5, $6)
order by coalesce(a.started_at, 'infinity'), a.task_id, a.attempt limit $7;

-- name: ended_jobs
-- Of these jobs those that have ended, of every org: an orchestrator serves all.
select d.id, (select g.slug from weft.org g where g.id = d.org_id) as org, d.state::text as state, d.reason, d.actor, d.workflow_id,
  d.created_at, d.started_at, d.ended_at, d.rerun_of,
  coalesce((select t.job_id from weft.task t where t.id = d.parent_id),
    (select t.job_id from weft.task_done t where t.id = d.parent_id)) as parent_job_id
from weft.job_done d where d.id = any ($1);
