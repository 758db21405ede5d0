-- name: now
select weft.now();

-- name: add
-- Null when there is one of that name, unless it is to be replaced; then its next tick stays where its times do.
insert into weft.schedule as s (org_id, name, tag, inputs, cron, every, timezone, catch_up, overlap, priority, anchor, next_at, actor)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
on conflict (org_id, name) do update set tag = excluded.tag, inputs = excluded.inputs, cron = excluded.cron, every = excluded.every,
  timezone = excluded.timezone, catch_up = excluded.catch_up, overlap = excluded.overlap, priority = excluded.priority, version = s.version + 1,
  anchor = case when (s.cron, s.every, s.timezone) is distinct from (excluded.cron, excluded.every, excluded.timezone)
    then excluded.anchor else s.anchor end,
  next_at = case when (s.cron, s.every, s.timezone) is distinct from (excluded.cron, excluded.every, excluded.timezone)
    then excluded.next_at else s.next_at end
where $14::bool returning s.*, s.version > 1 as is_replaced;

-- name: show
select s.* from weft.schedule s where s.org_id = $1 and s.name = $2;

-- name: list
select s.* from weft.schedule s
where s.org_id = $1 and s.name > $2 and ($3::text is null or s.tag in ($3, $3 || '/main')) order by s.name limit $4;

-- name: lock
-- Whoever changes one keeps those away who would begin what is due of it.
select s.* from weft.schedule s where s.org_id = $1 and s.name = $2 for update;

-- name: change
-- By whoever has locked it.
update weft.schedule s set tag = $3, inputs = $4, cron = $5, every = $6, timezone = $7, catch_up = $8, overlap = $9, priority = $10,
  next_at = $11, version = s.version + 1
where s.org_id = $1 and s.id = $2 returning s.*;

-- name: pause
-- One that is not paused.
update weft.schedule s set paused_at = weft.now() where s.org_id = $1 and s.name = $2 and s.paused_at is null returning s.id;

-- name: resume
-- One that is paused.
update weft.schedule s set paused_at = null where s.org_id = $1 and s.name = $2 and s.paused_at is not null returning s.id;

-- name: delete
delete from weft.schedule s where s.org_id = $1 and s.name = $2 returning s.id;

-- name: due
-- Of all orgs in turn, the longest due of each first: nobody waits for all that another has.
select s.*, weft.now() as now from weft.schedule s
where s.next_at <= (select weft.now()) and s.paused_at is null
order by row_number() over (partition by s.org_id order by s.next_at), s.next_at limit $1;

-- name: next_due
select min(s.next_at) - weft.now() from weft.schedule s where s.paused_at is null;

-- name: take
-- Not paused, as it was seen, and at the tick that was seen; others who would move it on pass it over.
select s.overlap = 'skip' and exists (select 1 from weft.job j where j.id = s.last_job_id) as is_busy
from weft.schedule s where s.id = $1 and s.version = $2::int and s.next_at = $3::timestamptz and s.paused_at is null for update skip locked;

-- name: move_on
-- By whoever has taken it.
update weft.schedule s set next_at = $2, missed = s.missed + $3, last_error = $4, last_at = coalesce($5, s.last_at),
  last_job_id = coalesce($6, s.last_job_id)
where s.id = $1;

-- name: add_backfill
insert into weft.backfill (org_id, schedule_id, cron, every, timezone, anchor, since, until, at_once, ticks, next_at, actor)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) returning *;

-- name: backfills
select b.*, array(select j.id from weft.job j where j.id = any (b.running)) as live
from weft.backfill b join weft.schedule s on s.id = b.schedule_id
where b.org_id = $1 and s.name = $2 and b.id < $3 order by b.id desc limit $4;

-- name: cancel_backfill
-- One that has not ended.
update weft.backfill b set cancelled_at = weft.now(), ended_at = weft.now(), next_at = null
where b.org_id = $1 and b.id = $2 and b.ended_at is null returning b.id;

-- name: open_backfills
-- Of all orgs in turn, in any order: those that wait for their jobs, however many, keep no other from being looked at.
select b.id from weft.backfill b where b.ended_at is null
order by row_number() over (partition by b.org_id order by random()) limit $1;

-- name: look_at_backfill
-- Not ended, with its jobs that have not ended either.
select b.*, s.name, s.version, s.tag, s.inputs, s.priority, array(select j.id from weft.job j where j.id = any (b.running)) as live
from weft.backfill b join weft.schedule s on s.id = b.schedule_id where b.id = $1 and b.ended_at is null;

-- name: take_backfill
-- Not ended, at the tick that was seen, and the schedule as it was seen, which nobody changes meanwhile; others who would move it on
-- pass it over.
select true from weft.backfill b join weft.schedule s on s.id = b.schedule_id
where b.id = $1 and s.version = $2::int and b.next_at = $3::timestamptz and b.ended_at is null for share of s skip locked for update of b skip locked;

-- name: move_backfill_on
-- By whoever has taken it.
update weft.backfill b set next_at = $2, missed = b.missed + $3, last_error = coalesce($4, b.last_error), made = b.made + 1 - $3,
  running = $5
where b.id = $1;

-- name: end_backfill
-- Not ended, with all ticks seen to, and none of its jobs going on.
update weft.backfill b set ended_at = weft.now(), running = '{}'
where b.id = $1 and b.ended_at is null and b.next_at is null
  and not exists (select 1 from weft.job j where j.id = any (b.running)) returning b.id;

-- name: measure
-- Schedules by what becomes of them, and for how long the first of those that are due has been.
select count(*) filter (where s.paused_at is null and s.last_error is null) as active, count(*) filter (where s.paused_at is not null) as paused,
  count(*) filter (where s.paused_at is null and s.last_error is not null) as failing,
  greatest(0, extract(epoch from weft.now() - min(s.next_at) filter (where s.paused_at is null)))::float8 as lag
from weft.schedule s where s.org_id = $1;
