"""Limits: never exceeded, whoever claims and whoever dies, and never a reason to stand still."""

from __future__ import annotations

import random

import asyncpg
import pytest

import weft
from crash.checker import breaches, check, check_outcomes
from crash.harness import LIVENESS, Crew, Process, opened, until, until_call_waits, until_settled
from crash.proxy import Fault, proxy_to
from crash.scene import NEVER, Scene
from crash.sessions import sessions
from weft.core.errors import WeftError
from weft.db.database import CONNECTION_ERRORS
from weft.queue import queues
from weft.queue.work import Lane
from weft.worker.slots import Slots

PATIENT = {"worker_loss_limit": 1000}


@pytest.mark.timeout(300)
async def test_limits_are_never_exceeded_while_holders_are_killed_and_slots_come_back(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    """Eight workers, a queue of at most 5 at once, and keys of at most 2; the ledger counts who runs."""
    kills = 4 if campaign == "short" else 60
    draw = random.Random(6)
    queues = ("narrow", "keyed")
    for name in queues:
        await client.create_queue(name)
    await client.limit_queue("narrow", 5)
    await client.limit_queue("keyed", 2, per_key=True)

    def tasks(count: int) -> list[weft.NewTask]:
        made = []
        for _ in range(count):
            params = {"folder": str(crew.folder), "seconds": draw.choice((0.02, 0.1, 0.3))}
            key = f"key-{draw.randrange(3)}"
            made.append(weft.NewTask("work", {**params, "tag": "narrow"}, queue="narrow"))
            made.append(weft.NewTask("work", {**params, "tag": key}, queue="keyed", concurrency_key=key))
        return made

    workers = await crew.workers(8, queues=queues, concurrency=4, **PATIENT)
    for _ in range(kills):
        handles = await client.enqueue_many(tasks(12))
        await crew.until_any_started({handle.id for handle in handles})
        victim = draw.choice(await holders(conn, workers) if draw.random() < 0.8 else workers)
        await victim.kill()
        workers.remove(victim)
        workers.append(await crew.worker(queues=queues, concurrency=4, **PATIENT))
        assert await breaches(conn) == {}
    await until_settled(conn)
    ledger = crew.ledger()
    most = ledger.most_at_once()
    print(f"limits: {kills} kills, {len(ledger.spans)} attempts, at most {most} at once")
    assert most.pop("narrow") <= 5
    assert max(most.values()) <= 2
    assert set(await check_outcomes(conn, ledger)) == {"completed"}


async def holders(conn: asyncpg.Connection[asyncpg.Record], workers: list[Process]) -> list[Process]:
    """Return those of the workers that hold tasks now."""

    async def look() -> list[Process]:
        rows = await conn.fetch("select distinct w.pid from weft.task t join weft.worker w on w.id = t.worker_id")
        pids = {row[0] for row in rows}
        return [worker for worker in workers if worker.pid in pids]

    found: list[Process] = await until(look, "someone holds a task")
    return found


async def test_a_limited_queue_goes_on_without_waiting_for_a_heartbeat(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.limit_queue("default", 2)
    tasks = await client.enqueue_many([weft.NewTask("step") for _ in range(50)])
    slow = {"worker_heartbeat_interval": 600, "worker_timeout": 1800, "worker_poll_interval": NEVER}
    async with scene.worker(concurrency=10, **slow):
        for task in tasks:
            await client.wait(task.id, timeout=60)
    assert scene.most_running <= 2
    await check(conn)


async def test_a_worker_with_no_room_leaves_the_slots_of_a_queue_to_others(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """It has run tasks of the limited queue, and is now full of others."""
    await client.create_queue("narrow")
    await client.limit_queue("narrow", 2)
    async with scene.worker(concurrency=3, queues=("narrow", "default")):
        first = await client.enqueue("step", queue="narrow")
        await client.wait(first.id, timeout=LIVENESS)
        full = [(await client.enqueue("held")).id for _ in range(3)]
        await scene.until_started(*full)
        async with scene.worker(concurrency=3, queues=("narrow",)):
            second = await client.enqueue("step", queue="narrow")
            assert await client.wait(second.id, timeout=LIVENESS) == 1
            await check(conn)


async def test_a_lowered_limit_takes_hold_while_there_is_always_work(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.limit_queue("default", 4)
    async with scene.worker(concurrency=3), scene.worker(concurrency=3):
        held = [handle.id for handle in await client.enqueue_many([weft.NewTask("held") for _ in range(8)])]

        async def four_run() -> bool:
            return len(scene.running) == 4

        await until(four_run, "four run")
        await client.limit_queue("default", 1)
        scene.let_go(*held)

        async def has_shrunk() -> bool:
            if await conn.fetchval("select count(*) from weft.task") < 20:
                await client.enqueue_many([weft.NewTask("step") for _ in range(50)])
            return await conn.fetchval("select sum(slots) <= 1 from weft.queue_slot") and not set(held) & scene.running

        await until(has_shrunk, "the slots beyond the limit are given back")
        scene.most_running = 0
        await until_settled(conn)
        assert scene.most_running <= 1
    await check(conn)


async def test_a_cancelled_task_that_had_just_ended_does_not_stop_a_worker_with_limits(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Its outcome waits behind a call that is held up by a lock, when the word comes that it was cancelled."""
    await client.limit_queue("default", 4)
    async with sessions(scene.url, 1) as (blocker,), scene.worker(concurrency=4) as worker:
        first, second = [(await client.enqueue("held")).id for _ in range(2)]
        await scene.until_started(first, second)
        async with blocker.conn.transaction():
            await blocker.conn.execute("select 1 from weft.task where id = $1 for update", first)
            scene.let_go(first)
            await until_call_waits(conn)
            scene.let_go(second)
            await client.cancel(second)
        third = await client.enqueue("step")
        assert await client.wait(third.id, timeout=LIVENESS) == 1
        assert await client.wait(first, timeout=LIVENESS) == 1
        assert (await client.get_task(second)).state == "cancelled"
    assert worker.process.completed == 2
    await check(conn)


async def test_a_worker_that_does_not_hear_that_its_slots_are_gone_does_not_use_them(
    scene: Scene, client: weft.Client
) -> None:
    """The give-back is committed, its answer lost, and another worker has the slots by the time this one asks again."""
    await client.limit_queue("default", 4)
    lanes = [Lane(1)]
    async with (
        proxy_to(scene.url) as proxy, opened(scene.settings(proxy.url)) as database,
        sessions(scene.url, 2) as (one, two),
    ):  # fmt: skip
        slots = Slots(database, await one.register())
        await slots.refresh(lanes)
        await slots.lease(lanes, dict, 4)
        assert lanes[0].room == 4
        proxy.rule("COMMIT", Fault.CUT, lambda e: any("weft.queue_slot" in text for text in e.before), times=100)
        with pytest.raises((WeftError, *CONNECTION_ERRORS)):
            await slots.give_back(lanes, dict)
        proxy.rules.clear()
        await two.register()
        assert await queues.lease_slots(two.conn, 1, two.worker_id, 4, 0) == 4
        await slots.lease(lanes, dict, 4)
        assert lanes[0].room == 0
