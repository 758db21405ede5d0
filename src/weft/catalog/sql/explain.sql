-- name: decision
-- What was found for a task in the cache, and how it ended; nothing is found for one without a cache.
select t.state::text as state, t.reason, t.attempt, d.kept_id, r.cause, r.other_id, r.made_at, r.noted_at, r.detail, r.attempt as noted
from weft.tasks t left join weft.task_done d on d.id = t.id left join weft.task_reuse r on r.task_id = t.id
where t.org_id = $1 and t.id = $2;

-- name: names
-- Of datasets that may be seen; one that was deleted has its id behind its name.
select d.id, split_part(d.name, '@', 1) as name from weft.dataset d where d.org_id = $1 and d.id = any ($2::bigint[]) and ($3::text[] is null or d.read_roles && $3);

-- name: inputs
-- What the last attempt of a task has read, or has gone on with, of datasets that may be seen.
select split_part(d.name, '@', 1) as name, v.number, i.write, i.partitions from weft.inputs_of($2, $3) i
  join weft.dataset d on d.id = i.dataset_id left join weft.dataset_version v on v.id = i.version_id
where i.org_id = $1 and ($4::text[] is null or d.read_roles && $4)
order by i.attempt, i.place limit 100;
