"""When live jobs have a turn, and when somebody looks for the next: neither too late nor again and again in vain."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

from engine.test_turn_guards import job_of, task, unit
from live_scene import make_dag, make_output
from weft.live.router import SQL as ROUTER

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MINUTE = timedelta(minutes=1)


async def due(conn: Conn) -> set[str]:
    rows = await conn.fetch(
        "select name from weft.live_job where id = any ($1)",
        [row["id"] for row in await conn.fetch(ROUTER.due, 9, False)],
    )
    return {row["name"] for row in rows}


async def test_a_job_has_a_turn_when_it_has_done_nothing_for_long_and_runs_nothing(conn: Conn) -> None:
    ago = await conn.fetchval("select weft.now() - interval '1 hour'")
    said: dict[str, Any] = {"idle_after": MINUTE, "last_active_at": ago, "state": "running"}
    await job_of(conn, "rests", **said)
    await job_of(conn, "was here a moment ago", **said | {"last_active_at": ago + timedelta(hours=1)})
    await job_of(conn, "is idle already", **said | {"state": "idle"})
    await job_of(conn, "never began", **said | {"state": "pending", "last_active_at": None, "created_at": ago})
    await job_of(conn, "looks", source={"kind": "event", "event": "tick"}, **said)
    await unit(conn, await job_of(conn, "works", **said), "a", "running", task_id=await task(conn, 1))
    await unit(conn, await job_of(conn, "waits", **said), "a", "waiting")
    assert await due(conn) == {"rests", "waits"}


async def test_a_job_has_a_turn_when_something_is_written_that_it_reads(conn: Conn) -> None:
    dataset, version = await make_output(conn, "ticks", "feed", "ticks")
    unwritten, _ = await make_output(conn, "rates", "feed", "rates")
    await conn.execute("update weft.dataset set current_id = null")
    await job_of(conn, "reads what nobody has written", inputs=[(unwritten, None)])
    await job_of(conn, "reads a version that is not current", inputs=[(dataset, version)])
    await conn.execute("update weft.live_input set routed_write = 0 where version_id = $1", version)
    assert await due(conn) == set()
    await conn.execute("update weft.dataset_version set last_write = 1 where id = $1", version)
    assert await due(conn) == {"reads a version that is not current"}


async def test_a_source_looks_again_whatever_else_of_it_is_in_the_same_lane(conn: Conn) -> None:
    files = {"kind": "files"}
    await unit(conn, await job_of(conn, "has found a file", source=files), "", "waiting", kind="file")
    await unit(conn, await job_of(conn, "is looking", source=files), "", "waiting", kind="slice")
    assert await due(conn) == {"has found a file"}


async def test_nobody_looks_again_before_something_may_begin_or_a_job_is_idle(conn: Conn) -> None:
    ago, soon = await conn.fetchrow("select weft.now() - interval '1 hour', weft.now() + interval '1 hour'")  # type: ignore[misc]
    assert await conn.fetchval(ROUTER.next_at) is None
    job = await job_of(conn, "note")
    await unit(conn, job, "a", "ready", run_at=ago)
    await unit(conn, job, "b", "waiting", run_at=soon)
    assert await conn.fetchval(ROUTER.next_at) is None
    await unit(conn, job, "c", "ready", run_at=soon)
    assert timedelta(minutes=59) < await conn.fetchval(ROUTER.next_at) <= timedelta(hours=1)


@pytest.mark.parametrize("why", ["idle", "pending", "looks", "works", "paused", "in a paused DAG"])
async def test_nobody_looks_for_a_job_to_be_idle_that_will_not_be(conn: Conn, why: str) -> None:
    """That would be looked for without a rest, for its time has come."""
    at = await conn.fetchval("select weft.now()")
    said: dict[str, Any] = {"idle_after": MINUTE, "last_active_at": at, "state": "running"}
    dag = await make_dag(conn)
    await unit(conn, await job_of(conn, "rests", **said), "a", "waiting")
    elsewhere = await job_of(conn, "elsewhere")
    await unit(conn, elsewhere, "a", "running", task_id=await task(conn, 2))
    assert timedelta(0) < await conn.fetchval(ROUTER.next_at) <= MINUTE
    await conn.execute("delete from weft.live_job where id <> $1", elsewhere)
    said["last_active_at"] = at - timedelta(hours=1)
    how: dict[str, Any] = {
        "idle": {"state": "idle"},
        "pending": {"state": "pending"},
        "looks": {"source": {"kind": "event", "event": "tick"}},
        "paused": {"paused_at": at},
    }
    job = await job_of(conn, "note", dag, **said | how.get(why, {}))
    if why == "works":
        await unit(conn, job, "a", "running", task_id=await task(conn, 1))
    elif why == "in a paused DAG":
        await conn.execute("update weft.live_dag set paused_at = weft.now() where id = $1", dag)
    assert await conn.fetchval(ROUTER.next_at) is None
