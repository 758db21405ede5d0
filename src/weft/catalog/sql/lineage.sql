-- name: inputs
-- What datasets are made of: those that may be seen, by name, and once for each that is made of what may not, or was deleted.
(select e.output_id as at_id, d.id, d.name, d.producer_dag, d.producer_node, d.producer_output, v.written_at, e.first_at as at
 from weft.dataset_edge e join weft.dataset d on d.org_id = e.org_id and d.id = e.input_id left join weft.dataset_version v on v.id = d.current_id
 where e.org_id = $1 and e.output_id = any ($2) and d.deleted_at is null and ($3::text[] is null or d.read_roles && $3) order by d.name, e.output_id limit $4)
union all
select distinct e.output_id, null::bigint, null, null, null, null::int, null::timestamptz, null::timestamptz
from weft.dataset_edge e join weft.dataset d on d.org_id = e.org_id and d.id = e.input_id
where e.org_id = $1 and e.output_id = any ($2) and (d.deleted_at is not null or $3::text[] is not null and not d.read_roles && $3);

-- name: outputs
-- What is made of datasets, likewise.
(select e.input_id as at_id, d.id, d.name, d.producer_dag, d.producer_node, d.producer_output, v.written_at, e.first_at as at
 from weft.dataset_edge e join weft.dataset d on d.org_id = e.org_id and d.id = e.output_id left join weft.dataset_version v on v.id = d.current_id
 where e.org_id = $1 and e.input_id = any ($2) and d.deleted_at is null and ($3::text[] is null or d.read_roles && $3) order by d.name, e.input_id limit $4)
union all
select distinct e.input_id, null::bigint, null, null, null, null::int, null::timestamptz, null::timestamptz
from weft.dataset_edge e join weft.dataset d on d.org_id = e.org_id and d.id = e.output_id
where e.org_id = $1 and e.input_id = any ($2) and (d.deleted_at is not null or $3::text[] is not null and not d.read_roles && $3);

-- name: column_inputs
-- What columns are made of: those of datasets that may be seen, and once for each that is made of what may not.
(select e.output_id as at_id, e.output_column as at_column, d.id, e.input_column as "column", d.name, d.producer_dag, d.producer_node,
   d.producer_output, v.written_at, e.last_at as at
 from unnest($2::bigint[], $3::text[]) as u (id, "column")
   cross join lateral (
     select e.* from weft.column_edge e where e.org_id = $1 and e.output_id = u.id and e.output_column = u."column" offset 0) e
   join weft.dataset d on d.org_id = e.org_id and d.id = e.input_id left join weft.dataset_version v on v.id = d.current_id
 where e.org_id = $1 and d.deleted_at is null and ($4::text[] is null or d.read_roles && $4) order by d.name, e.input_column, e.output_id, e.output_column limit $5)
union all
select distinct e.output_id, e.output_column, null::bigint, null, null, null, null, null::int, null::timestamptz, null::timestamptz
from unnest($2::bigint[], $3::text[]) as u (id, "column")
  cross join lateral (
     select e.* from weft.column_edge e where e.org_id = $1 and e.output_id = u.id and e.output_column = u."column" offset 0) e
  join weft.dataset d on d.org_id = e.org_id and d.id = e.input_id
where e.org_id = $1 and (d.deleted_at is not null or $4::text[] is not null and not d.read_roles && $4);

-- name: column_outputs
-- What is made of columns, likewise.
(select e.input_id as at_id, e.input_column as at_column, d.id, e.output_column as "column", d.name, d.producer_dag, d.producer_node,
   d.producer_output, v.written_at, e.last_at as at
 from unnest($2::bigint[], $3::text[]) as u (id, "column")
   cross join lateral (
     select e.* from weft.column_edge e where e.org_id = $1 and e.input_id = u.id and e.input_column = u."column" offset 0) e
   join weft.dataset d on d.org_id = e.org_id and d.id = e.output_id left join weft.dataset_version v on v.id = d.current_id
 where e.org_id = $1 and d.deleted_at is null and ($4::text[] is null or d.read_roles && $4) order by d.name, e.output_column, e.input_id, e.input_column limit $5)
union all
select distinct e.input_id, e.input_column, null::bigint, null, null, null, null, null::int, null::timestamptz, null::timestamptz
from unnest($2::bigint[], $3::text[]) as u (id, "column")
  cross join lateral (
     select e.* from weft.column_edge e where e.org_id = $1 and e.input_id = u.id and e.input_column = u."column" offset 0) e
  join weft.dataset d on d.org_id = e.org_id and d.id = e.output_id
where e.org_id = $1 and (d.deleted_at is not null or $4::text[] is not null and not d.read_roles && $4);

-- name: has_column_edges
select exists (select 1 from weft.column_edge e where e.org_id = $1 and e.output_id = $2 and e.output_column = $3)
  or exists (select 1 from weft.column_edge e where e.org_id = $1 and e.input_id = $2 and e.input_column = $3);

-- name: state_inputs
-- What was read for the writes whose rows are in states, by the newest files of each: states that may be seen, and once for each
-- that is made of what may not.
with made as materialized (
  select u.version_id, u.write, f.added_by
  from unnest($2::bigint[], $3::bigint[]) as u (version_id, write) cross join lateral (
    select f.added_by, f.removed_by from weft.dataset_file f
    where f.org_id = $1 and f.version_id = u.version_id and f.added_by <= u.write order by f.added_by desc limit $6
  ) f
  where f.removed_by is null or f.removed_by > u.write
  union select u.version_id, u.write, u.write from unnest($2::bigint[], $3::bigint[]) as u (version_id, write)
)
(select m.version_id as at_id, m.write as at_write, i.input_version_id as id, i.input_write as write, d.name, v.number as version,
   d.producer_dag, d.producer_node, d.producer_output, w.written_at, w.job_id,
   case when bool_or(i.partitions is null) then null else (select array_agg(distinct k) from unnest(array_agg(array_to_json(i.partitions))) p, json_array_elements_text(p) k) end as partitions
 from made m join weft.dataset_write_input i on i.version_id = m.version_id and i.number = m.added_by
   join weft.dataset d on d.org_id = i.org_id and d.id = i.input_id left join weft.dataset_version v on v.id = i.input_version_id
   left join weft.dataset_write w on w.version_id = i.input_version_id and w.number = i.input_write
 where i.org_id = $1 and d.deleted_at is null and ($4::text[] is null or d.read_roles && $4)
 group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 order by d.name, i.input_write, m.version_id, m.write limit $5)
union all
select distinct m.version_id, m.write, null::bigint, null::bigint, null, null::int, null, null, null::int, null::timestamptz, null::bigint, null::text[]
from made m join weft.dataset_write_input i on i.version_id = m.version_id and i.number = m.added_by
  join weft.dataset d on d.org_id = i.org_id and d.id = i.input_id
where i.org_id = $1 and (d.deleted_at is not null or $4::text[] is not null and not d.read_roles && $4);

-- name: state_outputs
-- The states that writes have made which read these, likewise.
(select i.input_version_id as at_id, i.input_write as at_write, i.version_id as id, i.number as write, d.name, v.number as version,
   d.producer_dag, d.producer_node, d.producer_output, w.written_at, w.job_id, i.partitions
 from unnest($2::bigint[], $3::bigint[]) as u (version_id, write)
   cross join lateral (
     select i.* from weft.dataset_write_input i where i.input_version_id = u.version_id and i.input_write = u.write offset 0) i
   join weft.dataset_version v on v.id = i.version_id join weft.dataset d on d.org_id = v.org_id and d.id = v.dataset_id
   join weft.dataset_write w on w.version_id = i.version_id and w.number = i.number
 where i.org_id = $1 and d.deleted_at is null and ($4::text[] is null or d.read_roles && $4) order by d.name, i.version_id, i.number, i.place limit $5)
union all
select distinct i.input_version_id, i.input_write, null::bigint, null::bigint, null, null::int, null, null, null::int, null::timestamptz, null::bigint, null::text[]
from unnest($2::bigint[], $3::bigint[]) as u (version_id, write)
  cross join lateral (
     select i.* from weft.dataset_write_input i where i.input_version_id = u.version_id and i.input_write = u.write offset 0) i
  join weft.dataset_version v on v.id = i.version_id join weft.dataset d on d.org_id = v.org_id and d.id = v.dataset_id
where i.org_id = $1 and (d.deleted_at is not null or $4::text[] is not null and not d.read_roles && $4);

-- name: has_more_files
-- Whether one of these states has more files than are looked at.
select exists (
  select 1 from unnest($2::bigint[], $3::bigint[]) as u (version_id, write) cross join lateral (
    select 1 from weft.dataset_file f where f.org_id = $1 and f.version_id = u.version_id and f.added_by <= u.write
    order by f.added_by desc offset $4 limit 1) f);

-- name: write
select w.written_at, w.job_id from weft.dataset_write w where w.org_id = $1 and w.version_id = $2 and w.number = $3;
