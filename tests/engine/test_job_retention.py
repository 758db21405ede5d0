"""What is left of jobs past the retention: nothing of those that ended, everything of those that are open."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg
import pytest
from engine_scene import Clock, until
from job_scene import Handlers, at_work, flow

import weft
from weft.core.settings import Settings
from weft.db.database import ensure_partitions
from weft.queue.services import Pruner

pytestmark = pytest.mark.own_database

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
TABLES = ("job", "job_done", "job_event", "edge", "awaited", "event", "task", "task_done", "attempt")
WAIT = {"type": "wait", "for": "event", "event": "file.arrived", "match": {"day": 3}}


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


async def _counts(conn: Connection) -> dict[str, int]:
    return {name: await conn.fetchval(f"select count(*) from weft.{name}") for name in TABLES}


async def _prune(client: weft.Client) -> None:
    pruner = Pruner(client.database, Settings.load(environ={}, retention="30d"))
    for _ in range(11):
        await pruner.run_once()


async def test_nothing_is_left_of_jobs_that_ended_long_ago(
    client: weft.Client, handlers: Handlers, clock: Clock, conn: Connection
) -> None:
    each = {"type": "fan_out", "items": [1, 2], "task": {"handler": "say"}, "next": "END"}
    async with at_work(client, handlers):
        done = await client.jobs.submit(flow(each=each, END={"type": "end"}))
        await client.jobs.wait(done.id, timeout=30)
        waiting = await client.jobs.submit(flow(first=WAIT))
        await until(lambda: conn.fetchval("select exists (select 1 from weft.awaited)"))
        await client.jobs.send_event("file.arrived", {"day": 4})
        await client.jobs.cancel(waiting.id)
        await client.jobs.wait(waiting.id, timeout=30)
        assert (await _counts(conn))["awaited"] == 0, "what is swept away waits for nothing any more"
    await _prune(client)
    before = await _counts(conn)
    assert (before["job_done"], before["event"]) == (2, 1)
    assert min(before["edge"], before["job_event"], before["task_done"]) > 0
    await clock.advance(days=40)
    await conn.fetchval("select weft.ensure_partitions()")
    await _prune(client)
    assert await _counts(conn) == dict.fromkeys(TABLES, 0)


async def test_an_open_job_keeps_all_that_it_needs(
    client: weft.Client, handlers: Handlers, clock: Clock, conn: Connection
) -> None:
    """Also an event that was sent before the node that waits for it is reached."""
    handle = await client.jobs.submit(
        flow(first={"handler": "say", "next": "wait"}, wait={**WAIT, "next": "END"}, END={"type": "end"})
    )
    await client.jobs.pause(handle.id)
    await client.jobs.send_event("file.arrived", {"day": 3})
    before = await _counts(conn)
    await clock.advance(days=40)
    await client.database.run(ensure_partitions)
    await _prune(client)
    assert await _counts(conn) == before
    await conn.execute("update weft.job set timeout_at = null")
    async with at_work(client, handlers):
        await client.jobs.resume(handle.id)
        job = await client.jobs.wait(handle.id, timeout=30)
    assert job.state == "completed"
    events = [event.type for event in (await client.jobs.events(handle.id)).events]
    assert events[:3] == ["job.submitted", "job.paused", "job.resumed"]
    await _prune(client)
    assert (await _counts(conn))["edge"] > 0, "it has ended within the retention"


async def test_edges_that_stay_do_not_hide_those_that_go(client: weft.Client, clock: Clock, conn: Connection) -> None:
    """A page of edges of an open job comes first."""
    old = await client.jobs.submit(flow(first={"handler": "say"}))
    task_id = await conn.fetchval("select min(id) from weft.task where job_id = $1", old.id)
    await conn.execute(
        "insert into weft.edge (prev, next, org_id) select $1::bigint, n, 1 from generate_series(1, 1500) n", task_id
    )
    await conn.execute(
        """insert into weft.edge (prev, next, org_id)
           select $1::bigint + n, $1::bigint + n, 1 from generate_series(1000, 3000) n""",
        task_id,
    )
    await clock.advance(days=40)
    await _prune(client)
    left = await conn.fetch("select distinct prev from weft.edge")
    assert [row[0] for row in left] == [task_id]


async def test_what_is_dropped_of_events_goes_with_its_job(
    client: weft.Client, handlers: Handlers, clock: Clock, conn: Connection
) -> None:
    """They lie in the partition of the day of their job, whenever they happened."""
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    await clock.advance(days=3)
    await client.jobs.pause(handle.id)
    part = await conn.fetchval("select tableoid::regclass::text from weft.job_event")
    day = await conn.fetchval("select to_char((weft.now() - interval '3 days') at time zone 'UTC', 'YYYYMMDD')")
    assert part == f"weft.job_event_{day}"
