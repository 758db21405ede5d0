-- name: audit_origin
-- From where an act came to a server: the address, and the id of the request; and why it was done, in words.
alter table weft.audit add column origin text, add column reason text;

-- name: view_audits_with_origin
create or replace view weft.audits as
  select a.id, a.org_id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail, a.origin, a.reason
  from weft.audit a;

-- name: comment_audits_of_all
comment on view weft.audits is 'What was done by whom: a row for each act that changes something, but for tasks and effects, which have it themselves.';

-- name: audit_seal
-- Acts are held together by a chain: each seal has the hashes of the acts that were seen to be committed since the one before,
-- and follows on that by its digest. Written by whoever leads, a batch at a time: no act waits for another. Never changed.
-- What was under way when it was made is below `next_xid`, if its id is below `seen_to`. All acts below `done_to` are sealed by
-- it and those before it, whatever comes. `before_id` is the highest id that any seal before it holds: when those are gone it
-- tells whether they were past the retention.
create table weft.audit_seal (
  org_id bigint not null references weft.org,
  number bigint not null check (number > 0),
  sealed_at timestamptz not null default weft.now(),
  ids bigint[] not null check (cardinality(ids) > 0),
  hashes bytea[] not null check (cardinality(hashes) = cardinality(ids)),
  before bytea not null,
  before_id bigint not null,
  digest bytea not null check (octet_length(digest) = 32),
  next_xid xid8 not null,
  seen_to bigint not null,
  done_to bigint not null,
  primary key (org_id, number)
);

-- name: seals_are_kept
create trigger seals_are_kept before update on weft.audit_seal for each statement execute function weft.refuse_change();

-- name: audit_hash
-- What an act says, in 32 bytes. As JSON, in which no field can pass for a part of another.
create function weft.audit_hash(a weft.audit) returns bytea language sql stable as $$
  select sha256(convert_to(json_build_array(a.id::text, a.org_id::text, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'),
    a.actor, a.verb, a.subject_kind, a.subject_ids::text, a.subject_name, a.detail::text, a.origin, a.reason)::text, 'UTF8'))
$$;

-- name: seal_digest
create function weft.seal_digest(
  org bigint, number bigint, before bytea, before_id bigint, done_to bigint, ids bigint[], hashes bytea[]
) returns bytea language sql immutable as $$
  select sha256(before || int8send(org) || int8send(number) || int8send(before_id) || int8send(done_to) || coalesce((
    select string_agg(int8send(u.id) || u.hash, ''::bytea order by u.place)
    from unnest(ids, hashes) with ordinality as u (id, hash, place)), ''::bytea))
$$;

-- name: audit_seal_last
create index audit_seal_last on weft.audit_seal (org_id, (ids[cardinality(ids)]));

-- name: seal_audit
-- Seals the acts of each org that are not sealed yet, at most `room` of each; returns how many. Acts have ids of when they began,
-- and one may be committed after another that is sealed: all is looked at again that began after a seal at whose time something
-- was under way that is not over yet. Two at once do not make two chains: the second finds its number taken, and has sealed
-- nothing.
create function weft.seal_audit(room int) returns int language plpgsql as $$
declare of record; oldest xid8 := pg_snapshot_xmin(pg_current_snapshot()); count int := 0;
begin
  for of in
    select o.id as org_id, coalesce(l.number, 0) + 1 as number, coalesce(l.digest, sha256(int8send(o.id))) as before,
      coalesce(l.before_id, 0) as before_id, n.ids, n.hashes,
      greatest(low.id, least(coalesce(s.seen_to, 0), case when cardinality(n.ids) = room then n.ids[room] end)) as done_to
    from weft.org o
    left join lateral (
      select e.number, e.digest, e.done_to, greatest(e.before_id, e.ids[cardinality(e.ids)]) as before_id
      from weft.audit_seal e where e.org_id = o.id order by e.number desc limit 1
    ) l on true
    left join lateral (
      select e.seen_to from weft.audit_seal e where e.org_id = o.id and e.next_xid <= oldest order by e.number desc limit 1
    ) s on true
    cross join lateral (select coalesce(l.done_to, 0) as id) low
    cross join lateral (
      select array_agg(a.id order by a.id) as ids, array_agg(weft.audit_hash(a) order by a.id) as hashes
      from (
        select a.id from weft.audit a where a.org_id = o.id and a.id >= low.id
        except select sealed.id from weft.audit_seal e cross join lateral unnest(e.ids) as sealed (id)
          where e.org_id = o.id and e.ids[cardinality(e.ids)] >= low.id
        order by id limit room
      ) e join weft.audit a on a.id = e.id
    ) n
    where n.ids is not null
  loop
    -- An act has its id before its transaction has a number, and clocks may be set back: by no more than a minute.
    insert into weft.audit_seal (org_id, number, ids, hashes, before, before_id, digest, next_xid, seen_to, done_to)
    values (of.org_id, of.number, of.ids, of.hashes, of.before, of.before_id,
      weft.seal_digest(of.org_id, of.number, of.before, of.before_id, of.done_to, of.ids, of.hashes),
      pg_snapshot_xmax(pg_current_snapshot()), weft.first_id_at(weft.now() - interval '1 minute'), of.done_to)
    on conflict do nothing;
    if found then
      count := count + cardinality(of.ids);
    end if;
  end loop;
  return count;
end $$;

-- name: audit_org
-- Acts are listed by org, newest first, all or those of one verb, of somebody, or on a job: each list reads one of these, and no further than its page.
create index audit_org on weft.audit (org_id, id);
create index audit_verb on weft.audit (org_id, verb, id);
create index audit_actor on weft.audit (org_id, actor, id);
create index audit_job on weft.audit (org_id, (subject_ids[1]), id) where subject_kind = 'job';

-- name: audit_subject_task
-- Only what was done to a task is looked for by its subject: whoever submits a job has nothing to sort in.
drop index weft.audit_subject;
create index audit_subject on weft.audit using gin (subject_ids) with (gin_pending_list_limit = 64) where subject_kind = 'task';

-- name: acts_on_task
-- The acts of an org on a task, with the rights of the schema's owner: behind a wall the index of subjects is not read, for
-- what looks into an array could tell of it. A session that is held to an org is told of no other.
create function weft.acts_on_task(org bigint, task bigint) returns bigint[] language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  if org is distinct from coalesce(nullif(current_setting('weft.org', true), '')::bigint, org) then
    return '{}';
  end if;
  return array(
    with found as materialized (select a.id, a.org_id from weft.audit a where a.subject_ids @> array[task] and a.subject_kind = 'task')
    select f.id from found f where f.org_id = org);
end $$;

-- name: acts_are_granted
revoke execute on function weft.acts_on_task from public;
