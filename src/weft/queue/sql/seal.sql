-- name: seal
select weft.seal_audit($1);

-- name: prune
-- A seal goes when all that it and those before it hold together is past the retention; the next says what it followed on, and
-- so the last stays.
delete from weft.audit_seal s using (
  select o.org_id, o.number from weft.audit_seal o
  where greatest(o.before_id, o.ids[cardinality(o.ids)]) < (select weft.first_id_at(weft.now() - $1::interval))
    and exists (select 1 from weft.audit_seal n where n.org_id = o.org_id and n.number > o.number)
  order by o.org_id, o.number limit 1000
) old where s.org_id = old.org_id and s.number = old.number returning s.number;

-- name: page
-- The seals of an org in order, each with what it is when it is made anew of what it holds.
select s.number, s.sealed_at, s.ids, s.hashes, s.before, s.before_id, s.digest, s.done_to,
  weft.seal_digest(s.org_id, s.number, s.before, s.before_id, s.done_to, s.ids, s.hashes) as digest_now,
  s.before = sha256(int8send(s.org_id)) and s.before_id = 0 as follows_on_nothing
from weft.audit_seal s where s.org_id = $1 and s.number > $2 order by s.number limit $3;

-- name: hashes_now
-- What acts are now, of those that are still there.
select a.id, weft.audit_hash(a) as hash from weft.audit a where a.org_id = $1 and a.id = any ($2);

-- name: unsealed
-- Acts of an org that no seal holds, from an id on: how many, since when, and the first that are of a time whose acts are sealed.
select (count(*) filter (where a.id >= $3))::int as count, min(a.at) filter (where a.id >= $3) as oldest_at,
  (coalesce(array_agg(a.id order by a.id) filter (where a.id < $3), '{}'))[:100] as late
from (
  select a.id from weft.audit a where a.org_id = $1 and a.id >= least($2::bigint, $3::bigint)
  except select sealed.id from weft.audit_seal s cross join lateral unnest(s.ids) as sealed (id) where s.org_id = $1
) e join weft.audit a on a.id = e.id;

-- name: oldest_kept
-- What began before may be gone by the retention; some minutes are for what is just being removed.
select weft.first_id_at(weft.now() - $1::interval + interval '10 minutes');
