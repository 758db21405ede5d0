"""What is read to tell how a job or an installation does, beside a hundred thousand other tasks and jobs."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import asyncpg
from guard import Guard, check

from weft.db.statements import Statements

METRICS, WATCHING = Statements("weft.jobs", "sql/metrics.sql"), Statements("weft.jobs", "sql/watching.sql")
UPKEEP, WHY = Statements("weft.queue", "sql/upkeep.sql"), Statements("weft.queue", "sql/why.sql")
CACHE = Statements("weft.queue", "sql/cache.sql")
ROWS = 100_000
LARGE = 2_000_000
# Five hundred jobs of a hundred tasks that have ended, yesterday, and one of fifty thousand, of which every tenth was
# attempted twice and saved a step; twice as many tasks that wait, and one job to look at.
FILL = f"""
  create temp table ended as
    select weft.first_id_at(weft.now() - interval '20 hours') as id, weft.now() - interval '20 hours' as at;
  create temp table open as select weft.first_id_at(weft.now() - interval '19 hours') as id;
  insert into weft.task_done (id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, failures, crashes,
                              generation, handler, claimed_at, job_id, node)
    select b.id + n * 100, 1, 1, b.id + n, b.at, b.at + n * interval '1 ms', 'completed', 1 + (n % 10 = 0)::int, 0, 0, 0, 0, 'h',
      b.at + (n - n % 50) * interval '1 ms', b.id + case when n % 2 = 0 then {LARGE} else n % 1000 end, 'n' || n / 1000
    from generate_series(1, {ROWS}) n, ended b;
  insert into weft.attempt (task_id, attempt, org_id, job_id, outcome, started_at, ended_at)
    select d.id, 1, 1, d.job_id, 'failed', d.claimed_at, d.claimed_at from weft.task_done d where d.attempt = 2;
  insert into weft.step (task_id, name, org_id, job_id, attempt, saved_at, bytes, data)
    select d.id, 'step', 1, d.job_id, 2, d.claimed_at, 1, '1' from weft.task_done d where d.attempt = 2;
  insert into weft.job_done (id, org_id, end_id, created_at, ended_at, state, rank, finishes_independent, started_at, workflow_id,
                             base_kind, inputs)
    select b.id + n, 1, b.id + n, b.at, b.at, 'completed', 0, false, b.at, 'w', 'tag', '{{}}' from generate_series(0, {ROWS}) n, ended b;
  insert into weft.task (id, org_id, queue_id, order_id, state, handler, waiting_on, job_id, node)
    select b.id + n, 1, 1, b.id + n, 'ready', 'h', 0, case when n < 10 then b.id end, 'n' || n
    from generate_series(1, {ROWS}) n, open b;
  insert into weft.edge (prev, next, org_id) select b.id + n, b.id + n + 1, 1 from generate_series(1, {ROWS}) n, open b;
  insert into weft.job_event (job_id, id, org_id, type) select b.id + n % 1000, b.id + n, 1, 'job.paused'
    from generate_series(1, {ROWS}) n, ended b;
  insert into weft.output_cache (org_id, key, handler, task_id, made_at, expires_at, output)
    select 1, sha256(n::text::bytea), 'h' || n % 100, n, weft.now(), case when n % 2 = 0 then weft.now() + interval '1 h' end, '1'
    from generate_series(1, {ROWS}) n;
  insert into weft.task_reuse (task_id, org_id, attempt, handler, node, key, args, cause)
    select b.id + n * 100, 1, 1, 'h', '', sha256((n % 1000)::text::bytea), sha256((n % 10)::text::bytea), 'nothing'
    from generate_series(1, {ROWS}) n, ended b;
"""


async def test_what_is_told_of_one_job_or_of_all_does_not_cost_more_beside_many_others(own_url: str) -> None:
    conn = await asyncpg.connect(own_url)
    try:
        await conn.execute(FILL)
        await conn.execute("analyze")
        for _ in range(2):
            await conn.execute(UPKEEP.count_made)
        assert await conn.fetchval("select sum(count) from weft.tally where name = 'tasks_created'") == 2 * ROWS
        job_id = await conn.fetchval("select max(job_id) from weft.task")
        done_id = await conn.fetchval("select min(id) + 7 from weft.job_done")
        task_id = await conn.fetchval("select min(id) from weft.task")
        first = await conn.fetchval("select timestamptz '2024-01-01Z'")
        large_id, middle = await conn.fetchrow(f"select id + {LARGE}, at + interval '50 s' from ended")
        jobs = [job_id, done_id, large_id]
        month = timedelta(days=30)
        key, args, new = (f"\\x{hashlib.sha256(text).hexdigest()}" for text in (b"7", b"8", b"none"))
        entry = await conn.fetchval("select id from weft.output_cache where task_id = 7")
        guards = [
            Guard("events of a job", WATCHING.events, (1, [job_id], [first], [1000]), 400),
            Guard("events of a job that has ended", WATCHING.events, (1, [done_id], [first], [1000]), 3000, {}, 303),
            Guard("events of a large job", WATCHING.events, (1, [large_id], [first], [1000]), 7000, {}, 1000),
            Guard(
                "events of a large job, in its midst",
                WATCHING.events,
                (1, [large_id], [middle], [1000]),
                7000,
                {},
                1000,
            ),
            Guard("events of three jobs", WATCHING.events, (1, jobs, [first] * 3, [1000] * 3), 10_000, {}, 1304),
            Guard("what the jobs are like", WATCHING.mark_of_jobs, (1,), 300, {}, 1),
            Guard("open tasks of a job", WATCHING.open_tasks, (1, job_id, None, 0, 100), 60, {"task_job": 20}),
            Guard("attempts of a job", WATCHING.attempts, (1, done_id, None, "-infinity", 0, 0, None), 1500),
            Guard("why a task does not run", WHY.why, (1, task_id), 300),
            Guard("totals", METRICS.totals, (1,), 300, {}, 1),
            Guard("times of jobs", METRICS.job_times, (1,), 800, {}, 1),
            Guard("times of tasks", METRICS.task_times, (1,), 800, {}, 1),
            Guard("live workers", METRICS.live_workers, (1,), 20),
            Guard("leases", METRICS.leases, (1,), 20, {}, 1),
            Guard("jobs that have ended", WATCHING.ended_jobs, ([done_id, large_id],), 60),
            Guard("health", METRICS.health, (1,), 30, {}, 1),
            Guard("prune edges", UPKEEP.prune_edges, (month, 0), 30),
            Guard("prune events", UPKEEP.prune_events, (month,), 30),
            Guard("find an output", CACHE.find, (task_id, 1, key, args, month, True), 120, {}, 1),
            Guard("find none of the same params", CACHE.find, (task_id, 1, new, args, month, True), 300, {}, 0),
            Guard("find none of other params", CACHE.find, (task_id, 1, new, new, month, True), 300, {}, 0),
            Guard("drop an output", CACHE.drop, (task_id, entry, 7), 20, {"output_cache_pkey": 1}, 1),
            Guard("prune what was found", CACHE.prune_notes, (month,), 30, {"task_reuse_pkey": 10}, 0),
            Guard("clear those of a handler", CACHE.clear, (1, "h7"), 12_000, {"output_cache_handler": 1000}),
            Guard("prune outputs", CACHE.prune, (month,), 30, {"output_cache_expires": 0, "output_cache_made": 0}, 0),
        ]
        assert await check(conn, guards, "with statistics") == []
    finally:
        await conn.close()
