"""A queue for which nobody has worked for weeks: every verb of the client goes on as ever."""

from __future__ import annotations

import asyncpg
import pytest
from engine_scene import Clock

import weft
from weft.worker.registry import Registry

pytestmark = pytest.mark.own_database

LONG = {"text": "x" * 300}


@pytest.mark.parametrize("way", ["enqueue", "enqueue_many", "connection", "sql", "cancel"])
async def test_every_verb_makes_the_partitions_that_it_needs(
    client: weft.Client, clock: Clock, conn: asyncpg.Connection[asyncpg.Record], way: str
) -> None:
    await clock.advance(days=20)
    match way:
        case "enqueue":
            id = (await client.enqueue("h", LONG)).id
        case "enqueue_many":
            (handle,) = await client.enqueue_many([weft.NewTask("h", LONG)])
            id = handle.id
        case "connection":
            async with conn.transaction():
                id = (await client.enqueue("h", LONG, connection=conn)).id
        case "sql":
            id = await conn.fetchval("select id from weft.enqueue('h', json_build_object('text', repeat('x', 300)))")
        case _:
            id = (await client.enqueue("h")).id
            await client.cancel(id)
            assert (await client.get_task(id)).state == "cancelled"
            return
    assert (await client.get_task(id)).params == LONG


async def test_short_params_make_no_partitions(
    client: weft.Client, clock: Clock, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    count = "select count(*) from pg_inherits where inhparent = 'weft.task_params'::regclass"
    before = await conn.fetchval(count)
    await clock.advance(days=20)
    await client.enqueue("h", {"a": 1})
    assert await conn.fetchval(count) == before


async def test_a_worker_ends_tasks_of_days_on_which_nobody_worked(
    client: weft.Client, clock: Clock, registry: Registry
) -> None:
    @registry.task(name="h")
    async def h() -> int:
        return 1

    first = await client.enqueue("h")
    await clock.advance(days=12)
    second = await client.enqueue("h")
    await clock.advance(days=12)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [await client.wait(task.id) for task in (first, second)] == [1, 1]


async def test_moments_of_a_task_follow_one_another(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="h", retry=weft.Retry(2, initial_delay=0))
    async def h(ctx: weft.Context, n: int) -> int:
        if n % 7 == 0 and ctx.attempt == 1:
            raise ValueError
        return n

    async with weft.Worker(client=client, registry=registry, concurrency=50):
        ids = [task.id for task in await client.enqueue_many([weft.NewTask("h", {"n": n}) for n in range(500)])]
        ids += [(await client.enqueue("h", {"n": n})).id for n in range(100)]
        ids += [
            task.id
            for _ in range(10)
            for task in await client.enqueue_many([weft.NewTask("h", {"n": n}) for n in range(20)])
        ]
        for id in ids:
            await client.wait(id, timeout=60)
    wrong = await conn.fetch(
        """select id, created_at, claimed_at, ended_at from weft.tasks
           where not (created_at <= claimed_at and claimed_at <= ended_at)"""
    )
    assert wrong == []
    assert await conn.fetchval("select count(*) from weft.tasks where state = 'completed'") == len(ids)
