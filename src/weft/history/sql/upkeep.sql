-- name: unused
-- What was made longer ago than the grace and is used by nobody, what was made last first: snapshots, and patches of which
-- nothing was made that stays. Locks nothing.
with recursive open as materialized (
  select a.id, a.kind, a.generation from weft.artifact a
  where a.org_id = $1 and a.kind <> 'version' and a.id < (select weft.first_id_at(weft.now() - $2::interval))
    and not exists (
      select 1 from weft.artifact_use u where u.artifact_id = a.id and u.used_by not in ('version', 'patch', 'snapshot'))
), kept (id) as (
  select o.id from open o join weft.artifact_use u on u.artifact_id = o.id and u.used_by in ('version', 'patch', 'snapshot')
  where u.user_name not in (select x.id::text from open x)
  union
  select o.id from kept k join weft.artifact a on a.id = k.id
  cross join lateral (values (a.parent_id), (a.merged_id)) as p (id) join open o on o.id = p.id
)
select o.id, o.kind::text as kind from open o where o.id not in (select k.id from kept k)
order by o.generation desc, o.id desc;

-- name: remove_unused
-- A reference that was made meanwhile refuses this, and one that is made now is refused.
delete from weft.artifact a using (
  select a.id from weft.artifact a where a.org_id = $1 and a.id = any ($2) order by a.id for update skip locked
) unused where a.id = unused.id
returning a.kind::text as kind;

-- name: unused_blobs
-- What the collector of blobs has to do, when some artifacts are gone: what nobody uses, and what nobody but these does.
-- Blobs are the same for all orgs, and who else uses one is nobody's business: it is told by how many do.
with unused as (
  select b.bytes from weft.blob b
  where b.put_at < weft.now() - $1::interval and not exists (select 1 from weft.blob_use u where u.digest = b.digest)
  union all
  select b.bytes from (
    select a.digest, count(*) as uses from weft.artifact a where a.id = any ($2::bigint[]) group by a.digest
  ) gone join weft.blob b on b.digest = gone.digest
  where b.put_at < weft.now() - $1::interval and gone.uses = (select count(*) from weft.blob_use u where u.digest = b.digest)
)
select count(*) as blobs, coalesce(sum(unused.bytes), 0)::bigint as bytes from unused;

-- name: page_of_artifacts
-- With what they hold, in the order in which they are named.
select a.id, a.generation, a.merged_id, a.kind::text as kind, a.workflow_id, a.parent_id, a.base_id, a.chain,
  a.version_hash, a.plan_hash, a.digest, b.digest is not null as has_blob, b.content
from unnest($2::bigint[]) with ordinality as n (id, seq)
join weft.artifact a on a.id = n.id left join weft.blob b on b.digest = a.digest
where a.org_id = $1 order by n.seq;

-- name: lines
-- What every artifact was made from.
select a.id, a.parent_id, a.merged_id from weft.artifact a where a.org_id = $1 order by a.generation, a.id;

-- name: count_lines
select count(*) from weft.artifact a where a.org_id = $1;

-- name: astray_tags
-- Tags that are not where their last move put them, or at something that is not there, or of another workflow than that:
-- of those that are named, or of all.
select t.name, t.target_id, t.version, t.workflow_id, a.workflow_id as workflow_of_target, l.version as last_version, l.to_id,
  a.id is not null as has_target, s.is_astray
from weft.tag t
left join lateral (
  select m.* from weft.tag_move m where m.org_id = t.org_id and m.tag = t.name order by m.version desc limit 1
) l on true
left join weft.artifact a on a.id = t.target_id and a.org_id = t.org_id and a.kind <> 'snapshot'
cross join lateral (
  select a.id is null or l.version is null or t.version <> l.version or t.position <> l.position
    or (l.verb = 'delete') <> (t.deleted_at is not null) or (l.verb <> 'delete' and t.target_id <> l.to_id) as is_astray
) s
where t.org_id = $1 and (s.is_astray or t.workflow_id <> a.workflow_id)
  and t.name = any (coalesce($2::text[], array(select g.name from weft.tag g where g.org_id = $1)))
order by t.name;

-- name: lost_tags
-- Tags that have moves, and no place.
select distinct m.tag as name from weft.tag_move m
where m.org_id = $1 and not exists (select 1 from weft.tag t where t.org_id = m.org_id and t.name = m.tag)
order by m.tag;

-- name: lock_tag
-- What is decided about a tag is decided while nobody moves it.
select (weft.lock_tag($1, $2, null, null, true, true)).name;

-- name: broken_moves
-- Moves that do not follow the one before: a number is missing, or it did not start where that had ended. Away from what
-- is not there any more a move cannot start.
select m.tag, m.version from (
  select m.tag, m.version, m.from_id, lag(m.to_id) over w as before_id, lag(m.version) over w as before_version
  from weft.tag_move m where m.org_id = $1 window w as (partition by m.tag order by m.version)
) m
where m.version <> coalesce(m.before_version, 0) + 1 or (
  m.from_id is distinct from m.before_id
  and (m.before_id is null or exists (select 1 from weft.artifact a where a.id = m.before_id and a.org_id = $1)))
order by m.tag, m.version;

-- name: last_sound_move
-- The last move of a tag to what is still there.
select m.to_id, m.position from weft.tag_move m join weft.artifact a on a.id = m.to_id and a.org_id = m.org_id and a.kind <> 'snapshot'
where m.org_id = $1 and m.tag = $2 order by m.version desc limit 1;

-- name: last_move
select m.verb::text as verb, m.to_id from weft.tag_move m where m.org_id = $1 and m.tag = $2 order by m.version desc limit 1;

-- name: mend_tag
-- Puts a tag where its last move put it, or at what is there instead; makes it when it is lost, protected as it may have been.
insert into weft.tag as t (org_id, name, workflow_id, target_id, version, position, moved_at, moved_by, deleted_at, is_protected)
select m.org_id, m.tag, a.workflow_id, a.id, m.version, m.position, m.moved_at, m.moved_by,
  case when m.verb = 'delete' then m.moved_at end, true
from weft.tag_move m join weft.artifact a on a.id = $3
where m.org_id = $1 and m.tag = $2 order by m.version desc limit 1
on conflict (org_id, name) do update set target_id = excluded.target_id, workflow_id = excluded.workflow_id,
  version = excluded.version, position = excluded.position, moved_at = excluded.moved_at, moved_by = excluded.moved_by,
  deleted_at = excluded.deleted_at;

-- name: move_astray_tag
-- Moves a tag away from what is not there, back to the move that is in effect then, so that undo goes on from that.
select weft.add_move(t, 'move', $3, $4, $5, $6, null) from weft.tag t where t.org_id = $1 and t.name = $2;

-- name: mend_artifact
-- Writes anew what follows from an artifact's parents and its document.
update weft.artifact a set base_id = $3, chain = $4, workflow_id = $5, version_hash = $6, generation = $7
where a.org_id = $1 and a.id = $2;

-- name: remove_snapshot
-- It can be made again.
delete from weft.artifact a where a.org_id = $1 and a.id = $2 and a.kind = 'snapshot';

-- name: mend_blob
-- Puts back bytes that have the digest that is their name.
insert into weft.blob as b (digest, bytes, media_type, content) values ($1, $2, $3, $4)
on conflict (digest) do update set content = excluded.content;
