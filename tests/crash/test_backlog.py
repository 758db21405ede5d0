"""Much at once: a backlog is not held in memory, and a herd of workers takes two connections each."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncpg
import pytest

import weft
from crash.harness import Crew, until_settled
from crash.scene import Scene
from reset import EMPTIER
from weft.db.database import POOL_SIZE

MIB = 1024**2


def _peak(pid: int) -> int:
    """Return the most memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_worker_holds_no_more_of_a_backlog_than_it_can_run(
    crew: Crew, scene: Scene, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """36 MB of params wait; whoever fetched ahead without bounds would have them all."""
    async with weft.Client(settings=scene.settings()) as client:
        worker = await crew.worker(modules=("crash.apps.quiet",), concurrency=20)
        peaks = []
        for count in (1_000, 12_000):
            await client.enqueue_many([weft.NewTask("quiet", {"text": "x" * 3000}) for _ in range(count)])
            await until_settled(conn)
            peaks.append(_peak(worker.pid))
        assert peaks[1] - peaks[0] < 10 * MIB
        assert await conn.fetchval("select sum((d.output #>> '{}')::int) from weft.task_done d") == 39_000_000


async def test_a_herd_of_workers_that_start_at_once_takes_two_connections_each(
    scene: Scene, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """One for its calls and one for its heart, which must beat while a call waits; the client's pool serves all."""
    count = (
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and application_name <> $1"
    )
    async with weft.Client(settings=scene.settings()) as client:
        herd = [weft.Worker(client=client, registry=scene.registry, concurrency=5) for _ in range(40)]
        await asyncio.gather(*(worker.start() for worker in herd))
        try:
            tasks = await client.enqueue_many([weft.NewTask("step") for _ in range(400)])
            await asyncio.gather(*(client.wait(task.id, timeout=60) for task in tasks))
            assert await conn.fetchval(count, EMPTIER) <= 2 * len(herd) + POOL_SIZE
            assert sorted(id for id, _ in scene.started) == sorted(task.id for task in tasks)
        finally:
            await asyncio.gather(*(worker.stop(0) for worker in herd))
