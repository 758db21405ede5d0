"""Idle workers start what is enqueued: polls are ten minutes apart here, so that only a notification can do it."""

from __future__ import annotations

import asyncio

import asyncpg

import weft
from crash.checker import check
from crash.harness import LIVENESS, until, until_call_waits
from crash.proxy import Fault, proxy_to
from crash.scene import NEVER, Scene
from crash.sessions import sessions
from weft.queue import graph, upkeep

HOT = "weft.finish_and_claim"
CALM = {"worker_heartbeat_interval": 60, "worker_timeout": 300, "worker_poll_interval": NEVER}
TAKES_NO_HINTS = "select saturated from weft.worker where id = $1"


async def test_a_notification_that_arrives_while_the_answer_of_a_claim_is_under_way_is_not_lost(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The claim has found nothing, the worker does not know it yet, and now something is enqueued."""
    heard = asyncio.Event()
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url, worker_poll_interval=NEVER) as worker:
        await conn.add_listener(f"weft_worker_{worker.process.id}", lambda *_: heard.set())
        for _ in range(5):
            held = proxy.hold(HOT, lambda exchange: exchange.array_length(1) > 0)
            first = await client.enqueue("step")
            await held.fired.wait()
            heard.clear()
            second = await client.enqueue("step")
            await heard.wait()
            assert held.gate is not None
            held.gate.set()
            assert await client.wait(first.id, timeout=LIVENESS) == 1
            assert await client.wait(second.id, timeout=LIVENESS) == 1


async def test_a_notification_that_arrives_while_a_claim_is_held_up_by_a_lock_is_not_lost(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with sessions(scene.url, 1) as (blocker,), scene.worker(worker_poll_interval=NEVER):
        for _ in range(5):
            first = await client.enqueue("held")
            await scene.until_started(first.id)
            async with blocker.conn.transaction():
                await blocker.conn.execute("select 1 from weft.task where id = $1 for update", first.id)
                scene.let_go(first.id)
                await until_call_waits(conn)
                second = await client.enqueue("step")
            assert await client.wait(second.id, timeout=LIVENESS) == 1


async def test_what_is_enqueued_while_a_workers_line_is_down_is_found_when_it_is_up_again(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with scene.worker(worker_poll_interval=NEVER):
        for _ in range(5):
            await until_listening(conn)
            ended = await conn.fetchval(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()"
                " and query like '%finish_and_claim%' and pid <> pg_backend_pid()"
            )
            assert ended == 1
            task = await client.enqueue("step")
            assert await client.wait(task.id, timeout=LIVENESS) == 1


async def until_listening(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Return when the worker has claimed on a line of its own."""

    async def look() -> bool:
        return await conn.fetchval(
            "select exists (select 1 from pg_stat_activity where datname = current_database()"
            " and query like '%finish_and_claim%' and state = 'idle' and pid <> pg_backend_pid())"
        )

    await until(look, "the worker has claimed")


async def test_more_tasks_than_one_worker_can_hold_wake_the_next(scene: Scene, client: weft.Client) -> None:
    """One hint goes to one worker; when that one is full, the others must hear of the rest."""
    two = {"concurrency": 2, "worker_poll_interval": NEVER}
    async with scene.worker(**two), scene.worker(**two), scene.worker(**two):
        handles = await client.enqueue_many([weft.NewTask("held") for _ in range(6)])
        await scene.until_started(*(handle.id for handle in handles))


async def test_a_worker_that_was_full_takes_what_was_enqueued_meanwhile(scene: Scene, client: weft.Client) -> None:
    async with scene.worker(concurrency=2, worker_poll_interval=NEVER):
        for _ in range(3):
            full = [(await client.enqueue("held")).id for _ in range(2)]
            await scene.until_started(*full)
            more = [(await client.enqueue("step")).id for _ in range(3)]
            scene.let_go(*full)
            for task_id in more:
                assert await client.wait(task_id, timeout=LIVENESS) == 1


async def test_what_is_enqueued_while_all_are_full_and_committed_when_one_has_room_is_not_lost(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """When it is enqueued there is nobody to tell, and the look of the one that has room again comes too early."""
    async with scene.worker(concurrency=1, **CALM) as worker:
        for _ in range(3):
            first = (await client.enqueue("held")).id
            await scene.until_started(first)
            second = (await client.enqueue("step")).id
            await until(lambda: conn.fetchval(TAKES_NO_HINTS, worker.process.id), "the worker is full")
            async with conn.transaction():
                late = await client.enqueue("step", connection=conn)
                scene.let_go(first)
                await client.wait(second, timeout=LIVENESS)
                await worker.process.wait_until_idle()
                assert not await conn.fetchval(TAKES_NO_HINTS, worker.process.id)
            assert await client.wait(late.id, timeout=LIVENESS) == 1


async def test_a_worker_that_is_cut_off_while_it_says_that_it_has_room_is_told_of_the_next_task(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url, concurrency=1, **CALM) as worker:
        cut = proxy.rule("set saturated", Fault.CUT, lambda exchange: exchange.params[1] == b"\0")
        first = (await client.enqueue("held")).id
        await scene.until_started(first)
        second = (await client.enqueue("step")).id
        await until(lambda: conn.fetchval(TAKES_NO_HINTS, worker.process.id), "the worker is full")
        scene.let_go(first)
        await client.wait(second, timeout=LIVENESS)
        await cut.fired.wait()
        await worker.process.wait_until_idle()
        for _ in range(3):
            assert await client.wait((await client.enqueue("step")).id, timeout=LIVENESS) == 1


async def test_the_second_word_that_there_is_more_than_enough_is_not_lost(scene: Scene, client: weft.Client) -> None:
    """A quick task, which fills its worker, and at once as many as both can take."""
    async with scene.worker(concurrency=1, **CALM), scene.worker(concurrency=1, **CALM):
        for _ in range(8):
            await client.wait((await client.enqueue("step")).id, timeout=LIVENESS)
            both = [handle.id for handle in await client.enqueue_many([weft.NewTask("held")] * 2)]
            await scene.until_started(*both)
            scene.let_go(*both)
            for task_id in both:
                await client.wait(task_id, timeout=LIVENESS)


async def test_a_task_of_a_raised_limit_or_a_resumed_queue_starts_at_once(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    slow = {"worker_heartbeat_interval": 60, "worker_timeout": 300, "worker_poll_interval": NEVER}
    async with scene.worker(**slow):
        await client.pause_queue("default")
        task = await client.enqueue("step")
        await client.resume_queue("default")
        assert await client.wait(task.id, timeout=LIVENESS) == 1
        await client.limit_queue("default", 1, per_key=True)
        keyed = [(await client.enqueue("held", concurrency_key="k")).id for _ in range(2)]
        await scene.until_started(keyed[0])
        await client.limit_queue("default", 2, per_key=True)
        await check(conn)
        await scene.until_started(keyed[1])


async def test_a_slot_of_a_key_that_one_worker_frees_is_used_by_another(scene: Scene, client: weft.Client) -> None:
    """The worker that frees it is full, so that it cannot take the next task of the key itself."""
    slow = {"worker_heartbeat_interval": 60, "worker_timeout": 300, "worker_poll_interval": NEVER}
    await client.limit_queue("default", 1, per_key=True)
    async with scene.worker(concurrency=1, **slow):
        first = (await client.enqueue("held", concurrency_key="k")).id
        await scene.until_started(first)
        async with scene.worker(concurrency=1, **slow):
            second = (await client.enqueue("held", concurrency_key="k")).id
            other = (await client.enqueue("held", priority=5)).id
            await scene.until_started(other)
            scene.let_go(first)
            await scene.until_started(second)


async def test_a_worker_that_is_stopping_takes_no_hints(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with scene.worker(concurrency=10, **CALM) as leaving:
        held = (await client.enqueue("held")).id
        await scene.until_started(held)
        async with scene.worker(concurrency=10, **CALM):
            stopping = asyncio.create_task(leaving.stop(grace=LIVENESS))
            await until(lambda: conn.fetchval(TAKES_NO_HINTS, leaving.process.id), "it says so")
            for _ in range(5):
                assert await client.wait((await client.enqueue("step")).id, timeout=LIVENESS) == 1
            scene.let_go(held)
            await stopping


async def test_a_slot_of_a_key_that_a_stopping_worker_frees_is_used_by_another(
    scene: Scene, client: weft.Client
) -> None:
    await client.limit_queue("default", 1, per_key=True)
    async with scene.worker(concurrency=10, **CALM) as leaving:
        first = (await client.enqueue("held", concurrency_key="k")).id
        last = (await client.enqueue("held")).id
        await scene.until_started(first, last)
        async with scene.worker(concurrency=10, **CALM) as other:
            second = (await client.enqueue("held", concurrency_key="k")).id
            stopping = asyncio.create_task(leaving.stop(grace=LIVENESS))
            await other.process.wait_until_idle()
            scene.let_go(first)
            await scene.until_started(second)
            scene.let_go(last)
            await stopping


async def test_a_task_that_waited_for_one_of_another_queue_is_started_by_that_queues_worker(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with scene.worker(queues=("one",), **CALM), scene.worker(queues=("two",), **CALM) as two:
        first = (await client.enqueue("held", queue="one")).id
        await scene.until_started(first)
        await client.pause_queue("two")
        second = (await client.enqueue("step", queue="two")).id
        async with conn.transaction():
            assert await graph.hold(conn, second)
            assert await graph.add_edge(conn, first, second)
        await client.resume_queue("two")
        await client.wait((await client.enqueue("step", queue="two")).id, timeout=LIVENESS)
        await two.process.wait_until_idle()
        scene.let_go(first)
        await client.wait(second, timeout=LIVENESS)


async def test_the_next_of_a_key_is_started_when_its_holder_is_buried(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.limit_queue("default", 1, per_key=True)
    await client.enqueue("step", concurrency_key="k")
    async with sessions(scene.url, 1) as (ghost,):
        await ghost.register()
        assert len(await ghost.claim()) == 1
        async with scene.worker(**CALM, worker_loss_limit=1):
            second = (await client.enqueue("step", concurrency_key="k")).id
            await conn.execute("update weft.worker set state = 'lost' where id = $1", ghost.worker_id)
            # Or the worker itself, which may have become the leader meanwhile, has done it.
            async with conn.transaction():
                await upkeep.rescue(conn, ghost.worker_id, 1)
            await client.wait(second, timeout=LIVENESS)


async def test_idle_workers_of_a_limited_queue_fall_silent(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Each that gives its slots back could wake the other, for ever."""
    await client.limit_queue("default", 6)
    async with scene.worker(concurrency=10, **CALM) as one, scene.worker(concurrency=10, **CALM) as two:
        heard: list[object] = []
        for worker in (one, two):
            await conn.add_listener(f"weft_worker_{worker.process.id}", lambda *message: heard.append(message))
        for handle in await client.enqueue_many([weft.NewTask("step")] * 30):
            await client.wait(handle.id, timeout=LIVENESS)

        async def is_silent() -> bool:
            before = len(heard)
            await asyncio.sleep(0.5)
            return len(heard) == before

        await until(is_silent, "no worker wakes another")
        await client.pause_queue("default")
        await client.enqueue("step")
        await until(is_silent, "no worker wakes another for what may not be claimed", 10)
