"""The outbox: effects that are committed with their cause and carried out at least once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from engine_scene import END_CONNECTIONS, WAITING, Clock, MakeClient, until

import weft
from weft.queue import outbox
from weft.queue.outbox import Effect
from weft.queue.services import Drainer
from weft.worker.registry import Registry

ORG = 1


async def _worker(conn: asyncpg.Connection[asyncpg.Record]) -> int:
    """A worker of which there is only the row."""
    return int(
        await conn.fetchval(
            """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
               values (1, weft.now() + interval '1 hour', 1, 1, 'here', '0', '{1}', '{}') returning id"""
        )
    )


class Sink:
    """Notes what it is given, and fails while it is told to."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.fails: set[Any] = set()

    async def __call__(self, effect: Effect) -> None:
        self.seen.append(effect.payload)
        if effect.payload in self.fails:
            raise ConnectionError(f"cannot send {effect.payload}")


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
async def drain(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], sink: Sink
) -> Callable[[], Awaitable[int]]:
    drainer = Drainer(client.database, await _worker(conn), {"callback": sink})
    return drainer.run_once


async def test_an_effect_is_gone_with_the_rollback_of_its_cause(
    conn: asyncpg.Connection[asyncpg.Record], drain: Callable[[], Awaitable[int]], sink: Sink
) -> None:
    for commits in (False, True):
        transaction = conn.transaction()
        await transaction.start()
        await outbox.add(conn, ORG, "callback", {"n": 1} if commits else {"n": 0})
        assert await drain() == 0
        await (transaction.commit() if commits else transaction.rollback())
    assert await drain() == 1
    assert await drain() == 0
    assert sink.seen == [{"n": 1}]


async def test_effects_of_one_key_are_carried_out_in_order_and_wait_for_one_that_fails(
    client: weft.Client,
    clock: Clock,
    conn: asyncpg.Connection[asyncpg.Record],
    drain: Callable[[], Awaitable[int]],
    sink: Sink,
) -> None:
    for payload, key in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("free", None), ("a3", "a"), ("b2", "b")]:
        await outbox.add(conn, ORG, "callback", payload, ordering_key=key)
    sink.fails = {"a1"}
    for _ in range(4):
        await drain()
    assert sink.seen == ["a1", "b1", "free", "b2"]
    (row,) = [row for row in await client.outbox() if row.payload == "a1"]
    assert (row.state, row.attempts, row.last_error) == ("pending", 1, "ConnectionError: cannot send a1")
    assert row.available_at > row.created_at
    sink.fails = set()
    await clock.advance(seconds=5)
    while await drain():
        pass
    assert sink.seen[4:] == ["a1", "a2", "a3"]
    assert {row.state for row in await client.outbox()} == {"done"}


async def test_many_drainers_carry_out_each_effect_once_and_in_order(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], sink: Sink
) -> None:
    running: set[str] = set()
    seen: list[tuple[str, int]] = []

    async def careful(effect: Effect) -> None:
        key, n = effect.payload
        assert key not in running, "two effects of one key at once"
        running.add(key)
        await asyncio.sleep(0)
        seen.append((key, n))
        running.discard(key)

    for n in range(30):
        for key in "abc":
            await outbox.add(conn, ORG, "callback", [key, n], ordering_key=key)
    drainers = [Drainer(client.database, await _worker(conn), {"callback": careful}) for _ in range(3)]

    async def work(drainer: Drainer) -> None:
        while await conn_count():
            await drainer.run_once()

    lock = asyncio.Lock()

    async def conn_count() -> int:
        async with lock:
            return int(await conn.fetchval("select count(*) from weft.outbox where state <> 'done'"))

    await asyncio.gather(*(work(drainer) for drainer in drainers))
    for key in "abc":
        assert [n for k, n in seen if k == key] == list(range(30))


async def test_an_effect_fails_after_its_last_attempt_and_goes_round_again_when_replayed(
    client: weft.Client,
    clock: Clock,
    conn: asyncpg.Connection[asyncpg.Record],
    drain: Callable[[], Awaitable[int]],
    sink: Sink,
) -> None:
    sink.fails = {"x"}
    await outbox.add(conn, ORG, "callback", "x", ordering_key="k", actor="ann")
    await outbox.add(conn, ORG, "callback", "y", ordering_key="k")
    await outbox.add(conn, ORG, "callback", "z")
    for _ in range(outbox.MAX_ATTEMPTS):
        await drain()
        await clock.advance(hours=1)
    assert await drain() == 0
    (row,) = await client.outbox(state="failed")
    assert (row.attempts, row.last_error) == (outbox.MAX_ATTEMPTS, "ConnectionError: cannot send x")
    assert sink.seen.count("x") == outbox.MAX_ATTEMPTS
    assert "y" not in sink.seen
    sink.fails = set()
    assert await client.replay_outbox([row.id + 1]) == 0
    assert await client.replay_outbox([row.id]) == 1
    assert await client.replay_outbox() == 0
    while await drain():
        pass
    assert sink.seen[-2:] == ["x", "y"]
    assert [row.state for row in await client.outbox()] == ["done"] * 3


async def test_an_effect_that_is_wrong_in_itself_fails_at_once(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Such a row can only have been written around the public function."""
    await outbox.add(conn, ORG, "enqueue_task", {"handler": "", "priority": "x"})
    async with weft.Worker(client=client, registry=registry):
        [row] = await until(lambda: client.outbox(), lambda rows: rows[0].state == "failed")
    assert (row.attempts, row.last_error) == (1, "InvalidInput: handler: must not be empty")


async def test_effects_without_a_sink_stay(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], drain: Any, sink: Sink
) -> None:
    await outbox.add(conn, ORG, "route_event", 1)
    assert await drain() == 0
    assert await Drainer(client.database, 1, {}).run_once() == 0
    (row,) = await client.outbox(kind="route_event")
    assert (row.state, row.attempts, row.has_sink) == ("pending", 0, True)
    assert await client.outbox(kind="callback") == []


async def test_an_effect_that_its_worker_did_not_finish_is_carried_out_by_another(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], drain: Callable[[], Awaitable[int]], sink: Sink
) -> None:
    async def hang(effect: Effect) -> None:
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    dead = await _worker(conn)
    await outbox.add(conn, ORG, "callback", "x")
    draining = asyncio.create_task(Drainer(client.database, dead, {"callback": hang}).run_once())
    await started.wait()
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    async with client.database.transaction() as own:
        await outbox.rescue(own)
    assert await drain() == 0, "its worker is alive by the database's account"
    await conn.execute("update weft.worker set until = weft.now() - interval '1 second' where id = $1", dead)
    async with client.database.transaction() as own:
        await outbox.rescue(own)
    assert await drain() == 1
    assert sink.seen == ["x"]
    (row,) = await client.outbox()
    assert (row.state, row.attempts) == ("done", 2)


async def test_a_late_worker_cannot_settle_an_effect_that_another_has(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], drain: Callable[[], Awaitable[int]], sink: Sink
) -> None:
    """Late, by success and by error: neither changes what the new holder is doing."""
    for fails in (False, True):
        late, go = asyncio.Event(), asyncio.Event()

        async def slow(effect: Effect, late: asyncio.Event = late, go: asyncio.Event = go, fails: bool = fails) -> None:
            late.set()
            await go.wait()
            if fails:
                raise ValueError("late")

        first = await _worker(conn)
        id = await outbox.add(conn, ORG, "callback", "x")
        draining = asyncio.create_task(Drainer(client.database, first, {"callback": slow}).run_once())
        await late.wait()
        await conn.execute("update weft.outbox set state = 'processing', worker_id = worker_id + 1 where id = $1", id)
        go.set()
        await draining
        row = await conn.fetchrow("select state::text, last_error from weft.outbox where id = $1", id)
        assert row is not None
        assert tuple(row) == ("processing", None)


async def test_a_worker_that_leads_carries_out_enqueue_task_effects_once(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    seen: list[int] = []

    @registry.task(name="note")
    async def note(n: int) -> None:
        seen.append(n)

    id = await outbox.add(conn, ORG, "enqueue_task", {"handler": "note", "params": {"n": 5}, "priority": 2})
    async with weft.Worker(client=client, registry=registry):
        await until(lambda: client.list_tasks(state="completed"), lambda page: len(page.tasks) == 1)
        # The same effect once more, as after a crash between the call and its note: creates nothing.
        await conn.execute("update weft.outbox set state = 'pending' where id = $1", id)
        await until(lambda: client.outbox(), lambda rows: (rows[0].state, rows[0].attempts) == ("done", 2))
    assert seen == [5]
    assert len((await client.list_tasks()).tasks) == 1


async def test_the_task_of_an_effect_belongs_to_the_org_and_the_actor_of_its_cause(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Whichever worker carries it out: the one that leads may be another org's."""
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    ours, theirs = await make_client(), await make_client(org="acme", actor="ada")
    await theirs.create_queue("mail")
    await theirs.add_effect("enqueue_task", {"handler": "note", "queue": "mail", "idempotency_key": None})
    async with weft.Worker(client=ours, registry=registry):
        await until(lambda: theirs.outbox(), lambda rows: rows[0].state == "done")
    [found] = (await theirs.list_tasks()).tasks
    task = await theirs.get_task(found.id)
    assert (task.handler, task.queue, task.actor) == ("note", "mail", "ada")
    assert not (await ours.list_tasks()).tasks
    assert await conn.fetchval("select key from weft.idempotency_key") == f"outbox-{(await theirs.outbox())[0].id}"


async def test_an_effect_in_the_hands_of_a_worker_that_stops_is_carried_out_by_the_next(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client()
    lock = conn.transaction()
    await lock.start()
    await outbox.add(conn, ORG, "enqueue_task", {"handler": "h", "queue": "default"})
    await lock.commit()
    lock = conn.transaction()
    await lock.start()
    # The sink hangs where it would note the idempotency key of the task.
    await conn.execute("lock table weft.idempotency_key in access exclusive mode")
    first = await weft.Worker(client=client, registry=registry, queues=["other"]).start()
    async with client.database.acquire() as look:
        await until(lambda: look.fetchval(WAITING, "%weft.%task%"))
    stopping = asyncio.create_task(first.stop(0))
    await asyncio.sleep(0)
    await lock.rollback()
    await asyncio.wait_for(stopping, 60)
    async with weft.Worker(client=client, registry=registry, queues=["other"]):
        await until(lambda: client.outbox(), lambda rows: rows[0].state == "done")
    assert len((await client.list_tasks()).tasks) == 1


async def test_an_effect_whose_outcome_could_not_be_written_is_carried_out_again(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The connection breaks between an effect and its note; its worker lives on, so nobody takes it from that."""
    broken = False

    async def breaking(effect: Effect) -> None:
        nonlocal broken
        if not broken:
            broken = True
            await conn.execute(END_CONNECTIONS)

    drainer = Drainer(client.database, await _worker(conn), {"route_event": breaking})
    await outbox.add(conn, ORG, "route_event", "x")
    await outbox.add(conn, ORG, "route_event", "y")
    await asyncio.gather(drainer.run_once(), return_exceptions=True)
    assert broken
    done = "select count(*) from weft.outbox where state = 'done'"

    async def drained() -> int:
        await asyncio.gather(drainer.run_once(), return_exceptions=True)
        return int(await conn.fetchval(done))

    await until(drained, lambda count: count == 2)
