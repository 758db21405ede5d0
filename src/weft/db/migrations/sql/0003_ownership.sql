-- name: control_queue
-- Where a job's next control step waits: in its owner's queue, or, while it has none, in that of all orchestrators.
create function weft.control_queue(job bigint) returns bigint language sql stable as $$
  select coalesce((select -j.owner_id from weft.job j where j.id = job), 2)
$$;

-- name: lasting_queue
-- Where a step is said to have been that never began: the queue of an owner goes with it.
create function weft.lasting_queue(queue bigint) returns bigint language sql immutable as $$ select case when queue < 0 then 2 else queue end $$;

-- name: hand_over
-- Gives the jobs of an orchestrator that is gone, and their steps that are ready, to an heir, or to whoever claims next;
-- returns how many jobs and steps that were. What somebody has locked is handed over the next time.
create function weft.hand_over(gone bigint, heir bigint, room int) returns int language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare jobs bigint[]; steps bigint[];
begin
  -- In no order, which would be read from all jobs: nobody is waited for.
  jobs := array(select j.id from weft.job j where j.owner_id = gone limit room for no key update skip locked);
  update weft.job j set owner_id = heir where j.id = any (jobs);
  if heir is not null then
    perform weft.note_event(j.org_id, j.id, 'job.adopted', j.state::text,
      json_build_object('owner_id', heir::text, 'former_id', gone::text)) from weft.job j where j.id = any (jobs);
  end if;
  steps := array(
    select t.id from weft.task t where t.state = 'ready' and t.queue_id = -gone
    order by t.rank, t.order_id, t.id limit room for no key update skip locked);
  update weft.task t set queue_id = coalesce(-heir, 2) where t.id = any (steps);
  if cardinality(steps) > 0 then
    perform weft.hint_one(coalesce(-heir, 2));
  end if;
  return cardinality(jobs) + cardinality(steps);
end $$;

-- name: adopt_jobs
-- Takes over jobs of orchestrators whose lease has lapsed or who have left; returns how many. The queue of one goes with its
-- row in the registry: until then a step may come that somebody released who had read the job before.
create function weft.adopt_jobs(me bigint, room int) returns int language plpgsql as $$
declare gone bigint; count int := 0;
begin
  for gone in
    select -q.id from weft.queue q where q.id < 0 and not exists (
      select 1 from weft.worker w where w.id = -q.id and w.state in ('active', 'idle') and w.until > weft.now())
  loop
    count := count + weft.hand_over(gone, me, room);
    delete from weft.queue q where q.id = -gone and not exists (select 1 from weft.worker w where w.id = gone)
      and not exists (select 1 from weft.task t where t.state = 'ready' and t.queue_id = -gone)
      and not exists (select 1 from weft.job j where j.owner_id = gone);
  end loop;
  return count;
end $$;
