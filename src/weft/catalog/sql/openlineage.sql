-- name: event
select e.org_id, e.payload, e.actor from weft.event e where e.id = $1 and e.name = 'dataset.written';

-- name: write
-- A write of an org, with who made it.
select o.id as org_id, d.id, d.name, d.producer_dag, d.producer_node, v.id as version_id, v.columns, w.task_id, w.attempt, w.job_id, w.rows, w.bytes,
  w.written_at, t.claimed_at
from weft.org o join weft.dataset d on d.org_id = o.id join weft.dataset_version v on v.org_id = o.id and v.dataset_id = d.id
  join weft.dataset_write w on w.version_id = v.id left join weft.task_done t on t.id = w.task_id and t.org_id = o.id
where o.slug = $1 and d.name = $2 and v.number = $3 and w.number = $4;

-- name: inputs
-- What was read for a write.
select distinct i.input_id, d.name, v.number as version, i.input_write as write
from weft.dataset_write_input i join weft.dataset d on d.org_id = i.org_id and d.id = i.input_id
  left join weft.dataset_version v on v.id = i.input_version_id
where i.org_id = $1 and i.version_id = $2 and i.number = $3 order by 2, 3, 4;

-- name: columns
-- What the columns of a dataset are made of, of some others.
select e.output_column, d.name, e.input_column from weft.column_edge e join weft.dataset d on d.org_id = e.org_id and d.id = e.input_id
where e.org_id = $1 and e.output_id = $2 and e.input_id = any ($3) order by 1, 2, 3;
