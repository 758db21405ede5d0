"""One key, one task."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from engine_scene import Clock, MakeClient

import weft
from weft.queue.services import Pruner
from weft.worker.registry import Registry

COUNT = "select (select count(*) from weft.task) + (select count(*) from weft.task_done)"


async def test_the_same_key_returns_the_same_task_and_creates_nothing(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    first = await client.enqueue("h", {"n": 1}, idempotency_key="k")
    again = await client.enqueue("h", {"n": 2}, idempotency_key="k", priority=9)
    (many,) = await client.enqueue_many([weft.NewTask("h", {"n": 3}, idempotency_key="k")])
    assert (first.created, again.created, many.created) == (True, False, False)
    assert first.id == again.id == many.id
    assert (await client.get_task(first.id)).params == {"n": 1}
    assert await conn.fetchval(COUNT) == 1


async def test_a_key_belongs_to_its_handler(client: weft.Client) -> None:
    one = await client.enqueue("one", idempotency_key="k")
    other = await client.enqueue("other", idempotency_key="k")
    assert (one.created, other.created, one.id != other.id) == (True, True, True)


async def test_a_key_belongs_to_its_org(
    make_client: MakeClient, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    theirs = await make_client(org="acme")
    await theirs.create_queue("default")
    handles = [await each.enqueue("h", idempotency_key="k") for each in (client, theirs)]
    many = [*(await client.enqueue_many([weft.NewTask("h", idempotency_key="m")])),
            *(await theirs.enqueue_many([weft.NewTask("h", idempotency_key="m")]))]  # fmt: skip
    assert [handle.created for handle in handles + many] == [True] * 4
    with pytest.raises(weft.NotFound):
        await theirs.get_task(handles[0].id)
    with pytest.raises(weft.NotFound):
        await theirs.cancel(handles[0].id)
    assert [task.id for task in (await theirs.list_tasks()).tasks] == [many[1].id, handles[1].id]


async def test_keys_inside_one_enqueue_many_create_one_task_each(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.enqueue("h", {"n": 0}, idempotency_key="known")
    names = ["a", "b", "a", "known", "a", None, "b", None]
    handles = await client.enqueue_many(
        [weft.NewTask("h", {"n": n}, idempotency_key=key) for n, key in enumerate(names)]
    )
    assert [handle.created for handle in handles] == [True, True, False, False, False, True, False, True]
    assert handles[0].id == handles[2].id == handles[4].id
    assert handles[1].id == handles[6].id
    assert await conn.fetchval(COUNT) == 5
    assert [(await client.get_task(handles[i].id)).params["n"] for i in (0, 1, 3)] == [0, 1, 0]


async def test_a_key_met_again_beyond_a_chunk_creates_nothing(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    tasks = [weft.NewTask("h", idempotency_key=f"key {n % 10_500}") for n in range(21_000)]
    handles = await client.enqueue_many(tasks)
    assert sum(handle.created for handle in handles) == 10_500
    assert [handle.id for handle in handles[:10_500]] == [handle.id for handle in handles[10_500:]]
    assert await conn.fetchval(COUNT) == 10_500


async def test_of_64_callers_at_once_one_creates_and_all_get_its_id(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async def single() -> weft.TaskHandle:
        return await client.enqueue("h", idempotency_key="race")

    async def many(n: int) -> weft.TaskHandle:
        # Other keys around it, in another order in each call: these must not deadlock.
        keys = [f"other {(n * step) % 7}" for step in range(1, 7)]
        tasks = [weft.NewTask("h", idempotency_key=key) for key in [*keys[:3], "race", *keys[3:]]]
        return (await client.enqueue_many(tasks))[3]

    handles = await asyncio.gather(*(single() if n % 2 else many(n) for n in range(64)))
    assert sum(handle.created for handle in handles) == 1
    assert len({handle.id for handle in handles}) == 1
    assert await conn.fetchval("select count(*) from weft.idempotency_key") == await conn.fetchval(COUNT)


async def test_a_key_whose_transaction_is_rolled_back_is_free(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    transaction = conn.transaction()
    await transaction.start()
    inside = await client.enqueue("h", idempotency_key="k", connection=conn)
    outside = asyncio.create_task(client.enqueue("h", idempotency_key="k"))
    await asyncio.sleep(0)
    await transaction.rollback()
    assert inside.created
    handle = await outside
    assert handle.created
    assert handle.id != inside.id


async def test_a_key_outlives_its_task_by_the_stated_time(
    client: weft.Client, clock: Clock, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="ok")
    async def ok() -> None: ...

    ended = await client.enqueue("ok", idempotency_key="ended")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    live = await client.enqueue("ok", idempotency_key="live", delay=90 * 86400)
    pruner = Pruner(client.database, client.settings)
    await clock.advance(days=6.9)
    await pruner.run_once()
    assert (await client.enqueue("ok", idempotency_key="ended")).id == ended.id
    await clock.advance(days=0.2)
    await pruner.run_once()
    assert (await client.enqueue("ok", idempotency_key="live")).id == live.id
    anew = await client.enqueue("ok", idempotency_key="ended")
    assert (anew.created, anew.id != ended.id) == (True, True)


@pytest.mark.parametrize("way", ["kept", "dropped", "purged"])
async def test_a_key_lives_on_from_the_end_of_its_task_also_when_that_is_gone(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record], way: str
) -> None:
    """The task waited for 40 days; its row may go before its key, by the retention or by a purge."""

    @registry.task(name="break")
    async def broken() -> None:
        raise weft.NonRetryable

    client = await make_client(retention="30d" if way == "kept" else "1d", idempotency_ttl="7d")
    clock = Clock(conn, client)
    task = await client.enqueue("break", idempotency_key="k", delay=40 * 86400)
    await clock.advance(days=40.1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    if way == "purged":
        assert await client.purge() == 1
    for days, created in ((3, False), (3.9, False), (0.2, True)):
        await clock.advance(days=days)
        await Pruner(client.database, client.settings).run_once()
        assert (await client.enqueue("break", idempotency_key="k")).created is created
    assert (await conn.fetchval("select count(*) from weft.task_done where id = $1", task.id)) == (way == "kept")


async def test_a_key_of_an_open_task_never_expires(client: weft.Client, clock: Clock) -> None:
    live = await client.enqueue("ok", idempotency_key="live", delay=900 * 86400)
    await clock.advance(days=800)
    await Pruner(client.database, client.settings).run_once()
    assert (await client.enqueue("ok", idempotency_key="live")).id == live.id


async def test_known_keys_of_many_tasks_are_those_of_their_org_and_handler(
    make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    await conn.execute("insert into weft.queue (org_id, name) values (2, 'default')")
    ours, theirs = await make_client(), await make_client(org="acme")
    new = [weft.NewTask(handler, idempotency_key="k") for handler in ("a", "b")]
    made = [[handle.id for handle in await client.enqueue_many(new)] for client in (ours, theirs)]
    known = [[handle.id for handle in await client.enqueue_many(new)] for client in (ours, theirs)]
    assert known == made
    assert len({*made[0], *made[1]}) == 4
    for task, id in zip(new, made[0], strict=True):
        assert await ours.enqueue_many([task]) == [weft.TaskHandle(id, False)]


async def test_who_made_the_key_is_not_told_by_ids_of_which_two_callers_may_draw_the_same(
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:
    """The clock stands still: of five ids two are the same."""
    await conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
        "return '2030-01-01 00:00:00Z'::timestamptz"
    )
    found = [
        tuple(await conn.fetchrow("select id, created from weft.enqueue('h', idempotency_key => 'k')") or ())
        for _ in range(9)
    ]
    assert [created for _, created in found] == [True] + [False] * 8
    assert len({id for id, _ in found}) == 1
    assert await conn.fetchval(COUNT) == 1
