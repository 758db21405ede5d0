-- name: claim
-- Nobody waits here: whoever does not get the turn of a key comes again, and whoever gets it either is the first or finds
-- the answer.
with turn as materialized (select pg_try_advisory_xact_lock($4) as is_mine), claimed as (
  insert into weft.answer (org_id, key, request) select $1, $2, $3 from turn where turn.is_mine on conflict do nothing returning true
)
select turn.is_mine, exists (select from claimed) as is_first from turn;

-- name: find
select a.request, a.status, a.body, a.etag from weft.answer a where a.org_id = $1 and a.key = $2;

-- name: keep
update weft.answer set status = $3, body = $4, etag = $5 where org_id = $1 and key = $2 and status is null;
