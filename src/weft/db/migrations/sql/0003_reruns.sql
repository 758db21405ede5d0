-- name: worker_code
-- Which code a worker had for each handler: by this and `worker_id` it is known what a task has run. It outlives the
-- worker's row, and goes when all that it can have run is past the retention.
create table weft.worker_code (
  worker_id bigint not null,
  org_id bigint not null,
  handler text not null,
  code bytea not null,
  gone_at timestamptz,
  primary key (worker_id, handler)
);

-- name: worker_code_handler
create index worker_code_handler on weft.worker_code (org_id, handler, worker_id);

-- name: worker_code_gone
create index worker_code_gone on weft.worker_code (gone_at);

-- name: task_done_kept
-- Of a task that did not run, because its job runs another again: the task whose output it has.
alter table weft.task_done add column kept_id bigint;

-- name: job_rerun
-- The job that this one runs again, and the oldest task to which its results refer: until it has ended, nothing from
-- there on is removed.
alter table weft.job add column rerun_of bigint, add column kept_from bigint;

-- name: job_done_rerun
alter table weft.job_done add column rerun_of bigint;

-- name: job_rerun_of
create index job_rerun_of on weft.job (rerun_of) where rerun_of is not null;

-- name: job_kept_from
create index job_kept_from on weft.job (kept_from) where kept_from is not null;

-- name: job_done_rerun_of
create index job_done_rerun_of on weft.job_done (rerun_of) where rerun_of is not null;

-- name: job_done_parent
create index job_done_parent on weft.job_done (parent_id) where parent_id is not null;

-- name: kept_results
-- The outputs of the items of several fan_outs, of which each ran what the others had not completed, in order.
create function weft.kept_results(parents json) returns table (output json, item int) language sql stable strict as $$
  select distinct on (d.item) d.output, d.item
  from json_array_elements_text(parents) as p (id) cross join lateral (
    select c.output, c.item, c.state, c.id from weft.task_done c where c.parent_id = p.id::bigint
  ) d
  order by d.item, d.state = 'completed' desc, d.id desc
$$;

-- name: keep_tasks
-- Of a job that was just put, in the same transaction: tasks that ended before it began. Those with `froms` are completed
-- and have the output of that task, or the one of `made`; the others are skipped. `reached_counts` says how many of them
-- have reached those that are live. False when an output is not there any more.
create function weft.keep_tasks(
  org bigint, job bigint, by_actor text, ids bigint[], nodes text[], handlers text[], queues bigint[], ranks smallint[],
  all_params json[], all_needs text[], lenient boolean[], froms bigint[], made json[], reached_ids bigint[], reached_counts int[]
) returns boolean language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare at timestamptz := weft.now(); written int;
begin
  insert into weft.task_done (
    id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, failures, crashes, generation, handler,
    params, output, worker_id, job_id, reason, actor, node, needs, allow_failure, kept_id)
  select u.id, org, u.queue, job, at, at, case when u.kept is null then 'skipped' else 'completed' end::weft.task_state,
    0, u.rank, 0, 0, 0, u.handler, case when length(u.params::text) <= 256 then u.params end,
    case when u.kept is not null then coalesce(u.made, o.output) end,
    o.worker_id, job, case when u.kept is null then 'branch_not_taken' else 'kept' end, by_actor, u.node, u.needs::bigint[],
    u.lenient, o.root
  from unnest(ids, nodes, handlers, queues, ranks, all_params, all_needs, lenient, froms, made)
    as u (id, node, handler, queue, rank, params, needs, lenient, kept, made)
  left join lateral (
    select d.id, d.output, d.worker_id, coalesce(d.kept_id, d.id) as root from weft.task_done d
    where d.id = u.kept and d.org_id = org and d.state = 'completed'
  ) o on true
  where u.kept is null or o.id is not null;
  get diagnostics written = row_count;
  if written < cardinality(ids) then
    return false;
  end if;
  insert into weft.task_params (id, org_id, params)
  select u.id, org, u.params from unnest(ids, all_params) as u (id, params) where length(u.params::text) > 256;
  insert into weft.task_blob (task_id, digest, org_id)
  select u.id, b.digest, org from unnest(ids, froms) as u (id, kept)
  cross join lateral (select b.digest from weft.task_blob b where b.task_id = u.kept) b on conflict do nothing;
  update weft.task t set reached = u.n from unnest(reached_ids, reached_counts) as u (id, n) where t.id = u.id;
  return true;
end $$;
