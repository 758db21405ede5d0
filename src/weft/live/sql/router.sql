-- name: due
-- Live jobs that have something to do: units that are new or done, or may begin; inputs that were written; a slice that is
-- over. Whoever is thorough looks for tasks that ended without a word, or were sent round again, and for what failed of a partition
-- that has been written anew.
select j.id from weft.live_job j where j.state <> 'stopped' and (
  j.state = 'draining'
  or exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.state in ('new', 'done'))
  or $2::boolean and (
    exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.state = 'running'
      and not exists (select 1 from weft.task t where t.id = u.task_id))
    or exists (select 1 from weft.live_unit u join weft.task t on t.id = u.task_id where u.live_job_id = j.id and u.state = 'held')
    or j.strategy = 'partition' and exists (select 1 from weft.live_unit h where h.live_job_id = j.id and h.state = 'held'
      and exists (select 1 from weft.live_unit n where n.live_job_id = j.id and n.lane = h.lane and n.id > h.id)))
  or j.paused_at is null and exists (select 1 from weft.live_dag d where d.id = j.dag_id and d.paused_at is null) and (
    exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.state = 'ready' and (u.run_at is null or u.run_at <= weft.now()))
      and (select count(*) from weft.live_unit u where u.live_job_id = j.id and u.state = 'running') < j.max_concurrency
    or exists (
      select 1 from weft.live_input i join weft.dataset d on d.id = i.dataset_id left join weft.dataset_version v on v.id = i.version_id
      where i.live_job_id = j.id and (not i.is_internal and d.current_id is distinct from i.version_id
        or v.id is not null and (i.routed_write is null or v.last_write > i.routed_write)))
    or exists (
      select 1 from weft.live_source s where s.live_job_id = j.id and s.kind in ('continuous', 'files')
        and not exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.lane = '' and u.kind = 'slice'))
    or j.state = 'running' and j.idle_after <= weft.now() - coalesce(j.last_active_at, j.created_at)
      and j.activation = 'reactive'
      and not exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.state = 'running')))
order by random() limit $1;

-- name: turn
select begun, is_more from weft.turn_live_job($1, $2, $3);

-- name: turn_together
-- A turn of each of several jobs, and those that have more to do.
select coalesce(sum(t.begun), 0)::int as begun, coalesce(array_agg(j.id) filter (where t.is_more), '{}') as left
from unnest($1::bigint[]) as j (id) cross join lateral weft.turn_live_job(j.id, $2, $3) t;

-- name: next_at
-- When the next unit may begin that rests, or the next job is idle; one that works or is paused will not be, however long ago its
-- time has come.
select least(
  (select min(u.run_at) from weft.live_unit u where u.state = 'ready' and u.run_at > weft.now()),
  (select min(coalesce(j.last_active_at, j.created_at) + j.idle_after) from weft.live_job j
   where j.state = 'running' and j.activation = 'reactive' and j.paused_at is null
     and exists (select 1 from weft.live_dag d where d.id = j.dag_id and d.paused_at is null)
     and not exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.state = 'running'))
) - weft.now();
