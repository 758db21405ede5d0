"""A heart whose beats fail for a while: it beats again, or its worker is fenced and begins anew; it is never silent."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from pathlib import Path

import asyncpg
import pytest

import weft
from crash.checker import check
from crash.harness import LIVENESS, until
from crash.proxy import Fault, proxy_to
from crash.scene import Scene


@pytest.fixture
def scene(url: str, tmp_path: Path) -> Scene:
    return Scene(url, tmp_path / "home")


async def until_beaten(conn: asyncpg.Connection[asyncpg.Record], worker_id: int, times: int = 2) -> None:
    """Return when the worker has beaten so often from now on."""
    moments: set[datetime] = set()

    async def has_beaten() -> bool:
        moments.add(await conn.fetchval("select heartbeat_at from weft.worker where id = $1", worker_id))
        return len(moments) > times

    await until(has_beaten, f"worker {worker_id} beats again")


async def fail_beats_of(conn: asyncpg.Connection[asyncpg.Record], worker_id: int | None) -> None:
    """Let the heartbeats of one worker be refused by the database; None lets all of them land again."""
    text = await conn.fetchval("select pg_get_functiondef('weft.heartbeat'::regproc)")
    text = re.sub(r"begin\n  if me = \d+ then.*?end if;", "begin", text, flags=re.DOTALL)
    if worker_id is not None:
        text = text.replace(
            "begin", f"begin\n  if me = {worker_id} then raise exception 'no beat of %', me; end if;", 1
        )
    await conn.execute(text)


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.HOLE], ids=["cut", "hole"])
async def test_a_heart_whose_connection_breaks_beats_again_under_the_same_lease(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], caplog: pytest.LogCaptureFixture,
    fault: Fault,
) -> None:  # fmt: skip
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url, worker_timeout=10) as worker:
        held = (await client.enqueue("held")).id
        await scene.until_started(held)
        before = worker.process.id
        rule = proxy.rule("weft.heartbeat", fault, times=3 if fault is Fault.CUT else 1)

        async def has_fired() -> bool:
            return len(rule.seen) == rule.times

        await until(has_fired, "the connection of the heart broke")
        await until_beaten(conn, before)
        assert worker.process.id == before
        scene.let_go(held)
        assert await client.wait(held, timeout=LIVENESS) == 1
    assert sum("heartbeat failed" in message for message in caplog.messages) >= rule.times
    await check(conn)


@pytest.fixture(autouse=True)
def tells_everything(caplog: pytest.LogCaptureFixture) -> None:
    """The first failure is a warning, those that follow it are told only to who wants to know."""
    caplog.set_level(logging.DEBUG, "weft.worker")


async def test_a_heart_whose_statement_fails_beats_again_under_the_same_lease(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], caplog: pytest.LogCaptureFixture
) -> None:
    async with scene.worker(worker_timeout=60) as worker:
        held = (await client.enqueue("held")).id
        await scene.until_started(held)
        await fail_beats_of(conn, worker.process.id)

        async def has_failed() -> bool:
            return sum("heartbeat failed: RaiseError: no beat of" in message for message in caplog.messages) >= 4

        await until(has_failed, "some beats failed")
        last = await conn.fetchval("select heartbeat_at from weft.worker")
        await fail_beats_of(conn, None)
        await until_beaten(conn, worker.process.id)
        assert last < await conn.fetchval("select heartbeat_at from weft.worker")
        scene.let_go(held)
        assert await client.wait(held, timeout=LIVENESS) == 1
    await check(conn)


async def test_a_worker_whose_beats_fail_past_its_lease_is_fenced_and_begins_anew(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with scene.worker(concurrency=1) as silent:
        held = (await client.enqueue("held")).id
        await scene.until_started(held)
        lost = silent.process.id
        await fail_beats_of(conn, lost)
        async with scene.worker(concurrency=1) as other:
            # Taken over, although its worker lives and would complete it.
            await scene.until_started(held, attempt=2)
            assert await conn.fetchval("select worker_id from weft.task where id = $1", held) == other.process.id
            assert silent.process.id == lost, "it knows nothing of it yet"
            await fail_beats_of(conn, None)

            async def begins_anew() -> bool:
                return silent.process.id != lost

            await until(begins_anew, "the worker hears that it is lost, and begins anew")
            await until_beaten(conn, silent.process.id)
            assert silent.process.fenced == 1
            # Both have one place each: only the one that began anew has room.
            step = await client.enqueue("step")
            await client.wait(step.id, timeout=LIVENESS)
            ran = await conn.fetchval("select worker_id from weft.task_done where id = $1", step.id)
            assert ran == silent.process.id
            scene.let_go(held)
            assert await client.wait(held, timeout=LIVENESS) == 2
    await check(conn)
