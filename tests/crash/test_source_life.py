"""The life of a source: it runs, is lost with its worker, goes on elsewhere, nothing lost or doubled, and drains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.apps.counting import LAST
from crash.harness import Crew, until

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

APP = ("crash.apps.counting",)


async def _state(client: weft.Client) -> str:
    (job,) = await client.live.jobs("counting")
    return job.state


async def _becomes(client: weft.Client, state: str) -> None:
    async def is_so() -> bool:
        return await _state(client) == state

    await until(is_so, f"the source is {state}")


async def _deploy(client: weft.Client, folder: Path) -> None:
    source: dict[str, Any] = {"kind": "continuous", "poll": "1s"}
    job = {"activation": "source", "operator": "count", "source": source, "config": {"folder": str(folder)}}
    await client.live.deploy({"dag": "counting", "jobs": {"numbers": {**job, "scaling": {"max_concurrency": 2}}}})


async def _seen(conn: Conn) -> list[int]:
    found = await conn.fetchval("select state from weft.operator_state where state_key = 'seen'")
    return list(json.loads(found or "[]"))


async def _holder(conn: Conn) -> int | None:
    found: int | None = await conn.fetchval(
        "select t.worker_id from weft.live_unit u join weft.task t on t.id = u.task_id where u.kind = 'slice'"
    )
    return found


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_a_source_whose_worker_is_gone_amid_a_slice_goes_on_elsewhere(
    how: str, crew: Crew, client: weft.Client, conn: Conn, tmp_path: Path
) -> None:
    for number in (20, 40):
        (tmp_path / f"hold-{number}").touch()
    await crew.orchestrator()
    await _deploy(client, tmp_path)
    workers = []
    for number in (20, 40):
        workers.append(await crew.worker(modules=APP))

        async def is_held(number: int = number) -> bool:
            return (tmp_path / f"held-{number}").exists()

        await until(is_held, "a slice is amid its work")
        assert await _state(client) == "running"
        held_by = await _holder(conn)
        # Whichever of them has the slice.
        for each in workers:
            if how == "pause":
                each.pause()
            else:
                await each.kill()
        await _becomes(client, "lost")
        (tmp_path / f"hold-{number}").unlink()
        if how == "pause":
            # It wakes when its task is no longer its own, and what it then does counts for nothing.
            newcomer = await crew.worker(modules=APP)

            async def is_taken(held_by: int | None = held_by) -> bool:
                return await _holder(conn) != held_by

            await until(is_taken, "the slice is with another")
            for each in workers:
                each.resume()
            workers.append(newcomer)
    await crew.worker(modules=APP)

    async def all_are_seen() -> bool:
        return len(await _seen(conn)) >= LAST

    await until(all_are_seen, "all numbers have come")
    await _becomes(client, "running")
    await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"), "it has caught up")
    assert await _seen(conn) == list(range(LAST))
    await client.live.drain("counting")
    await until(lambda: conn.fetchval("select state = 'stopped' from weft.live_job"), "it has stopped")
    assert await _seen(conn) == list(range(LAST))


async def test_a_slice_that_gives_no_sign_of_life_is_tried_again(
    crew: Crew, client: weft.Client, conn: Conn, tmp_path: Path
) -> None:
    """Its worker lives, and what it runs does not go on: the heartbeat of the task is what tells."""
    (tmp_path / "hold-10").touch()
    await crew.orchestrator()
    await _deploy(client, tmp_path)
    await conn.execute("update weft.live_job set heartbeat_timeout = interval '1 second', max_attempts = 10")
    await crew.worker(modules=APP)

    async def is_held() -> bool:
        return (tmp_path / "held-10").exists()

    await until(is_held, "a slice is amid its work")
    (tmp_path / "hold-10").unlink()

    async def all_are_seen() -> bool:
        return len(await _seen(conn)) >= LAST

    await until(all_are_seen, "all numbers have come")
    assert await _seen(conn) == list(range(LAST))
