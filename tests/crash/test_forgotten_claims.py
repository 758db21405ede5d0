"""A claim alone is not flushed: PostgreSQL may forget it in a crash, and give the same attempt out again."""

from __future__ import annotations

import shutil
from pathlib import Path

import asyncpg
import pytest

import weft
from crash.checker import check
from crash.harness import LIVENESS, until
from crash.scene import NEVER, Scene
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded, migrate

# No commit of the heart, which would flush the claim too; and the server writes by itself only every ten seconds.
CALM = {"worker_heartbeat_interval": 60, "worker_timeout": 600, "worker_poll_interval": NEVER}
TRIES = 20


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ends", ["while the server is down", "when it is back"])
async def test_a_claim_that_the_server_forgot_is_not_run_twice_under_one_fence(tmp_path: Path, ends: str) -> None:
    home = make_home("crash")
    settings = Settings(home=home)
    try:
        server = await embedded.ensure_running(settings)
        await migrate.upgrade(server.url)
        conn = await asyncpg.connect(server.url)
        await conn.execute("alter system set wal_writer_delay = '10s'")
        await conn.fetchval("select pg_reload_conf()")
        await conn.close()
        await _crash_until_a_claim_is_forgotten(Scene(server.url, tmp_path / "home"), settings, ends)
    finally:
        await embedded.stop(settings, mode="immediate")
        shutil.rmtree(home, ignore_errors=True)


async def _crash_until_a_claim_is_forgotten(scene: Scene, settings: Settings, ends: str) -> None:
    async with weft.Client(settings=scene.settings()) as client, scene.worker(**CALM) as worker:
        for tries in range(1, TRIES + 1):
            await worker.process.wait_until_idle()
            held = (await client.enqueue("held")).id
            await scene.until_started(held)
            await embedded.stop(settings, mode="immediate")
            if ends == "while the server is down":
                scene.let_go(held)
            await embedded.ensure_running(settings)
            if ends == "when it is back":
                # What comes after is run by the worker only when it knows what it still holds.
                await _until_ended(client, await _enqueue(client, "step", f"after crash {tries}"))
                was_forgotten = held not in scene.running or (held, 2) in scene.started
                if was_forgotten:
                    await scene.until_started(held, attempt=2)
                scene.let_go(held)
            await _until_ended(client, held)
            task = await client.get_task(held)
            if ends == "while the server is down":
                was_forgotten = task.attempt == 2
            assert (task.state, task.attempt, task.output) == ("completed", 2 if was_forgotten else 1, task.attempt)
            begun = [attempt for task_id, attempt in scene.started if task_id == held]
            assert begun == [1, 2][: task.attempt], "each attempt began once"
            if was_forgotten:
                print(f"forgotten: after {tries} crashes")
                break
        else:
            raise AssertionError(f"no claim was forgotten in {TRIES} crashes")
    conn = await asyncpg.connect(scene.url)
    await check(conn)
    assert await conn.fetchval("select count(*) from weft.task") == 0
    await conn.close()


async def _enqueue(client: weft.Client, handler: str, key: str) -> int:
    """Enqueue as soon as the server takes it."""
    found: list[int] = []

    async def is_enqueued() -> bool:
        try:
            found.append((await client.enqueue(handler, idempotency_key=key)).id)
        except (weft.WeftError, asyncpg.PostgresError, OSError):
            return False
        return True

    await until(is_enqueued, "the server is back")
    return found[0]


async def _until_ended(client: weft.Client, task_id: int) -> None:
    async def has_ended() -> bool:
        return (await client.get_task(task_id)).state.is_final

    await until(has_ended, f"task {task_id} has ended", LIVENESS)
