"""Lists of tasks, queues and workers."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from engine_scene import Clock, until

import weft
from weft.core.states import TaskState
from weft.queue import look
from weft.worker.registry import Registry


@pytest.fixture
async def zoo(client: weft.Client, registry: Registry) -> dict[str, list[int]]:
    """Tasks in many states, in two queues, of three handlers; the ids by state, oldest first."""

    @registry.task(name="ok")
    async def ok() -> int:
        return 1

    @registry.task(name="die", retry=0)
    async def die() -> None:
        raise ValueError("dead")

    @registry.task(name="refuse")
    async def refuse() -> None:
        raise weft.NonRetryable("failed")

    await client.create_queue("side")
    await client.limit_queue("side", 1, per_key=True)
    found: dict[str, list[int]] = {}
    ended = {"ok": "completed", "die": "dead", "refuse": "failed"}
    for _ in range(3):
        for handler, state in ended.items():
            found.setdefault(state, []).append((await client.enqueue(handler, max_attempts=1)).id)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for n in range(3):
        found.setdefault("ready", []).append((await client.enqueue("ok", queue="side")).id)
        found.setdefault("scheduled", []).append((await client.enqueue("ok", delay=3600)).id)
        keyed = (await client.enqueue("ok", queue="side", concurrency_key="k")).id
        found.setdefault("ready" if n == 0 else "pending", []).append(keyed)
        cancelled = (await client.enqueue("die", queue="side")).id
        await client.cancel(cancelled)
        found.setdefault("cancelled", []).append(cancelled)
    return found


async def _all(
    client: weft.Client, page_size: int, *, sort: str = "newest", **filters: object
) -> list[weft.TaskSummary]:
    found: list[weft.TaskSummary] = []
    place: dict[str, int] = {}
    while True:
        page = await client.list_tasks(sort=sort, limit=page_size, **place, **filters)  # type: ignore[arg-type]
        found += page.tasks
        if page.next is None:
            return found
        assert len(page.tasks) == page_size
        place = {"before" if sort == "newest" else "after": page.next}


async def test_pages_of_any_size_give_every_task_once_newest_or_oldest_first(
    client: weft.Client, zoo: dict[str, list[int]]
) -> None:
    everything = sorted((id for ids in zoo.values() for id in ids), reverse=True)
    assert len(everything) == 21
    for size in (1, 2, 5, 20, 21, 22, 1000):
        assert [task.id for task in await _all(client, size)] == everything
        assert [task.id for task in await _all(client, size, sort="oldest")] == everything[::-1]


async def test_filters_choose_by_state_queue_and_handler(client: weft.Client, zoo: dict[str, list[int]]) -> None:
    for state, ids in zoo.items():
        wanted = sorted([*ids, *(zoo["dead"] if state == "failed" else ())], reverse=True)
        for size in (2, 50):
            found = await _all(client, size, state=state)
            assert [task.id for task in found] == wanted, state
            assert await _all(client, size, state=state, sort="oldest") == found[::-1], state
            assert {task.state for task in found} <= {state, "dead"}
    both = await _all(client, 4, state=["ready", TaskState.CANCELLED])
    assert [task.id for task in both] == sorted(zoo["ready"] + zoo["cancelled"], reverse=True)
    mixed = await _all(client, 3, state=["completed", "dead"])
    assert [task.id for task in mixed] == sorted(zoo["completed"] + zoo["dead"], reverse=True)
    side = await _all(client, 3, queue="side")
    assert {task.queue for task in side} == {"side"}
    assert len(side) == len(zoo["ready"]) + len(zoo["pending"]) + len(zoo["cancelled"])
    assert [task.id for task in await _all(client, 2, queue="side", state="cancelled")] == zoo["cancelled"][::-1]
    refused = await _all(client, 2, handler="refuse", state="failed")
    assert [task.id for task in refused] == zoo["failed"][::-1]
    assert await _all(client, 2, handler="nobody") == []
    assert await _all(client, 2, state="waiting") == []


async def test_a_page_is_answered_after_a_bounded_look_and_says_where_the_next_begins(
    client: weft.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "ROOM", 50)
    rare = (await client.enqueue("rare")).id
    await client.enqueue_many([weft.NewTask("often") for _ in range(2000)])
    for is_ended in (False, True):
        if is_ended:
            assert await client.cancel_all() == 2001
        pages = 0
        place: dict[str, int] = {}
        while not (page := await client.list_tasks(handler="rare", **place)).tasks:
            assert page.next is not None
            place, pages = {"before": page.next}, pages + 1
        assert pages > 0
        assert ([task.id for task in page.tasks], page.next) == ([rare], None)
        first = await client.list_tasks(handler="rare", sort="oldest", limit=1)
        assert [task.id for task in first.tasks] == [rare]
        assert first.next is not None


async def test_effects_are_listed_by_state_and_kind_newest_or_oldest_first(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    made = (
        """insert into weft.outbox (org_id, kind, payload, state) select 1, $1, '{}', $2 from generate_series(1, 3)"""
    )
    for kind in ("callback", "enqueue_task"):
        for state in ("pending", "failed", "done"):
            await conn.execute(made, kind, state)
    every = sorted(row["id"] for row in await conn.fetch("select id from weft.outbox"))
    for filters in ({}, {"state": "failed"}, {"kind": "callback"}, {"state": "done", "kind": "enqueue_task"}):
        chosen = [effect.id for effect in await client.outbox(sort="oldest", **filters)]
        assert chosen == [id for id in every if id in chosen]
        assert len(chosen) == 18 // (3 if "state" in filters else 1) // (2 if "kind" in filters else 1)
        assert [effect.id for effect in await client.outbox(**filters)] == chosen[::-1]
        assert [effect.id for effect in await client.outbox(**filters, limit=2, before=chosen[-1])] == chosen[-2:-4:-1]
        assert [
            effect.id for effect in await client.outbox(**filters, limit=2, sort="oldest", after=chosen[0])
        ] == chosen[1:3]


@pytest.mark.direct  # the token of a worker would be among them
async def test_acts_are_listed_newest_or_oldest_first(client: weft.Client) -> None:
    await client.create_queue("side")
    task_id = (await client.enqueue("h", queue="side")).id
    for _ in range(3):
        await client.pause_queue("side")
        await client.cancel(task_id)
        await client.replay(task_id)
    counts: list[tuple[dict[str, Any], int]] = [
        ({}, 10), ({"verb": "pause"}, 3), ({"queue": "side"}, 4), ({"queue": "side", "verb": "pause"}, 3),
        ({"task": task_id}, 6), ({"task": task_id, "verb": "replay"}, 3),
    ]  # fmt: skip
    for filters, count in counts:
        found = [act.id for act in await client.audit(**filters)]
        assert found == sorted(found, reverse=True)
        assert len(found) == count, filters
        oldest = [act.id for act in await client.audit(sort="oldest", **filters)]
        assert oldest == found[::-1]
        assert [act.id for act in await client.audit(**filters, before=found[0], limit=1)] == found[1:2]
        assert [act.id for act in await client.audit(**filters, sort="oldest", after=oldest[0], limit=1)] == oldest[1:2]


async def test_a_line_tells_what_the_task_itself_tells(client: weft.Client, zoo: dict[str, list[int]]) -> None:
    for line in await _all(client, 50):
        task = await client.get_task(line.id)
        assert [getattr(task, name) for name in line.__slots__] == [getattr(line, name) for name in line.__slots__]


async def test_queues_tell_depth_oldest_rate_limits_and_pause(
    client: weft.Client, clock: Clock, zoo: dict[str, list[int]]
) -> None:
    await client.pause_queue("side")
    await client.limit_queue("side", 7)
    infos = {info.name: info for info in await client.queues()}
    default, side = infos["default"], infos["side"]
    assert list(infos) == ["default", "side"]
    assert (default.tasks, default.depth, default.oldest_at, default.paused) == ({"scheduled": 3}, 0, None, False)
    assert (default.max_running, default.max_running_per_key) == (None, None)
    assert default.rate == pytest.approx(9 / 60)
    assert (side.tasks, side.depth, side.paused) == ({"ready": 4, "pending": 2}, 4, True)
    assert (side.max_running, side.max_running_per_key) == (7, 1)
    assert side.oldest_at == (await client.get_task(zoo["ready"][0])).created_at
    assert side.rate == pytest.approx(3 / 60)
    await clock.advance(minutes=2)
    assert [info.rate for info in await client.queues()] == [0, 0]


async def test_the_rate_counts_what_ended_however_old_it_was(
    client: weft.Client, clock: Clock, registry: Registry
) -> None:
    @registry.task(name="ok")
    async def ok() -> None: ...

    await client.enqueue_many([weft.NewTask("ok") for _ in range(30)])
    await clock.advance(minutes=20)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [info.rate for info in await client.queues()] == [pytest.approx(30 / 60)]


async def test_workers_are_listed_with_what_they_do(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="zeta")
    async def zeta() -> None: ...

    @registry.task(name="alpha")
    async def alpha() -> None: ...

    begun = datetime.now(UTC)
    async with weft.Worker(client=client, registry=registry, queues=["default", "b"], concurrency=7) as worker:
        await client.wait((await client.enqueue("zeta")).id, timeout=60)
        (info,) = await client.workers()
        assert (info.id, info.pid, info.concurrency, info.queues) == (
            worker.process.id, os.getpid(), 7, ("b", "default"),
        )  # fmt: skip
        assert info.handlers == ("alpha", "zeta")
        assert info.state in ("active", "idle")
        assert info.version == weft.__version__
        assert info.until > info.last_heartbeat > begun - timedelta(seconds=5)
        (info,) = await until(client.workers, lambda infos: infos[0].is_leader and infos[0].tasks_completed > 0)
        assert (info.tasks_completed, info.tasks_failed) == (1, 0)
    (info,) = await client.workers(state="stopped")
    assert (info.id, info.is_leader) == (worker.process.id, False)
    assert await client.workers(state="active") == []


async def test_a_queue_is_made_once(client: weft.Client) -> None:
    assert await client.create_queue("mine") is True
    assert await client.create_queue("mine") is False
    assert [info.name for info in await client.queues()] == ["default", "mine"]


async def test_a_worker_makes_the_queues_it_is_given(client: weft.Client, registry: Registry) -> None:
    await weft.Worker(client=client, registry=registry, queues=["one", "two", "one"]).run_until_idle()
    assert [info.name for info in await client.queues()] == ["default", "one", "two"]


async def test_a_handler_with_a_queue_of_its_own_needs_no_other_word(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="mail", queue="mails")
    async def mail() -> str:
        return "sent"

    handle = await client.enqueue(mail)
    assert (await client.get_task(handle.id)).queue == "mails"
    await weft.Worker(client=client, registry=registry, queues=["mails"]).run_until_idle()
    assert await client.wait(handle.id) == "sent"
