-- name: materials
-- All that an artifact's document is made of, in one read: the snapshot if there is one, else the version and the patches
-- on it. Asked for by its id, or by a tag, now or at a moment.
select a.id, a.kind::text as kind, a.workflow_id, a.parent_id, a.base_id, a.depth, a.version_hash, a.plan_hash,
  t.version as tag_version, whole.digest, whole.content, chain.digests, chain.contents, t.name is not null as has_tag
from weft.artifact a
left join weft.tag t on t.org_id = $1 and t.name = $3
left join weft.artifact s on s.org_id = a.org_id and s.plan_hash = a.plan_hash and s.kind = 'snapshot' and a.kind = 'patch'
join weft.artifact v on v.id = coalesce(s.id, a.base_id, a.id)
join weft.blob whole on whole.digest = v.digest
left join lateral (
  select array_agg(b.digest order by m.seq) as digests, array_agg(b.content order by m.seq) as contents
  from weft.patch_chain_member m join weft.artifact p on p.id = m.member_id join weft.blob b on b.digest = p.digest
  where m.head_id = a.id and s.id is null
) chain on true
where a.org_id = $1 and a.id = coalesce($2::bigint, case
  when $4::timestamptz is not null then (
    select m.to_id from weft.tag_move m where m.org_id = $1 and m.tag = $3 and m.moved_at <= $4
    order by m.moved_at desc, m.version desc limit 1)
  when t.deleted_at is null then t.target_id
end);

-- name: put_on_tag
-- A new version or patch, and the tag's move to it, or neither.
select * from weft.move_tag($1, $2, $3, weft.put_artifact($1, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16),
  $17, null, $18, $15, $16);

-- name: compact
-- A version that means what the patch does, and the tag's move to it, or neither.
select * from weft.compact_tag($1, $2, weft.put_artifact($1, 'version', $3, $4, null, null, 0, $5, $6, $7, $8, null, $9, $10), $11, $9);

-- name: show
select a.id, a.kind::text as kind, a.workflow_id, a.parent_id, a.merged_id, a.base_id, a.depth, a.digest, a.version_hash,
  a.plan_hash, a.actor, a.message, weft.time_of_id(a.id) as created_at
from weft.artifact a where a.org_id = $1 and a.id = $2;

-- name: log
-- An artifact and those that it was made from, newest first.
with recursive line (id) as (
  select $2::bigint
  union
  select p.id from line join weft.artifact a on a.id = line.id
  cross join lateral (values (a.parent_id), (a.merged_id)) as p (id) where p.id is not null
)
select a.id, a.kind::text as kind, a.workflow_id, a.parent_id, a.merged_id, a.base_id, a.depth, a.digest, a.version_hash,
  a.plan_hash, a.actor, a.message, weft.time_of_id(a.id) as created_at
from line join weft.artifact a on a.id = line.id where a.org_id = $1 and a.id < $3 order by a.id desc limit $4;

-- name: contents
-- What artifacts hold, for those who go through many.
select a.id, b.digest, b.content from weft.artifact a join weft.blob b on b.digest = a.digest
where a.org_id = $1 and a.id = any ($2);

-- name: find
-- Versions and patches by the beginning of what their document means.
select a.id from weft.artifact a where a.org_id = $1 and a.kind <> 'snapshot'
  and a.version_hash >= $2 and a.version_hash <= $3 order by a.id desc limit 2;
