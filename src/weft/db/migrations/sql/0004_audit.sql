-- name: audit_origin
-- From where an act came to a server: the address, and the id of the request.
alter table weft.audit add column origin text;

-- name: view_audits_with_origin
create or replace view weft.audits as
  select a.id, a.org_id, a.at, a.actor, a.verb, a.subject_kind, a.subject_ids, a.subject_name, a.detail, a.origin from weft.audit a;

-- name: audit_seal
-- Acts are held together by a chain: each seal has the hashes of the acts that were seen to be committed since the one before,
-- and follows on that by its digest. Written by whoever leads, a batch at a time: no act waits for another. Never changed.
create table weft.audit_seal (
  org_id bigint not null references weft.org,
  number bigint not null check (number > 0),
  sealed_at timestamptz not null default weft.now(),
  ids bigint[] not null check (cardinality(ids) > 0),
  hashes bytea[] not null check (cardinality(hashes) = cardinality(ids)),
  before bytea not null,
  digest bytea not null check (octet_length(digest) = 32),
  primary key (org_id, number)
);

-- name: seals_are_kept
create trigger seals_are_kept before update on weft.audit_seal for each statement execute function weft.refuse_change();

-- name: audit_hash
-- What an act says, in 32 bytes. As JSON, in which no field can pass for a part of another.
create function weft.audit_hash(a weft.audit) returns bytea language sql stable as $$
  select sha256(convert_to(json_build_array(a.id::text, a.org_id::text, to_char(a.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'),
    a.actor, a.verb, a.subject_kind, a.subject_ids::text, a.subject_name, a.detail::text, a.origin)::text, 'UTF8'))
$$;

-- name: seal_digest
create function weft.seal_digest(org bigint, number bigint, before bytea, ids bigint[], hashes bytea[]) returns bytea language sql immutable as $$
  select sha256(before || int8send(org) || int8send(number) || coalesce((
    select string_agg(int8send(u.id) || u.hash, ''::bytea order by u.place)
    from unnest(ids, hashes) with ordinality as u (id, hash, place)), ''::bytea))
$$;

-- name: seal_audit
-- Seals the acts of each org that are not sealed yet, at most `room` of each; returns how many. Acts have ids of when they began,
-- and one may be committed after another that is sealed: an hour back is looked at again. Two at once do not make two chains:
-- the second finds its number taken, and has sealed nothing.
create function weft.seal_audit(room int) returns int language plpgsql as $$
declare of record; count int := 0;
begin
  for of in
    select o.id as org_id, coalesce(l.number, 0) + 1 as number, coalesce(l.digest, sha256(int8send(o.id))) as before, n.ids, n.hashes
    from weft.org o
    left join lateral (
      select s.number, s.digest, s.sealed_at from weft.audit_seal s where s.org_id = o.id order by s.number desc limit 1
    ) l on true
    cross join lateral (
      select array_agg(e.id order by e.id) as ids, array_agg(e.hash order by e.id) as hashes from (
        select a.id, weft.audit_hash(a) as hash from weft.audit a
        where a.org_id = o.id and a.id >= coalesce(weft.first_id_at(l.sealed_at - interval '1 hour'), 0) and not exists (
          select 1 from weft.audit_seal s where s.org_id = o.id and a.id between s.ids[1] and s.ids[cardinality(s.ids)] and a.id = any (s.ids))
        order by a.id limit room
      ) e
    ) n
    where n.ids is not null
  loop
    insert into weft.audit_seal (org_id, number, ids, hashes, before, digest)
    values (of.org_id, of.number, of.ids, of.hashes, of.before, weft.seal_digest(of.org_id, of.number, of.before, of.ids, of.hashes))
    on conflict do nothing;
    if found then
      count := count + cardinality(of.ids);
    end if;
  end loop;
  return count;
end $$;

-- name: audit_org
-- Acts are listed by org, newest first, all or those of one verb: each list reads one of these, and no further than its page.
create index audit_org on weft.audit (org_id, id);
create index audit_verb on weft.audit (org_id, verb, id);
