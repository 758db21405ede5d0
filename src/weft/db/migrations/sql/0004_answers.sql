-- name: answer
-- What was answered to a request with a key, written with what the request did: whoever sends it again gets the same. Keys are of
-- an org, so that nobody learns of those of another; only their digests are kept. A `body` of null had a secret in it.
create table weft.answer (
  org_id bigint not null references weft.org,
  key bytea not null,
  request bytea not null,
  status smallint,
  body bytea,
  etag text,
  created_at timestamptz not null default weft.now(),
  primary key (org_id, key)
);

-- name: answer_age
create index answer_age on weft.answer (created_at);

-- name: put_task_by_request
-- Enqueues for a request with a key: what it says is kept with the key, as a digest. Returns also, of a key that is known, by
-- which request it came.
create function weft.put_task_by_request(
  request bytea, handler text, params json, queue text, priority int, idempotency_key text, run_at timestamptz, delay interval,
  max_attempts int, retry json, timeout interval, heartbeat_timeout interval, concurrency_key text, org text, actor text,
  tell boolean
) returns table (id bigint, created boolean, known bytea) language plpgsql as $$
#variable_conflict use_variable
begin
  select t.id, t.created into id, created from weft.put_task(handler, params, queue, priority, idempotency_key, run_at, delay,
    max_attempts, retry, timeout, heartbeat_timeout, concurrency_key, org, actor, tell) t;
  if created then
    update weft.idempotency_key k set request = request
    where k.org_id = (select o.id from weft.org o where o.slug = org) and k.handler = handler and k.key = idempotency_key;
  else
    select k.request into known from weft.idempotency_key k
    where k.org_id = (select o.id from weft.org o where o.slug = org) and k.handler = handler and k.key = idempotency_key;
  end if;
  return next;
end $$;
