"""Blobs are removed when nothing refers to them any more, and never before."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import asyncpg
import pytest
from engine_scene import Clock, MakeClient

import weft
from storages import Storage
from weft.db.blob_folder import FolderBlobs
from weft.queue import blobs
from weft.queue.blobs import Collector, KeptBlobs
from weft.queue.services import Pruner
from weft.worker.registry import Registry

LIMITS = {"inline_limit": 1000, "retention": "30d"}
LONG = {"text": "x" * 2000}


@pytest.fixture
def echo(registry: Registry) -> None:
    @registry.task(name="echo")
    async def echo(text: str) -> str:
        return text


async def _pass(clock: Clock, storage: Storage, days: float) -> None:
    """Let the blobs be as old as the clock of the database says."""
    await clock.advance(days=days)
    storage.age(days)


@pytest.mark.parametrize("way", ["enqueue", "enqueue_many", "connection"])
async def test_blobs_of_params_and_output_go_with_their_task(
    make_client: MakeClient, registry: Registry, echo: None, storage: Storage, conn: asyncpg.Connection[asyncpg.Record],
    way: str,
) -> None:  # fmt: skip
    client = await make_client(**LIMITS, blob_url=storage.url)
    clock, collector = Clock(conn, client), Collector(client.database, storage.open())
    match way:
        case "enqueue":
            task = await client.enqueue("echo", LONG, delay=40 * 86400)
        case "enqueue_many":
            (task,) = await client.enqueue_many([weft.NewTask("echo", LONG, delay=40 * 86400)])
        case _:
            task = await client.enqueue("echo", LONG, delay=40 * 86400, connection=conn)
    await _pass(clock, storage, 41)
    assert await collector.run_once() == 0
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for days in (2, 27):
        await _pass(clock, storage, days)
        await Pruner(client.database, client.settings).run_once()
        assert await collector.run_once() == 0
        assert len(storage.digests()) == 2
        assert await client.wait(task.id) == LONG["text"]
    await _pass(clock, storage, 2)
    await Pruner(client.database, client.settings).run_once()
    while await collector.run_once():
        pass
    assert storage.digests() == []
    assert await conn.fetchval("select count(*) from weft.blob") == 0


async def test_an_output_written_inside_the_callers_transaction_is_kept(
    make_client: MakeClient, registry: Registry, storage: Storage, conn: asyncpg.Connection[asyncpg.Record], url: str
) -> None:
    @registry.task(name="own")
    async def own(ctx: weft.Context) -> None:
        mine = await asyncpg.connect(url)
        async with mine.transaction():
            done = ctx.complete_in(mine, LONG["text"])
            assert done is not None
            await done
        await mine.close()

    client = await make_client(**LIMITS, blob_url=storage.url)
    task = await client.enqueue("own")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    await _pass(Clock(conn, client), storage, 5)
    assert await Collector(client.database, storage.open()).run_once() == 0
    assert await client.wait(task.id) == LONG["text"]
    assert await conn.fetchval("select task_id from weft.task_blob") == task.id


async def test_a_blob_that_several_tasks_share_goes_with_the_last(
    make_client: MakeClient, storage: Storage, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client(**LIMITS, blob_url=storage.url)
    clock, collector = Clock(conn, client), Collector(client.database, storage.open())
    first, second = await client.enqueue("h", LONG), await client.enqueue("h", LONG)
    await _pass(clock, storage, 5)
    for task, left in ((first, 1), (second, 0)):
        await conn.execute("delete from weft.task where id = $1", task.id)
        while await collector.run_once():
            pass
        assert len(storage.digests()) == left


async def test_what_was_put_lately_is_left_alone(
    make_client: MakeClient, storage: Storage, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A task may be about to be enqueued with it: the first has put it, the second puts it again."""
    client = await make_client(**LIMITS, blob_url=storage.url)
    clock, collector = Clock(conn, client), Collector(client.database, storage.open())
    digest = await client.blobs.put(b"x" * 2000)
    for _ in range(3):
        await _pass(clock, storage, 0.9)
        assert await collector.run_once() == 0
        assert await client.blobs.put(b"x" * 2000) == digest
        # The account tells, also where the clock of the files goes wrong.
        storage.age(5)
    # Put where nothing could be awaited: only the file tells.
    await _pass(clock, storage, 1.1)
    storage.open().put_now(b"x" * 2000)
    assert await collector.run_once() == 0
    assert storage.digests() == [digest]
    await _pass(clock, storage, 1.1)
    assert await collector.run_once() == 1
    assert storage.digests() == []


async def test_a_task_that_refers_to_a_blob_while_it_is_looked_at_keeps_it(
    make_client: MakeClient, storage: Storage, conn: asyncpg.Connection[asyncpg.Record], url: str
) -> None:
    client = await make_client(**LIMITS, blob_url=storage.url)
    digest = await client.blobs.put(b"x" * 2000)
    await _pass(Clock(conn, client), storage, 2)
    reference = f'{{"$blob":"{digest}","size":2000}}'
    transaction = conn.transaction()
    await transaction.start()
    await conn.fetchrow("select * from weft.enqueue('h', $1)", reference)
    # The row is locked by who refers to it: passed over, not waited for.
    assert await Collector(client.database, storage.open()).run_once() == 0
    await transaction.commit()
    assert await Collector(client.database, storage.open()).run_once() == 0
    assert storage.digests() == [digest]
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await conn.execute("delete from weft.blob")


async def test_who_puts_a_blob_while_it_is_removed_writes_it_anew(
    make_client: MakeClient, storage: Storage, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client(**LIMITS, blob_url=storage.url)
    store = storage.open()
    digest = await client.blobs.put(b"x" * 2000)
    await _pass(Clock(conn, client), storage, 2)
    async with client.database.transaction() as removing:
        assert await blobs.collect(removing, store) == 1
        putting = asyncio.create_task(KeptBlobs(client.database, store).put(b"x" * 2000))
        waits = "select 1 from pg_stat_activity where query like '%into weft.blob%' and wait_event_type = 'Lock'"
        async with asyncio.timeout(60):
            while await conn.fetchval(waits) is None:  # noqa: ASYNC110  only the database knows
                await asyncio.sleep(0.005)
        assert storage.digests() == []
    assert await putting == digest
    assert await store.get(digest) == b"x" * 2000
    assert await conn.fetchval("select count(*) from weft.blob") == 1


async def test_what_killed_puts_have_left_is_collected(client: weft.Client, tmp_path: Path) -> None:
    (tmp_path / "aa").mkdir()
    left = tmp_path / "aa" / ".new-left"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    collector = Collector(client.database, FolderBlobs(tmp_path))
    assert (await collector.run_once(), await collector.run_once()) == (1, 0)
    assert not left.exists()


async def test_nothing_is_removed_from_a_storage_that_another_database_uses(
    make_client: MakeClient,
    storage: Storage,
    conn: asyncpg.Connection[asyncpg.Record],
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = await make_client(**LIMITS, blob_url=storage.url)
    await client.blobs.put(b"x" * 2000)
    storage.open().mark("another/database")
    await _pass(Clock(conn, client), storage, 2)
    collector = Collector(client.database, storage.open())
    with caplog.at_level(logging.WARNING, "weft.service"):
        for _ in range(2):
            assert await collector.run_once() == 0
    assert len(storage.digests()) == 1
    (line,) = caplog.messages
    assert "another/database" in line
    assert "WEFT_BLOB_URL" in line
    storage.forget_user("another/database")
    assert await collector.run_once() == 1


async def test_logs_hold_their_blobs_and_let_them_go(
    make_client: MakeClient, registry: Registry, storage: Storage, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="say")
    async def say() -> None:
        print("something")

    client = await make_client(log_upload=True, retention="30d", blob_url=storage.url)
    clock, collector = Clock(conn, client), Collector(client.database, storage.open())
    await client.enqueue("say")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for days, left in ((29, 1), (2, 0)):
        await _pass(clock, storage, days)
        await Pruner(client.database, client.settings).run_once()
        await collector.run_once()
        assert len(storage.digests()) == left


async def test_the_worker_that_leads_collects(
    make_client: MakeClient, registry: Registry, storage: Storage, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client(**LIMITS, blob_url=storage.url)
    await client.blobs.put(b"x" * 2000)
    await _pass(Clock(conn, client), storage, 2)
    async with weft.Worker(client=client, registry=registry), asyncio.timeout(60):
        while storage.digests():  # noqa: ASYNC110  only the storage knows
            await asyncio.sleep(0.01)
