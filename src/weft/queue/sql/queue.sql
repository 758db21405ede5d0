-- name: create
insert into weft.queue (org_id, name, actor) values ($1, $2, $3)
on conflict (org_id, name) do nothing returning id;

-- name: ids
-- Also the queue of control steps, which all orgs have in common.
select q.name, q.id from weft.queue q where q.org_id = $1 or q.id = 2;

-- name: limits
select q.id, q.max_running from weft.queue q where q.id = any ($1);

-- name: org
select o.id from weft.org o where o.slug = $1;

-- name: pause
update weft.queue q set paused_at = coalesce(q.paused_at, weft.now()) where q.org_id = $1 and q.name = $2 returning q.id;

-- name: resume
update weft.queue q set paused_at = null where q.org_id = $1 and q.name = $2 returning q.id;

-- name: set_limit
update weft.queue q set max_running = $3 where q.org_id = $1 and q.name = $2 returning q.id;

-- name: set_limit_per_key
update weft.queue q set max_running_per_key = $3 where q.org_id = $1 and q.name = $2 returning q.id;

-- name: set_limit_of_key
insert into weft.key_slot as s (queue_id, org_id, key, max_running)
select q.id, q.org_id, $3, $4 from weft.queue q where q.org_id = $1 and q.name = $2
on conflict (queue_id, key) do update set max_running = excluded.max_running
returning s.queue_id as id;

-- name: with_ready
-- Which of some queues have a task that could be claimed.
select q.id from weft.queue q where q.id = any ($1) and q.paused_at is null
  and exists (select 1 from weft.task t where t.state = 'ready' and t.queue_id = q.id);

-- name: waiting_keys
-- Keys that have both a free slot and a task that waits for it; there are none but after a limit was raised.
select s.queue_id, s.key from weft.key_slot s join weft.queue q on q.id = s.queue_id
where ($1::bigint is null or s.queue_id = $1)
  and s.held < coalesce(s.max_running, q.max_running_per_key, 2147483647)
  and exists (select 1 from weft.task t where t.state = 'pending' and t.reason = 'concurrency_key'
              and t.queue_id = s.queue_id and t.concurrency_key = s.key)
order by 1, 2 limit 1000;

-- name: wait_for_locks
-- For the rest of a transaction.
select set_config('lock_timeout', $1, true);

-- name: lock_keys
-- All keys of a queue, or one: whoever is putting a task of one in is waited for.
select s.key from weft.key_slot s where s.queue_id = $1 and ($2::text is null or s.key = $2) order by s.key for update;

-- name: crowded_keys
-- Of which more tasks are ready or running than may be; but for those that somebody else has locked for long.
select s.key from weft.key_slot s join weft.queue q on q.id = s.queue_id
where s.queue_id = $1 and s.held > coalesce(s.max_running, q.max_running_per_key)
order by s.key for update of s skip locked;

-- name: park_surplus
-- ready, and more than their key may have → pending, the last in line first; what runs goes on. The keys are locked.
with crowded as (
  select s.key, s.held - coalesce(s.max_running, q.max_running_per_key) as surplus
  from weft.key_slot s join weft.queue q on q.id = s.queue_id where s.queue_id = $1 and s.key = any ($2)
), ranked as (
  select t.id, t.concurrency_key as key,
    row_number() over (partition by t.concurrency_key order by t.rank desc, t.order_id desc, t.id desc) as place
  from weft.task t where t.state = 'ready' and t.queue_id = $1 and t.concurrency_key = any ($2)
), chosen as (
  select t.id from weft.task t join ranked r on r.id = t.id join crowded c on c.key = r.key
  where r.place <= c.surplus order by t.id for update of t skip locked
), parked as (
  update weft.task t set state = 'pending', reason = 'concurrency_key' from chosen
  where t.id = chosen.id and t.state = 'ready' returning t.concurrency_key as key
)
update weft.key_slot s set held = s.held - p.n from (select key, count(*)::int as n from parked group by 1) p
where s.queue_id = $1 and s.key = p.key;

-- name: admit
-- Frees no slot, but looks again who may have one.
select weft.free_slots($1, $2, 0);

-- name: forget_idle_keys
-- Without a limit of its own; or that of a fan_out, which is named by its task, and whose job has ended.
delete from weft.key_slot s using (
  select i.queue_id, i.key from weft.key_slot i where i.held = 0 and (i.max_running is null or case
    when i.key ~ '^@[0-8]?[0-9]{17,18}$' then not exists (select 1 from weft.task t where t.id = substr(i.key, 2)::bigint)
      and not exists (select 1 from weft.task_done d join weft.job j on j.id = d.job_id where d.id = substr(i.key, 2)::bigint)
    end)
  order by 1, 2 limit 1000 for update skip locked
) idle where s.queue_id = idle.queue_id and s.key = idle.key and s.held = 0
returning 1;

-- name: lock_worker
-- Slots belong to workers that are not lost; the lock makes that exact against whoever marks them.
select w.id from weft.worker w where w.id = $1 and w.state in ('active', 'idle') for share;

-- name: forget_slots
delete from weft.queue_slot s where not exists (
  select 1 from weft.worker w where w.id = s.worker_id and w.state in ('active', 'idle'))
  and not exists (select 1 from weft.task t where t.worker_id = s.worker_id)
returning 1;

-- name: lock_queue
-- First of two statements: the next one must see what whoever held this lock has written.
select q.max_running from weft.queue q where q.id = $1 for no key update;

-- name: acquire_slots
-- Never grants more than max_running to all workers together; the queue's row is locked.
with running as (
  select t.worker_id, count(*)::int as n from weft.task t
  where t.worker_id is not null and t.queue_id = $1 and t.worker_id <> $2 group by 1
), leased as (
  select s.worker_id, s.slots from weft.queue_slot s where s.queue_id = $1 and s.worker_id <> $2
), used as (
  -- Whoever ran more before there was a limit uses that many.
  select coalesce(sum(greatest(coalesce(l.slots, 0), coalesce(r.n, 0))), 0)::int as slots
  from leased l full join running r using (worker_id)
)
insert into weft.queue_slot as s (queue_id, worker_id, org_id, slots)
select $1, $2, (select q.org_id from weft.queue q where q.id = $1), greatest($5::int, least($3::int, $4::int - used.slots)) from used
on conflict (queue_id, worker_id) do update set slots = excluded.slots
returning s.slots;

-- name: depths
-- By name after a key; all without a limit.
select q.name, q.paused_at, q.max_running, q.max_running_per_key, t.state::text as state, count(t.id)::bigint as tasks,
  min(t.created_at) as oldest_at
from (
  select q.* from weft.queue q
  where q.org_id = $1 and q.name not like '@%' and ($2::text is null or q.name = $2) and q.name > $3
  order by q.name limit $4
) q left join weft.task t on t.queue_id = q.id
group by q.id, q.name, q.paused_at, q.max_running, q.max_running_per_key, t.state order by q.name;

-- name: key_limits
-- Of the queues between two names, both included. Not those of fan_outs, which are named by their tasks: nobody has set them here.
select q.name, s.key, s.max_running, s.held from weft.key_slot s join weft.queue q on q.id = s.queue_id
where q.org_id = $1 and q.name between $2 and $3 and s.max_running is not null
  and s.key !~ '^@[0-8]?[0-9]{17,18}$' order by q.name, s.key;

-- name: rates
-- About how many tasks of each queue ended in the last minute, however old they were.
select q.name, sum(r.ended)::bigint as ended
from weft.ended_since(weft.now() - interval '1 minute') r join weft.queue q on q.id = r.queue_id
where q.org_id = $1 group by q.name;

-- name: hint
select weft.hint($1, $2);

-- name: hint_by_name
select weft.hint(array(
  select q.id from weft.queue q join weft.org o on o.id = q.org_id join unnest($1::text[], $2::text[]) as n (org, name)
    on o.slug = n.org and q.name = n.name
  union select unnest($3::bigint[])
)), case when $4 then weft.hint_stager() end;
