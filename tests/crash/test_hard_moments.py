"""Moments at which a worker could lose its way: each is brought about by an answer that is held back or cut off."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.harness import LIVENESS, opened, until
from crash.proxy import Fault, proxy_to
from crash.scene import NEVER, Scene
from crash.sessions import Session, sessions
from weft.queue.work import UNLIMITED, Lane
from weft.queue.workers import Pulse
from weft.worker.database_store import DatabasePulses
from weft.worker.heart import Heart
from weft.worker.slots import Slots

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

# So rare that nothing which happens here is the doing of a beat.
STILL = {"worker_heartbeat_interval": 600, "worker_timeout": 1800, "worker_poll_interval": NEVER}
LIMITS = "select q.id, q.max_running from weft.queue"
HELD_BY = "t.worker_id = $1 and t.state = 'running' order by t.id"
FINISHED_BY = "d.worker_id = $1 and d.attempt = r.attempt and d.state = 'completed'"


# --- starting and stopping ---


async def test_a_worker_that_fails_to_start_anew_tries_again(scene: Scene, client: weft.Client, conn: Conn) -> None:
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url) as worker:
        first = worker.process.id
        cut = proxy.rule(LIMITS, Fault.CUT)
        await conn.execute("update weft.worker set state = 'lost'")
        await cut.fired.wait()
        assert await client.wait((await client.enqueue("step")).id, timeout=LIVENESS) == 1
        assert worker.process.id != first


async def test_a_worker_whose_first_start_failed_can_be_run(scene: Scene, client: weft.Client) -> None:
    async with proxy_to(scene.url) as proxy, weft.Client(settings=scene.settings(proxy.url)) as own:
        worker = weft.Worker(client=own, registry=scene.registry)
        proxy.rule(LIMITS, Fault.CUT)
        with pytest.raises(weft.WeftError, match="cannot reach PostgreSQL"):
            await worker.run()
        running = asyncio.create_task(worker.run())
        assert await client.wait((await client.enqueue("step")).id, timeout=LIVENESS) == 1
        await worker.stop()
        await running


async def test_the_services_of_a_worker_do_not_outlive_it(scene: Scene) -> None:
    """A pulse that tells it to lead is on its way when it stops."""
    async with proxy_to(scene.url) as proxy, weft.Client(settings=scene.settings(proxy.url)) as own:
        held = proxy.hold("weft.heartbeat")
        worker = await weft.Worker(client=own, registry=scene.registry).start()
        await held.fired.wait()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0.2)
        assert held.gate is not None
        held.gate.set()
        await stopping
        await asyncio.sleep(0.2)
        assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("weft-")] == []


async def test_a_heart_that_was_stopped_tells_nothing_any_more(scene: Scene) -> None:
    """What it would tell is about a name that the worker does not have any more."""
    pulses: list[Pulse | None] = []
    async with proxy_to(scene.url) as proxy, opened(scene.settings(proxy.url)) as database:
        held = proxy.hold("weft.heartbeat")
        heart = Heart(
            DatabasePulses(database, 5, scene.settings()), interval=timedelta(seconds=0.1),
            lease=timedelta(seconds=60), on_pulse=pulses.append,
            counters=lambda: (False, 0, 0), overdue=lambda _: None,
        )  # fmt: skip
        heart.start()
        await held.fired.wait()
        await heart.stop()
        assert held.gate is not None
        held.gate.set()
        await until(lambda: _has_ended("weft-heart"), "its thread has ended")
    assert pulses == []


async def _has_ended(name: str) -> bool:
    return name not in [thread.name for thread in threading.enumerate()]


async def test_work_until_idle_ends_when_the_worker_is_stopped(scene: Scene, client: weft.Client) -> None:
    worker = weft.Worker(client=client, registry=scene.registry)
    held = (await client.enqueue("held")).id
    running = asyncio.create_task(worker.run_until_idle())
    await scene.until_started(held)
    await worker.stop(grace=0)
    await asyncio.wait_for(running, LIVENESS)


async def test_what_a_worker_counted_before_it_started_anew_is_not_counted_again(
    scene: Scene, client: weft.Client, conn: Conn
) -> None:
    async with scene.worker():
        for handle in await client.enqueue_many([weft.NewTask("step")] * 20):
            await client.wait(handle.id, timeout=LIVENESS)
        counted = "select sum(completed)::int from weft.worker"
        await until(lambda: conn.fetchval(f"select ({counted}) = 20"), "they are counted")
        await conn.execute("update weft.worker set state = 'lost'")
        await client.wait((await client.enqueue("step")).id, timeout=LIVENESS)
    assert await conn.fetchval(counted) == 21


async def test_whoever_awaits_run_hears_of_a_stop_when_all_is_given_back(scene: Scene, client: weft.Client) -> None:
    worker = weft.Worker(client=client, registry=scene.registry)
    running = asyncio.create_task(worker.run())
    held = (await client.enqueue("held")).id
    await scene.until_started(held)
    stopping = asyncio.create_task(worker.stop(grace=0))
    await running
    assert (await client.get_task(held)).state == "ready"
    await stopping


async def test_a_stop_while_it_starts_stops_it_and_two_starts_make_one_worker(
    scene: Scene, client: weft.Client
) -> None:
    worker = weft.Worker(client=client, registry=scene.registry)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    await worker.stop()
    await asyncio.wait_for(running, LIVENESS)
    await asyncio.gather(worker.start(), worker.start())
    await worker.stop()
    assert [info.state for info in await client.workers()] == ["stopped", "stopped"]


async def test_a_worker_that_was_idle_works_off_what_came_meanwhile(scene: Scene, client: weft.Client) -> None:
    for _ in range(5):
        async with scene.worker(**STILL) as worker:
            await worker.process.wait_until_idle()
            task_id = (await client.enqueue("step")).id
            await worker.run_until_idle()
            assert (await client.get_task(task_id)).state == "completed"


# --- limits ---


async def test_a_limit_that_was_lifted_and_set_again_gives_no_slots_that_were_not_asked_for(
    scene: Scene, client: weft.Client
) -> None:
    await client.limit_queue("default", 4)
    async with opened(scene.settings()) as database, sessions(scene.url, 2) as (one, two):
        mine, others = Slots(database, await one.register()), Slots(database, await two.register())
        lanes, other_lanes = [Lane(1)], [Lane(1)]
        await mine.refresh(lanes)
        await client.limit_queue("default", None)
        await mine.lease(lanes, dict, 4)
        await client.limit_queue("default", 4)
        for slots, its_lanes in ((mine, lanes), (others, other_lanes)):
            await slots.refresh(its_lanes)
            await slots.lease(its_lanes, dict, 4)
        assert lanes[0].room + other_lanes[0].room == 4


async def test_what_is_being_declined_counts_against_the_limit(scene: Scene, client: weft.Client, conn: Conn) -> None:
    await client.limit_queue("default", 1)
    await client.enqueue_many([weft.NewTask("nobody knows it"), weft.NewTask("held")])
    async with proxy_to(scene.url) as proxy:
        held = proxy.hold("reason = 'no_handler'")
        async with scene.worker(proxy.url, **STILL):
            await held.fired.wait()
            await client.enqueue("held")  # a hint: the worker looks again
            await asyncio.sleep(0.5)
            assert await conn.fetchval("select count(*) from weft.task where state = 'running'") <= 1
            assert scene.started == []
            assert held.gate is not None
            held.gate.set()
            await until(lambda: _is_true(bool(scene.started)), "the next one begins")


async def test_a_limit_that_is_lifted_while_slots_are_given_back_leaves_all_the_room(
    scene: Scene, client: weft.Client, conn: Conn
) -> None:
    await client.limit_queue("default", 1)
    lanes = [Lane(1)]
    async with opened(scene.settings()) as database, sessions(scene.url, 1) as (session,):
        slots = Slots(database, await session.register())
        await slots.refresh(lanes)
        await slots.lease(lanes, dict, 5)
        async with conn.transaction():
            await conn.execute("select 1 from weft.worker for update")
            giving = asyncio.create_task(slots.give_back(lanes, dict))
            await until(lambda: _waits_for_a_lock(conn), "the give-back waits")
            await client.limit_queue("default", None)
            await slots.refresh(lanes)
        await giving
    assert (lanes[0].room, slots.is_limited) == (UNLIMITED, False)


async def _is_true(value: bool) -> bool:
    return value


async def _waits_for_a_lock(conn: Conn) -> bool:
    # In a transaction, what was seen first would be seen again and again.
    await conn.execute("select pg_stat_clear_snapshot()")
    return bool(
        await conn.fetchval(
            "select exists (select 1 from pg_stat_activity where wait_event_type = 'Lock'"
            " and datname = current_database())"
        )
    )


# --- outcomes and claims ---


async def test_room_that_an_outcome_settled_apart_has_made_is_used(
    scene: Scene, client: weft.Client, conn: Conn, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene.worker(concurrency=1, **STILL) as worker, sessions(url, 1) as (blocker,):
        first = (await client.enqueue("held")).id
        await scene.until_started(first)
        second = (await client.enqueue("step")).id
        full = "select saturated from weft.worker where id = $1"
        await until(lambda: conn.fetchval(full, worker.process.id), "the worker has heard of it, and has no room")
        async with blocker.conn.transaction():
            await blocker.conn.execute("select 1 from weft.task where id = $1 for update", first)
            scene.let_go(first)
            await until(lambda: _is_true("settled later" in caplog.text), "it is put aside")
        assert await client.wait(second, timeout=LIVENESS) == 1


async def test_an_outcome_settled_apart_while_the_worker_asks_what_it_holds_is_not_adopted(
    scene: Scene, client: weft.Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The look is answered before, and heard after the outcome has landed."""
    often = {"worker_heartbeat_interval": 0.05, "worker_timeout": 60, "worker_poll_interval": NEVER}
    async with proxy_to(url) as proxy, scene.worker(proxy.url, concurrency=2, **often):
        async with sessions(url, 1) as (blocker,):
            first = (await client.enqueue("held")).id
            await scene.until_started(first)
            async with blocker.conn.transaction():
                await blocker.conn.execute("select 1 from weft.task where id = $1 for update", first)
                scene.let_go(first)
                await until(lambda: _is_true("settled later" in caplog.text), "it is put aside")
                held = proxy.hold(HELD_BY)
                await held.fired.wait()
            await until(lambda: _waits_or_is_settled(client, first), "it is tried to settle it")
            assert held.gate is not None
            held.gate.set()
        assert await client.wait(first, timeout=LIVENESS) == 1
        assert await client.wait((await client.enqueue("step")).id, timeout=LIVENESS) == 1
    assert scene.started.count((first, 1)) == 1


async def _waits_or_is_settled(client: weft.Client, task_id: int) -> bool:
    """Whether somebody waits for a lock of this event loop, or has settled the task without one."""
    for task in asyncio.all_tasks():
        call: Any = task.get_coro()
        while call is not None:
            if getattr(call, "__qualname__", "") == asyncio.Lock.acquire.__qualname__:
                return True
            call = getattr(call, "cr_await", None)
    return await _is(client, task_id, "completed")


async def test_a_claim_that_is_cancelled_before_it_begins_does_not_begin(scene: Scene, client: weft.Client) -> None:
    """It waits for the next call, and that for slots of its queue: the worker has more room than one claim takes."""
    await client.create_queue("aside")
    await client.limit_queue("default", 600)
    async with proxy_to(scene.url) as proxy:
        leases = proxy.hold("insert into weft.queue_slot", lambda exchange: exchange.integer(2) > 500)
        async with scene.worker(proxy.url, concurrency=601, queues=("default", "aside"), **STILL):
            witness = (await client.enqueue("held", queue="aside")).id
            await scene.until_started(witness)
            ids = [handle.id for handle in await client.enqueue_many([weft.NewTask("held")] * 600)]
            await leases.fired.wait()
            await _cancel_and_be_heard(scene, client, ids[0], witness)
            assert leases.gate is not None
            leases.gate.set()
            await scene.until_started(*ids[1:])
    assert (ids[0], 1) not in scene.started


async def _cancel_and_be_heard(scene: Scene, client: weft.Client, task_id: int, witness: int) -> None:
    """Cancel a task, and return when its worker has heard of it: of a held one that it runs it hears after that."""
    await client.cancel(task_id)
    await client.cancel(witness)
    await until(lambda: _is_true(witness not in scene.running), "the worker has heard of both")


async def test_an_outcome_that_is_noted_while_others_are_settled_is_not_lost_with_one_that_is_cancelled(
    scene: Scene, client: weft.Client, url: str
) -> None:
    leaves: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    began: list[str] = []

    @scene.registry.task(name="fails", retry=weft.Retry(2, initial_delay=3600))
    async def fails(name: str) -> None:
        began.append(name)
        await leaves[name].wait()
        raise ValueError(name)

    async def one_of_three_is_cancelled_amid_it(blocker: Session) -> bool:
        began.clear()
        leaves.clear()
        witness = (await client.enqueue("held")).id
        await scene.until_started(witness)
        names = ("low", "high", "third")
        ids = {name: (await client.enqueue("fails", {"name": name}, max_attempts=2)).id for name in names}
        await until(lambda: _is_true(len(began) == 3), "all of them run")
        async with blocker.conn.transaction():
            await blocker.conn.execute("select 1 from weft.task where id = $1 for update", ids["low"])
            leaves["low"].set()
            leaves["high"].set()
            await until(lambda: _waits_for_a_lock(blocker.conn), "both are being settled")
            leaves["third"].set()
            try:
                await _cancel_and_be_heard(scene, client, ids["high"], witness)
                in_time = True
            except weft.StateConflict:  # the worker's wait for the lock had ended before, and this one was settled
                await client.cancel(witness)
                in_time = False
        await until(lambda: _is(client, ids["third"], "scheduled"), "the third is settled")
        await until(lambda: _is(client, ids["low"], "scheduled"), "the first is settled")
        return in_time

    async with scene.worker(**STILL), sessions(url, 1) as (blocker,):
        for _ in range(5):
            if await one_of_three_is_cancelled_amid_it(blocker):
                return
        raise AssertionError("no cancel came while the worker waited for the lock")


async def test_a_decline_that_went_wrong_is_made_again(scene: Scene, client: weft.Client) -> None:
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url, **STILL):
        cut = proxy.rule("reason = 'no_handler'", Fault.CUT)
        task_id = (await client.enqueue("nobody knows it")).id
        await cut.fired.wait()
        await until(lambda: _is(client, task_id, "scheduled"), "it is left to others")


async def _is(client: weft.Client, task_id: int, state: str) -> bool:
    return (await client.get_task(task_id)).state == state


async def test_a_handler_that_completed_in_its_own_transaction_is_not_ended_by_its_heartbeat(
    scene: Scene, client: weft.Client, url: str
) -> None:
    """The lease is gone because the task is done, not because somebody else has it."""
    ended: list[str] = []
    go = asyncio.Event()

    @scene.registry.task(name="book")
    async def book(ctx: weft.Context) -> None:
        own = await asyncpg.connect(url)
        await ctx.complete_in(own, "booked")  # type: ignore[misc]
        await own.close()
        ctx.heartbeat()
        try:
            await go.wait()
            ended.append("by itself")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with proxy_to(url) as proxy, scene.worker(proxy.url, **STILL) as worker:
        looked = proxy.rule(FINISHED_BY, Fault.PASS)
        handle = await client.enqueue("book", heartbeat_timeout=60)
        assert await client.wait(handle.id, timeout=LIVENESS) == "booked"
        await asyncio.wait_for(looked.fired.wait(), LIVENESS)
        # Claimed after the answer to that look was heard.
        assert await client.wait((await client.enqueue("step")).id, timeout=LIVENESS) == 1
        go.set()
        await worker.process.wait_until_idle()
    assert ended == ["by itself"]


async def test_tasks_postponed_together_each_come_back_when_they_are_due(
    scene: Scene, client: weft.Client, conn: Conn
) -> None:
    """Another worker leads, and would hear of them only with its next beat."""

    @scene.registry.task(name="later")
    async def later(delay: float, ctx: weft.Context) -> int:
        if ctx.attempt == 1:
            raise weft.Snooze(delay)
        return ctx.attempt

    await client.create_queue("elsewhere")
    async with scene.worker(queues=("elsewhere",), **STILL):
        await until(lambda: conn.fetchval("select exists (select 1 from weft.lease)"), "somebody leads")
        async with scene.worker(**STILL):
            delays = (0.1, 0.4, 1.0)
            for handle in await client.enqueue_many([weft.NewTask("later", {"delay": delay}) for delay in delays]):
                assert await client.wait(handle.id, timeout=LIVENESS) == 2


# --- clients ---


async def test_calls_at_once_lease_one_machine_number(client: weft.Client, conn: Conn) -> None:
    leased = "select count(*) from weft.machine where until > weft.now()"
    before = await conn.fetchval(leased)
    await asyncio.gather(*(client.enqueue_many([weft.NewTask("step")]) for _ in range(50)))
    assert await conn.fetchval(leased) == before + 1


async def test_a_task_that_is_replayed_when_it_has_just_ended_is_waited_for(scene: Scene, client: weft.Client) -> None:
    async with proxy_to(scene.url) as proxy, weft.Client(settings=scene.settings(proxy.url)) as own:
        task_id = (await client.enqueue("step")).id
        look = "where not exists (select 1 from weft.task t where t.id = u.id)"
        goes_on = proxy.rule(look, Fault.PASS, lambda e: e.rows == 0)
        ends = proxy.hold(look, lambda e: e.rows > 0)
        waiting = asyncio.create_task(own.wait(task_id, timeout=LIVENESS))
        await goes_on.fired.wait()
        await client.cancel(task_id)
        await ends.fired.wait()
        await client.replay(task_id)
        assert ends.gate is not None
        ends.gate.set()
        async with scene.worker():
            assert await waiting == 1


async def test_what_the_caller_raises_is_not_hidden_by_a_goodbye_that_fails(scene: Scene) -> None:
    async def work(url: str) -> None:
        async with weft.Client(settings=scene.settings(url)) as own:
            await own.enqueue_many([weft.NewTask("step")])
            proxy.reset_all()
            await proxy.stop()
            raise ValueError("the caller's own")

    async with proxy_to(scene.url) as proxy:
        with pytest.raises(ValueError, match="the caller's own"):
            await work(proxy.url)
