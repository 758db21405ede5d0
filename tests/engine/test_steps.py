"""Steps and checkpoints: what an attempt has saved is not done again by a later one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import asyncpg
import process_handlers
import pytest
from engine_scene import END_CONNECTIONS, MakeClient, until

import weft
from far import with_and_without_a_database
from weft.db.blobs import open_blobs
from weft.queue.blobs import Collector
from weft.worker.registry import Registry

SOON = weft.Retry(5, initial_delay=0)


@dataclass
class Order:
    day: date
    lines: tuple[int, int]


async def finished(client: weft.Client, registry: Registry, handle: weft.TaskHandle) -> Any:
    async with weft.Worker(client=client, registry=registry):
        return await client.wait(handle.id, timeout=30)


@with_and_without_a_database
async def test_a_step_runs_once_and_a_later_attempt_gets_what_it_returned(
    client: weft.Client, registry: Registry
) -> None:
    calls: list[str] = []

    async def fetch(url: str) -> dict[str, str]:
        calls.append(url)
        return {"from": url}

    def double(number: int, *, times: int) -> int:
        calls.append(f"double {number}")
        return number * times

    @registry.task(name="work", retry=SOON)
    async def work(ctx: weft.Context) -> list[Any]:
        page = await ctx.step("fetch", fetch, "a")
        if ctx.attempt == 1:
            raise ValueError("after the first step")
        four = await ctx.step("double", double, 2, times=2)
        if ctx.attempt == 2:
            raise ValueError("after the second step")
        return [page, four, ctx.attempt]

    handle = await client.enqueue(work)
    assert await finished(client, registry, handle) == [{"from": "a"}, 4, 3]
    assert calls == ["a", "double 2"]
    steps = (await client.get_task(handle.id)).steps
    assert [(step.name, step.attempt, step.bytes) for step in steps] == [("fetch", 1, 12), ("double", 2, 1)]
    assert all(step.took is not None for step in steps)


async def test_a_step_that_fails_is_not_saved(client: weft.Client, registry: Registry) -> None:
    calls: list[int] = []

    @registry.task(name="work", retry=SOON)
    async def work(ctx: weft.Context) -> int:
        def stumble() -> int:
            calls.append(ctx.attempt)
            if ctx.attempt < 3:
                raise ValueError("not yet")
            return ctx.attempt

        return int(await ctx.step("stumble", stumble))

    assert await finished(client, registry, await client.enqueue(work)) == 3
    assert calls == [1, 2, 3]


async def test_a_step_gives_the_same_type_in_every_attempt(client: weft.Client, registry: Registry) -> None:
    def read() -> Order:
        return Order(date(2026, 11, 14), (1, 2))

    def pair() -> Any:
        return (1, 2)

    seen: list[Any] = []

    @registry.task(name="work", retry=SOON)
    async def work(ctx: weft.Context) -> None:
        seen.append((await ctx.step("read", read), await ctx.step("pair", pair)))
        if ctx.attempt == 1:
            raise ValueError("again")

    await finished(client, registry, await client.enqueue(work))
    assert seen == [(Order(date(2026, 11, 14), (1, 2)), [1, 2])] * 2


@pytest.mark.parametrize("handler", [process_handlers.steps, process_handlers.steps_async], ids=["sync", "async"])
async def test_steps_of_a_handler_in_a_process_are_saved_too(
    make_client: MakeClient, tmp_path: Path, handler: Any
) -> None:
    client = await make_client(inline_limit=1000)
    note = tmp_path / "calls"
    handle = await client.enqueue(handler, {"path": str(note)})
    async with weft.Worker(client=client):
        output = await client.wait(handle.id, timeout=60)
    assert output[:2] == ["first", "second"]
    assert output[2:] in ([], ["both", 3000])
    assert note.read_text(encoding="ascii").split() == ["first", "second"]


async def test_steps_of_a_handler_in_a_thread_block_and_are_saved_too(client: weft.Client, registry: Registry) -> None:
    calls: list[str] = []

    async def later() -> str:
        calls.append("later")
        return threading.current_thread().name

    def here() -> str:
        calls.append("here")
        return threading.current_thread().name

    @registry.task(name="work", retry=SOON)
    def work(ctx: weft.Context) -> list[Any]:
        names = [ctx.step("here", here), ctx.step("later", later)]
        ctx.checkpoint.save("named", names)
        if ctx.attempt == 1:
            raise ValueError("again")
        return [names, ctx.checkpoint.load("named").data, ctx.checkpoint.load(validator=lambda data: False)]

    handle = await client.enqueue(work)
    names, saved, nothing = await finished(client, registry, handle)
    assert names == saved == [f"weft-task-{handle.id}"] * 2
    assert (nothing, calls) == (None, ["here", "later"])


@pytest.mark.parametrize("how", ["step", "checkpoint first", "checkpoint last", "@step", "empty", "process"])
async def test_a_name_that_occurs_twice_or_is_no_name_is_told(
    client: weft.Client, registry: Registry, how: str
) -> None:
    @registry.task(name="work")
    async def work(ctx: weft.Context) -> None:
        match how:
            case "step":
                await ctx.step("same", int)
                await ctx.step("same", int)
            case "checkpoint first":
                await ctx.checkpoint.save("same")
                await ctx.step("same", int)
            case "checkpoint last":
                await ctx.step("same", int)
                await ctx.checkpoint.save("same")
            case "@step":
                await ctx.step("@step", int)
            case "empty":
                await ctx.checkpoint.save("")

    handle = await client.enqueue(process_handlers.twice if how == "process" else work)
    chosen = None if how == "process" else registry
    await weft.Worker(client=client, **({} if chosen is None else {"registry": chosen})).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason) == ("failed", "non_retryable")
    told = {"@step": "begin with @", "empty": "must not be empty", "checkpoint last": "is that of a step"}
    assert task.error is not None
    assert told.get(how, "occurs twice") in task.error["message"]


@with_and_without_a_database
async def test_the_last_checkpoint_is_loaded_and_one_that_fails_its_validator_is_dropped(
    client: weft.Client, registry: Registry
) -> None:
    found: list[Any] = []

    def usable(data: Any) -> None:
        if data == {"path": "damaged"}:
            raise FileNotFoundError(data["path"])

    async def good(data: Any) -> bool:
        return bool(data["path"] == "good")

    @registry.task(name="work", retry=SOON)
    async def work(ctx: weft.Context) -> None:
        last = await ctx.checkpoint.load(validator=[usable, good][ctx.attempt % 2])
        found.append(last and (last.phase, last.data, last.attempt))
        if ctx.attempt == 1:
            await ctx.checkpoint.save("one", {"path": "good"})
            await ctx.checkpoint.save("two", {"path": "bad"})
            await ctx.checkpoint.save("three", {"path": "half"})
            await ctx.checkpoint.save("three", {"path": "damaged"})
            raise ValueError("again")
        if ctx.attempt == 2:
            raise ValueError("again")
        assert await ctx.checkpoint.load("three") is None, "it was dropped"

    handle = await client.enqueue(work)
    await finished(client, registry, handle)
    assert found == [None, ("two", {"path": "bad"}, 1), ("one", {"path": "good"}, 1)]
    assert [step.name for step in (await client.get_task(handle.id)).steps] == ["one"]


async def test_a_worker_that_comes_late_saves_nothing(client: weft.Client, registry: Registry) -> None:
    begun = asyncio.Event()
    problems: list[BaseException] = []

    @registry.task(name="work", retry=SOON)
    async def work(ctx: weft.Context) -> str:
        if ctx.attempt > 1:
            return "second"
        await ctx.step("before", int)
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        for late in (lambda: ctx.step("late", int), lambda: ctx.checkpoint.save("late too")):
            try:
                await late()
            except weft.LeaseLost as problem:
                problems.append(problem)
        return "first"

    handle = await client.enqueue(work)
    async with weft.Worker(client=client, registry=registry):
        await begun.wait()
        await client.cancel(handle.id)

        async def refused() -> bool:
            return len(problems) == 2

        await until(refused)
    task = await client.get_task(handle.id)
    assert (task.state, [step.name for step in task.steps]) == ("cancelled", ["before"])


async def test_what_is_large_goes_to_the_blob_storage_and_lives_as_long_as_the_task(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record], home: Path
) -> None:
    client = await make_client(inline_limit=1000, value_limit=5000)
    sizes: list[int] = []

    @registry.task(name="work", retry=SOON)
    async def work(ctx: weft.Context) -> None:
        sizes.append(len(await ctx.step("large", lambda: "x" * 3000)))
        if ctx.attempt == 1:
            raise ValueError("again")

    @registry.task(name="too large", retry=SOON)
    async def too_large(ctx: weft.Context) -> None:
        await ctx.checkpoint.save("huge", "x" * 6000)

    handle = await client.enqueue(work)
    refused = await client.enqueue(too_large)
    await finished(client, registry, handle)
    with pytest.raises(weft.TaskFailed, match="huge: has 6002 bytes, and may have 5000"):
        await finished(client, registry, refused)
    assert sizes == [3000, 3000]
    (data,) = [row[0] for row in await conn.fetch("select data from weft.steps where name = 'large'")]
    assert data.startswith('{"$blob":')
    (step,) = (await client.get_task(handle.id)).steps
    assert step.bytes == 3002
    used = "select count(*) from weft.blob_use where user_id = $1"
    collector = Collector(client.database, open_blobs(client.settings))
    await collector.run_once()
    assert await conn.fetchval(used, handle.id) == 1
    await conn.execute("delete from weft.task_done")
    await collector.run_once()
    assert await conn.fetchval(used, handle.id) == 0


async def test_a_step_waits_for_postgres_to_come_back(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    calls: list[int] = []

    @registry.task(name="work", retry=SOON)
    async def work(ctx: weft.Context) -> int:
        async def hours_of_work() -> int:
            calls.append(ctx.attempt)
            # The connections end between the work and what is to be saved of it.
            await conn.execute(END_CONNECTIONS)
            return 7

        return int(await ctx.step("long", hours_of_work))

    assert await finished(client, registry, await client.enqueue(work)) == 7
    assert calls == [1]


async def test_steps_go_on_after_a_replay(client: weft.Client, registry: Registry) -> None:
    calls: list[str] = []
    mended = False

    @registry.task(name="work", retry=0)
    async def work(ctx: weft.Context) -> str:
        await ctx.step("paid", calls.append, "paid")
        if not mended:
            raise ValueError("broken")
        return "done"

    handle = await client.enqueue(work)
    with pytest.raises(weft.TaskFailed):
        await finished(client, registry, handle)
    mended = True
    await client.replay(handle.id)
    assert await finished(client, registry, handle) == "done"
    assert calls == ["paid"]


async def test_a_handler_is_told_that_its_worker_stops_and_goes_on_elsewhere(
    client: weft.Client, registry: Registry
) -> None:
    begun = asyncio.Event()

    @registry.task(name="work", retry=0)
    async def work(ctx: weft.Context) -> list[Any]:
        found = await ctx.checkpoint.load("half")
        if found is not None:
            return [found.data, ctx.attempt, ctx.shutdown_requested, await ctx.wait_for_shutdown(0)]
        begun.set()
        assert await ctx.wait_for_shutdown(30)
        assert ctx.shutdown_requested
        await ctx.checkpoint.save("half", "done")
        raise weft.Snooze(0)

    handle = await client.enqueue(work)
    worker = weft.Worker(client=client, registry=registry)
    await worker.start()
    await begun.wait()
    await worker.stop(grace=30)
    task = await client.get_task(handle.id)
    assert (task.failures, [step.name for step in task.steps]) == (0, ["half"])
    assert await finished(client, registry, handle) == ["done", 2, False, False]


async def test_a_handler_in_a_thread_is_told_that_its_worker_stops(client: weft.Client, registry: Registry) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    @registry.task(name="work")
    def work(ctx: weft.Context) -> bool:
        loop.call_soon_threadsafe(begun.set)
        return bool(ctx.wait_for_shutdown(30)) and ctx.shutdown_requested

    handle = await client.enqueue(work)
    worker = weft.Worker(client=client, registry=registry)
    await worker.start()
    await begun.wait()
    await worker.stop(grace=30)
    assert await client.wait(handle.id, timeout=60) is True


async def test_a_handler_in_a_process_is_told_that_its_worker_stops(client: weft.Client, tmp_path: Path) -> None:
    note = tmp_path / "begun"
    handle = await client.enqueue(process_handlers.until_shutdown, {"path": str(note)})
    worker = weft.Worker(client=client)
    await worker.start()

    async def begun() -> bool:
        return note.exists()

    await until(begun, within=60)
    await worker.stop(grace=30)
    assert await client.wait(handle.id, timeout=60) is True


async def test_without_a_worker_steps_are_kept_in_memory() -> None:
    """So that a handler can be called by a test of its own."""
    ctx = weft.Context(task_id=1, attempt=1, handler="work", worker_id=0)
    assert await ctx.step("one", lambda: 1) == 1
    await ctx.checkpoint.save("phase", [1])
    assert (await ctx.checkpoint.load()).data == [1]
    assert (await ctx.checkpoint.load("one")).data == 1
    assert await ctx.checkpoint.load("phase", validator=lambda data: False) is None
    assert await ctx.checkpoint.load("phase") is None
    assert not ctx.shutdown_requested
