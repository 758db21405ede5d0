-- name: stage
-- scheduled and due → ready; those with a concurrency key become pending, until a slot is taken.
with due as materialized (
  select t.id from weft.task t where t.state = 'scheduled' and t.due_at <= (select weft.now())
  order by t.due_at limit $1 for update skip locked
)
update weft.task t set due_at = null, reason = null,
  state = case when t.concurrency_key is null then 'ready' else 'pending' end::weft.task_state
from due where t.id = due.id and t.state = 'scheduled'
returning t.id, t.queue_id, t.concurrency_key;

-- name: next_due
select min(t.due_at) as due_at, weft.now() as now from weft.task t where t.state = 'scheduled';

-- name: ensure_partitions
select weft.ensure_partitions();

-- name: old_partitions
-- Partitions whose whole range lies below both the retention and the oldest task that has not ended; also those that
-- somebody detached, or began to, and did not come to drop.
with bound as (
  select least(weft.first_id_at(weft.now() - $1::interval), (select min(t.id) from weft.task t)) as id
)
select c.relname as child, regexp_replace(c.relname, '_[0-9]{8}$', '') as parent,
  i.inhrelid is not null as is_attached, coalesce(i.inhdetachpending, false) as is_pending
from pg_class c left join pg_inherits i on i.inhrelid = c.oid, bound
where c.relnamespace = 'weft'::regnamespace and c.relkind = 'r'
  and c.relname ~ '^(task_done|task_params|attempt)_[0-9]{8}$'
  and weft.first_id_at(to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC'
                       + interval '24 hours') <= bound.id
order by 1;

-- name: prune_keys
-- Keys of tasks that ended longer ago than the given time, from a place in the order of tasks on; returns how many were looked at.
with page as materialized (
  select k.org_id, k.handler, k.key, k.task_id from weft.idempotency_key k
  where k.task_id > $2 and k.task_id < (select weft.first_id_at(weft.now() - $1::interval))
  order by k.task_id limit 1000
), gone as (
  delete from weft.idempotency_key k using page
  where k.org_id = page.org_id and k.handler = page.handler and k.key = page.key and k.task_id = page.task_id
    and not exists (select 1 from weft.task t where t.id = page.task_id)
    and not exists (select 1 from weft.task_done d where d.id = page.task_id and d.ended_at > (select weft.now() - $1::interval))
  returning 1
)
select max(page.task_id) as last, count(*)::int as seen, (select count(*)::int from gone) as gone from page;

-- name: prune_logs
delete from weft.task_log l using (
  select o.task_id, o.attempt from weft.task_log o where o.task_id < (select weft.first_id_at(weft.now() - $1::interval))
  order by 1, 2 limit 1000
) old where l.task_id = old.task_id and l.attempt = old.attempt returning 1;
