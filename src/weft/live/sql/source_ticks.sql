-- name: due
-- Of all orgs in turn, the longest due of each first, as far as their jobs have room for more.
select s.live_job_id, s.org_id, s.cron, s.every, coalesce(s.timezone, 'UTC') as timezone, s.anchor, coalesce(s.catch_up, 'latest') as catch_up,
  s.next_at, weft.now() as now, j.max_backlog - o.units as room
from weft.live_source s
  -- One by one: how few are due cannot be foreseen.
  cross join lateral (
    select l.id, l.max_backlog from weft.live_job l cross join lateral (select g.paused_at from weft.live_dag g where g.id = l.dag_id limit 1) d
    where l.id = s.live_job_id and l.state <> 'stopped' and l.paused_at is null and d.paused_at is null limit 1) j
  cross join lateral (
    select count(*)::int as units from (select 1 from weft.live_unit u where u.live_job_id = j.id limit j.max_backlog) u) o
where s.is_listening and s.next_at <= (select weft.now()) and o.units < j.max_backlog
order by row_number() over (partition by s.org_id order by s.next_at), s.next_at limit $1;

-- name: next_due
select min(s.next_at) - weft.now() from weft.live_source s where s.is_listening and s.next_at is not null;

-- name: move_on
-- Sources that listen, each at the tick that was seen; others who would move them on pass them over. A unit for each tick, which
-- is there when its source has moved on, and not before.
with said as materialized (
  select * from unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::bigint[]) as t (live_job_id, seen_at, next_at, missed)
), taken as materialized (
  select s.live_job_id, s.org_id, t.next_at, t.missed from weft.live_source s join said t using (live_job_id)
  where s.next_at = t.seen_at and s.is_listening order by s.live_job_id for no key update of s skip locked
), moved as (
  update weft.live_source s set next_at = t.next_at, missed = s.missed + t.missed from taken t where s.live_job_id = t.live_job_id
), made as (
  insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said)
  select t.org_id, t.live_job_id, '', 'tick', 'tick:' || u.at, json_build_object('at', u.at)
  from unnest($5::bigint[], $6::text[]) with ordinality as u (live_job_id, at, place) join taken t using (live_job_id)
  order by u.place on conflict do nothing returning id
)
select count(*)::int as units, case when count(*) > 0 then weft.hint_live() end from made;
