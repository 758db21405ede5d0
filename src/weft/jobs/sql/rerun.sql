-- name: job
-- A job that has ended, as another is made of it.
select d.id, d.state::text as state, d.workflow_id, d.inputs, -d.rank as priority, d.base_kind, d.base_ref, d.snapshot_id,
  encode(d.version_hash, 'hex') as version_hash, d.labels, d.patch, d.tag_positions,
  d.callback_url
from weft.job_done d where d.org_id = $1 and d.id = $2;

-- name: tasks
-- What became of the nodes of a job; of a fan_out also those whose items it kept.
select d.id, d.node, d.handler, d.state::text as state, d.reason, d.worker_id, d.allow_failure,
  coalesce(d.kept_id, d.id) as root_id,
  case when d.kept_id is null then d.job_id else (
    select r.job_id from weft.task_done r where r.id = d.kept_id and r.org_id = d.org_id
  ) end as root_job_id,
  case when d.handler = '@conditional' then (d.output ->> 'branch')::int end as branch,
  case when d.handler = '@fan_out' then (d.output ->> 'count')::int end as count,
  case when d.handler = '@fan_out' then (
    select coalesce(d.params, p.params) -> '$render' -> 'kept' from (select 1) one left join weft.task_params p on p.id = d.id
  ) end as kept
from weft.task_done d where d.org_id = $1 and d.job_id = $2 and d.node is not null and d.parent_id is null order by d.id;

-- name: items
-- Of how many items of fan_outs there are outputs, and who made them: each by those whose items it has, of which every
-- one has run only what the others had not completed.
select u.fan_out_id, c.handler, count(*)::int as completed, array_agg(distinct c.worker_id) as workers
from unnest($1::bigint[], $2::bigint[]) as u (fan_out_id, parent_id)
cross join lateral (
  select c.handler, c.worker_id from weft.task_done c where c.parent_id = u.parent_id and c.state = 'completed'
) c group by 1, 2;

-- name: made
-- What the tasks of jobs have made besides the items of fan_outs, by the node for which that counts: who ran it, and
-- whether all of it completed that must.
select s.job_id, s.node, s.handler, array_agg(distinct s.worker_id) as workers,
  bool_and(s.state = 'completed' or s.allow_failure) as is_done
from weft.task_done s where s.job_id = any ($1) and s.parent_id is not null and s.item is null and s.node is not null
group by 1, 2, 3;

-- name: additions
-- What tasks of jobs have added to them while they ran.
select coalesce(d.counts_for, d.id) as maker_id, s.data from weft.task_done d join weft.step s on s.task_id = d.id
where d.job_id = any ($1) and left(s.name, 10) = '@addition ';

-- name: endings
-- How what was added ended, and who ran it; a group is what is in it.
select d.id, d.handler, d.worker_id, d.state = 'completed' or d.allow_failure as is_done
from weft.task_done d where d.id = any ($1) and left(d.handler, 1) <> '@';

-- name: added
-- What was added to a job, as it is added to another.
select d.id, d.node, d.handler, q.name as queue, d.rank::int as rank, d.max_attempts::int as max_attempts,
  coalesce(d.params, p.params) as params, d.timeout, d.heartbeat_timeout, d.retry, d.concurrency_key, d.allow_failure
from weft.task_done d join weft.queue q on q.id = d.queue_id left join weft.task_params p on p.id = d.id
where d.id = any ($1);

-- name: gates
-- The beginnings and ends of the groups of a job.
select d.id from weft.task_done d where d.job_id = $1 and d.handler = any ($2);

-- name: ways
-- What leads to what around tasks that were added to a job, and around the ends of its groups.
with near as (
  select d.id from weft.task_done d where d.job_id = $1 and (d.handler in ('@open', '@close') or d.id = any ($2))
)
select e.prev, e.next from near n join weft.edge e on e.prev = n.id
union select e.prev, e.next from near n join weft.edge e on e.next = n.id;

-- name: ran_inside
-- Who ran what in the jobs that nodes waited for, and in those that they waited for.
with recursive inside (root_id, job_id) as (
  select r.id, d.id from unnest($1::bigint[]) as r (id) join weft.job_done d on d.parent_id = r.id
  union all
  select i.root_id, d.id from inside i join weft.task_done t on t.job_id = i.job_id and t.handler = '@workflow'
  join weft.job_done d on d.parent_id = coalesce(t.kept_id, t.id)
)
select distinct i.root_id, t.handler, t.worker_id from inside i join weft.task_done t on t.job_id = i.job_id
where t.state = 'completed' and t.handler not like '@%';

-- name: codes
-- Which code workers had.
select c.worker_id, c.handler, encode(c.code, 'hex') as code from weft.worker_code c where c.worker_id = any ($1);

-- name: current_codes
-- Which code the newest worker has: of those that live, else of those that are gone.
select h.name as handler, encode(coalesce((
  select c.code from weft.worker w join weft.worker_code c on c.worker_id = w.id and c.handler = h.name
  where w.org_id = $1 and w.state in ('active', 'idle') and w.until > (select weft.now()) order by w.id desc limit 1
), (
  select c.code from weft.worker_code c where c.org_id = $1 and c.handler = h.name order by c.worker_id desc limit 1
)), 'hex') as code
from unnest($2::text[]) as h (name);

-- name: lock
-- One after the other: those who run a job again unless somebody did.
select pg_advisory_xact_lock(hashtextextended('weft.rerun', $1));

-- name: of
-- The job that runs another again, if there is one.
select min(r.id) from (
  select j.id from weft.job j where j.org_id = $1 and j.rerun_of = $2
  union all select d.id from weft.job_done d where d.org_id = $1 and d.rerun_of = $2
) r;

-- name: up_to
-- Up to which job those were looked for that were to be run again by a key the first time; kept as long as other keys.
with mine as (
  insert into weft.idempotency_key as k (org_id, handler, key, task_id, ended_at) values ($1, '@rerun', $2, $3, weft.now())
  on conflict (org_id, handler, key) do update set task_id = k.task_id returning k.task_id
)
select task_id from mine;

-- name: candidates
-- Jobs that ended, oldest first after a key, that are no part of another, have a definition, and that nobody has run
-- again yet.
select d.id from weft.job_done d
where d.org_id = $1 and d.id > $2 and d.id <= $8 and d.state = any ($3::weft.job_state[])
  and ($4::text is null or d.workflow_id = $4) and d.parent_id is null
  and d.snapshot_id is not null
  and d.ended_at >= coalesce($5::timestamptz, (select weft.now() - $6::interval), '-infinity')
  and ($7::jsonb is null or d.labels::jsonb @> $7)
  and not exists (select 1 from weft.job j where j.rerun_of = d.id)
  and not exists (select 1 from weft.job_done r where r.rerun_of = d.id)
order by d.id limit $9;
