"""The life of a task through the public interface, on a real worker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from engine_scene import Clock

import weft
from weft.worker.registry import Registry


async def test_a_task_runs_and_its_output_is_kept(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="add")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    handle = await client.enqueue("add", {"a": 2})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.output, task.attempt, task.params) == ("completed", 3, 1, {"a": 2})
    assert await client.wait(handle.id, timeout=60) == 3


async def test_a_task_is_dead_after_its_last_attempt_and_runs_again_when_replayed(
    client: weft.Client, registry: Registry
) -> None:
    fails = True

    @registry.task(name="flaky")
    async def flaky() -> str:
        if fails:
            raise ValueError("not yet")
        return "fine"

    handle = await client.enqueue("flaky", max_attempts=2, retry=weft.Retry(2, initial_delay=0))
    async with weft.Worker(client=client, registry=registry):
        with pytest.raises(weft.TaskFailed, match="not yet"):
            await client.wait(handle.id, timeout=60)
        dead = await client.get_task(handle.id)
        assert (dead.state, dead.failures, [a.outcome for a in dead.attempts]) == ("dead", 2, ["failed", "failed"])
        fails = False
        await client.replay(handle.id)
        assert await client.wait(handle.id, timeout=60) == "fine"
    assert (await client.get_task(handle.id)).generation == 1


async def test_a_client_is_not_used_in_another_event_loop(client: weft.Client) -> None:
    def elsewhere() -> None:
        asyncio.run(client.list_tasks())

    with pytest.raises(weft.InvalidInput, match="client: was opened in another event loop"):
        await asyncio.to_thread(elsewhere)
    assert (await client.list_tasks()).tasks == ()


async def test_the_time_of_many_tasks_is_reckoned_by_the_clock_of_the_database(
    client: weft.Client, clock: Clock
) -> None:
    """Not by that of this process, which may have been asleep since it was told the time."""
    await client.enqueue_many([weft.NewTask("h")])
    await clock.advance(hours=1)
    one = await client.enqueue("h", delay=600)
    many = await client.enqueue_many([weft.NewTask("h", delay=600), weft.NewTask("h", run_at=datetime.now(UTC))])
    alone, late, past = [await client.get_task(handle.id) for handle in (one, *many)]
    assert (alone.state, late.state, past.state) == ("scheduled", "scheduled", "ready")
    assert alone.due_at is not None
    assert late.due_at is not None
    assert timedelta(0) <= late.due_at - alone.due_at < timedelta(minutes=1)
