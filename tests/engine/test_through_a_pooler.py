"""Everything a program does, through a transaction pooler whose sessions go round."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from pooler import Pooler, pooler_to
from weft.core.errors import InvalidSetting
from weft.db.database import ensure_partitions
from weft.queue import upkeep
from weft.worker.registry import Registry

NEVER = 3600


@pytest.fixture
async def client(pooler: Pooler, make_client: MakeClient) -> weft.Client:
    return await make_client(database_url=pooler.url, pooler="transaction", worker_poll_interval=0.05)


async def test_tasks_are_enqueued_known_by_their_keys_listed_and_cancelled(client: weft.Client) -> None:
    first = await client.enqueue("h", {"n": 1}, idempotency_key="k")
    assert (await client.enqueue("h", idempotency_key="k")) == weft.TaskHandle(first.id, False)
    long, keyed, known, later = await client.enqueue_many(
        [
            weft.NewTask("h", {"text": "x" * 1000}),
            weft.NewTask("h", concurrency_key="one"),
            weft.NewTask("h", idempotency_key="k"),
            weft.NewTask("h", delay=NEVER),
        ]
    )
    assert (known.id, known.created) == (first.id, False)
    page = await client.list_tasks(state=["ready", "scheduled"])
    assert [task.id for task in page.tasks] == sorted([first.id, long.id, keyed.id, later.id], reverse=True)
    assert (await client.get_task(long.id)).params == {"text": "x" * 1000}
    await client.cancel(later.id)
    with pytest.raises(weft.StateConflict):
        await client.cancel(later.id)
    assert [task.id for task in (await client.list_tasks(state="cancelled")).tasks] == [later.id]


async def test_queues_are_made_limited_paused_and_resumed(client: weft.Client) -> None:
    assert await client.create_queue("mail")
    await client.limit_queue("mail", 2)
    await client.limit_queue("mail", 1, per_key=True)
    await client.pause_queue("mail")
    [mail] = [queue for queue in await client.queues() if queue.name == "mail"]
    assert (mail.paused, mail.max_running, mail.max_running_per_key) == (True, 2, 1)
    await client.resume_queue("mail")
    assert await client.workers() == []


async def test_a_worker_without_a_direct_line_finds_by_polling_what_came_after_it_had_nothing_to_do(
    client: weft.Client, registry: Registry, pooler: Pooler
) -> None:
    @registry.task(name="double", retry=weft.Retry(2, initial_delay=0))
    async def double(ctx: weft.Context, n: int) -> int:
        if ctx.attempt == 1:
            raise ValueError("again")
        return 2 * n

    await client.limit_queue("default", 4)
    async with weft.Worker(client=client, registry=registry) as worker:
        await worker.process.wait_until_idle()
        alone = await client.enqueue(double, {"n": 1})
        many = await client.enqueue_many([weft.NewTask(double, {"n": n}, concurrency_key="k") for n in range(2, 6)])
        assert [await client.wait(task.id, timeout=60) for task in (alone, *many)] == [2, 4, 6, 8, 10]
    assert (worker.process.completed, worker.process.failed) == (5, 5)
    assert [known.state for known in await client.workers()] == ["stopped"]
    assert not pooler.saw("listen")


async def test_dead_letters_are_listed_replayed_and_purged(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="fail", retry=weft.Retry(1))
    async def fail() -> None:
        raise ValueError("no luck")

    first, second = await client.enqueue_many([weft.NewTask(fail), weft.NewTask(fail)])
    await weft.Worker(client=client, registry=registry).run_until_idle()
    with pytest.raises(weft.TaskFailed, match="no luck"):
        await client.wait(first.id, timeout=60)
    assert {task.id for task in (await client.dead_letters()).tasks} == {first.id, second.id}
    await client.replay(first.id)
    assert await client.replay_dead() == 1
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [attempt.outcome for attempt in (await client.get_task(second.id)).attempts] == ["failed", "failed"]
    assert await client.count_dead() == await client.purge() == 2


async def test_a_worker_with_a_direct_line_is_told_of_a_task(
    pooler: Pooler, make_client: MakeClient, registry: Registry, url: str
) -> None:
    """It looks by itself once in an hour: nothing but a notification makes it claim in time."""

    @registry.task(name="ok")
    async def ok() -> str:
        return "told"

    client = await make_client(
        database_url=pooler.url, listen_url=url, pooler="transaction", worker_poll_interval=NEVER
    )
    async with weft.Worker(client=client, registry=registry) as worker:
        await worker.process.wait_until_idle()
        assert await client.wait((await client.enqueue(ok)).id, timeout=60) == "told"
    assert not pooler.saw("listen")


@pytest.mark.parametrize("has_direct_line", [False, True])
async def test_a_running_task_ends_when_it_is_cancelled(
    pooler: Pooler, make_client: MakeClient, registry: Registry, url: str, has_direct_line: bool
) -> None:
    """Told by the direct line, or else found out by the heartbeats, which see that a task is held no more."""
    began, ended = asyncio.Event(), asyncio.Event()

    @registry.task(name="wait")
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    client = await make_client(
        database_url=pooler.url, pooler="transaction", worker_poll_interval=0.05,
        listen_url=url if has_direct_line else None, worker_heartbeat_interval=NEVER if has_direct_line else 0.05,
        worker_timeout=2 * NEVER,
    )  # fmt: skip
    async with weft.Worker(client=client, registry=registry), asyncio.timeout(60):
        task = await client.enqueue(wait)
        await began.wait()
        await client.cancel(task.id)
        await ended.wait()


async def test_a_pooler_that_nobody_told_of_is_recognised_by_a_statement_that_it_lost(
    url: str, make_client: MakeClient
) -> None:
    with pooler_to(url, ignores_settings=True) as pooler:
        client = await make_client(database_url=pooler.url)
        assert await client.workers() == []
        with pytest.raises(
            InvalidSetting, match=r"pooler \(prepared statement .* does not exist\): set WEFT_POOLER=trans"
        ):
            await client.workers()


async def test_partitions_are_made_and_dropped(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> None:
    await conn.execute("select weft.ensure_partitions(9)")
    assert await client.database.run(ensure_partitions) == 0
    dropped = await upkeep.drop_partitions(client.database, timedelta(days=-3))
    assert dropped
    assert await conn.fetchval("select count(*) from pg_class where relname = any ($1)", dropped) == 0


async def test_a_worker_that_cannot_be_notified_leaves_no_name_in_the_registry(
    pooler: Pooler, make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client(listen_url=pooler.url)
    with pytest.raises(InvalidSetting, match="pooler"):
        await weft.Worker(client=client, registry=registry).start()
    assert [row["state"] for row in await conn.fetch("select state::text from weft.worker")] == ["stopped"]
