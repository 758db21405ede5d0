-- name: registered
-- The version of the same address and range, if there is one.
select v.id, v.number, v.last_write from weft.dataset_version v
where v.org_id = $1 and v.dataset_id = $2 and v.config_hash = $3 and v.range_start is not distinct from $4
  and v.range_end is not distinct from $5 and v.collected_at is null;

-- name: add
with numbered as (
  update weft.dataset d set last_version = d.last_version + 1 where d.org_id = $1 and d.id = $2 returning d.last_version
)
insert into weft.dataset_version as v (id, org_id, dataset_id, number, config_hash, range_start, range_end, location, is_outside, actor)
select $3, $1, $2, n.last_version, $4, $5, $6, $7, true, $8 from numbered n returning v.number;

-- name: current_columns
select v.columns from weft.dataset d join weft.dataset_version v on v.id = d.current_id where d.org_id = $1 and d.id = $2;

-- name: register
select weft.register_files($1, $2, $3, $4, $5);
