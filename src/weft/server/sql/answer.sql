-- name: claim
-- Whoever comes second waits until the first has committed, and finds the key then.
insert into weft.answer (org_id, key, request) values ($1, $2, $3) on conflict do nothing returning true;

-- name: find
select a.request, a.status, a.body from weft.answer a where a.org_id = $1 and a.key = $2;

-- name: keep
update weft.answer set status = $3, body = $4 where org_id = $1 and key = $2 and status is null;
