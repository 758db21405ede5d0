-- name: record
-- Whoever does not say who he is, is the user of the database session.
insert into weft.audit (org_id, actor, verb, subject_kind, subject_ids, subject_name, detail, origin, reason)
values ($1, coalesce($2, session_user), $3, $4, $5, $6, $7, $8, $9);

-- name: list
-- Newest first below a key. Compared and put in order as a whole, so that only the index of orgs fits: by that of ids alone
-- an org of few acts would be looked for among all.
select a.id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail, a.origin, a.reason from weft.audit a
where (a.org_id, a.id) < ($1, $2) and (a.org_id, a.id) > ($1, 0)
order by a.org_id desc, a.id desc limit $3;

-- name: list_of_verb
-- A statement of its own, for the same reason: it reads the index of verbs.
select a.id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail, a.origin, a.reason from weft.audit a
where a.org_id = $1 and (a.verb, a.id) < ($3, $2) and (a.verb, a.id) > ($3, 0)
order by a.verb desc, a.id desc limit $4;

-- name: list_of_queue
-- A statement of its own, as the next: it reads the index of names.
select a.id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail, a.origin, a.reason from weft.audit a
where a.org_id = $1 and a.id < $2 and ($3::text is null or a.verb = $3)
  and a.subject_name = $4 and a.subject_kind = 'queue'
order by a.id desc limit $5;

-- name: list_of_task
-- It reads the index of subjects, first and whole: the order would lead through all acts.
select a.id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail, a.origin, a.reason from weft.audit a
where a.org_id = $1 and a.id = any (weft.acts_on_task($1, $4)) and a.id < $2 and ($3::text is null or a.verb = $3)
order by a.id desc limit $5;

-- name: prune
delete from weft.audit a using (
  select o.id from weft.audit o where o.id < (select weft.first_id_at(weft.now() - $1::interval)) order by o.id limit 1000
) old where a.id = old.id returning a.id;
