"""The life of a task on PostgreSQL 16, which comes in the wheel beside the one that is embedded."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from engine_scene import claimed_by_a_ghost

import servers
import weft
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded, migrate
from weft.db.embedded_layout import layout_of
from weft.db.embedded_programs import usable_programs
from weft.queue import workers
from weft.queue.services import Rescuer
from weft.worker.registry import Registry

MAJOR = 16


@pytest.fixture(scope="session")
def old_server_url() -> Iterator[str]:
    """A server of its own."""
    home = make_home("old")
    settings = Settings(home=home)

    async def start() -> str:
        return (await servers.start(home, await usable_programs(layout_of(settings), MAJOR))).url

    yield asyncio.run(start())
    asyncio.run(embedded.stop(settings, mode="immediate"))
    shutil.rmtree(home, ignore_errors=True)


async def test_a_task_is_enqueued_lost_rescued_completed_and_listed(
    old_server_url: str, home: Path, registry: Registry
) -> None:
    @registry.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    await migrate.upgrade(old_server_url)
    conn = await asyncpg.connect(old_server_url)
    assert conn.get_server_version().major == MAJOR
    settings = Settings.load(environ={}, database_url=old_server_url, home=home)
    async with weft.Client(settings=settings) as client:
        alone = await client.enqueue(double, {"n": 1}, idempotency_key="once")
        ghost, lost = await claimed_by_a_ghost(conn)
        lease = timedelta(minutes=1)
        pulse = await workers.heartbeat(conn, ghost, lease=lease, busy=True, completed=0, failed=0)
        assert (lost, pulse and pulse.held) == (alone.id, 1)
        many = await client.enqueue_many([weft.NewTask(double, {"n": n}, concurrency_key="k") for n in (2, 3)])
        await conn.execute("update weft.worker set until = weft.now() - interval '1 second' where id = $1", ghost)
        assert await Rescuer(client.database, settings, lambda: True).run_once() == 1
        assert await workers.heartbeat(conn, ghost, lease=lease, busy=True, completed=0, failed=0) is None
        await weft.Worker(client=client, registry=registry).run_until_idle()
        page = await client.list_tasks(state="completed")
        assert [task.id for task in page.tasks] == sorted([alone.id, *(task.id for task in many)], reverse=True)
        assert [await client.wait(task.id) for task in (alone, *many)] == [2, 4, 6]
        assert [attempt.outcome for attempt in (await client.get_task(alone.id)).attempts] == ["lost"]
    await conn.close()
