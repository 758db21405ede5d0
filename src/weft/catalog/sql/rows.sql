-- name: staged
-- The write that an attempt has begun and not told of yet, how the dataset is kept, and how many rows it has. Nobody else adds any
-- meanwhile, not even he who has asked before and has heard nothing.
select s.version_id, d.name, d.storage ->> 'kind' as kind, s.added from weft.staged_write s join weft.dataset d on d.id = s.dataset_id
where s.id = $1 and s.task_id = $2 and s.attempt = $3 and s.partitions is null for no key update of s;

-- name: prepare
select weft.prepare_table($1, $2, $3);

-- name: add
select weft.add_rows($1, $2, $3, $4, $5);

-- name: count_added
update weft.staged_write s set added = s.added + $2 where s.id = $1;

-- name: read
-- Of a version of the org.
select r.number, r.texts from weft.dataset_version v cross join lateral weft.rows_of(v.id, $3, $4, $5, $6, $7) r
where v.org_id = $1 and v.id = $2 order by r.number;

-- name: are_kept
-- Whether nothing of some files of a version has been collected: then the rows that were read of them before are whole. Those of a
-- write that is not over are there, and in no list. Null when the version is gone.
select not exists (
  select 1 from unnest($3::text[], $4::bigint[]) as u (path, write) where not exists (
    select 1 from weft.dataset_file f where f.version_id = v.id and f.path = u.path and (f.removed_by is null or f.removed_by > v.oldest_write))
    and not exists (select 1 from weft.staged_write s where s.id = u.write and s.version_id = v.id))
from weft.dataset_version v where v.org_id = $1 and v.id = $2 and v.collected_at is null;

-- name: drop
-- Of a version that is there: another may have removed it meanwhile, with all its rows.
select weft.drop_rows(v.id, $2, $3) from (select o.id from weft.dataset_version o where o.id = $1 for key share) v;

-- name: drop_table
-- Of a version that is there, and that nobody takes rows from just now: another may have removed it meanwhile.
select weft.drop_table(v.id) from (select o.id from weft.dataset_version o where o.id = $1 for update) v;
