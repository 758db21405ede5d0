-- name: add
insert into weft.outbox (org_id, kind, payload, ordering_key, actor) values ($1, $2, $3, $4, $5) returning id;

-- name: claim
-- pending and due → processing; of an org's ordering key only the first that is not done.
with due as materialized (
  select o.id from weft.outbox o
  where o.state = 'pending' and o.available_at <= (select weft.now()) and o.kind = any ($2)
    and (o.ordering_key is null or not exists (
      select 1 from weft.outbox e
      where e.org_id = o.org_id and e.ordering_key = o.ordering_key and e.id < o.id and e.state <> 'done'))
  order by o.available_at, o.id limit $3 for update skip locked
)
update weft.outbox o set state = 'processing', attempts = o.attempts + 1, worker_id = $1
from due where o.id = due.id and o.state = 'pending'
returning o.id, (select g.slug from weft.org g where g.id = o.org_id) as org, o.kind, o.payload, o.attempts, o.ordering_key,
  o.actor;

-- name: done
-- processing, by this worker.
update weft.outbox o set state = 'done', processed_at = weft.now(), last_error = null
where o.id = $1 and o.worker_id = $2 and o.state = 'processing' returning o.id;

-- name: retry_later
-- processing, by this worker → pending again after a while.
update weft.outbox o set state = 'pending', available_at = weft.now() + $3::interval, last_error = $4, worker_id = null
where o.id = $1 and o.worker_id = $2 and o.state = 'processing' returning o.id;

-- name: fail
-- processing, by this worker → failed.
update weft.outbox o set state = 'failed', processed_at = weft.now(), last_error = $3
where o.id = $1 and o.worker_id = $2 and o.state = 'processing' returning o.id;

-- name: give_back
-- processing, by this worker and of these kinds → pending.
update weft.outbox o set state = 'pending', worker_id = null
where o.worker_id = $1 and o.kind = any ($2) and o.state = 'processing' returning o.id;

-- name: rescue
-- processing by a worker that is gone → pending.
update weft.outbox o set state = 'pending', worker_id = null
where o.state = 'processing' and not exists (
  select 1 from weft.worker w where w.id = o.worker_id and w.state in ('active', 'idle') and w.until > (select weft.now()))
returning o.id;

-- name: list_newest
-- Of one state and of one kind, or of all, between two ids, both left out.
select o.id, o.kind, o.ordering_key, o.payload, o.state::text as state, o.available_at, o.attempts, o.last_error,
  o.created_at, o.processed_at
from weft.list_newest_effects($1, $2, $3, $4, $5, $6) o;

-- name: list_oldest
select o.id, o.kind, o.ordering_key, o.payload, o.state::text as state, o.available_at, o.attempts, o.last_error,
  o.created_at, o.processed_at
from weft.list_oldest_effects($1, $2, $3, $4, $5, $6) o;

-- name: replay
-- failed → pending, from its first attempt.
update weft.outbox o set state = 'pending', attempts = 0, available_at = weft.now(), processed_at = null, worker_id = null
where o.org_id = $1 and o.state = 'failed' and ($2::bigint[] is null or o.id = any ($2)) returning o.id;

-- name: purge
-- failed: gone, and what waits behind it is carried out.
delete from weft.outbox o where o.org_id = $1 and o.state = 'failed' and ($2::bigint[] is null or o.id = any ($2)) returning o.id;

-- name: prune
-- Those that were carried out, or given up, long ago. What somebody outside is to be told and waits behind one that failed goes too, but
-- later by a day: until then the first of it, which is carried out as soon as nothing that failed is before it, has told whether the
-- others would fail as well. None that was replayed or claimed meanwhile, and no task or event that is still to come.
delete from weft.outbox o using (
  (select d.id, d.state from weft.outbox d where d.state in ('done', 'failed') and d.processed_at < (select weft.now() - $1::interval)
   order by d.id limit 1000)
  union all
  (select d.id, d.state from weft.outbox d
   where d.state = 'pending' and d.kind in ('callback', 'openlineage') and d.ordering_key is not null
     and d.created_at < (select weft.now() - $1::interval - interval '1 day')
     and exists (select 1 from weft.outbox e
       where e.org_id = d.org_id and e.ordering_key = d.ordering_key and e.id < d.id and e.state = 'failed')
   order by d.id limit 1000)
) old where o.id = old.id and o.state = old.state returning o.id;
