"""Which task comes first, and when one comes at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from engine_scene import Clock, MakeClient

import weft
from weft.worker.registry import Registry


@pytest.fixture
def begun(registry: Registry) -> list[str]:
    """The names of the tasks that have begun, in order."""
    names: list[str] = []

    @registry.task(name="note")
    async def note(name: str) -> None:
        names.append(name)

    return names


async def test_the_higher_priority_comes_first_then_the_oldest(
    client: weft.Client, registry: Registry, begun: list[str]
) -> None:
    for name, priority in [("old", 0), ("urgent", 5), ("late", -3), ("urgent too", 5), ("new", 0), ("top", 32767)]:
        await client.enqueue("note", {"name": name}, priority=priority)
    await weft.Worker(client=client, registry=registry, concurrency=1).run_until_idle()
    assert begun == ["top", "urgent", "urgent too", "old", "new", "late"]


async def test_many_at_once_keep_their_order(client: weft.Client, registry: Registry, begun: list[str]) -> None:
    names = [str(n) for n in range(1200)]
    await client.enqueue_many([weft.NewTask("note", {"name": name}) for name in names])
    await weft.Worker(client=client, registry=registry, concurrency=1000).run_until_idle()
    assert begun == names


async def test_the_order_holds_across_the_queues_of_a_worker(
    client: weft.Client, registry: Registry, begun: list[str]
) -> None:
    for queue in ("a", "b"):
        await client.create_queue(queue)
    for name, queue, priority in [("1", "b", 0), ("2", "a", 0), ("3", "b", 1), ("4", "a", 2), ("5", "b", 0)]:
        await client.enqueue("note", {"name": name}, queue=queue, priority=priority)
    await weft.Worker(client=client, registry=registry, queues=["a", "b"], concurrency=1).run_until_idle()
    assert begun == ["4", "3", "1", "2", "5"]


async def test_a_worker_takes_nothing_from_queues_that_are_not_its_own(
    client: weft.Client, registry: Registry, begun: list[str]
) -> None:
    await client.create_queue("other")
    await client.enqueue("note", {"name": "theirs"}, queue="other")
    await client.enqueue("note", {"name": "ours"})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert begun == ["ours"]


@pytest.mark.parametrize("how", ["delay", "run_at"])
async def test_a_delayed_task_is_scheduled_and_runs_when_due_not_before(
    client: weft.Client, clock: Clock, registry: Registry, begun: list[str], how: str
) -> None:
    when = {"delay": timedelta(hours=1)} if how == "delay" else {"run_at": datetime.now(UTC) + timedelta(hours=1)}
    single = await client.enqueue("note", {"name": "single"}, **when)
    (many,) = await client.enqueue_many([weft.NewTask("note", {"name": "many"}, **when)])
    for handle in (single, many):
        task = await client.get_task(handle.id)
        assert task.state == "scheduled"
        assert task.due_at is not None
        assert timedelta(minutes=59) < task.due_at - datetime.now(UTC) <= timedelta(minutes=60)
    await clock.advance(minutes=59)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert begun == []
    await clock.advance(minutes=2)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert begun == ["single", "many"]


@pytest.mark.parametrize("when", [{"delay": 0}, {"run_at": datetime(2024, 5, 1, tzinfo=UTC)}], ids=["zero", "past"])
async def test_a_task_that_is_due_already_is_picked_up_without_a_poll(
    make_client: MakeClient, registry: Registry, begun: list[str], when: dict[str, object]
) -> None:
    client = await make_client(worker_poll_interval=3600)
    async with weft.Worker(client=client, registry=registry) as worker:
        await worker.process.wait_until_idle()
        handle = await client.enqueue("note", {"name": "due"}, **when)  # type: ignore[arg-type]
        await client.wait(handle.id, timeout=60)
    assert begun == ["due"]


async def test_a_ready_task_beside_a_delayed_one_is_picked_up_without_a_poll(
    make_client: MakeClient, registry: Registry, begun: list[str]
) -> None:
    client = await make_client(worker_poll_interval=3600)
    async with weft.Worker(client=client, registry=registry) as worker:
        await worker.process.wait_until_idle()
        ready, _ = await client.enqueue_many(
            [weft.NewTask("note", {"name": "ready"}), weft.NewTask("note", {"name": "later"}, delay=3600)]
        )
        await client.wait(ready.id, timeout=60)
    assert begun == ["ready"]


async def test_a_task_due_soon_is_staged_by_the_worker_that_leads(
    make_client: MakeClient, registry: Registry, begun: list[str]
) -> None:
    client = await make_client(worker_poll_interval=3600)
    async with weft.Worker(client=client, registry=registry):
        handle = await client.enqueue("note", {"name": "soon"}, delay=0.2)
        await client.wait(handle.id, timeout=60)
    assert begun == ["soon"]


async def test_a_task_in_a_transaction_of_the_caller_is_picked_up_without_a_poll(
    make_client: MakeClient, registry: Registry, begun: list[str], conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client(worker_poll_interval=3600)
    async with weft.Worker(client=client, registry=registry) as worker:
        await worker.process.wait_until_idle()
        async with conn.transaction():
            handle = await client.enqueue("note", {"name": "inside"}, connection=conn)
        await client.wait(handle.id, timeout=60)
    assert begun == ["inside"]


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(
    make_client: MakeClient, registry: Registry, begun: list[str]
) -> None:
    client = await make_client(worker_poll_interval=3600)
    await client.pause_queue("default")
    await client.pause_queue("default")
    handle = await client.enqueue("note", {"name": "held"})
    async with weft.Worker(client=client, registry=registry) as worker:
        await worker.process.wait_until_idle()
        assert (begun, (await client.queues())[0].paused) == ([], True)
        await client.resume_queue("default")
        await client.wait(handle.id, timeout=60)
    assert (begun, (await client.queues())[0].paused) == (["held"], False)
