"""Waiting for a task from outside."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from engine_scene import MakeClient, until

import weft
from weft.queue import look
from weft.worker.registry import Registry


async def test_wait_returns_the_output_of_a_task_that_ends_later(client: weft.Client, registry: Registry) -> None:
    go = asyncio.Event()

    @registry.task(name="give")
    async def give(n: int) -> dict[str, int]:
        await go.wait()
        return {"n": n}

    async with weft.Worker(client=client, registry=registry):
        handles = [await client.enqueue("give", {"n": n}) for n in range(20)]
        waits = [asyncio.create_task(client.wait(handle.id, timeout=60)) for handle in handles for _ in range(2)]
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*waits) == [{"n": n} for n in range(20) for _ in range(2)]


async def test_a_wait_gives_up_after_its_time_and_the_task_goes_on(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="ok")
    async def ok() -> str:
        return "there"

    handle = await client.enqueue("ok")
    with pytest.raises(weft.WaitTimeout, match=f"task {handle.id} did not end within 0.05 s") as caught:
        await client.wait(handle.id, timeout=0.05)
    assert caught.value.task_id == handle.id
    assert (await client.get_task(handle.id)).state == "ready"
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(handle.id, timeout=60) == "there"


async def test_an_ended_task_needs_no_time(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="ok")
    async def ok() -> str:
        return "there"

    handle = await client.enqueue("ok")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(handle.id, timeout=0) == "there"


async def test_a_wait_that_gave_up_asks_the_database_no_more(
    make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client()
    handle = await client.enqueue("nobody")
    with pytest.raises(weft.WaitTimeout):
        await client.wait(handle.id, timeout=0.01)
    waiting = [task for task in asyncio.all_tasks() if "Waiter" in repr(task.get_coro())]
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


async def test_a_wait_for_a_task_that_failed_tells_why(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="bad")
    async def bad() -> None:
        raise weft.NonRetryable("the moon is full")

    handle = await client.enqueue("bad")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    with pytest.raises(weft.TaskFailed, match="is failed: NonRetryable: the moon is full") as caught:
        await client.wait(handle.id, timeout=60)
    assert (caught.value.task_id, caught.value.state) == (handle.id, "failed")
    assert caught.value.error is not None
    assert (caught.value.error["type"], caught.value.error["message"]) == ("NonRetryable", "the moon is full")
    assert "raise weft.NonRetryable" in caught.value.error["traceback"]


async def test_a_wait_for_a_task_that_failed_tells_what_was_raised(client: weft.Client, registry: Registry) -> None:
    problems = {"exit": SystemExit(5), "silent": LookupError(), "several": ValueError("one\ntwo")}

    @registry.task(name="bad")
    async def bad(how: str) -> None:
        raise problems[how]

    handles = {how: await client.enqueue("bad", {"how": how}, max_attempts=1) for how in problems}
    await weft.Worker(client=client, registry=registry).run_until_idle()
    told = {}
    for how, handle in handles.items():
        with pytest.raises(weft.TaskFailed, match=f"task {handle.id} is dead: ") as caught:
            await client.wait(handle.id, timeout=60)
        told[how] = caught.value.problem
    assert told == {"exit": "SystemExit: 5", "silent": "LookupError", "several": "ValueError: one\ntwo"}


async def test_there_is_no_waiting_for_a_task_that_does_not_exist(client: weft.Client) -> None:
    with pytest.raises(weft.NotFound, match="no task 77"):
        await client.wait(77, timeout=60)


async def test_a_wait_that_is_cancelled_leaves_other_waits_for_the_task_alone(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="ok")
    async def ok() -> str:
        return "there"

    handle = await client.enqueue("ok")
    first, second = (asyncio.create_task(client.wait(handle.id, timeout=60)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await second == "there"


async def test_a_wait_ends_when_its_task_is_gone(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Ended and purged between two looks: whoever waits must hear that there is no such task any more."""
    handle = await client.enqueue("nobody")
    wait = asyncio.create_task(client.wait(handle.id))
    await asyncio.sleep(0)
    await conn.execute("delete from weft.task where id = $1", handle.id)
    with pytest.raises(weft.NotFound):
        await asyncio.wait_for(wait, 60)


async def test_a_wait_ends_when_its_client_is_closed(
    settings: weft.Settings, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    asked = "select exists (select 1 from pg_stat_activity where datname = current_database() and query = $1)"
    async with weft.Client(settings=settings) as client:
        handle = await client.enqueue("nobody")
        waiting = asyncio.create_task(client.wait(handle.id))
        await until(lambda: conn.fetchval(asked, look.SQL.ended_among))
    with pytest.raises(weft.InvalidInput, match="client: was closed while it waited"):
        await waiting
