-- name: drop_lists_of_acts
drop function weft.list_newest_acts, weft.list_oldest_acts;

-- name: drop_walls
do $$
declare found record;
begin
  for found in select p.polname, p.polrelid::regclass as name from pg_policy p join pg_class c on c.oid = p.polrelid
    where c.relnamespace = 'weft'::regnamespace
  loop
    execute format('drop policy %I on %s', found.polname, found.name);
    execute format('alter table %s disable row level security', found.name);
  end loop;
end $$;

-- name: drop_seals
drop function weft.seal_audit, weft.seal_digest, weft.audit_hash, weft.acts_on_task;
drop table weft.audit_seal;
drop view weft.audits;
alter table weft.audit drop column origin, drop column reason;
drop index weft.audit_org, weft.audit_verb, weft.audit_actor, weft.audit_job, weft.audit_subject;
create index audit_subject on weft.audit using gin (subject_ids) with (gin_pending_list_limit = 64);

-- name: audits_without_origin
-- A view loses no column otherwise; that it cannot be written to, and what is said of it, goes with it.
create view weft.audits as
  select a.id, a.org_id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail from weft.audit a;
create rule refuse_insert as on insert to weft.audits do instead select weft.refuse_write('audits');
create rule refuse_update as on update to weft.audits do instead select weft.refuse_write('audits');
create rule refuse_delete as on delete to weft.audits do instead select weft.refuse_write('audits');
comment on view weft.audits is 'What operators did: a row for each cancel, replay, purge, create, pause, resume and limit.';

-- name: drop_views
drop view weft.tokens, weft.org_role_memberships, weft.org_roles, weft.users;

-- name: drop_wall_functions
drop function weft.admit_server, weft.wall_in, weft.uses_blob, weft.current_org;

-- name: drop_answers
drop function weft.put_task_by_request;
drop table weft.answer;

-- name: drop_tables
drop table weft.sign_in, weft.token, weft.org_role_membership, weft.org_role, weft.user;

-- name: drop_org_slug
alter table weft.org drop constraint org_slug_check;

-- name: drop_types
drop type weft.token_role, weft.platform_role;

-- name: drop_task_resting
alter table weft.task drop column resting_attempt;

-- name: drop_worker_token
alter table weft.worker drop column token_id;
