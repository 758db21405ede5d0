"""Whoever is killed while a live job goes on: no event is lost or applied twice; all of a unit is seen, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson
import pytest

import weft
from crash.harness import Process
from crash.job_acts import settings_for
from crash.moments import Moments
from crash.test_dataset_kill import _rows, each_statement
from live_scene import make_dag, make_job, make_output
from weft.live.router import Router

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each round."""
    process = await Process.start("crash.apps.live_act", {}, tmp_path / "crew")
    yield process
    await process.finish()


async def _deployed(conn: Conn) -> int:
    dag = await make_dag(conn)
    output = await make_output(conn, "notes", "market", "note")
    said = {"update_strategy": "append", "unique_key": ["id"]}
    source = {"kind": "event", "event": "told", "lane": ["lane"]}
    return await make_job(
        conn, dag, "note", "note", outputs=[output], source=source, document=said, max_concurrency=100
    )


async def _held(conn: Conn, task_id: int) -> int:
    """Return a worker of which there is only the row, and which holds a task."""
    worker: int = await conn.fetchval(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 1, 1, 'gone', '0', '{1}', '{}') returning id"""
    )
    await conn.execute(
        "update weft.task set state = 'running', attempt = 1, worker_id = $1, claimed_at = weft.now() where id = $2",
        worker, task_id,
    )  # fmt: skip
    return worker


async def test_an_attempt_that_is_killed_has_done_all_of_its_unit_or_nothing(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    done: list[int] = []
    outcomes: list[bool] = []
    sent = 0
    async with weft.Client(settings=settings_for(url, home)) as client:
        await _deployed(conn)

        async def order() -> dict[str, Any]:
            nonlocal sent
            sent += 1
            await client.jobs.send_event("told", {"lane": f"l{sent}", "n": sent})
            await Router(client.database).run_once()
            units = "select task_id from weft.live_unit where lane = $1 and state = 'running'"
            task: int = await conn.fetchval(units, f"l{sent}")
            return {"act": "attempt", "worker_id": await _held(conn, task), "task_id": task}

        async def look(said: dict[str, Any], number: int) -> None:
            state = await conn.fetchval("select state from weft.tasks where id = $1", said["task_id"])
            outcomes.append(state == "completed")
            if state == "completed":
                done.append(number)
            rows = await _rows(client, conn, home, "notes") if done else {"": []}
            remembered = await conn.fetchval("select state::text from weft.operator_state")
            emitted = await conn.fetch("select said->'payload'->>'n' as n from weft.live_unit where lane = 'after'")
            unit = await conn.fetchval("select state from weft.live_unit where task_id = $1", said["task_id"])
            assert rows == {"": done}, number
            assert orjson.loads(remembered or "[]") == done, number
            assert sorted(-int(row["n"]) for row in emitted) == done, number
            assert unit == ("done" if outcomes[-1] else "running"), number
            # The worker is lost, and whoever comes next finds nothing in the way.
            await conn.execute("delete from weft.task where id = $1", said["task_id"])

        rounds = await each_statement(url, home, conn, copies, order, look, Moments(campaign))
    assert rounds > 10
    assert outcomes == sorted(outcomes), "not up to some statement, and from there on"
    assert outcomes[-1]
    assert not outcomes[0]


async def test_a_router_that_is_killed_has_made_one_task_of_each_unit_or_none(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    sent = 0
    async with weft.Client(settings=settings_for(url, home)) as client:
        job = await _deployed(conn)

        async def order() -> dict[str, Any]:
            nonlocal sent
            for lane in "xyz":
                sent += 1
                await client.jobs.send_event("told", {"lane": f"{lane}{sent}", "n": sent})
            return {"act": "route"}

        async def look(_said: dict[str, Any], number: int) -> None:
            await _require_one_task_each(conn, job)
            # Another finds nothing in the way, and makes what is missing.
            await Router(client.database).run_once()
            await _require_one_task_each(conn, job)
            counts = await conn.fetch("select state, count(*) from weft.live_unit group by state")
            assert [tuple(row) for row in counts] == [("running", sent)], number

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 3


async def _require_one_task_each(conn: Conn, job: int) -> None:
    row = await conn.fetchrow(
        """select (select count(*) from weft.task) as tasks, (select count(*) from weft.task_params) as params,
             count(*) filter (where u.state = 'running') as running, count(distinct u.task_id) as own,
             count(*) filter (where u.task_id is not null
               and not exists (select 1 from weft.task t where t.id = u.task_id)) as without
           from weft.live_unit u where u.live_job_id = $1""",
        job,
    )  # fmt: skip
    assert row is not None
    assert row["tasks"] == row["params"] == row["running"] == row["own"]
    assert row["without"] == 0
