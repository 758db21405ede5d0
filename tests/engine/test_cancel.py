"""Cancelling a task in each of its states."""

from __future__ import annotations

import asyncio
import threading

import asyncpg
import pytest
from engine_scene import WAITING, MakeClient, until

import weft
from far import with_and_without_a_database
from weft.worker.registry import Registry


async def test_a_task_that_has_not_begun_is_cancelled_and_never_runs(client: weft.Client, registry: Registry) -> None:
    ran: list[int] = []

    @registry.task(name="never")
    async def never(ctx: weft.Context) -> None:
        ran.append(ctx.task_id)

    await client.limit_queue("default", 1, per_key=True)
    ready = await client.enqueue("never")
    scheduled = await client.enqueue("never", delay=3600)
    holder = await client.enqueue("never", concurrency_key="k")
    parked = await client.enqueue("never", concurrency_key="k")
    states = {handle.id: (await client.get_task(handle.id)).state for handle in (ready, scheduled, holder, parked)}
    assert list(states.values()) == ["ready", "scheduled", "ready", "pending"]
    for handle in (ready, scheduled, parked):
        await client.cancel(handle.id, reason="not wanted")
        task = await client.get_task(handle.id)
        assert (task.state, task.reason, task.attempts, task.output) == ("cancelled", "not wanted", (), None)
        assert task.ended_at is not None
        with pytest.raises(weft.TaskFailed, match="is cancelled: not wanted"):
            await client.wait(handle.id)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert ran == [holder.id]


async def test_a_cancelled_task_gives_its_concurrency_slot_to_the_next(client: weft.Client) -> None:
    await client.limit_queue("default", 1, per_key=True)
    first = await client.enqueue("h", concurrency_key="k")
    second = await client.enqueue("h", concurrency_key="k")
    assert (await client.get_task(second.id)).reason == "concurrency_key"
    await client.cancel(first.id)
    assert (await client.get_task(second.id)).state == "ready"


async def test_what_has_ended_cannot_be_cancelled(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="ok")
    async def ok() -> int:
        return 1

    @registry.task(name="bad", retry=0)
    async def bad() -> None:
        raise ValueError

    handles = [await client.enqueue(ok), await client.enqueue(bad), await client.enqueue("ok")]
    await client.cancel(handles[2].id)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for handle, state in zip(handles, ["completed", "dead", "cancelled"], strict=True):
        with pytest.raises(weft.StateConflict, match=f"cannot cancel task {handle.id}: it is {state}"):
            await client.cancel(handle.id)
        assert (await client.get_task(handle.id)).state == state
    with pytest.raises(weft.NotFound):
        await client.cancel(99)


@with_and_without_a_database
async def test_a_running_async_handler_is_told_by_cancellation_and_its_outcome_is_refused(
    client: weft.Client, registry: Registry
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @registry.task(name="stubborn")
    async def stubborn(ctx: weft.Context) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.is_cancelled
        ended.set()
        return "I did it all the same"

    async with weft.Worker(client=client, registry=registry) as worker:
        handle = await client.enqueue("stubborn")
        await begun.wait()
        await client.cancel(handle.id)
        await asyncio.wait_for(ended.wait(), 60)
        # The slot is free again: the worker goes on.
        again = await client.enqueue("stubborn", delay=3600)
        await client.cancel(again.id)
        await worker.process.wait_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.output, [a.outcome for a in task.attempts]) == ("cancelled", None, ["cancelled"])
    assert worker.process.completed == 0


async def test_a_running_thread_is_told_by_its_context_and_its_outcome_is_refused(
    client: weft.Client, registry: Registry
) -> None:
    begun, ended = threading.Event(), threading.Event()

    @registry.task(name="look")
    def look(ctx: weft.Context) -> str:
        begun.set()
        while not ctx.is_cancelled:
            threading.Event().wait(0.005)
        ended.set()
        return "late"

    async with weft.Worker(client=client, registry=registry):
        handle = await client.enqueue("look")
        await asyncio.to_thread(begun.wait)
        await client.cancel(handle.id)
        assert await asyncio.to_thread(ended.wait, 10)
    task = await client.get_task(handle.id)
    assert (task.state, task.output) == ("cancelled", None)


async def test_a_task_cancelled_while_its_outcome_is_on_its_way_stays_cancelled(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="own end")
    async def own_end(ctx: weft.Context) -> str:
        await client.cancel(ctx.task_id)
        return "too late"

    async with weft.Worker(client=client, registry=registry) as worker:
        handle = await client.enqueue("own end")
        with pytest.raises(weft.TaskFailed, match="cancelled"):
            await client.wait(handle.id, timeout=60)
        await worker.process.wait_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.output) == ("cancelled", None)


async def test_a_cancel_that_meets_a_finished_attempt_of_a_limited_queue_does_not_stop_the_worker(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The outcome of `quick` waits for a call that is under way when the word comes that it was cancelled."""
    client = await make_client(worker_poll_interval=3600)
    await client.limit_queue("default", 5)
    gates = {"slow": asyncio.Event(), "quick": asyncio.Event()}
    begun = {"slow": asyncio.Event(), "quick": asyncio.Event()}

    @registry.task(name="gate")
    async def gate(name: str) -> str:
        begun[name].set()
        await gates[name].wait()
        return name

    async with weft.Worker(client=client, registry=registry):
        slow = await client.enqueue("gate", {"name": "slow"})
        quick = await client.enqueue("gate", {"name": "quick"})
        await asyncio.gather(*(event.wait() for event in begun.values()))
        async with client.database.transaction() as holder:
            # Completing `slow` has to wait for this lock, and with it the worker's line.
            await holder.execute("select 1 from weft.task where id = $1 for update", slow.id)
            gates["slow"].set()
            await until(lambda: conn.fetchval(WAITING, "%finish_and_claim%"))
            gates["quick"].set()
            await client.cancel(quick.id)
        assert await client.wait(slow.id, timeout=60) == "slow"
        gates["slow"].clear()
        begun["slow"].clear()
        after = await client.enqueue("gate", {"name": "quick"})
        assert await client.wait(after.id, timeout=60) == "quick"
    assert (await client.get_task(quick.id)).state == "cancelled"
