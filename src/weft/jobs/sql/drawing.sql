-- name: choices
-- Which branch each conditional of a job has taken.
select d.node, (d.output ->> 'branch')::int as branch from weft.task_done d
where d.org_id = $1 and d.job_id = $2 and d.handler = '@conditional' and d.state = 'completed' and d.parent_id is null
  and d.node is not null;

-- name: begun
-- The jobs that nodes have begun, in the order of their ids.
select b.parent_id, b.id from (
  select j.parent_id, j.id from weft.job j where j.org_id = $1 and j.parent_id = any ($2)
  union all select d.parent_id, d.id from weft.job_done d where d.org_id = $1 and d.parent_id = any ($2)
) b order by b.id;

-- name: gates
-- The beginnings and ends of the groups of a job that no definition has; an end is named as its group.
select t.id, t.handler::text as handler, t.node from weft.task t
where t.org_id = $1 and t.job_id = $2 and t.handler in ('@open', '@close')
union all
select d.id, d.handler, d.node from weft.task_done d
where d.org_id = $1 and d.job_id = $2 and d.handler in ('@open', '@close');

-- name: ways
-- What leads to or from tasks.
select e.prev, e.next from weft.edge e where e.org_id = $1 and e.prev = any ($2)
union select e.prev, e.next from weft.edge e where e.org_id = $1 and e.next = any ($2);

-- name: items
-- A page of the tasks that a node of a job has made, in the order of its items.
select c.id, c.item, c.state, c.reason, c.attempt, c.claimed_at, c.ended_at, c.error from (
  (select t.id, t.item, t.state::text as state, t.reason, t.attempt::int as attempt, t.claimed_at, null::timestamptz as ended_at,
     case when t.failures > 0 then (
       select a.error from weft.attempt a where a.task_id = t.id order by a.attempt desc limit 1) end as error
   from weft.task t where t.org_id = $1 and t.job_id = $2 and t.parent_id = $3 and t.item > $4 order by t.item limit $5)
  union all
  (select d.id, d.item, d.state::text, d.reason, d.attempt::int, d.claimed_at, d.ended_at, d.error
   from weft.task_done d where d.org_id = $1 and d.job_id = $2 and d.parent_id = $3 and d.item > $4 order by d.item limit $5)
) c order by c.item limit $5;
