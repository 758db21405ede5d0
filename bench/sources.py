"""What comes to sources: a thousand that are due in the same minute, and events one after the other."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import datetime, timedelta

import asyncpg

import weft
from bench.place import child_process, fresh_database, worker_process
from bench.queue import Inbox, percentile, raw_pick_up
from bench.report import Figure

GIVEN_UP_S = 120.0
LOOK_S = 0.2
CONCURRENCY = 100
AHEAD = timedelta(seconds=4)
_BATCH = 500
MAKE = """
    with dag as (
      insert into weft.live_dag (org_id, name, actor) values (1, 'bench', 'bench') returning id
    ), job as (
      insert into weft.live_job (org_id, dag_id, name, config_hash, activation, runtime, operator, handler,
        queue_id, document, max_concurrency, max_backlog, max_attempts, actor)
      select 1, d.id, 'j' || n, 'h', 'source', 'worker', 'bench', $5, 1, '{}', $2, $3, 3, 'bench'
      from dag d cross join generate_series(1, $1::int) n returning id, name
    )
    insert into weft.live_source (live_job_id, org_id, kind, is_listening)
    select id, 1, $4, false from job"""
LISTEN = """
    update weft.live_source s set is_listening = true, cron = '* * * * *', anchor = weft.now(), catch_up = 'latest',
      timezone = (array['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Tokyo'])[1 + s.live_job_id % 4],
      next_at = date_trunc('minute', weft.now() + $1)
    returning next_at"""
HEAR = """
    update weft.live_source s set is_listening = true, event = j.name from weft.live_job j where j.id = s.live_job_id"""
ROUTED = """
    select sum(j.completed) + (select count(*) from weft.live_unit u where u.state in ('running', 'done')) = $1
    from weft.live_job j"""
BEGUN = """
    select count(*) as tasks, count(distinct p.params ->> 'live_job') as jobs,
      extract(epoch from max(t.claimed_at) - $1)::float8 as lasted
    from weft.task_params p join weft.task_done t on t.id = p.id where p.params -> 'unit' -> 'said' ->> 'at' = $2"""


async def measure_ticks(server: str, count: int, repeat: int) -> list[Figure]:
    """From the tick that all of them have to when the last of their tasks has begun; each must have exactly one."""
    runs = []
    for _ in range(repeat):
        async with fresh_database(server) as url:
            runs.append(await _ticked(url, count))
    return [
        Figure(f"{count:,} cron sources due in the same minute, all started", statistics.median(runs), "s", "<= 3 s",
               max(runs) <= 3, f"at most {max(runs):.2f} s", runs),
    ]  # fmt: skip


async def _ticked(url: str, count: int) -> float:
    conn = await asyncpg.connect(url)
    try:
        await conn.execute(MAKE, count, 1, 100, "cron", "bench:unit")
        async with worker_process(url, CONCURRENCY), child_process("bench.orchestrator", url):
            tick: datetime = await conn.fetchval(LISTEN, timedelta(minutes=1) + AHEAD)
            await asyncio.sleep((tick - await conn.fetchval("select weft.now()")).total_seconds())
            deadline = time.monotonic() + GIVEN_UP_S
            while time.monotonic() < deadline:
                (row,) = await conn.fetch(BEGUN, tick, tick.isoformat())
                if row["tasks"] >= count:
                    assert row["jobs"] == row["tasks"] == count, row
                    return float(row["lasted"])
                await asyncio.sleep(LOOK_S)
            raise TimeoutError(f"of {count} sources {row['tasks']} have begun")
    finally:
        await conn.close()


async def measure_events(server: str, count: int, repeat: int) -> list[Figure]:
    """From the first event that is sent to when the last is a task, with a worker that does them; four names."""
    runs = []
    for _ in range(repeat):
        async with fresh_database(server) as url:
            runs.append(count / await _sent(url, count))
    return [
        Figure(f"{count:,} events sent and routed to tasks", statistics.median(runs), "/s", ">= 5000 /s",
               min(runs) >= 5000, f"at least {min(runs):,.0f} /s", runs),
    ]  # fmt: skip


async def _sent(url: str, count: int) -> float:
    conn = await asyncpg.connect(url)
    try:
        await conn.execute(MAKE, 4, 10_000, 20_000, "event", "bench:unit")
        await conn.execute(HEAR)
        async with (
            worker_process(url, CONCURRENCY),
            child_process("bench.orchestrator", url),
            weft.Client(url) as client,
        ):
            began = time.perf_counter()

            async def send(name: str) -> None:
                for first in range(0, count // 4, _BATCH):
                    events = [weft.NewEvent(name, {"n": n}) for n in range(first, min(first + _BATCH, count // 4))]
                    while True:
                        try:
                            await client.jobs.send_events(events)
                            break
                        except weft.SourceFull:
                            await asyncio.sleep(0.05)

            await asyncio.gather(*(send(f"j{number}") for number in range(1, 5)))
            deadline = time.monotonic() + GIVEN_UP_S
            while time.monotonic() < deadline:
                if await conn.fetchval(ROUTED, count // 4 * 4):
                    return time.perf_counter() - began
                await asyncio.sleep(0.02)
            raise TimeoutError(f"{count} events are not all tasks")
    finally:
        await conn.close()


async def measure_reaction(server: str, samples: int) -> list[Figure]:
    """One event at a time on an idle system: from before it is sent to when the task that it causes has started."""
    async with fresh_database(server) as url:
        bare = await raw_pick_up(url, samples)
        found = await _reactions(url, samples)
    p50 = statistics.median(found)
    return [
        Figure("event sent, a live job's task started, p50", p50, "ms", "<= 10 ms", p50 <= 10,
               f"raw insert and pick-up {statistics.median(bare):.2f} ms; p99 {percentile(found, 0.99):.2f} ms"),
    ]  # fmt: skip


async def _reactions(url: str, samples: int) -> list[float]:
    conn = await asyncpg.connect(url)
    try:
        await conn.execute(MAKE, 1, 10, 100, "event", "bench:stamp_unit")
        await conn.execute(HEAR)
    finally:
        await conn.close()
    inbox = Inbox()
    async with (
        worker_process(url, 10, BENCH_INBOX=inbox.path),
        child_process("bench.orchestrator", url),
        weft.Client(url) as client,
    ):
        return await inbox.latencies(samples, lambda sent: client.jobs.send_event("j1", {"sent": sent}))
