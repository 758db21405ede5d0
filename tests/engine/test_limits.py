"""How many tasks run at once: per queue and per concurrency key, across all workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest
from engine_scene import MakeClient, claimed_by_a_ghost, until

import weft
from far import with_and_without_a_database
from weft.worker.registry import Registry


class Gauge:
    """Counts what runs now and what ever ran at once, by name."""

    def __init__(self, registry: Registry) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.total = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.changed = asyncio.Event()

        @registry.task(name="measure")
        async def measure(name: str) -> None:
            self.running[name] += 1
            self.total += 1
            self.most[name] = max(self.most[name], self.running[name])
            self.changed.set()
            # A few turns of the loop, in which whoever may run as well does so.
            for _ in range(3):
                await asyncio.sleep(0)
            await self.gate.wait()
            self.running[name] -= 1

    async def reaches(self, **running: int) -> None:
        async with asyncio.timeout(60):
            while any(self.running[name] < count for name, count in running.items()):
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
def gauge(registry: Registry) -> Gauge:
    return Gauge(registry)


@pytest.fixture
async def three_workers(client: weft.Client, registry: Registry) -> AsyncIterator[list[weft.Worker]]:
    workers = [weft.Worker(client=client, registry=registry, queues=["a", "b"], concurrency=20) for _ in range(3)]
    await asyncio.gather(*(worker.start() for worker in workers))
    yield workers
    await asyncio.gather(*(worker.stop(0) for worker in workers))


async def _drained(client: weft.Client) -> None:
    await until(client.queues, lambda infos: not any(info.tasks for info in infos), within=60)


@with_and_without_a_database
async def test_a_queues_limit_is_reached_and_never_exceeded_by_many_workers(
    client: weft.Client, gauge: Gauge, three_workers: list[weft.Worker]
) -> None:
    await client.limit_queue("a", 4)
    tasks = [weft.NewTask("measure", {"name": queue}, queue=queue) for _ in range(150) for queue in ("a", "b")]
    await client.enqueue_many(tasks)
    await _drained(client)
    assert gauge.total == 300
    assert gauge.most["a"] <= 4
    assert gauge.most["b"] > 4
    gauge.gate.clear()
    await client.enqueue_many(tasks[:40])
    await gauge.reaches(a=4, b=20)
    assert gauge.running["a"] == 4
    gauge.gate.set()
    await _drained(client)


async def test_a_keys_limit_is_reached_and_never_exceeded_by_many_workers(
    client: weft.Client, gauge: Gauge, three_workers: list[weft.Worker]
) -> None:
    await client.limit_queue("a", 2, per_key=True)
    await client.limit_queue("a", 5, key="wide")
    keys = ["one", "two", "wide"]
    tasks = [weft.NewTask("measure", {"name": key}, queue="a", concurrency_key=key) for _ in range(60) for key in keys]
    await client.enqueue_many(tasks)
    await _drained(client)
    assert gauge.total == 180
    assert {key: gauge.most[key] <= (5 if key == "wide" else 2) for key in keys} == dict.fromkeys(keys, True)
    gauge.gate.clear()
    await client.enqueue_many(tasks[:30])
    await gauge.reaches(one=2, two=2, wide=5)
    assert dict(gauge.running) == {"one": 2, "two": 2, "wide": 5}
    gauge.gate.set()
    await _drained(client)


async def test_a_worker_never_runs_more_than_its_concurrency(
    client: weft.Client, registry: Registry, gauge: Gauge
) -> None:
    gauge.gate.clear()
    async with weft.Worker(client=client, registry=registry, concurrency=3) as worker:
        await client.enqueue_many([weft.NewTask("measure", {"name": "x"}) for _ in range(40)])
        await gauge.reaches(x=3)
        assert (await client.queues())[0].tasks == {"running": 3, "ready": 37}
        gauge.gate.set()
        await _drained(client)
        await worker.process.wait_until_idle()
    assert (gauge.most["x"], gauge.total) == (3, 40)


async def test_a_task_that_finds_its_key_full_waits_with_that_reason_in_its_order(
    client: weft.Client, registry: Registry
) -> None:
    begun: list[str] = []

    @registry.task(name="note")
    async def note(name: str) -> None:
        begun.append(name)

    await client.limit_queue("default", 1, per_key=True)
    for name, priority in [("first", 0), ("low", -1), ("second", 0), ("urgent", 9)]:
        await client.enqueue("note", {"name": name}, priority=priority, concurrency_key="k")
    lines = {(await client.get_task(line.id)).params["name"]: line for line in (await client.list_tasks()).tasks}
    assert lines["first"].state == "ready"
    assert {(lines[name].state, lines[name].reason) for name in ("low", "second", "urgent")} == {
        ("pending", "concurrency_key")
    }
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert begun == ["first", "urgent", "second", "low"]


async def test_raising_a_limit_admits_what_waits_and_lifting_it_admits_all(
    client: weft.Client, gauge: Gauge, three_workers: list[weft.Worker]
) -> None:
    gauge.gate.clear()
    await client.limit_queue("a", 1, per_key=True)
    await client.enqueue_many(
        [weft.NewTask("measure", {"name": "k"}, queue="a", concurrency_key="k") for _ in range(10)]
    )
    await gauge.reaches(k=1)
    await client.limit_queue("a", 3, per_key=True)
    await gauge.reaches(k=3)
    assert (await client.queues())[0].tasks == {"running": 3, "pending": 7}
    await client.limit_queue("a", 4, key="k")
    await gauge.reaches(k=4)
    await client.limit_queue("a", None, key="k")
    await client.limit_queue("a", None, per_key=True)
    await gauge.reaches(k=10)
    gauge.gate.set()
    await _drained(client)


async def test_raising_a_queues_limit_lets_more_run_and_lifting_it_lets_all_run(
    client: weft.Client, gauge: Gauge, three_workers: list[weft.Worker]
) -> None:
    gauge.gate.clear()
    await client.limit_queue("a", 2)
    await client.enqueue_many([weft.NewTask("measure", {"name": "a"}, queue="a") for _ in range(12)])
    await gauge.reaches(a=2)
    await client.limit_queue("a", 5)
    await gauge.reaches(a=5)
    await client.limit_queue("a", None)
    await gauge.reaches(a=12)
    gauge.gate.set()
    await _drained(client)


async def test_a_busy_worker_does_not_keep_slots_that_an_idle_one_could_use(
    make_client: MakeClient, registry: Registry, gauge: Gauge
) -> None:
    """One worker is full with tasks of another queue; the slots it once leased must not starve the limited one."""
    client = await make_client()
    await client.create_queue("a")
    await client.limit_queue("a", 2)
    gauge.gate.clear()
    async with weft.Worker(client=client, registry=registry, queues=["a", "b"], concurrency=2) as busy:
        await client.enqueue_many([weft.NewTask("measure", {"name": "b"}, queue="b") for _ in range(2)])
        await gauge.reaches(b=2)
        async with weft.Worker(client=client, registry=registry, queues=["a"], concurrency=2):
            await client.enqueue_many([weft.NewTask("measure", {"name": "a"}, queue="a") for _ in range(2)])
            await gauge.reaches(a=2)
            gauge.gate.set()
            await _drained(client)
        await busy.process.wait_until_idle()


async def test_slots_of_a_worker_that_died_come_back(
    client: weft.Client, gauge: Gauge, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A worker of which only its row is left: it holds all slots of a queue and a key until its lease lapses."""
    await client.create_queue("a")
    await client.limit_queue("a", 1)
    await client.limit_queue("a", 1, per_key=True)
    first = await client.enqueue("measure", {"name": "x"}, queue="a", concurrency_key="k")
    second = await client.enqueue("measure", {"name": "x"}, queue="a", concurrency_key="k")
    queue_id = await conn.fetchval("select id from weft.queue where name = 'a'")
    ghost, claimed = await claimed_by_a_ghost(conn, queue_id, room=1)
    assert claimed == first.id
    slot = "insert into weft.queue_slot (queue_id, worker_id, org_id, slots) values ($1, $2, 1, 1)"
    await conn.execute(slot, queue_id, ghost)
    await conn.execute("update weft.worker set until = weft.now() + interval '1 second' where id = $1", ghost)
    async with weft.Worker(client=client, registry=registry, queues=["a"]):
        # A task that was in a crash runs in a process of its own, which knows no handler of this test.
        await client.wait(second.id, timeout=30)
    assert (await client.get_task(first.id)).crashes == 1


async def test_limits_of_single_keys_are_told_with_what_they_hold(client: weft.Client) -> None:
    await client.create_queue("a")
    await client.limit_queue("a", 2, per_key=True)
    await client.limit_queue("a", 3, key="wide")
    await client.limit_queue("a", 1, key="idle")
    for key in ["wide"] * 5 + ["other"] * 3:
        await client.enqueue("measure", {"name": key}, queue="a", concurrency_key=key)
    told = {queue.name: queue.key_limits for queue in await client.queues()}
    assert told == {"a": (weft.KeyLimit("idle", 1, 0), weft.KeyLimit("wide", 3, 3)), "default": ()}
    await client.limit_queue("a", None, key="wide")
    [info] = [queue for queue in await client.queues() if queue.name == "a"]
    assert info.key_limits == (weft.KeyLimit("idle", 1, 0),)


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_a_task_that_is_due_later_asks_for_its_slot_when_it_is_due(client: weft.Client, is_bulk: bool) -> None:
    await client.limit_queue("default", 1, per_key=True)
    new = [weft.NewTask("measure", {"name": "a"}, delay=3600, concurrency_key="k") for _ in range(2)]
    new.append(weft.NewTask("measure", {"name": "a"}, concurrency_key="k"))
    if is_bulk:
        handles = await client.enqueue_many(new)
    else:
        handles = [
            await client.enqueue(task.handler, dict(task.params or {}), delay=task.delay, concurrency_key="k")
            for task in new
        ]
    states = [(await client.get_task(handle.id)).state for handle in handles]
    assert states == ["scheduled", "scheduled", "ready"]
