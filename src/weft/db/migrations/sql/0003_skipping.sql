-- name: skip_by_step
-- Skips by the step of an orchestrator and its attempt what nothing will reach, up to `room` tasks; returns what is left, and
-- null when the step is no longer theirs. Whoever takes over does so `again`: what was left of it then was known only to who is
-- gone, but nothing else waits for nothing without a reason.
create function weft.skip_by_step(
  me bigint, step bigint, in_attempt int, ids bigint[], why text, again boolean, room int
) returns bigint[] language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare job bigint;
begin
  select t.job_id into job from weft.task t
  where t.id = step and coalesce(t.worker_id, 0) = me and t.attempt = in_attempt and t.state = 'running' for update;
  if not found then
    return null;
  end if;
  if again then
    ids := ids || array(
      select t.id from weft.task t where t.job_id = job and t.state = 'pending' and t.waiting_on = 0
        and t.reason is not distinct from nullif(why, 'branch_not_taken') order by t.id);
  end if;
  return weft.skip_tasks(ids, why, room, '{}');
end $$;
