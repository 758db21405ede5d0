"""The invariants of jobs as SQL, beside those of the queue: a row that comes back is a breach."""

from __future__ import annotations

# The steps by which the engine does something about a job; all others are its nodes.
STEPS = "('@fail', '@skip', '@sweep')"
FINAL = "('completed', 'failed', 'cancelled')"
# Of each task of a job that goes on: how many are live that lead to it, the items of fan-outs with them; and how
# many have failed such that the engine has yet to hear of it.
LEADING = f"""
  select t.id, t.job_id, t.handler, t.state::text as state, t.waiting_on,
    coalesce(l.n, 0) as live, coalesce(f.n, 0) as failed,
    t.job_id in (select s.job_id from weft.task s where s.handler in {STEPS}) as is_seen_to
  from weft.task t join weft.job j on j.id = t.job_id and j.state <> 'cancelling'
  left join (
    select e.next, count(*) as n from (
      select p.id from weft.task p union all select c.counts_for from weft.task c where c.counts_for is not null) p
    join weft.edge e on e.prev = p.id group by 1
  ) l on l.next = t.id
  left join (
    select e.next, count(*) as n from weft.task s join weft.task_done p on p.id = (s.params ->> 'id')::bigint
    join weft.edge e on e.prev in (p.id, p.counts_for)
    where s.handler = '@fail' and s.params ->> 'counted' is null group by 1
  ) f on f.next = t.id
  where t.handler not in {STEPS}"""

JOB_LAWS = {
    "S2: a job is either live or ended, never both": """
        select j.id, j.state::text, d.state::text as ended from weft.job j join weft.job_done d on d.id = j.id""",
    "S2: a job that is live is not final, one that has ended is": f"""
        select j.id, j.state::text from weft.job j where j.state in {FINAL}
        union all
        select d.id, d.state::text from weft.job_done d where d.state not in {FINAL}""",
    "S2: there is one task for each item of a fan_out": """
        select t.parent_id, t.item, count(*) from (
          select parent_id, item from weft.task union all select parent_id, item from weft.task_done) t
        where t.item is not null group by 1, 2 having count(*) > 1""",
    "S1: a job that is live has its end": """
        select j.id, j.end_id from weft.job j
        where not exists (
          select 1 from weft.task t where t.id = j.end_id and t.job_id = j.id and t.handler = '@end')""",
    "S5: nothing is left of a job that has ended, but steps that find nothing to do": f"""
        select t.id, t.job_id, t.handler, t.state::text from weft.task t
        where t.job_id is not null and not exists (select 1 from weft.job j where j.id = t.job_id)
          and (t.handler not in {STEPS} or t.state in ('pending', 'waiting'))""",
    "S5: a job that has ended has one end, which has ended": """
        select d.id, d.end_id from weft.job_done d
        where not exists (select 1 from weft.task_done t where t.id = d.end_id and t.job_id = d.id)""",
    "S6: nothing of a job that has not begun has begun": """
        select j.id, t.id as task_id, t.state::text from weft.job j join weft.task t on t.job_id = j.id
        where j.state = 'pending' and (t.attempt > 0 or j.started_at is not null)""",
    "S8: what waits in a job waits for those that have not ended, or of which the engine has yet to hear": f"""
        select * from ({LEADING}) w where w.waiting_on <> w.live + w.failed""",
    "L2: nothing of a job waits for what cannot happen": f"""
        select * from ({LEADING}) w
        where w.state = 'pending' and w.waiting_on > 0 and w.live = 0 and not w.is_seen_to""",
    "L2: what is parked is of a job that is paused": """
        select t.id, t.job_id, j.state::text from weft.task t left join weft.job j on j.id = t.job_id
        where t.reason = 'job_paused' and t.state = 'pending'
          and coalesce(j.state, 'pending') not in ('paused', 'cancelling')""",
    "L2: a job that is cancelling is swept by somebody, or its end can be reached": f"""
        select j.id, j.verdict::text, e.state::text as ending from weft.job j join weft.task e on e.id = j.end_id
        where j.state = 'cancelling' and (j.verdict is null or not exists (
            select 1 from weft.task s
            where s.job_id = j.id and s.handler in ('@fail', '@sweep') and s.state <> 'pending')
          and (e.state = 'pending' or exists (
            select 1 from weft.task t where t.job_id = j.id and t.id <> j.end_id and t.handler not in {STEPS})))""",
    "L2: what is in the state waiting is waited for: an answer, or a job": """
        select t.id, t.job_id from weft.task t where t.state = 'waiting'
          and not exists (select 1 from weft.awaited a where a.task_id = t.id)
          and not exists (select 1 from weft.job j where j.parent_id = t.id)""",
    "L2: an answer is awaited by a task that waits, and a job by one that does or was swept away": """
        select a.task_id, a.job_id, t.state::text from weft.awaited a left join weft.task t on t.id = a.task_id
        where t.state is distinct from 'waiting'
        union all
        select j.parent_id, j.id, t.state::text from weft.job j left join weft.task t on t.id = j.parent_id
        where j.parent_id is not null and j.state <> 'cancelling' and t.state is distinct from 'waiting'""",
    "S4: the queue of an owner holds steps of jobs that wait, and nothing else": """
        select t.id, t.queue_id, t.handler, t.state::text from weft.task t
        where t.queue_id < 0 and (t.state not in ('ready', 'pending') or t.handler not like '@%' or t.job_id is null)
        union all
        select d.id, d.queue_id, d.handler, d.state::text from weft.task_done d where d.queue_id < 0""",
    "S8: the task by which a job failed is one of its own that failed": """
        select j.id, j.failed_id, d.state::text from (
          select id, failed_id from weft.job union all select id, failed_id from weft.job_done) j
        left join weft.task_done d on d.id = j.failed_id
        where j.failed_id is not null
          and (d.job_id is distinct from j.id or d.state not in ('failed', 'dead', 'cancelled'))""",
    "S9: a job belongs to the org of its tasks": """
        select t.id, t.org_id, j.id as job_id, j.org_id as job_org from (
          select id, org_id, job_id from weft.task union all select id, org_id, job_id from weft.task_done) t
        join (select id, org_id from weft.job union all select id, org_id from weft.job_done) j on j.id = t.job_id
        where j.org_id <> t.org_id""",
}
