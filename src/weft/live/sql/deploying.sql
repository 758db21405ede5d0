-- name: now
select weft.now();

-- name: add_dag
insert into weft.live_dag (org_id, name, actor) values ($1, $2, $3) on conflict (org_id, name) do nothing;

-- name: lock_dag
-- Whoever changes what is in effect of a DAG does so alone.
select d.* from weft.live_dag d where d.org_id = $1 and d.name = $2 for no key update;

-- name: dag
select d.*, v.number as version, v.artifact_id, b.number as building, b.artifact_id as building_artifact_id
from weft.live_dag d left join weft.dag_version v on v.id = d.version_id left join weft.dag_version b on b.id = d.building_id
where d.org_id = $1 and d.name = $2;

-- name: is_workflow
-- Whether a name is that of a workflow that people have pushed, or the tag is somebody's.
select exists (select 1 from weft.tag t where t.org_id = $1 and not t.is_deployed and (t.workflow_id = $2 or t.name = $2 || '/live'));

-- name: jobs_of_version
-- The jobs of a version, each with what it means and how it is executed there.
select j.id, j.name, j.config_hash, j.nonce, j.document, m.settings from weft.dag_version_job m join weft.live_job j on j.id = m.live_job_id
where m.org_id = $1 and m.dag_version_id = $2 order by j.name;

-- name: highest_nonces
-- How often jobs of these names were asked to begin anew, in any version that is kept.
select j.name, max(j.nonce) as nonce from weft.live_job j where j.org_id = $1 and j.dag_id = $2 and j.name = any ($3) group by j.name;

-- name: known_jobs
-- Which of the jobs that are wanted are there already, whatever has become of them.
select j.name, j.config_hash from weft.live_job j join unnest($3::text[], $4::text[]) as u (name, config_hash)
  on u.name = j.name and u.config_hash = j.config_hash
where j.org_id = $1 and j.dag_id = $2;

-- name: datasets
-- Datasets by name, with who writes them, how many rows readers see, and whether whoever asks may see them.
select d.id, d.name, d.producer_dag, d.producer_node, d.producer_output, v.number as version, coalesce(v.rows, 0) as rows,
  ($3::text[] is null or d.read_roles && $3) as is_seen
from weft.dataset d left join weft.dataset_version v on v.id = d.current_id where d.org_id = $1 and d.name = any ($2) order by d.name;

-- name: names_of_datasets
-- Those that may be seen, for whoever has misspelt one.
select d.name from weft.dataset d where d.org_id = $1 and ($2::text[] is null or d.read_roles && $2) order by d.name limit 1000;

-- name: hold_datasets
select weft.hold_datasets($1, $2, $3, $4, $5);

-- name: outputs_by_name
-- By whoever holds them.
select d.id, d.name, d.producer_dag from weft.dataset d where d.org_id = $1 and d.name = any ($2);

-- name: versions_by_hash
-- Versions of datasets that were written by just these jobs.
select d.name, v.id, v.number from weft.dataset d join weft.dataset_version v on v.dataset_id = d.id
  join unnest($2::text[], $3::text[]) as u (name, config_hash) on u.name = d.name and u.config_hash = v.config_hash
where d.org_id = $1 and v.collected_at is null and v.range_start is null;

-- name: keep_version
-- A version that is written again; not one that is being collected.
update weft.dataset_version v set retired_at = null
where v.org_id = $1 and v.dataset_id = $2 and v.config_hash = $3 and v.range_start is null and v.collected_at is null returning v.id;

-- name: claim_dataset
-- Of a dataset that nobody writes; which output it is, is said by the version in effect.
update weft.dataset d set producer_dag = $3, producer_node = $4, updated_at = weft.now()
where d.org_id = $1 and d.id = $2 and d.producer_dag is null returning d.id;

-- name: readers
-- Who reads datasets: jobs of other live DAGs that are in effect, and nodes of workflows that have made others of them, with the
-- schedules by which these begin.
select distinct 'live' as kind, g.name, j.name as node, d.name as dataset, null::text as schedule
from weft.dataset d join weft.live_input i on i.dataset_id = d.id join weft.live_job j on j.id = i.live_job_id
  join weft.live_dag g on g.id = j.dag_id join weft.dag_version_job m on m.live_job_id = j.id and m.dag_version_id = g.version_id
where d.org_id = $1 and d.name = any ($2) and g.name <> $3
union all
select distinct 'workflow', o.producer_dag, o.producer_node, d.name, s.name
from weft.dataset d join weft.dataset_edge e on e.org_id = d.org_id and e.input_id = d.id join weft.dataset o on o.id = e.output_id
  left join weft.tag t on t.org_id = d.org_id and t.workflow_id = o.producer_dag and t.deleted_at is null
  left join weft.schedule s on s.org_id = d.org_id and s.tag = t.name
where d.org_id = $1 and d.name = any ($2) and o.producer_dag is not null and o.producer_dag <> $3
  and not exists (select 1 from weft.live_output l where l.dataset_id = o.id) and ($4::text[] is null or o.read_roles && $4)
  and (s.name is not null or not exists (select 1 from weft.schedule x join weft.tag y on y.org_id = x.org_id and y.name = x.tag
    where x.org_id = d.org_id and y.workflow_id = o.producer_dag))
order by 1, 2, 3, 4, 5;

-- name: known_handlers
-- Those of handlers, each in its queue, that a worker knows which is there; all of them know the operators that come with Weft.
select h.queue_id, h.name from unnest($2::bigint[], $3::text[]) as h (queue_id, name) where exists (
  select 1 from weft.worker w
  where (w.org_id = $1 or 2 = any (w.queues)) and w.state in ('active', 'idle') and w.until > weft.now()
    and h.queue_id = any (w.queues) and (h.name = any (w.handlers) or starts_with(h.name, $4)));

-- name: put_artifact
select weft.put_artifact($1, 'version', $2, $3, null, $4, $5, $6, $7, $8, $9);

-- name: add_version
insert into weft.dag_version (org_id, dag_id, number, artifact_id, actor, message)
values ($1, $2, $3, $4, $5, $6) returning id;

-- name: begin_building
update weft.live_dag d set building_id = $3, last_version = $4 where d.org_id = $1 and d.id = $2;

-- name: abandon
-- One that is being built.
update weft.dag_version v set state = 'abandoned', retired_at = weft.now()
where v.org_id = $1 and v.id = $2 and v.state = 'building' returning v.number;

-- name: put_job
-- The job that is there already with this very meaning, else a new one.
insert into weft.live_job as j (org_id, dag_id, name, config_hash, nonce, activation, operator, handler, document, strategy, runtime, queue_id,
  max_concurrency, max_backlog, max_attempts, actor)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'worker', $11, 1, 1, 1, $12)
on conflict (dag_id, name, config_hash) do update set actor = j.actor returning j.id, j.xmax = 0 as is_new;

-- name: put_version_job
insert into weft.dag_version_job (dag_version_id, live_job_id, org_id, settings) values ($1, $2, $3, $4);

-- name: put_output
insert into weft.live_output (live_job_id, place, org_id, dataset_id, version_id) values ($1, $2, $3, $4, $5);

-- name: outputs
select o.dataset_id, o.version_id from weft.live_output o where o.org_id = $1 and o.live_job_id = $2 order by o.place;

-- name: put_version_dataset
insert into weft.dag_version_dataset (dag_version_id, dataset_id, version_id, org_id) values ($1, $2, $3, $4);

-- name: put_input
-- Of this DAG in the version that its producer writes there; else in the one that is current.
insert into weft.live_input (live_job_id, place, org_id, dataset_id, version_id, is_internal)
select $1, $2, d.org_id, d.id, $5, $5::bigint is not null from weft.dataset d where d.org_id = $3 and d.name = $4 returning dataset_id;

-- name: put_source
insert into weft.live_source (live_job_id, org_id, kind, cron, every, timezone, anchor, catch_up, next_at, event, match, lane, hook, table_name,
  columns, manner)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: swap
select weft.swap_dag($1, $2, $3, $4, $5);

-- name: settle
select weft.settle_dag($1);

-- name: leave
-- No version is in effect any more; its datasets stay as they are.
with old as (
  update weft.dag_version v set state = case v.state when 'building' then 'abandoned' else 'retired' end, retired_at = weft.now()
  from weft.live_dag d where d.org_id = $1 and d.id = $2 and v.id in (d.version_id, d.building_id)
)
update weft.live_dag d set version_id = null, building_id = null where d.org_id = $1 and d.id = $2;

-- name: version
-- A version of a DAG by its number.
select v.id, v.number, v.state, v.live_at from weft.dag_version v where v.org_id = $1 and v.dag_id = $2 and v.number = $3;

-- name: version_before
-- The last version before another that was in effect.
select v.id, v.number, v.state, v.live_at from weft.dag_version v
where v.org_id = $1 and v.dag_id = $2 and v.number < $3::int and v.live_at is not null and v.state = 'retired' order by v.number desc limit 1;

-- name: deleted_datasets
-- Those of a version that have been deleted, by the names that they had, first what may be seen; whoever goes on from there holds them,
-- so that nobody deletes another meanwhile.
select split_part(d.name, '@', 1) as name, ($3::text[] is null or d.read_roles && $3) as is_seen from weft.dataset d
where d.org_id = $1 and d.deleted_at is not null and d.id in (select u.id from weft.datasets_of_dag_version($2) u (id)) order by 2 desc, 1 limit 1;

-- name: outputs_of_version
-- What the jobs of a version of a DAG write: the version that it has of each dataset, beside the one that readers see by now, when
-- these were written last, and whether whoever asks may see it.
select d.name, j.name as job, v.number as version, v.written_at, c.number as current, c.written_at as current_written_at,
  ($3::text[] is null or d.read_roles && $3) as is_seen
from weft.dag_version_dataset p join weft.dag_version_job m on m.dag_version_id = p.dag_version_id
  join weft.live_output o on o.live_job_id = m.live_job_id and o.version_id = p.version_id join weft.live_job j on j.id = m.live_job_id
  join weft.dataset d on d.id = p.dataset_id join weft.dataset_version v on v.id = p.version_id
  left join weft.dataset_version c on c.id = d.current_id
where p.org_id = $1 and p.dag_version_id = $2 order by j.name, o.place;

-- name: jobs_with_work
-- Those of a version to which something has come that is not done, or that have not yet taken up what stood there.
select j.name from weft.dag_version_job m join weft.live_job j on j.id = m.live_job_id cross join lateral weft.standing_of_live_job(j.id) s
where m.org_id = $1 and m.dag_version_id = $2 and (s.units > 0 or s.writes > 0 or s.is_behind);

-- name: stop_building
update weft.live_dag d set building_id = null where d.org_id = $1 and d.id = $2 and d.building_id = $3 returning d.id;

-- name: being_built
-- The DAGs of which a version is being built, of all orgs.
select d.id from weft.live_dag d where d.building_id is not null order by random() limit $1;

-- name: swap_when_caught_up
select weft.swap_when_caught_up($1, $2);
