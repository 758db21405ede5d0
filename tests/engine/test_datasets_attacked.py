"""Datasets written in ways that few have in mind: in parts, in steps, beside others who take away what is there."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import weft
from far import with_and_without_a_database
from live_scene import until
from weft.queue import upkeep
from weft.worker.registry import Registry
from writing import written

SOON = weft.Retry(3, initial_delay=0)


async def done(client: weft.Client, registry: Registry, handle: weft.TaskHandle) -> Any:
    async with weft.Worker(client=client, registry=registry):
        return await client.wait(handle.id, timeout=30)


@with_and_without_a_database
async def test_rows_that_were_replaced_do_not_keep_those_out_that_come_after(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="work", retry=0)
    async def work(parts: list[list[Any]], ctx: weft.Context) -> None:
        for mode, partition, ids in parts:
            key = "id" if mode == "append" else None
            await ctx.dataset("events").write(
                [{"id": id} for id in ids], partition=partition, mode=mode, unique_key=key
            )

    before = [["append", "a", [1, 2]], ["append", "b", [1, 2]]]
    again = [["append", "a", [7]], ["replace", "a", [5]], ["append", "a", [1, 5, 6, 7]], ["append", "b", [2, 3]]]
    for parts in (before, again):
        await done(client, registry, await client.enqueue(work, {"parts": parts}))
    rows = {part.key: part.rows for part in await client.datasets.partitions("events")}
    assert rows == {"a": 4, "b": 3}
    # All at once, too.
    whole = [["replace", None, [1]], ["append", "a", [1, 5]], ["append", "a", [5, 6]]]
    await done(client, registry, await client.enqueue(work, {"parts": whole}))
    assert [(part.key, part.rows) for part in await client.datasets.partitions("events")] == [("", 1), ("a", 3)]
    assert (await client.datasets.show("events")).rows == 4


@with_and_without_a_database
async def test_an_attempt_adds_columns_bit_by_bit(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="work", retry=0)
    async def work(ctx: weft.Context) -> None:
        for number, columns in enumerate((["a"], ["a", "b"], ["a", "b", "c"])):
            await ctx.dataset("wide").write([dict.fromkeys(columns, number)], partition=str(number))

    await done(client, registry, await client.enqueue(work))
    found = await client.datasets.show("wide")
    assert [column.name for column in found.columns] == ["a", "b", "c"]
    assert found.rows == 3


@with_and_without_a_database
async def test_what_follows_a_breaking_write_belongs_to_its_version(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="write one row", retry=0)
    async def work(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"id": "x"}], breaking=True)
        await ctx.dataset("orders").write([{"id": "y"}], partition="more")

    await written(client, "orders", 1)
    await done(client, registry, await client.enqueue(work))
    assert await client.datasets.sample("orders") == [{"id": "x"}, {"id": "y"}]
    assert await client.datasets.sample("orders@1") == [{"value": 1}]


@with_and_without_a_database
async def test_data_are_not_written_in_a_step_that_a_later_attempt_leaves_out(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="work", retry=0)
    async def work(ctx: weft.Context) -> None:
        async def write() -> None:
            await ctx.dataset("orders").write([{"id": 1}])

        await ctx.step("write", write)

    with pytest.raises(weft.TaskFailed, match="in a step"):
        await done(client, registry, await client.enqueue(work))


@pytest.mark.parametrize("by", ["partition", "partition_by"])
@pytest.mark.parametrize("how", ["rollback", "replace"])
async def test_rows_come_though_those_that_kept_them_out_have_gone_meanwhile(
    client: weft.Client, registry: Registry, how: str, by: str
) -> None:
    has_written, goes_on = asyncio.Event(), asyncio.Event()

    @registry.task(name="append", retry=SOON)
    async def append(kind: str, ctx: weft.Context) -> int:
        events = ctx.dataset("events")
        if kind == "replace":
            await events.write([{"id": 7, "day": "b"}], partition_by="day")
            return int((await events.write([{"id": 7, "day": "b"}])).rows)
        day = "b" if kind == "first" else "a"
        where = {by: day if by == "partition" else "day"}
        found = await events.write([{"id": 9, "day": day}], mode="append", unique_key="id", **where)
        if kind == "late" and ctx.attempt == 1:
            has_written.set()
            await goes_on.wait()
        return int(found.rows)

    async with weft.Worker(client=client, registry=registry):
        for kind in ("first", "then"):
            await client.wait((await client.enqueue(append, {"kind": kind})).id, timeout=30)
        late = await client.enqueue(append, {"kind": "late"})
        await has_written.wait()
        if how == "rollback":
            await client.datasets.rollback("events@1.1")
        else:
            await client.wait((await client.enqueue(append, {"kind": "replace"})).id, timeout=30)
        goes_on.set()
        assert await client.wait(late.id, timeout=30) == 1
    assert {part.key for part in await client.datasets.partitions("events")} >= {"a"}


async def test_who_asks_for_a_time_gets_what_was_seen_then_whoever_has_gone_back_since(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], registry: Registry
) -> None:
    @registry.task(name="write")
    async def write(value: int, ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"value": value}], breaking=True)

    moments = []
    for value in (1, 2, 3):
        await done(client, registry, await client.enqueue(write, {"value": value}))
        moments.append(await conn.fetchval("select weft.now()"))
    for version in (2, 1, 3):
        await client.datasets.rollback(f"orders@{version}")
        moments.append(await conn.fetchval("select weft.now()"))
    found = [(await client.datasets.state("orders", as_of=moment)).version for moment in moments]
    assert found == [1, 2, 3, 2, 1, 3]


async def test_what_tasks_have_read_is_forgotten_with_them(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], registry: Registry
) -> None:
    goes_on = asyncio.Event()

    @registry.task(name="read", retry=0)
    async def read(how: str, ctx: weft.Context) -> None:
        await ctx.dataset("orders").read()
        if how == "waits":
            await goes_on.wait()
        elif how == "fails":
            raise ValueError

    async def known() -> set[int]:
        return {row["task_id"] for row in await conn.fetch("select task_id from weft.task_input")}

    await written(client, "orders", 1)
    ids = {how: (await client.enqueue(read, {"how": how})).id for how in ("ends", "goes", "fails", "waits")}
    async with weft.Worker(client=client, registry=registry):
        await until(lambda: conn.fetchval("select count(distinct task_id) = 4 from weft.task_input"))
        await until(lambda: conn.fetchval("select count(*) = 3 from weft.task_done where handler = 'read'"))
        await conn.execute("delete from weft.task_done where id = $1", ids["goes"])
        assert await upkeep.prune_inputs(conn, timedelta(days=1)) == 0
        assert await upkeep.prune_inputs(conn, timedelta(seconds=-1)) == 1
        assert await known() == {ids["ends"], ids["fails"], ids["waits"]}
        assert await client.purge(ids=[ids["fails"]])
        assert await known() == {ids["ends"], ids["waits"]}
        goes_on.set()
        await client.wait(ids["waits"], timeout=30)


@with_and_without_a_database
async def test_a_write_without_rows_into_a_table_has_columns_all_the_same(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], registry: Registry
) -> None:
    import pyarrow as pa

    @registry.task(name="work", retry=0)
    async def work(how: str, ctx: weft.Context) -> None:
        table = pa.table({"id": pa.array([], pa.int64()), "more": pa.array([], pa.string())})
        if how == "known":
            await ctx.dataset("events").write([{"id": 1}], mode="append", unique_key="id")
            await ctx.dataset("events").write([{"id": 1, "new": 2}], mode="append", unique_key="id")
        else:
            await ctx.dataset("empty").write(table)

    for name in ("events", "empty"):
        await client.datasets.create(name, storage="postgres")
    for how in ("known", "empty"):
        await done(client, registry, await client.enqueue(work, {"how": how}))
    assert await conn.fetch('select * from weft_data."default.empty"') == []
    assert [dict(row) for row in await conn.fetch('select * from weft_data."default.events"')] == [
        {"id": 1, "new": None}
    ]


@pytest.mark.own_database
@with_and_without_a_database
async def test_an_outcome_that_the_database_cannot_take_holds_up_no_other(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], registry: Registry
) -> None:
    is_done = asyncio.Event()

    @registry.task(name="work", retry=0)
    async def work(how: str, ctx: weft.Context) -> str:
        if how == "broken":
            await ctx.dataset("orders").write([{"id": 1}])
            is_done.set()
        return how

    await conn.execute("alter function weft.mark_of rename to mark_of_before")
    async with weft.Worker(client=client, registry=registry):
        broken = await client.enqueue(work, {"how": "broken"})
        await is_done.wait()
        for _ in range(3):
            sound = await client.enqueue(work, {"how": "sound"})
            assert await client.wait(sound.id, timeout=20) == "sound"
        assert (await client.get_task(broken.id)).state == "running"
        await conn.execute("alter function weft.mark_of_before rename to mark_of")
        assert await client.wait(broken.id, timeout=20) == "broken"
    assert (await client.datasets.show("orders")).rows == 1


@with_and_without_a_database
async def test_a_column_of_which_only_nothing_was_known_is_filled_later(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="work", retry=0)
    async def work(said: str | None, partition: str, ctx: weft.Context) -> list[Any]:
        await ctx.dataset("orders").write([{"id": 1, "said": said}], partition=partition)
        return []

    @registry.task(name="read", retry=0)
    async def read(ctx: weft.Context) -> list[Any]:
        found: list[Any] = (await ctx.dataset("orders").read()).to_pylist()
        return found

    for said, partition in ((None, "a"), ("yes", "b"), (None, "c")):
        await done(client, registry, await client.enqueue(work, {"said": said, "partition": partition}))
    rows = await done(client, registry, await client.enqueue(read))
    assert [row["said"] for row in rows] == [None, "yes", None]
    assert [row["said"] for row in await client.datasets.sample("orders")] == [None, "yes", None]
