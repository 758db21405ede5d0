"""A thousand schedules that are due in the same minute: how long until all of their jobs have started."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import datetime, timedelta

import asyncpg

import weft
from bench.place import child_process, fresh_database, worker_process
from bench.report import Figure

GIVEN_UP_S = 120.0
LOOK_S = 0.2
CONCURRENCY = 100
AHEAD = timedelta(seconds=4)
FLOW = {
    "workflow_id": "begun",
    "nodes": {
        "START": {"type": "start", "next": "work"},
        "work": {"type": "task", "handler": "bench:noop", "next": "END"},
        "END": {"type": "end"},
    },
}


async def measure_schedules(server: str, count: int, repeat: int) -> list[Figure]:
    """From the tick that all of them have to when the last of their jobs has started; each must have exactly one."""
    raw, runs = [], []
    for _ in range(repeat):
        async with fresh_database(server) as url, weft.Client(url) as client:
            await client.workflows.push(FLOW)
            raw.append(await _submitted(client, count))
        async with fresh_database(server) as url, weft.Client(url) as client:
            runs.append(await _ticked(url, client, count))
    found, bare = statistics.median(runs), statistics.median(raw)
    return [
        Figure(f"{count:,} cron schedules due in the same minute, all started", found, "s", "<= 3 s", max(runs) <= 3,
               f"submitting as many jobs one by one, four at once, {bare:.2f} s; at most {max(runs):.2f} s", runs),
    ]  # fmt: skip


async def _submitted(client: weft.Client, count: int) -> float:
    """Return how long a client takes to submit as many jobs."""
    turn = asyncio.Semaphore(4)

    async def submit() -> None:
        async with turn:
            await client.jobs.submit("begun")

    await submit()
    began = time.perf_counter()
    await asyncio.gather(*(submit() for _ in range(count)))
    return time.perf_counter() - began


async def _ticked(url: str, client: weft.Client, count: int) -> float:
    await client.workflows.push(FLOW)
    for number in range(count):
        zone = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")[number % 4]
        await client.schedules.add("begun", name=f"s{number}", cron="* * * * *", timezone=zone)
        await client.schedules.pause(f"s{number}")
    conn = await asyncpg.connect(url)
    try:
        async with worker_process(url, CONCURRENCY), child_process("bench.orchestrator", url):
            tick: datetime = await conn.fetchval(
                "update weft.schedule set paused_at = null, next_at = date_trunc('minute', weft.now() + $1)"
                " returning next_at",
                timedelta(minutes=1) + AHEAD,
            )  # fmt: skip
            begun = """
                select count(*) as jobs, count(distinct labels ->> 'schedule') as names, count(started_at) as started,
                  extract(epoch from max(started_at) - $1)::float8 as lasted
                from weft.jobs where labels ->> 'tick' = $2"""
            await asyncio.sleep((tick - await conn.fetchval("select weft.now()")).total_seconds())
            deadline = time.monotonic() + GIVEN_UP_S
            while time.monotonic() < deadline:
                (row,) = await conn.fetch(begun, tick, tick.isoformat())
                if row["started"] == count:
                    assert row["jobs"] == row["names"] == count, row
                    return float(row["lasted"])
                await asyncio.sleep(LOOK_S)
            raise TimeoutError(f"of {count} jobs {row['started']} have started")
    finally:
        await conn.close()
