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

-- name: old_partitions
-- Days below the retention of which no task is open, nor a job of them or of days before, nor one that keeps outputs from
-- there: first what has ended, if
-- nothing of it ended within the retention; when that is gone, params and attempts. Also what somebody detached, or
-- began to, and did not come to drop: nobody sees it any more.
with bound as (
  select weft.first_id_at(weft.now() - $1::interval) as id,
    least((select min(t.job_id) from weft.task t where t.job_id is not null),
          (select min(j.kept_from) from weft.job j where j.kept_from is not null)) as open_job_id
), found as (
  select c.relname as child, regexp_replace(c.relname, '_[0-9]{8}$', '') as parent, right(c.relname, 8) as day,
    i.inhrelid is not null as is_attached, coalesce(i.inhdetachpending, false) as is_pending,
    weft.first_id_at(to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC') as low,
    weft.first_id_at(to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' + interval '24 hours') as high
  from pg_class c left join pg_inherits i on i.inhrelid = c.oid
  where c.relnamespace = 'weft'::regnamespace and c.relkind = 'r'
    and c.relname ~ '^(task_done|task_params|attempt|job_done|step|job_event|job_label)_[0-9]{8}$'
)
select f.child, f.parent, f.is_attached, f.is_pending from found f, bound
where f.high <= bound.id and case
  when f.is_pending or not f.is_attached then true
  when f.high > bound.open_job_id then false
  when exists (select 1 from weft.task t where t.id >= f.low and t.id < f.high) then false
  when f.parent = 'task_done' then true
  else not exists (select 1 from found d where d.parent = 'task_done' and d.day = f.day and d.is_attached)
end
order by f.day, f.child;

-- name: ended_within
-- Whether anything of a day ended within the retention; what is detached tells no more.
select weft.ended_after($1, weft.now() - $2::interval);

-- name: note_ends
-- For keys that outlive the tasks of a day.
update weft.idempotency_key k set ended_at = d.ended_at
from weft.task_done d, (select to_date($1, 'YYYYMMDD')::timestamp at time zone 'UTC' as day) b
where d.id = k.task_id and k.task_id >= weft.first_id_at(b.day) and k.task_id < weft.first_id_at(b.day + interval '24 hours');

-- name: prune_answers
-- Answers that were given longer ago than the given time.
delete from weft.answer a using (
  select o.org_id, o.key from weft.answer o where o.created_at < (select weft.now() - $1::interval) order by o.created_at limit 1000
) o where a.org_id = o.org_id and a.key = o.key returning 1;

-- name: prune_keys
-- Keys of tasks that ended longer ago than the given time, and in no job that goes on: what made them may be tried again. From a
-- place in the order of tasks on; returns how many were looked at.
with page as materialized (
  select k.org_id, k.handler, k.key, k.task_id from weft.idempotency_key k
  where k.task_id > $2 and k.task_id < (select weft.first_id_at(weft.now() - $1::interval))
  order by k.task_id limit 1000
), gone as (
  delete from weft.idempotency_key k using page
  where k.org_id = page.org_id and k.handler = page.handler and k.key = page.key and k.task_id = page.task_id
    and not exists (select 1 from weft.task t where t.id = page.task_id)
    and not exists (select 1 from weft.job j where j.id = k.job_id)
    and not exists (select 1 from weft.task_done d where d.id = page.task_id and d.ended_at > (select weft.now() - $1::interval))
    and (k.ended_at is null or k.ended_at <= (select weft.now() - $1::interval))
  returning 1
)
select max(page.task_id) as last, count(*)::int as seen, (select count(*)::int from gone) as gone from page;

-- name: prune_logs
-- Copied longer ago than the given time.
delete from weft.task_log l using (
  select o.task_id, o.attempt from weft.task_log o where o.created_at < (select weft.now() - $1::interval)
  order by o.created_at limit 1000
) old where l.task_id = old.task_id and l.attempt = old.attempt returning 1;

-- name: prune_edges
-- Between tasks that are both gone from the history, from a place in the order of tasks on; returns how many were looked at.
with page as materialized (
  select e.prev, e.next from weft.edge e
  where e.prev > $2 and e.prev < (select weft.first_id_at(weft.now() - $1::interval)) order by e.prev limit 1000
), gone as (
  delete from weft.edge e using page where e.prev = page.prev and e.next = page.next
    and not exists (select 1 from weft.task t where t.id in (page.prev, page.next))
    and not exists (select 1 from weft.task_done d where d.id = page.prev)
    and not exists (select 1 from weft.task_done d where d.id = page.next)
  returning 1
)
select max(page.prev) as last, count(*)::int as seen, (select count(*)::int from gone) as gone from page;

-- name: prune_inputs
-- What was read of datasets by tasks that are gone from the history.
delete from weft.task_input i using (
  select o.task_id, o.attempt, o.place from weft.task_input o where o.task_id < (select weft.first_id_at(weft.now() - $1::interval))
    and not exists (select 1 from weft.task t where t.id = o.task_id) and not exists (select 1 from weft.task_done d where d.id = o.task_id)
  order by o.task_id limit 1000
) old where i.task_id = old.task_id and i.attempt = old.attempt and i.place = old.place returning 1;

-- name: prune_events
-- Sent longer ago than the given time, and an hour before any job that may still wait for one.
delete from weft.event e using (
  select o.id from weft.event o where o.id < (select weft.first_id_at(weft.now() - $1::interval))
    and o.id < (select coalesce(min(j.id) - (3600000::bigint << 22), 9223372036854775807) from weft.job j)
  order by o.id limit 1000
) old where e.id = old.id returning 1;

-- name: end_late_jobs
-- Jobs that are pending, running or paused past their time → cancelling, to fail; what waits past its time → failed or
-- skipped; what nobody began in its time → failed.
select weft.end_late_jobs(100) + weft.end_late_waits(100) + weft.end_late_starts(100);

-- name: next_late
-- When the next job, or the next of what waits or must beat, runs out of time.
select least(
  (select min(j.timeout_at) from weft.job j where j.timeout_at is not null),
  (select min(t.expires_at) from weft.task t where t.expires_at is not null)
) as due_at, weft.now() as now;

-- name: fold_tallies
-- Of server processes that are gone, into the one row that stays.
with gone as (
  delete from weft.tally t where t.process <> 0 and not exists (select 1 from pg_stat_activity a where a.pid = t.process)
  returning t.org_id, t.name, t.count, t.seconds
)
insert into weft.tally as t (org_id, name, process, count, seconds)
select g.org_id, g.name, 0, sum(g.count), sum(g.seconds) from gone g group by 1, 2 order by 1, 2
on conflict (org_id, name, process) do update set count = t.count + excluded.count, seconds = t.seconds + excluded.seconds;

-- name: count_made
-- Adds the tasks of at most a day to those that were made, up to five minutes ago: who has enqueued them has committed by then.
with mark as (
  select m.id from weft.tally_mark m where m.name = 'tasks_created' for update
), bound as materialized (
  select m.id as low, least(weft.first_id_at(weft.now() - interval '5 minutes'), (86400000::bigint << 22) + greatest(m.id, least(
    (select min(t.id) from weft.task t), (select min(d.id) from weft.task_done d), weft.first_id_at(weft.now())))) as high
  from mark m
), counted as (
  insert into weft.tally as t (org_id, name, process, count)
  select o.org_id, 'tasks_created', 0, count(*) from (
    select t.org_id from weft.task t where t.id >= (select low from bound) and t.id < (select high from bound)
      and t.queue_id > 0 and t.queue_id <> 2
    union all
    select d.org_id from weft.task_done d where d.id >= (select low from bound) and d.id < (select high from bound)
      and d.queue_id > 0 and d.queue_id <> 2
  ) o group by 1 order by 1
  on conflict (org_id, name, process) do update set count = t.count + excluded.count
)
update weft.tally_mark m set id = greatest(m.id, b.high) from bound b where m.name = 'tasks_created' and b.high > m.id;
