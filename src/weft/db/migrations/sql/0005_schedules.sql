-- name: schedule
-- Workflows that begin by themselves, by a cron expression or an interval. `next_at` is the first tick for which nothing has
-- begun yet: whoever moves it on begins what is due in the same transaction, so that each tick is one job, whoever dies.
create table weft.schedule (
  id bigint primary key default weft.next_id(),
  org_id bigint not null references weft.org,
  name text not null,
  -- How often it was changed: whoever has seen it as it was begins nothing by it.
  version int not null default 1,
  tag text not null,
  inputs json not null,
  cron text,
  every interval,
  timezone text not null,
  anchor timestamptz not null,
  catch_up text not null check (catch_up in ('none', 'latest', 'all')),
  overlap text not null check (overlap in ('allow', 'skip')),
  priority smallint not null,
  next_at timestamptz not null,
  paused_at timestamptz,
  last_at timestamptz,
  last_job_id bigint,
  last_error text,
  missed bigint not null default 0,
  created_at timestamptz not null default weft.now(),
  actor text not null,
  unique (org_id, name),
  unique (org_id, id),
  check ((cron is null) <> (every is null))
) with (fillfactor = 70);

-- name: schedule_due
create index schedule_due on weft.schedule (next_at) where paused_at is null;

-- name: backfill
-- Ticks of a schedule in a time that is over, made up for a few at once, by the times that the schedule had when it was asked for.
create table weft.backfill (
  id bigint primary key default weft.next_id(),
  org_id bigint not null,
  schedule_id bigint not null,
  cron text,
  every interval,
  timezone text not null,
  anchor timestamptz not null,
  since timestamptz not null,
  until timestamptz not null,
  at_once int not null check (at_once > 0),
  ticks int not null,
  made int not null default 0,
  missed int not null default 0,
  -- The first tick for which nothing has begun yet; null after the last.
  next_at timestamptz,
  -- Its jobs that had not ended when the last of them began.
  running bigint[] not null default '{}',
  last_error text,
  created_at timestamptz not null default weft.now(),
  ended_at timestamptz,
  cancelled_at timestamptz,
  actor text not null,
  foreign key (org_id, schedule_id) references weft.schedule (org_id, id) on delete cascade
);

-- name: backfill_open
create index backfill_open on weft.backfill (id) where ended_at is null;

-- name: backfill_schedule
create index backfill_schedule on weft.backfill (org_id, schedule_id, id);

-- name: view_schedules
create view weft.schedules as
select s.id, s.org_id, s.name, s.tag, s.inputs, s.cron, s.every, s.timezone, s.catch_up, s.overlap, s.priority, s.next_at, s.paused_at,
  s.last_at, s.last_job_id, s.last_error, s.missed, s.created_at, s.actor
from weft.schedule s where s.org_id = coalesce((select weft.current_org()), s.org_id);

-- name: comment_schedules
comment on view weft.schedules is 'Workflows that begin by themselves, with the next tick of each.';

-- name: schedules_are_read
do $$
declare verb text;
begin
  foreach verb in array array['insert', 'update', 'delete'] loop
    execute format('create rule refuse_%s as on %s to weft.schedules do instead select weft.refuse_write(''schedules'')', verb, verb);
  end loop;
end $$;

-- name: grant_schedules_to_server
-- Called by `weft.admit_server`.
create function weft.grant_schedules_to_server(role regrole) returns void language plpgsql as $$
begin
  execute format('grant select on weft.schedules to %s', role);
  execute format('grant select, insert, update, delete on weft.schedule, weft.backfill to %s', role);
end $$;

-- name: only_the_owner_grants
revoke execute on function weft.grant_schedules_to_server from public;
