"""Tasks whose handler the worker at hand does not know: they wait, and fail only when that has been so for long."""

from __future__ import annotations

import asyncio

import asyncpg
from engine_scene import Clock, MakeClient, until

import weft
from weft.worker.registry import Registry


async def test_after_a_night_without_workers_the_first_one_back_fails_nothing_that_others_know(
    make_client: MakeClient, clock: Clock, registry: Registry
) -> None:
    client = await make_client(worker_timeout=86400)

    @registry.task(name="mine")
    async def mine() -> str:
        return "done"

    await weft.Worker(client=client, registry=registry).run_until_idle()
    await clock.advance(hours=9)
    handle = await client.enqueue("mine")
    await weft.Worker(client=client, registry=Registry()).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, task.failures) == ("scheduled", "no_handler", 0)
    await clock.advance(minutes=1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(handle.id) == "done"


async def test_a_task_that_was_declined_before_an_outage_has_its_time_before_it_again(
    make_client: MakeClient, clock: Clock
) -> None:
    client = await make_client(worker_timeout=86400)
    handle = await client.enqueue("elsewhere")
    for hours in (0, 9):
        await clock.advance(hours=hours)
        await weft.Worker(client=client, registry=Registry()).run_until_idle()
        assert (await client.get_task(handle.id)).state == "scheduled"
    for _ in range(2):
        await clock.advance(minutes=6)
        await weft.Worker(client=client, registry=Registry()).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason) == ("failed", "no_handler")


async def test_a_task_that_is_declined_often_has_one_record_of_it_and_no_failure(
    make_client: MakeClient, clock: Clock, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client(worker_timeout=86400)
    handle = await client.enqueue("elsewhere", max_attempts=3)
    for _ in range(8):
        await weft.Worker(client=client, registry=Registry()).run_until_idle()
        await clock.advance(seconds=31)
    task = await client.get_task(handle.id)
    (attempt,) = task.attempts
    assert (task.attempt, task.failures, attempt.attempt, attempt.outcome) == (8, 0, 8, "declined")
    assert attempt.started_at is not None
    assert (attempt.ended_at - attempt.started_at).total_seconds() >= 7 * 31


async def test_what_is_on_its_way_back_takes_up_room(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.enqueue_many([weft.NewTask("nobody")] * 50)
    held = "select count(*) from weft.task where worker_id is not null"
    transaction = conn.transaction()
    await transaction.start()
    # A decline is recorded, so none of them ends now.
    await conn.execute("lock table weft.attempt in share mode")
    async with weft.Worker(client=client, registry=registry, concurrency=2):
        await until(lambda: conn.fetchval(held))
        for _ in range(50):
            # Each wakes the worker.
            await client.enqueue("nobody")
            assert await conn.fetchval(held) <= 2
            await asyncio.sleep(0.01)
        await transaction.rollback()
