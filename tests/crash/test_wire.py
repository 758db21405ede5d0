"""Faults on the wire between a worker or a caller and PostgreSQL, each at the moment where it hurts most."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import asyncpg
import pytest

import weft
from crash.checker import check, check_outcomes
from crash.harness import LIVENESS, Crew, until, until_settled
from crash.proxy import Exchange, Fault, proxy_to
from crash.scene import NEVER, Scene
from weft.cli.task_logs import print_log
from weft.db.database import CONNECTION_ERRORS

TROUBLE = (*CONNECTION_ERRORS, weft.WeftError, TimeoutError)
HOT = "weft.finish_and_claim"


@pytest.fixture(autouse=True)
def echo(scene: Scene) -> None:
    @scene.registry.task(name="echo")
    async def echo(text: str) -> int:
        return len(text)


def finishes(exchange: Exchange) -> bool:
    """Whether the call brought outcomes."""
    return exchange.is_committed and exchange.array_length(1) > 0


def claims(exchange: Exchange) -> bool:
    """Whether the call claimed tasks, and brought no outcomes."""
    return exchange.is_committed and exchange.rows > 0 and not finishes(exchange)


def finishes_and_claims(exchange: Exchange) -> bool:
    """Whether the call did both."""
    return finishes(exchange) and exchange.rows > 0


async def test_an_outcome_that_landed_unheard_is_accepted_once(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url) as worker:
        rule = proxy.rule(HOT, Fault.CUT, finishes)
        task = await client.enqueue("step")
        await rule.fired.wait()
        assert (await client.get_task(task.id)).state == "completed"
        again = await client.enqueue("step")
        assert await client.wait(again.id, timeout=LIVENESS) == 1
        await until_settled(conn)
        assert scene.started == [(task.id, 1), (again.id, 1)]
        await until_counted(worker, 2)
        assert worker.process.fenced == 0
    await check(conn)


async def test_tasks_whose_claim_landed_unheard_are_adopted(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with proxy_to(scene.url) as proxy:
        rule = proxy.rule(HOT, Fault.CUT, claims)
        tasks = await client.enqueue_many([weft.NewTask("step") for _ in range(3)])
        async with scene.worker(proxy.url) as worker:
            await rule.fired.wait()
            assert [await client.wait(task.id, timeout=LIVENESS) for task in tasks] == [1, 1, 1]
            assert sorted(scene.started) == [(task.id, 1) for task in tasks]
            await until_counted(worker, 3)
            assert worker.process.fenced == 0
    await check(conn)


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.HOLE], ids=lambda fault: fault.value)
async def test_an_outcome_and_a_claim_that_both_landed_unheard(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], fault: Fault
) -> None:
    async with proxy_to(scene.url) as proxy:
        rule = proxy.rule(HOT, fault, finishes_and_claims)
        tasks = await client.enqueue_many([weft.NewTask("step") for _ in range(3)])
        async with scene.worker(proxy.url, concurrency=1) as worker:
            await rule.fired.wait()
            assert [await client.wait(task.id, timeout=LIVENESS) for task in tasks] == [1, 1, 1]
            assert scene.started == [(task.id, 1) for task in tasks]
            assert scene.most_running == 1
            await until_counted(worker, 3)
            assert worker.process.fenced == 0
    await check(conn)


@pytest.mark.parametrize("text", ["LISTEN", "from weft.task t where t.worker_id = $1"], ids=["listen", "held_by"])
async def test_a_worker_whose_line_falls_silent_while_it_recovers_comes_back_by_itself(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], text: str
) -> None:
    """One connection goes dead in the network, the heart's does not: the lease is kept, so nobody else would help."""
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url):
        first = await client.enqueue("step")
        await client.wait(first.id, timeout=LIVENESS)
        silent = proxy.rule(text, Fault.HOLE)
        proxy.rule(HOT, Fault.CUT, claims)
        long = await client.enqueue("echo", {"text": "x" * 1000})
        await silent.fired.wait()
        assert await client.wait(long.id, timeout=LIVENESS) == 1000
        assert await conn.fetchval("select count(*) from weft.attempt") == 0
    await check(conn)


async def until_counted(worker: weft.Worker, completed: int) -> None:
    """Return when the worker has heard of its outcomes."""

    async def has_heard() -> bool:
        return worker.process.completed == completed

    await until(has_heard, f"the worker has counted {completed} outcomes")


async def test_a_failure_that_was_recorded_unheard_is_recorded_once(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @scene.registry.task(name="fail")
    async def fail() -> None:
        raise ValueError("no")

    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url):
        rule = proxy.rule("COMMIT", Fault.CUT, lambda e: any("weft.attempt" in text for text in e.before), times=2)
        task = await client.enqueue("fail", retry=weft.Retry(max_attempts=3, initial_delay=0))
        with pytest.raises(weft.TaskFailed):
            await client.wait(task.id, timeout=LIVENESS)
        await rule.fired.wait()
    dead = await client.get_task(task.id)
    assert (dead.state, dead.failures, [a.attempt for a in dead.attempts]) == ("dead", 3, [1, 2, 3])
    await check(conn)


async def test_a_caller_that_did_not_hear_calls_again_with_its_key_and_creates_nothing(
    scene: Scene, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with proxy_to(scene.url) as proxy, weft.Client(settings=scene.settings(proxy.url)) as client:
        rule = proxy.rule("created from weft.", Fault.CUT, lambda e: e.is_committed)
        # The client may call again by itself, for with a key that does no harm.
        with contextlib.suppress(*TROUBLE):
            await client.enqueue("step", idempotency_key="k")
        landed = await conn.fetchval("select id from weft.task")
        handle = await client.enqueue("step", idempotency_key="k")
        assert (handle.id, handle.created, len(rule.seen)) == (landed, False, 1)
    assert await conn.fetchval("select count(*) from weft.task") == 1
    await check(conn)


async def test_a_call_without_a_key_that_was_not_heard_is_not_made_again_in_silence(
    scene: Scene, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with proxy_to(scene.url) as proxy, weft.Client(settings=scene.settings(proxy.url)) as client:
        proxy.rule("created from weft.", Fault.CUT, lambda e: e.is_committed)
        with pytest.raises(TROUBLE):
            await client.enqueue("step")
    assert await conn.fetchval("select count(*) from weft.task") == 1


async def test_a_caller_of_many_that_did_not_hear_calls_again_with_their_keys_and_creates_nothing(
    scene: Scene, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    new = [weft.NewTask("step", idempotency_key=f"k{n}") for n in range(50)]
    async with proxy_to(scene.url) as proxy, weft.Client(settings=scene.settings(proxy.url)) as client:
        rule = proxy.rule("COMMIT", Fault.CUT, lambda e: any("idempotency_key" in text for text in e.before))
        with contextlib.suppress(*TROUBLE):
            await client.enqueue_many(new)
        landed = [row[0] for row in await conn.fetch("select id from weft.task order by id")]
        handles = await client.enqueue_many(new)
        assert [handle.id for handle in handles] == landed
        assert not any(handle.created for handle in handles)
        assert len(rule.seen) == 1
    await check(conn)


async def test_others_take_over_from_a_worker_that_is_cut_off_and_it_comes_back_by_itself(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Its packets go nowhere, and nobody resets its connections: those it has stay dead after the network is back."""
    async with proxy_to(crew.url) as proxy:
        cut_off = await crew.worker(database_url=proxy.url)
        task = await client.enqueue("gated", {"folder": str(crew.folder)})
        await crew.until_started(task.id)
        proxy.partition()
        other = await crew.worker()
        await crew.until_started(task.id, attempt=2)
        (crew.folder / "open").touch()
        await client.wait(task.id, timeout=LIVENESS)
        await other.kill()
        proxy.heal()
        again = await client.enqueue("work", {"folder": str(crew.folder)})
        assert (await client.wait(again.id, timeout=LIVENESS))["pid"] == cut_off.pid
        assert await conn.fetchval("select count(*) from weft.worker where pid = $1", cut_off.pid) == 2
        done = await client.get_task(task.id)
        assert (done.attempt, [a.outcome for a in done.attempts]) == (2, ["lost"])
        await check_outcomes(conn, crew.ledger())
        await cut_off.kill()


async def test_whoever_is_cut_off_inside_a_transaction_does_not_hold_up_the_others_for_ever(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The server cannot know that it will never hear of the end: it holds the locks of a task and of its key."""
    async with proxy_to(scene.url) as proxy, weft.Client(settings=scene.settings(proxy.url)) as lost:
        async with scene.worker():
            first, second = [(await client.enqueue("held", concurrency_key="k")).id for _ in range(2)]
            await scene.until_started(first, second)
            rule = proxy.rule("weft.free_slots", Fault.HOLE)
            cancel = asyncio.create_task(lost.cancel(first))
            await rule.fired.wait()
            scene.let_go(first, second)
            assert await client.wait(first, timeout=LIVENESS) == 1
            assert await client.wait(second, timeout=LIVENESS) == 1
        cancel.cancel()
        await asyncio.gather(cancel, return_exceptions=True)
    await check(conn)


async def test_a_worker_whose_connections_are_reset_again_and_again_loses_nothing(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    draw = random.Random(4)
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url, concurrency=10) as worker:
        tasks = []
        for _ in range(15):
            counted = worker.process.completed
            tasks += await client.enqueue_many([weft.NewTask("step") for _ in range(20)])
            await until_counted_at_least(worker, counted + draw.randrange(15))
            proxy.reset_all()
        for task in tasks:
            await client.wait(task.id, timeout=LIVENESS)
        assert len(scene.started) == len(set(scene.started)), "an attempt was begun twice"
    await check(conn)


async def until_counted_at_least(worker: weft.Worker, completed: int) -> None:
    """Return when the worker has completed so many tasks."""

    async def has_completed() -> bool:
        return worker.process.completed >= completed

    await until(has_completed, f"the worker completed {completed} tasks")


@pytest.mark.parametrize("seed", [1, 2])
async def test_answers_lost_at_random_lose_no_task_and_begin_no_attempt_twice(
    scene: Scene, conn: asyncpg.Connection[asyncpg.Record], seed: int
) -> None:
    """Of all statements of the workers and of the caller, one in thirty is executed and its answer lost."""
    draw = random.Random(seed)
    async with (
        proxy_to(scene.url) as proxy,
        scene.worker(proxy.url, concurrency=5),
        scene.worker(proxy.url, concurrency=5),
    ):
        acknowledged: set[int] = set()
        async with weft.Client(settings=scene.settings(proxy.url)) as caller:
            rule = proxy.rule("", Fault.CUT, lambda _: draw.random() < 1 / 30, times=10**6)
            for n in itertools.count():
                if n >= 60 and len(rule.seen) >= 10:
                    break
                new = [weft.NewTask("step", idempotency_key=f"{n}-{m}") for m in range(draw.randrange(1, 8))]
                acknowledged |= await persistently(caller, new)
            rule.times = 0
        await until_settled(conn)
    ended = dict(await conn.fetch("select id, state::text from weft.task_done"))
    assert acknowledged == ended.keys()
    assert set(ended.values()) == {"completed"}
    assert len(scene.started) == len(set(scene.started)), "an attempt was begun twice"
    await check(conn)


async def persistently(caller: weft.Client, new: list[weft.NewTask]) -> set[int]:
    """Enqueue, again and again until it is heard that it landed."""
    while True:
        try:
            if len(new) == 1:
                return {(await caller.enqueue("step", idempotency_key=new[0].idempotency_key)).id}
            return {handle.id for handle in await caller.enqueue_many(new)}
        except TROUBLE:
            await asyncio.sleep(0.01)


async def test_a_task_that_is_more_urgent_than_the_last_one_is_found_at_once_over_a_slow_line(
    scene: Scene, client: weft.Client
) -> None:
    """Looks from the head of the queue are rare when they are slow; a hint must not be spent on any other."""
    async with proxy_to(scene.url) as proxy, scene.worker(proxy.url, worker_poll_interval=NEVER):
        proxy.latency = 0.03
        for priority in range(6):
            task = await client.enqueue("step", priority=priority)
            await client.wait(task.id, timeout=LIVENESS)


async def test_who_follows_a_log_goes_on_when_answers_are_lost(
    scene: Scene, client: weft.Client, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    @scene.registry.task(name="talk")
    async def talk(ctx: weft.Context) -> None:
        ctx.logger.info("one")
        await scene.held(ctx)
        ctx.logger.info("two")

    async with scene.worker(scene.url), proxy_to(scene.url) as proxy:
        task = await client.enqueue("talk")
        await scene.until_started(task.id)
        async with weft.Client(settings=scene.settings(proxy.url)) as reader:
            look = proxy.rule("as u (id) where not exists", Fault.PASS)
            following = asyncio.create_task(print_log(reader, task.id, follow=True))

            async def waits_for_the_end() -> bool:
                return bool(look.seen)

            await until(waits_for_the_end, "the task was found, and its end is waited for")
            rule = proxy.rule("weft.tasks", Fault.CUT, times=3)

            async def has_been_cut() -> bool:
                return len(rule.seen) == 3

            await until(has_been_cut, "three answers are lost")
            scene.let_go(task.id)
            await asyncio.wait_for(following, LIVENESS)
    printed = capfdbinary.readouterr().out
    assert [line.rsplit(b": ", 1)[-1] for line in printed.splitlines()] == [b"one", b"two"]
