-- name: remove_unused
-- Removes what was made longer ago than the grace and is used by nobody: snapshots, and patches of which only a snapshot
-- was made, which come in the next call. A reference that is made meanwhile is refused, or refuses this.
delete from weft.artifact a using (
  select a.id from weft.artifact a
  where a.org_id = $1 and a.kind <> 'version' and weft.time_of_id(a.id) < weft.now() - $2::interval
    and not exists (select 1 from weft.artifact_use u where u.artifact_id = a.id)
  order by a.id limit 100 for update skip locked
) unused where a.id = unused.id
returning a.id, a.kind::text as kind, a.workflow_id, a.digest;

-- name: unused_blobs
-- What the collector of blobs has to do.
select count(*) as blobs, coalesce(sum(b.bytes), 0)::bigint as bytes from weft.blob b
where b.put_at < weft.now() - $1::interval and not exists (select 1 from weft.blob_use u where u.digest = b.digest);

-- name: list_unused_blobs
-- Past the day in which what refers to a blob may still be written.
select b.digest, b.bytes from weft.blob b
where b.put_at < weft.now() - interval '1 day' and not exists (select 1 from weft.blob_use u where u.digest = b.digest)
order by b.put_at limit $1;

-- name: page_of_artifacts
-- With what they hold, parents before children.
select a.id, a.generation, a.merged_id, a.kind::text as kind, a.workflow_id, a.parent_id, a.base_id, a.chain, a.version_hash, a.plan_hash, a.digest,
  b.digest is not null as has_blob, b.content
from weft.artifact a left join weft.blob b on b.digest = a.digest
where a.org_id = $1 and (a.generation, a.id) > ($2, $3) order by a.generation, a.id limit $4;

-- name: astray_tags
-- Tags that are not where their last move put them, or at something that is not there.
select t.name, t.target_id, t.version, l.version as last_version, l.to_id, l.position, l.moved_at, l.moved_by,
  l.verb = 'delete' as is_deleted, a.id is not null as has_target
from weft.tag t
left join lateral (
  select m.* from weft.tag_move m where m.org_id = t.org_id and m.tag = t.name order by m.version desc limit 1
) l on true
left join weft.artifact a on a.id = t.target_id and a.org_id = t.org_id and a.kind <> 'snapshot'
where t.org_id = $1 and (
  a.id is null or l.version is null or t.version <> l.version or t.position <> l.position
  or (l.verb = 'delete') <> (t.deleted_at is not null) or (l.verb <> 'delete' and t.target_id <> l.to_id)
)
order by t.name;

-- name: broken_moves
-- Moves that do not follow the one before: a number is missing, or it did not start where that had ended. Away from what
-- is not there any more a move cannot start.
select m.tag, m.version from (
  select m.tag, m.version, m.from_id, lag(m.to_id) over w as before_id, lag(m.version) over w as before_version
  from weft.tag_move m where m.org_id = $1 window w as (partition by m.tag order by m.version)
) m
where m.version <> coalesce(m.before_version, 0) + 1 or (
  m.from_id is distinct from m.before_id
  and (m.before_id is null or exists (select 1 from weft.artifact a where a.id = m.before_id)))
order by m.tag, m.version;

-- name: last_sound_target
-- Where a tag was last that is still there.
select m.to_id from weft.tag_move m join weft.artifact a on a.id = m.to_id and a.org_id = m.org_id and a.kind <> 'snapshot'
where m.org_id = $1 and m.tag = $2 order by m.version desc limit 1;

-- name: last_move
select m.verb::text as verb, m.to_id from weft.tag_move m where m.org_id = $1 and m.tag = $2 order by m.version desc limit 1;

-- name: mend_tag
-- Puts a tag where its last move put it, or at what is there instead.
update weft.tag t set target_id = $3, version = m.version, position = m.position, moved_at = m.moved_at,
  moved_by = m.moved_by, deleted_at = case when m.verb = 'delete' then m.moved_at end
from (select m.* from weft.tag_move m where m.org_id = $1 and m.tag = $2 order by m.version desc limit 1) m
where t.org_id = $1 and t.name = $2;

-- name: move_astray_tag
-- Moves a tag away from what is not there.
select weft.add_move(t, 'move', $3, null, $4, $5, null) from weft.tag t where t.org_id = $1 and t.name = $2;

-- name: mend_artifact
-- Writes anew what follows from an artifact's parents and its document.
update weft.artifact a set base_id = $3, chain = $4, plan_hash = $5, version_hash = $6, generation = $7
where a.org_id = $1 and a.id = $2;

-- name: mend_blob
-- Puts back bytes that have the digest that is their name.
insert into weft.blob as b (digest, bytes, media_type, content) values ($1, $2, $3, $4)
on conflict (digest) do update set content = excluded.content;
