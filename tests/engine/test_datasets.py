"""Datasets: what a task writes is visible with its outcome, and never without it; each state stays readable."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import process_handlers
import pyarrow as pa
import pytest

import weft
from far import with_and_without_a_database
from weft.worker.registry import REGISTRY, Registry

SOON = weft.Retry(5, initial_delay=0)


async def done(client: weft.Client, registry: Registry, *handles: weft.TaskHandle) -> list[Any]:
    async with weft.Worker(client=client, registry=registry):
        return [await client.wait(handle.id, timeout=30) for handle in handles]


@with_and_without_a_database
async def test_what_a_task_writes_is_read_by_the_next(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="write")
    async def write(ctx: weft.Context) -> list[Any]:
        rows = [{"id": 1, "price": 2.5}, {"id": 2, "price": 4.0}]
        found = await ctx.dataset("orders").write(rows, partition="2026-11-14")
        return [found.rows, found.files, list(found.partitions)]

    @registry.task(name="read")
    async def read(ctx: weft.Context) -> list[Any]:
        table = await ctx.dataset("orders").read(partition="2026-11-14")
        parts = await ctx.dataset("orders").partitions()
        return [table.to_pylist(), [[part.key, part.rows, part.write] for part in parts]]

    [written] = await done(client, registry, await client.enqueue(write))
    assert written == [2, 1, ["2026-11-14"]]
    [found] = await done(client, registry, await client.enqueue(read))
    assert found == [[{"id": 1, "price": 2.5}, {"id": 2, "price": 4.0}], [["2026-11-14", 2, 1]]]
    shown = await client.datasets.show("orders")
    assert (shown.version, shown.write, shown.rows, shown.files) == (1, 1, 2, 1)
    assert [(column.name, column.type) for column in shown.columns] == [("id", "int64"), ("price", "double")]
    assert str(shown.producer) == "the handler write"


@pytest.mark.parametrize("executor", ["thread", "process"])
@with_and_without_a_database
async def test_a_plain_function_writes_and_reads_too(client: weft.Client, registry: Registry, executor: str) -> None:
    @registry.task(name="in a thread")
    def in_a_thread(count: int, ctx: weft.Context) -> list[int]:
        return process_handlers.write_and_read(count, ctx)

    is_here = executor == "thread"
    handler, known = (in_a_thread, registry) if is_here else (process_handlers.write_and_read, REGISTRY)
    [first] = await done(client, known, await client.enqueue(handler, {"count": 3}))
    [again] = await done(client, known, await client.enqueue(handler, {"count": 5}))
    assert (first, again) == ([0, 3], [3, 5])


@with_and_without_a_database
async def test_a_failed_attempt_leaves_nothing_to_see(client: weft.Client, registry: Registry) -> None:
    seen: list[int] = []

    @registry.task(name="work", retry=SOON)
    async def work(ctx: weft.Context) -> int:
        await ctx.dataset("orders").write([{"id": ctx.attempt}])
        shown = await client.datasets.show("orders")
        seen.append(shown.rows)
        if ctx.attempt < 3:
            raise ValueError("after the write")
        return ctx.attempt

    assert await done(client, registry, await client.enqueue(work)) == [3]
    assert seen == [0, 0, 0]
    shown = await client.datasets.show("orders")
    assert (shown.write, shown.rows, shown.files) == (1, 1, 1)
    [only] = await client.datasets.writes("orders")
    assert (only.attempt, only.mode, only.rows) == (3, "replace", 1)


@with_and_without_a_database
async def test_rows_that_are_there_already_are_left_out(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="append")
    async def append(ids: list[int], ctx: weft.Context) -> int:
        rows = [{"id": id, "by": ctx.task_id} for id in ids]
        return (await ctx.dataset("events").write(rows, mode="append", unique_key="id")).rows

    @registry.task(name="all")
    async def everything(ctx: weft.Context) -> list[int]:
        return sorted((await ctx.dataset("events").read(columns=["id"])).column("id").to_pylist())

    counts = []
    for ids in ([1, 2, 2], [2, 3], [1, 2, 3]):
        counts += await done(client, registry, await client.enqueue(append, {"ids": ids}))
    assert counts == [2, 1, 0]
    assert await done(client, registry, await client.enqueue(everything)) == [[1, 2, 3]]
    assert (await client.datasets.show("events")).unique_key == ("id",)


async def test_zero_and_what_is_no_number_are_one_key_however_they_are_written(
    client: weft.Client, registry: Registry
) -> None:
    # Zero of either sign, and not-a-number in three ways.
    bits = struct.pack("<5Q", 0, 1 << 63, 0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1)
    values, types = struct.unpack("<5d", bits), (pa.float64(), pa.float32(), pa.float16())

    @registry.task(name="append")
    async def append(name: str, type: int, by: str | None, ctx: weft.Context) -> tuple[int, list[str]]:
        orders = [*range(5)] if ctx.task_id % 2 else [*range(4, -1, -1)]
        table = pa.table(
            {
                "k": pa.array([values[place] for place in orders], pa.float64()).cast(types[type], safe=False),
                "n": orders,
            }
        )
        written = await ctx.dataset(name).write(table, mode="append", unique_key="k", partition_by=by)
        return written.rows, sorted(written.partitions)

    await client.datasets.create("rows", storage="postgres")
    for name, type, by in (
        ("files", 0, None),
        ("small", 1, None),
        ("half", 2, None),
        ("rows", 0, None),
        ("by", 0, "k"),
    ):
        added = []
        for _ in range(2):
            said = {"name": name, "type": type, "by": by}
            added += await done(client, registry, await client.enqueue(append, said))
        parts = [""] if by is None else ["0.0", "nan"]
        assert added == [[2, parts], [0, parts]], name


@with_and_without_a_database
async def test_tasks_that_append_the_same_rows_at_once_add_them_once(client: weft.Client, registry: Registry) -> None:
    together = asyncio.Barrier(4)
    attempts: list[int] = []

    @registry.task(name="append")
    async def append(ctx: weft.Context) -> int:
        attempts.append(ctx.attempt)
        rows = [{"id": id} for id in range(100)]
        written = (await ctx.dataset("events").write(rows, mode="append", unique_key=["id"])).rows
        if ctx.attempt == 1:
            await together.wait()
        return written

    handles = [await client.enqueue(append) for _ in range(4)]
    assert sorted(await done(client, registry, *handles)) == [0, 0, 0, 100]
    assert (await client.datasets.show("events")).rows == 100
    assert len(attempts) > 4
    again = [each for handle in handles for each in (await client.get_task(handle.id)).attempts]
    assert {attempt.outcome for attempt in again} == {"snoozed"}


async def test_replacing_by_a_column_touches_only_what_occurs_in_it(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="write")
    async def write(days: list[str], by: int, ctx: weft.Context) -> None:
        rows = [{"day": day, "by": by} for day in days for _ in range(2)]
        await ctx.dataset("daily").write(rows, partition_by="day")

    for by, days in enumerate((["a", "b"], ["b", "c"])):
        await done(client, registry, await client.enqueue(write, {"days": days, "by": by}))
    parts = await client.datasets.partitions("daily")
    assert [(part.key, part.rows, part.write) for part in parts] == [("a", 2, 1), ("b", 2, 2), ("c", 2, 2)]
    assert [part.key for part in await client.datasets.partitions("daily", latest=True, limit=2)] == ["c", "b"]
    assert [part.key for part in await client.datasets.partitions("daily", after="a", limit=1)] == ["b"]


@with_and_without_a_database
async def test_rows_that_are_in_no_partition_are_listed_first_and_once(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="write")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("daily").write([{"id": 1}])
        await ctx.dataset("daily").write([{"id": 2}, {"id": 3}], partition="a")

    @registry.task(name="read")
    async def read(ctx: weft.Context) -> list[int]:
        found = []
        for part in await ctx.dataset("daily").partitions():
            found += (await ctx.dataset("daily").read(partition=part.key))["id"].to_pylist()
        return found

    await done(client, registry, await client.enqueue(write))
    assert await done(client, registry, await client.enqueue(read)) == [[1, 2, 3]]
    assert [part.key for part in await client.datasets.partitions("daily")] == ["", "a"]
    assert [part.key for part in await client.datasets.partitions("daily", limit=1)] == [""]
    assert [part.key for part in await client.datasets.partitions("daily", after="", limit=1)] == ["a"]
    assert await client.datasets.partitions("daily", after="a") == []


async def test_each_state_stays_readable_and_can_be_gone_back_to(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="write")
    async def write(value: int, ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"value": value}])

    @registry.task(name="read")
    async def read(name: str, ctx: weft.Context) -> list[int]:
        return (await ctx.dataset(name).read()).column("value").to_pylist()  # type: ignore[no-any-return]

    async def value(name: str) -> list[int]:
        return (await done(client, registry, await client.enqueue(read, {"name": name})))[0]  # type: ignore[no-any-return]

    for number in (1, 2, 3):
        await done(client, registry, await client.enqueue(write, {"value": number}))
    assert [await value(name) for name in ("orders", "orders@1", "orders@1.2", "orders@1.1")] == [[3], [3], [2], [1]]
    between = (await client.datasets.writes("orders"))[1].written_at
    assert str(await client.datasets.state("orders", as_of=between)) == "orders@1.2"
    assert str(await client.datasets.rollback("orders@1.2")) == "orders@1.4"
    assert await value("orders") == [2]
    assert str(await client.datasets.rollback("orders@1.3")) == "orders@1.5"
    assert [await value(name) for name in ("orders", "orders@1.4", "orders@1.1")] == [[3], [2], [1]]
    assert [write.mode for write in await client.datasets.writes("orders")][:2] == ["rollback", "rollback"]
    assert (await client.datasets.show("orders")).rows == 1


@with_and_without_a_database
async def test_a_change_of_columns_that_breaks_readers_needs_to_be_meant(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="write")
    async def write(row: dict[str, Any], breaking: bool, ctx: weft.Context) -> str | None:
        try:
            await ctx.dataset("orders").write([row], breaking=breaking)
        except weft.InvalidInput as problem:
            return str(problem)
        return None

    @registry.task(name="read")
    async def read(ctx: weft.Context) -> list[dict[str, Any]]:
        return (await ctx.dataset("orders").read()).to_pylist()  # type: ignore[no-any-return]

    async def written(row: dict[str, Any], *, breaking: bool = False) -> str | None:
        handle = await client.enqueue(write, {"row": row, "breaking": breaking})
        return (await done(client, registry, handle))[0]  # type: ignore[no-any-return]

    assert await written({"id": 1, "name": "a"}) is None
    refused = await written({"id": "x", "more": 1})
    assert refused is not None
    assert "name (string) is missing" in refused
    assert "breaking=True" in refused
    assert await written({"id": 2, "name": "b", "more": 1}) is None
    assert (await client.datasets.show("orders")).version == 1
    assert await written({"other": 1.5}, breaking=True) is None
    shown = await client.datasets.show("orders")
    assert (shown.version, shown.write, [column.name for column in shown.columns]) == (2, 1, ["other"])
    assert await done(client, registry, await client.enqueue(read)) == [[{"other": 1.5}]]
    await client.datasets.rollback("orders@1")
    assert await done(client, registry, await client.enqueue(read)) == [[{"id": 2, "name": "b", "more": 1}]]
    versions = await client.datasets.versions("orders")
    assert [(each.number, each.is_current) for each in versions] == [(2, False), (1, True)]


async def test_a_dataset_has_one_producer(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="first")
    async def first(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"id": 1}])

    @registry.task(name="second", retry=weft.Retry(1))
    async def second(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"id": 2}])

    await done(client, registry, await client.enqueue(first))
    with pytest.raises(
        weft.TaskFailed, match=r"the handler first and by nobody else.*`weft datasets hand-over orders`"
    ):
        await done(client, registry, await client.enqueue(second))
    assert (await client.datasets.show("orders")).write == 1


async def test_an_attempt_reads_one_state_whatever_others_write(client: weft.Client, registry: Registry) -> None:
    has_read, has_written = asyncio.Event(), asyncio.Event()

    @registry.task(name="write")
    async def write(value: int, ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"value": value}])

    @registry.task(name="read")
    async def read(ctx: weft.Context) -> list[int]:
        first = (await ctx.dataset("orders").read()).column("value").to_pylist()
        has_read.set()
        await has_written.wait()
        return [*first, *(await ctx.dataset("orders").read()).column("value").to_pylist()]

    await done(client, registry, await client.enqueue(write, {"value": 1}))
    async with weft.Worker(client=client, registry=registry):
        reading = await client.enqueue(read)
        await has_read.wait()
        await client.wait((await client.enqueue(write, {"value": 2})).id, timeout=30)
        has_written.set()
        assert await client.wait(reading.id, timeout=30) == [1, 1]
