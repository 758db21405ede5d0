"""The invariants as SQL: each statement returns the rows that break one, in any committed state.

They hold while workers work, not only when all is quiet, so a test may ask at any moment.
"""

from __future__ import annotations

from collections import defaultdict

import asyncpg
import orjson

from crash.job_laws import JOB_LAWS, STEPS
from crash.ledger import Ledger, Span

# Every task with its org, whether it has ended or not.
TASKS = "(select id, org_id from weft.task union all select id, org_id from weft.task_done)"
# Law and statement: a row that comes back is a breach.
QUEUE_LAWS = {
    "S2: a task is either live or ended, never both": """
        select t.id, t.state::text, d.state::text as ended from weft.task t join weft.task_done d on d.id = t.id""",
    "S2: what is live is not final, what has ended is": """
        select t.id, t.state::text from weft.task t
        where t.state in ('completed', 'failed', 'dead', 'skipped', 'cancelled')
        union all
        select d.id, d.state::text from weft.task_done d
        where d.state not in ('completed', 'failed', 'dead', 'skipped', 'cancelled')""",
    "S2: an attempt that was accepted is not recorded as one that did not complete": """
        select d.id, d.attempt, a.outcome from weft.task_done d
        join weft.attempt a on a.task_id = d.id and a.attempt = d.attempt where d.state = 'completed'""",
    "S3: no attempt is recorded beyond the last that was granted": """
        select a.task_id, a.attempt, t.attempt as granted from weft.attempt a
        join (select id, attempt from weft.task union all select id, attempt from weft.task_done) t on t.id = a.task_id
        where a.attempt > t.attempt or a.attempt < 1""",
    "S3: an attempt that is under way has no outcome yet": """
        select t.id, t.attempt, a.outcome from weft.task t
        join weft.attempt a on a.task_id = t.id and a.attempt = t.attempt where t.state = 'running'""",
    "S4: what runs is held by exactly one worker, and nothing else is held": """
        select t.id, t.state::text, t.worker_id from weft.task t
        where (t.state in ('running', 'claimed', 'dispatched')) <> (t.worker_id is not null)""",
    "S4: whoever holds a task is alive, or known to be lost and not rescued yet": """
        select t.id, t.state::text, t.worker_id, w.state::text as worker, w.rescued_at from weft.task t
        left join weft.worker w on w.id = t.worker_id
        where t.worker_id is not null
          and (w.id is null or w.state = 'stopped' or w.state = 'lost' and w.rescued_at is not null)""",
    # What waited outside of any attempt fails without one, when the answer is no.
    "S5: a task that ended without success has a record of its last attempt": """
        select d.id, d.state::text, d.attempt from weft.task_done d
        where d.state in ('failed', 'dead') and d.handler not in ('@wait', '@workflow') and not exists (
          select 1 from weft.attempt a where a.task_id = d.id and a.attempt = d.attempt)""",
    "S8: failures and crashes equal the recorded attempts": """
        select t.id, t.failures, t.crashes, a.failures as recorded_failures, a.crashes as recorded_crashes
        from (select id, failures, crashes, generation from weft.task
              union all select id, failures, crashes, generation from weft.task_done) t
        cross join lateral (
          select count(*) filter (where outcome in ('failed', 'crashed')) as failures,
                 count(*) filter (where outcome in ('lost', 'crashed')) as crashes
          from weft.attempt where task_id = t.id) a
        where t.generation = 0 and (t.failures <> a.failures or t.crashes <> a.crashes)""",
    "S8: nothing fails more often than it may": """
        select id, failures, max_attempts from weft.task_done where failures > max_attempts""",
    "S8: a key's slots equal the tasks that it admitted": """
        select coalesce(s.queue_id, n.queue_id) as queue_id, coalesce(s.key, n.key) as key, s.held, n.tasks
        from weft.key_slot s full join (
          select queue_id, concurrency_key as key, count(*) as tasks from weft.task
          where concurrency_key is not null and state in ('ready', 'dispatched', 'claimed', 'running', 'waiting')
          group by 1, 2
        ) n on n.queue_id = s.queue_id and n.key = s.key
        where coalesce(s.held, 0) <> coalesce(n.tasks, 0)""",
    "S8: no key has more tasks than it may have": """
        select s.queue_id, s.key, s.held, coalesce(s.max_running, q.max_running_per_key) as most
        from weft.key_slot s join weft.queue q on q.id = s.queue_id
        where s.held > coalesce(s.max_running, q.max_running_per_key)""",
    "S8: no more slots of a queue are leased than it has": """
        select q.id, q.name, q.max_running, sum(s.slots) as leased from weft.queue q
        join weft.queue_slot s on s.queue_id = q.id where q.max_running is not null
        group by q.id having sum(s.slots) > q.max_running""",
    "S8: slots of a queue are leased to workers that live, or wait to be rescued": """
        select s.*, w.state::text from weft.queue_slot s left join weft.worker w on w.id = s.worker_id
        where s.slots > 0 and (w.id is null or w.state = 'stopped' or w.state = 'lost' and w.rescued_at is not null)""",
    "S8: no more tasks of a limited queue run than it allows": """
        select q.id, q.name, q.max_running, count(*) as running from weft.queue q
        join weft.task t on t.queue_id = q.id and t.state = 'running'
        where q.max_running is not null group by q.id having count(*) > q.max_running""",
    "S8: waiting_on equals the edges from tasks that have not ended": """
        select t.id, t.state::text, t.waiting_on, e.n from weft.task t
        cross join lateral (
          select count(*) as n from weft.edge e join weft.task p on p.id = e.prev where e.next = t.id
        ) e where t.job_id is null and t.waiting_on <> e.n""",
    "S6: nothing is ready or running that waits for another": """
        select t.id, t.state::text, t.waiting_on from weft.task t
        where t.waiting_on > 0 and t.state not in ('pending', 'scheduled')""",
    "S9: a task belongs to the org of its queue and of its worker": """
        select t.id, t.org_id from (
          select id, org_id, queue_id, worker_id from weft.task
          union all select id, org_id, queue_id, worker_id from weft.task_done) t
        left join weft.queue q on q.id = t.queue_id left join weft.worker w on w.id = t.worker_id
        where q.id is null or q.id <> 2 and q.id > 0 and (q.org_id <> t.org_id or w.org_id <> t.org_id)""",
    "S9: an attempt belongs to the org of its task and of its worker": f"""
        select a.task_id, a.attempt, a.org_id from weft.attempt a
        left join {TASKS} t on t.id = a.task_id
        left join weft.worker w on w.id = a.worker_id
        where t.org_id <> a.org_id or w.org_id <> a.org_id""",
    "S9: what is told of a task is told of its job": """
        select r.task_id, r.job_id from (
          select task_id, job_id from weft.attempt union all select task_id, job_id from weft.step) r
        join (select id, job_id from weft.task union all select id, job_id from weft.task_done) t on t.id = r.task_id
        where t.job_id is distinct from r.job_id""",
    "S9: params kept beside a task belong to its org": f"""
        select p.id, p.org_id from weft.task_params p
        join {TASKS} t on t.id = p.id
        where t.org_id <> p.org_id""",
    "S9: an edge joins tasks of its own org": f"""
        select e.prev, e.next, e.org_id from weft.edge e
        join {TASKS} t on t.id in (e.prev, e.next)
        where t.org_id <> e.org_id""",
    "S9: an idempotency key belongs to the org of its task": f"""
        select k.key, k.task_id, k.org_id from weft.idempotency_key k
        join {TASKS} t on t.id = k.task_id
        where t.org_id <> k.org_id""",
    "S9: blobs and logs of a task are kept in its org": f"""
        select r.task_id, r.org_id from (
          select task_id, org_id from weft.task_blob union all select task_id, org_id from weft.task_log) r
        join {TASKS} t on t.id = r.task_id
        where t.org_id <> r.org_id""",
    "S9: slots belong to the org of their queue, and of the worker that holds them": """
        select s.queue_id, s.worker_id, s.key, s.org_id from (
          select queue_id, null::bigint as worker_id, key, org_id from weft.key_slot
          union all select queue_id, worker_id, null, org_id from weft.queue_slot) s
        join weft.queue q on q.id = s.queue_id left join weft.worker w on w.id = s.worker_id
        where q.org_id <> s.org_id or w.org_id <> s.org_id""",
    "S9: a worker serves queues of its own org": """
        select w.id, w.org_id, q.id as queue_id from weft.worker w
        join weft.queue q on q.id = any (w.queues) where q.org_id <> w.org_id and q.id <> 2 and q.id > 0""",
    # A row of another org than the effect's is no answer to it, and neither is a key without its task.
    "S7: an effect that is done has its task, in its own org": f"""
        select o.id, o.org_id, o.payload::text from weft.outbox o
        where o.state = 'done' and o.kind = 'enqueue_task' and not exists (
          select 1 from weft.idempotency_key k
          join {TASKS} t on t.id = k.task_id
          where k.org_id = o.org_id and t.org_id = o.org_id and k.handler = o.payload ->> 'handler'
            and k.key = coalesce(nullif(o.payload ->> 'idempotency_key', ''), 'outbox-' || o.id))""",
    # Of a job also what is parked while it is paused, and what the engine is about to skip or to sweep away.
    "L2: nothing is pending that waits for nothing": f"""
        select t.id, t.reason, t.waiting_on from weft.task t left join weft.job j on j.id = t.job_id
        where t.state = 'pending' and t.waiting_on = 0 and t.reason is distinct from 'concurrency_key'
          and not (j.id is not null and (j.state in ('paused', 'cancelling') or exists (
            select 1 from weft.task s where s.job_id = j.id and s.handler in {STEPS})))""",
    "L2: nothing waits for a slot that is free": """
        select t.id, s.held, coalesce(s.max_running, q.max_running_per_key) as most from weft.task t
        join weft.queue q on q.id = t.queue_id
        left join weft.key_slot s on s.queue_id = t.queue_id and s.key = t.concurrency_key
        where t.state = 'pending' and t.reason = 'concurrency_key'
          and coalesce(s.held, 0) < coalesce(s.max_running, q.max_running_per_key, 2147483647)""",
    "L2: what is scheduled has a time, and nothing else has": """
        select t.id, t.state::text, t.due_at from weft.task t
        where (t.state = 'scheduled') <> (t.due_at is not null)""",
    "S1: the task of an idempotency key exists": """
        select k.key, k.task_id from weft.idempotency_key k
        where not exists (select 1 from weft.task t where t.id = k.task_id)
          and not exists (select 1 from weft.task_done d where d.id = k.task_id)""",
}

INVARIANTS = QUEUE_LAWS | JOB_LAWS


async def breaches(conn: asyncpg.Connection[asyncpg.Record]) -> dict[str, list[dict[str, object]]]:
    """Return what breaks the invariants in one snapshot, by law; empty when all hold."""
    found = {}
    async with conn.transaction(isolation="repeatable_read", readonly=True):
        for law, statement in INVARIANTS.items():
            rows = await conn.fetch(f"{statement} limit 5")
            if rows:
                found[law] = [dict(row) for row in rows]
    return found


async def check(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Assert that every invariant holds."""
    found = await breaches(conn)
    assert not found, found


async def check_outcomes(conn: asyncpg.Connection[asyncpg.Record], ledger: Ledger) -> dict[str, int]:
    """Compare the database, in which nothing is open any more, with the ledger; return how many ended in each state.

    Every acknowledged task has ended, once. The attempt that was accepted is one that ran to its end in the process
    that its output names, and it is the last that was granted.
    """
    await check(conn)
    left = await conn.fetch("select id, state::text, reason, worker_id, attempt from weft.task limit 5")
    assert left == [], f"{len(left)} tasks or more are still open: {left}"
    # What the engine itself carries out has no part in the ledger.
    rows = await conn.fetch("select id, state::text, attempt, output from weft.task_done where handler not like '@%'")
    ended = {row["id"]: row for row in rows}
    assert len(ended) == len(rows)
    lost = ledger.acknowledged - ended.keys()
    assert not lost, f"{len(lost)} acknowledged tasks are lost, such as {sorted(lost)[:5]}"
    assert ledger.granted_twice() == []
    ran: dict[tuple[int, int], list[Span]] = defaultdict(list)
    latest: dict[int, int] = {}
    for span in ledger.spans:
        ran[span.task_id, span.attempt].append(span)
        latest[span.task_id] = max(latest.get(span.task_id, 0), span.attempt)
    counts: dict[str, int] = {}
    for task_id, row in ended.items():
        counts[row["state"]] = counts.get(row["state"], 0) + 1
        assert latest.get(task_id, 0) <= row["attempt"], f"task {task_id}: an attempt ran after the accepted one"
        if row["state"] != "completed":
            continue
        tries = ran[task_id, row["attempt"]]
        assert tries, f"task {task_id}: the accepted attempt {row['attempt']} never ran"
        ends = [{"attempt": span.attempt, "pid": span.pid} for span in tries if span.ended is not None]
        assert ends, f"task {task_id}: the accepted attempt {row['attempt']} never ended"
        assert orjson.loads(row["output"]) in ends
    return counts
