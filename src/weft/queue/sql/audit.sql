-- name: record
-- Whoever does not say who he is, is the user of the database session.
insert into weft.audit (org_id, actor, verb, subject_kind, subject_ids, subject_name, detail, origin, reason)
values ($1, coalesce($2, session_user), $3, $4, $5, $6, $7, $8, $9);

-- name: list_newest
-- Of one verb, by somebody, on one task, job or queue, or all, between two ids, both left out, from a moment on and before another.
select a.id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail, a.origin, a.reason
from weft.list_newest_acts($1, $2, $3, $4, $5, $6, greatest($7, weft.first_id_at($9) - 1), least($8, weft.first_id_at($10)), $11) a;

-- name: list_oldest
select a.id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail, a.origin, a.reason
from weft.list_oldest_acts($1, $2, $3, $4, $5, $6, greatest($7, weft.first_id_at($9) - 1), least($8, weft.first_id_at($10)), $11) a;

-- name: prune
delete from weft.audit a using (
  select o.id from weft.audit o where o.id < (select weft.first_id_at(weft.now() - $1::interval)) order by o.id limit 1000
) old where a.id = old.id returning a.id;
