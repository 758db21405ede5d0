"""Handlers that fork: a child that has the worker's sockets takes none of its sessions with it when it ends."""

from __future__ import annotations

import asyncpg
import pytest

import weft
from crash.checker import check
from crash.harness import LIVENESS, Crew

MODULES = ("crash.apps.handlers", "crash.apps.forking")
SESSIONS = "select pid from pg_stat_activity where datname = current_database() and application_name = 'weft'"


@pytest.mark.parametrize("ending", ["returns", "raises", "exits", "killed", "collects", "prints"])
async def test_the_sessions_of_a_worker_outlive_the_children_of_its_handlers(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], ending: str
) -> None:
    worker = await crew.worker(modules=MODULES)
    first = await client.enqueue("work", {"folder": str(crew.folder)})
    await client.wait(first.id, timeout=LIVENESS)
    sessions = {row["pid"] for row in await conn.fetch(SESSIONS)}
    worker_id = await conn.fetchval("select id from weft.worker")
    # One after the other: multiprocessing itself loses exit codes when threads start children at once.
    for _ in range(4):
        fork = await client.enqueue("fork", {"ending": ending, "children": 3})
        output = await client.wait(fork.id, timeout=LIVENESS)
        assert output["worker"] == worker.pid
        assert output["inherited"] > 0, "the children had the sockets of the worker"
        assert len(set(output["children"])) == 3
        assert set(output["codes"]) == {{"raises": 1, "exits": 3, "killed": -9}.get(ending, 0)}
    handles = await client.enqueue_many([weft.NewTask("work", {"folder": str(crew.folder)}) for _ in range(50)])
    for handle in handles:
        assert (await client.wait(handle.id, timeout=LIVENESS))["pid"] == worker.pid
    assert {row["pid"] for row in await conn.fetch(SESSIONS)} >= sessions, "a session was lost"
    assert [row["id"] for row in await conn.fetch("select id from weft.worker")] == [worker_id]
    assert "connection lost" not in crew.log()
    assert "heartbeat failed" not in crew.log()
    worker.terminate()
    assert await worker.wait() == 0
    await check(conn)
