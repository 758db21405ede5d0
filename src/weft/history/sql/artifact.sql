-- name: materials
-- All that an artifact's document is made of, in one read: the snapshot if there is one, else the version and the patches
-- on it. Asked for by its id, or by a tag, now or at a moment; without the contents when it is the one that the caller has.
-- A snapshot that does not mean what its patch does is passed over, and told of when it is what was asked for.
with place as materialized (
  select t.name, case when $4::timestamptz is null then t.version else m.version end as version,
    case when $4::timestamptz is null then t.target_id else m.to_id end as target_id
  from weft.tag t
  left join lateral weft.move_at(t.org_id, t.name, $4) m on $4::timestamptz is not null
  where t.org_id = $1 and t.name in ($3, $3 || '/main') and ($4::timestamptz is not null or t.deleted_at is null)
  order by t.deleted_at is not null, length(t.name) limit 1
)
select a.id, a.kind::text as kind, a.workflow_id, a.depth, a.version_hash,
  (select place.name from place) as tag, (select place.version from place) as tag_version,
  coalesce(s.id, case when a.kind <> 'patch' then a.id end) as snapshot_id, v.digest, whole.content, chain.digests,
  chain.contents, a.kind = 'snapshot' and a.version_hash is distinct from made_of.version_hash as is_wrong
from weft.artifact a
left join weft.artifact made_of on made_of.id = case when a.kind = 'snapshot' then a.parent_id end
left join weft.artifact s on s.parent_id = case when a.kind = 'patch' then a.id end and s.kind = 'snapshot'
  and s.version_hash = a.version_hash
left join weft.artifact v on v.id = coalesce(s.id, a.base_id, a.id) and a.id is distinct from $5::bigint
left join weft.blob whole on whole.digest = v.digest
left join lateral (
  select array_agg(p.digest order by m.seq) as digests, array_agg(b.content order by m.seq) as contents
  from unnest(case when s.id is null and a.id is distinct from $5::bigint then a.chain end) with ordinality as m (id, seq)
  left join weft.artifact p on p.id = m.id left join weft.blob b on b.digest = p.digest
) chain on true
where a.org_id = $1 and a.id = coalesce($2::bigint, (select place.target_id from place));

-- name: chain
-- The version and the patches on it that give an artifact's document, and no snapshot of it.
select a.id, a.kind::text as kind, v.digest, whole.content, chain.digests, chain.contents
from weft.artifact h
join weft.artifact a on a.id = case when h.kind = 'snapshot' then h.parent_id else h.id end
left join weft.artifact v on v.id = coalesce(a.base_id, a.id)
left join weft.blob whole on whole.digest = v.digest
left join lateral (
  select array_agg(p.digest order by m.seq) as digests, array_agg(b.content order by m.seq) as contents
  from unnest(a.chain) with ordinality as m (id, seq)
  left join weft.artifact p on p.id = m.id left join weft.blob b on b.digest = p.digest
) chain on true
where h.org_id = $1 and h.id = $2;

-- name: other_content
-- What the row of a blob holds, unless it is this: the same may have been compressed in another way.
select b.content from weft.blob b where b.digest = $1 and b.content <> $2;

-- name: put_on_tag
-- A new version or patch, the tag's move to it, and who did so, or nothing of it. A tag of another workflow is moved only by
-- whoever names that.
with t as materialized (
  select t.* from weft.move_tag($1, $2, $3, weft.put_artifact($1, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13), $14, null,
    case when $15 or $16::text is not null then weft.is_forced($1, $2, $5, $15, $16) else false end, $12, $13) t
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $12, $3::weft.tag_verb::text, 'tag', t.name, json_build_object('version', t.version, 'target', t.target_id::text), $17, coalesce($18, $13)
  from t
)
select * from t;

-- name: keep
-- A version that no tag is at: the one that is there already, or a new one.
select coalesce(
  (select a.id from weft.artifact a where a.org_id = $1 and a.workflow_id = $2 and a.digest = $3 and a.kind = 'version'
     and substr(a.version_hash, 1, 4) = substr($6::bytea, 1, 4) and a.version_hash = $6 order by a.id limit 1),
  weft.put_artifact($1, 'version', $2, null, null, $3, $4, $5, $6, $7, null));

-- name: compact
-- A version that means what the patch does, the tag's move to it, and who did so, or nothing of it.
with t as materialized (
  select t.* from weft.compact_tag($1, $2, weft.put_artifact($1, 'version', $3, $4, null, $5, $6, $7, $8, $9, null), $10, $9) t
), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $9, 'compact', 'tag', t.name, json_build_object('version', t.version, 'target', t.target_id::text), $11, $12
  from t
)
select * from t;

-- name: put_snapshot
-- Who has it taken is kept, unless it is for a job, which has its own act.
with s as materialized (select weft.put_snapshot($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) as id), noted as (
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_name, detail, origin, reason)
  select $1, $11, 'snapshot', 'workflow', $3, json_build_object('id', s.id::text), $14, coalesce($15, $12) from s where $13 and s.id is not null
)
select s.id from s;

-- name: snapshot_of_plan
-- The snapshot of what an artifact and one more patch are made of, whoever had it taken.
select s.id from weft.artifact s where s.org_id = $1 and s.plan_hash = weft.plan_of($2, $3) and s.kind = 'snapshot';

-- name: show
select a.id, a.kind::text as kind, a.workflow_id, a.parent_id, a.merged_id, a.base_id, a.depth,
  a.digest, encode(a.version_hash, 'hex') as version_hash, a.actor, a.message, weft.time_of_id(a.id) as created_at
from weft.artifact a where a.org_id = $1 and a.id = $2;

-- name: list
-- All that is kept, newest first, whether a tag leads to it or not. Compared as rows, so that only the index by org has this order.
select a.id, a.kind::text as kind, a.workflow_id, a.parent_id, a.merged_id, a.base_id, a.depth,
  a.digest, encode(a.version_hash, 'hex') as version_hash, a.actor, a.message, weft.time_of_id(a.id) as created_at
from weft.artifact a where (a.org_id, a.id) < ($1, $2) and (a.org_id, a.id) > ($1, 0)
order by a.org_id desc, a.id desc limit $3;

-- name: list_of_workflow
select a.id, a.kind::text as kind, a.workflow_id, a.parent_id, a.merged_id, a.base_id, a.depth,
  a.digest, encode(a.version_hash, 'hex') as version_hash, a.actor, a.message, weft.time_of_id(a.id) as created_at
from weft.artifact a where a.org_id = $1 and a.workflow_id = $4 and a.id < $2 order by a.id desc limit $3;

-- name: log
-- An artifact and those that it was made from, newest first.
select a.id, a.kind::text as kind, a.workflow_id, a.parent_id, a.merged_id, a.base_id, a.depth,
  a.digest, encode(a.version_hash, 'hex') as version_hash, a.actor, a.message, weft.time_of_id(a.id) as created_at
from weft.line_of($2, $3, $4) l (id) join weft.artifact a on a.id = l.id where a.org_id = $1
order by a.generation desc, a.id desc;

-- name: line
-- All that an artifact was made from, oldest first.
with recursive line (id) as (
  select $2::bigint
  union
  select p.id from line join weft.artifact a on a.id = line.id
  cross join lateral (values (a.parent_id), (a.merged_id)) as p (id) where p.id is not null
)
select a.id, a.kind::text as kind, a.workflow_id, a.parent_id, a.merged_id, a.base_id, a.depth,
  a.digest, encode(a.version_hash, 'hex') as version_hash, a.actor, a.message, weft.time_of_id(a.id) as created_at
from line join weft.artifact a on a.id = line.id where a.org_id = $1 order by a.generation, a.id;

-- name: back
-- What comes so many changes before an artifact, along first parents, or the first of all.
with recursive line (id, step) as (
  select a.id, 0 from weft.artifact a where a.org_id = $1 and a.id = $2
  union all
  select a.parent_id, line.step + 1 from line join weft.artifact a on a.id = line.id
  where line.step < $3 and a.parent_id is not null
)
select line.id, line.step from line order by line.step desc limit 1;

-- name: parted_at
select p.id from weft.artifact one, weft.artifact other, weft.parted_places(one.id, other.id) as p (id)
where one.org_id = $1 and one.id = $2 and other.org_id = $1 and other.id = $3;

-- name: contents
-- What artifacts hold, for those who go through many.
select a.id, a.digest, b.content from weft.artifact a left join weft.blob b on b.digest = a.digest
where a.org_id = $1 and a.id = any ($2);

-- name: find
-- The newest that means something, for each meaning whose hash begins so.
select max(a.id) as id, encode(a.version_hash, 'hex') as version_hash from weft.artifact a
where a.org_id = $1 and a.kind <> 'snapshot' and substr(a.version_hash, 1, 4) between substr($2::bytea, 1, 4) and substr($3::bytea, 1, 4)
  and a.version_hash between $2 and $3
group by a.version_hash limit 2;
