-- name: touched_partitions
-- Partitions whose files are others after one write of a version than after another, by key; and how many there are of each kind.
with touched as (
  select f.partition_key from weft.dataset_file f where f.org_id = $1 and f.version_id = $2 and f.added_by > $3 and f.added_by <= $4
  union
  select f.partition_key from weft.dataset_file f where f.org_id = $1 and f.version_id = $2 and f.removed_by > $3 and f.removed_by <= $4
), standing as (
  select f.partition_key, f.path, f.rows, f.added_by <= $3 and (f.removed_by is null or f.removed_by > $3) as is_old,
    f.added_by <= $4 and (f.removed_by is null or f.removed_by > $4) as is_new
  from touched t cross join lateral (
    -- By an index each: those of files that stand, and of those that do not.
    (select f.* from weft.dataset_file f
     where f.org_id = $1 and f.version_id = $2 and f.partition_key = t.partition_key and f.removed_by is null offset 0)
    union all
    (select f.* from weft.dataset_file f
     where f.org_id = $1 and f.version_id = $2 and f.partition_key = t.partition_key and f.removed_by is not null offset 0)
  ) f
), counted as (
  select s.partition_key as key, coalesce(sum(s.rows) filter (where s.is_old), 0)::bigint as rows_before,
    coalesce(sum(s.rows) filter (where s.is_new), 0)::bigint as rows_after, bool_or(s.is_old) as was, bool_or(s.is_new) as is,
    array_agg(s.path order by s.path) filter (where s.is_old) is distinct from array_agg(s.path order by s.path) filter (where s.is_new) as differs
  from standing s group by s.partition_key
), changed as (
  select c.key, case when not c.was then 'added' when not c."is" then 'removed' else 'rewritten' end as change, c.rows_before, c.rows_after
  from counted c where c.differs
)
select c.key, c.change, c.rows_before, c.rows_after, count(*) filter (where c.change = 'added') over () as added,
  count(*) filter (where c.change = 'removed') over () as removed, count(*) filter (where c.change = 'rewritten') over () as rewritten
from changed c order by c.key limit $5;

-- name: compared_partitions
-- The same of two states of different versions, whose files are always others.
with old as (
  select f.partition_key as key, sum(f.rows)::bigint as rows from weft.dataset_file f
  where f.org_id = $1 and f.version_id = $2 and f.added_by <= $3 and (f.removed_by is null or f.removed_by > $3) group by f.partition_key
), new as (
  select f.partition_key as key, sum(f.rows)::bigint as rows from weft.dataset_file f
  where f.org_id = $1 and f.version_id = $4 and f.added_by <= $5 and (f.removed_by is null or f.removed_by > $5) group by f.partition_key
), changed as (
  select coalesce(o.key, n.key) as key, case when o.key is null then 'added' when n.key is null then 'removed' else 'rewritten' end as change,
    coalesce(o.rows, 0) as rows_before, coalesce(n.rows, 0) as rows_after
  from old o full join new n on n.key = o.key
)
select c.key, c.change, c.rows_before, c.rows_after, count(*) filter (where c.change = 'added') over () as added,
  count(*) filter (where c.change = 'removed') over () as removed, count(*) filter (where c.change = 'rewritten') over () as rewritten
from changed c order by c.key limit $6;

-- name: rows
-- How many rows a version had after one of its writes: what it has now without what came since.
select (v.rows - coalesce(sum(w.rows - w.rows_removed), 0))::bigint
from weft.dataset_version v left join weft.dataset_write w on w.version_id = v.id and w.number > $3
where v.org_id = $1 and v.id = $2 group by v.rows;

-- name: columns
-- What the columns of a version were after one of its writes: as the last write up to it left them that changed them.
select w.columns from weft.dataset_write w
where w.org_id = $1 and w.version_id = $2 and w.number <= $3 and w.columns is not null order by w.number desc limit 1;

-- name: before
-- The last state of the version before one.
select v.number, v.last_write from weft.dataset_version v
where v.org_id = $1 and v.dataset_id = $2 and v.number < $3 and v.last_write > 0 and v.collected_at is null order by v.number desc limit 1;
