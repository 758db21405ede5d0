"""A worker from its start to its end, and what it leaves to others."""

from __future__ import annotations

import asyncio
import sys

import asyncpg
import pytest
from engine_scene import END_CONNECTIONS, WAITING, Clock, MakeClient, until

import weft
from far import with_and_without_a_database
from weft.worker.registry import Registry


@with_and_without_a_database
async def test_run_until_idle_works_everything_off_and_stops(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="spread")
    async def spread(n: int) -> None:
        if n:
            await client.enqueue("spread", {"n": n - 1})

    await client.enqueue_many([weft.NewTask("spread", {"n": 2}) for _ in range(50)])
    real = sys.stdout
    worker = weft.Worker(client=client, registry=registry, concurrency=10)
    await worker.run_until_idle()
    assert worker.process.completed == 150
    assert (await client.queues())[0].tasks == {}
    assert sys.stdout is real
    assert [info.state for info in await client.workers()] == ["stopped"]


async def test_a_worker_may_be_run_again(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="ok")
    async def ok() -> int:
        return 1

    worker = weft.Worker(client=client, registry=registry)
    for _ in range(2):
        handle = await client.enqueue("ok")
        await worker.run_until_idle()
        assert (await client.get_task(handle.id)).state == "completed"


async def test_run_returns_when_the_worker_is_stopped(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="ok")
    async def ok() -> int:
        return 1

    worker = weft.Worker(client=client, registry=registry)
    running = asyncio.create_task(worker.run())
    handle = await client.enqueue("ok")
    assert await client.wait(handle.id, timeout=60) == 1
    await worker.stop()
    await asyncio.wait_for(running, 60)
    await worker.stop()


@pytest.mark.parametrize("how", ["run", "run_until_idle", "async with"])
async def test_a_worker_that_is_cancelled_ends_at_once_and_hands_back_what_ran(
    client: weft.Client, registry: Registry, how: str
) -> None:
    began = asyncio.Event()

    @registry.task(name="long")
    async def long() -> None:
        began.set()
        await asyncio.Event().wait()

    worker = weft.Worker(client=client, registry=registry)

    async def work() -> None:
        if how == "async with":
            async with worker:
                await asyncio.Event().wait()
        else:
            await getattr(worker, how.replace(" ", "_"))()

    handle = await client.enqueue("long")
    running = asyncio.create_task(work())
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 25)  # less than its grace
    assert worker.process.has_stopped
    task = await client.get_task(handle.id)
    assert (task.state, task.crashes, task.failures) == ("ready", 0, 0)


async def test_a_worker_that_works_is_not_started_twice(client: weft.Client, registry: Registry) -> None:
    async with weft.Worker(client=client, registry=registry) as worker:
        assert await worker.start() is worker
    assert [info.state for info in await client.workers()] == ["stopped"]


async def test_a_worker_works_the_queues_that_its_handlers_name(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="ok", queue="mail")
    async def ok() -> int:
        return 1

    worker = weft.Worker(client=client, registry=registry)
    assert worker.queues == ["default", "mail"]
    async with worker:
        assert await client.wait((await client.enqueue(ok)).id, timeout=60) == 1


async def test_a_stopping_worker_lets_running_tasks_end_within_their_grace(
    client: weft.Client, registry: Registry
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @registry.task(name="slow")
    async def slow() -> str:
        begun.set()
        await go.wait()
        return "in peace"

    worker = await weft.Worker(client=client, registry=registry, concurrency=1).start()
    first = await client.enqueue("slow")
    second = await client.enqueue("slow")
    await begun.wait()
    stopping = asyncio.create_task(worker.stop(600))
    await asyncio.sleep(0)
    go.set()
    await asyncio.wait_for(stopping, 60)
    assert await client.wait(first.id) == "in peace"
    task = await client.get_task(second.id)
    assert (task.state, task.attempt) == ("ready", 0)


@with_and_without_a_database
async def test_a_stopped_worker_hands_back_what_did_not_end_in_time_uncounted(
    client: weft.Client, registry: Registry
) -> None:
    begun, told = asyncio.Event(), asyncio.Event()

    @registry.task(name="slow")
    async def slow(ctx: weft.Context) -> str:
        if ctx.attempt > 1:
            return "at last"
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.is_cancelled
            told.set()
        return "never"

    handle = await client.enqueue("slow", max_attempts=1)
    worker = await weft.Worker(client=client, registry=registry).start()
    await begun.wait()
    await worker.stop(0)
    assert told.is_set()
    task = await client.get_task(handle.id)
    assert (task.state, task.failures, task.crashes, task.worker_id) == ("ready", 0, 0, None)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(handle.id) == "at last"


async def test_a_stopping_worker_hands_back_what_it_has_claimed_but_not_begun(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A claim is under way while the worker is told to stop: what it brings must not begin."""
    client = await make_client(worker_poll_interval=3600)
    begun: list[str] = []
    go = asyncio.Event()

    @registry.task(name="hold")
    async def hold(name: str) -> str:
        begun.append(name)
        await go.wait()
        return name

    worker = await weft.Worker(client=client, registry=registry, concurrency=2).start()
    first = await client.enqueue("hold", {"name": "first"})
    await until(lambda: asyncio.sleep(0, list(begun)))
    await client.pause_queue("default")
    second = await client.enqueue("hold", {"name": "second"})
    lock = conn.transaction()
    await lock.start()
    await conn.execute("lock table weft.queue in access exclusive mode")
    await conn.execute("update weft.queue set paused_at = null")
    async with client.database.acquire() as other:
        await other.execute("select pg_notify($1, 'work')", f"weft_worker_{worker.process.id}")
        await until(lambda: other.fetchval(WAITING, "%finish_and_claim%"))
    stopping = asyncio.create_task(worker.stop(600))
    await asyncio.sleep(0)
    await lock.commit()
    await until(lambda: client.get_task(second.id), lambda task: (task.state, task.attempt) == ("ready", 1))
    go.set()
    await asyncio.wait_for(stopping, 60)
    assert begun == ["first"]
    task = await client.get_task(second.id)
    assert (task.state, task.failures, task.worker_id) == ("ready", 0, None)
    assert await client.wait(first.id) == "first"


@with_and_without_a_database
async def test_a_task_whose_handler_a_worker_does_not_know_is_left_to_another(
    client: weft.Client, clock: Clock, registry: Registry
) -> None:
    handle = await client.enqueue("elsewhere", max_attempts=1)
    await weft.Worker(client=client, registry=Registry()).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state in ("scheduled", "ready"), task.failures) == (True, 0)
    assert [(a.outcome, a.reason) for a in task.attempts] == [("declined", "no_handler")]

    @registry.task(name="elsewhere")
    async def elsewhere() -> str:
        return "here"

    await clock.advance(seconds=5)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(handle.id) == "here"


async def test_a_task_fails_with_no_handler_only_when_nobody_has_known_it_for_long(
    make_client: MakeClient, clock: Clock, registry: Registry
) -> None:
    client = await make_client(worker_timeout=86400)

    @registry.task(name="emial")
    async def similar() -> None: ...

    handle = await client.enqueue("email")
    for minutes in (0, 5, 4.5):
        await clock.advance(minutes=minutes)
        await weft.Worker(client=client, registry=registry).run_until_idle()
        task = await client.get_task(handle.id)
        assert (task.state in ("scheduled", "ready"), task.failures) == (True, 0)
    await clock.advance(minutes=1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason) == ("failed", "no_handler")
    assert task.error is not None
    assert "email" in task.error["message"]
    assert "Did you mean 'emial'?" in task.error["message"]


async def test_a_handler_that_a_live_worker_knows_is_never_missing(
    make_client: MakeClient, clock: Clock, registry: Registry
) -> None:
    """The worker that knows it is full; another one without it must not fail the task however long that takes."""
    client = await make_client(worker_timeout=86400)
    go = asyncio.Event()

    @registry.task(name="mine")
    async def mine() -> str:
        await go.wait()
        return "done"

    async with weft.Worker(client=client, registry=registry, concurrency=1):
        first = await client.enqueue("mine")
        await until(lambda: client.get_task(first.id), lambda task: task.state == "running")
        second = await client.enqueue("mine")
        for _ in range(3):
            await weft.Worker(client=client, registry=Registry()).run_until_idle()
            await clock.advance(minutes=11)
        go.set()
        await clock.advance(minutes=1)
        assert await client.wait(second.id, timeout=60) == "done"


async def test_a_worker_given_up_for_lost_ends_what_it_runs_and_starts_anew(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    begun, told = asyncio.Event(), asyncio.Event()

    @registry.task(name="hold")
    async def hold(ctx: weft.Context) -> str:
        if begun.is_set():
            return f"attempt {ctx.attempt} by {ctx.worker_id}"
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
        return "late"

    async with weft.Worker(client=client, registry=registry) as worker:
        old = worker.process.id
        handle = await client.enqueue("hold")
        await begun.wait()
        await conn.execute("update weft.worker set state = 'lost' where id = $1", old)
        await asyncio.wait_for(told.wait(), 60)
        assert await client.wait(handle.id, timeout=60) == f"attempt 2 by {worker.process.id}"
        assert worker.process.id != old
    assert [info.state for info in await client.workers()] == ["stopped", "lost"]


# Through a server there is no connection of the worker's own for the one statement.
@pytest.mark.parametrize("how", [pytest.param("terminate", marks=pytest.mark.direct), "all"])
async def test_a_worker_goes_on_after_its_connections_were_ended(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record], how: str
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @registry.task(name="hold")
    async def hold(n: int) -> int:
        begun.set()
        await go.wait()
        return n

    async with weft.Worker(client=client, registry=registry):
        first = await client.enqueue("hold", {"n": 1})
        await begun.wait()
        only = "and query like '%finish_and_claim%'" if how == "terminate" else ""
        ended = await conn.fetch(f"{END_CONNECTIONS} {only}")
        assert ended
        go.set()
        # Through a connection that was not ended.
        state = "select state from weft.tasks where id = $1"
        await until(lambda: conn.fetchval(state, first.id), lambda found: found == "completed")
        second = await conn.fetchval("""select id from weft.enqueue('hold', '{"n": 2}')""")
        await until(lambda: conn.fetchval(state, second), lambda found: found == "completed")
    assert await conn.fetchval("select attempt from weft.tasks where id = $1", first.id) == 1


async def test_a_stop_that_was_broken_off_goes_on_and_can_be_hastened(client: weft.Client, registry: Registry) -> None:
    begun = asyncio.Event()

    @registry.task(name="long")
    async def long() -> None:
        begun.set()
        await asyncio.sleep(3600)

    handle = await client.enqueue("long")
    worker = await weft.Worker(client=client, registry=registry).start()
    await begun.wait()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.stop(grace=3600), 0.05)
    await worker.stop(grace=0)
    assert worker.process.has_stopped
    assert (await client.get_task(handle.id)).state == "ready"
