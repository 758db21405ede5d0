"""Datasets that are kept in tables of PostgreSQL: written, read and asked like others, and by SQL through a view."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pytest

import weft
from crash.test_dataset_kill import claimed
from far import with_and_without_a_database
from weft.catalog import dataset_rows, dataset_writing
from weft.data.collecting import DatasetCollector
from weft.queue.steps import Fence
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

KEPT = pa.table({
    "flag": [True, None],
    "tiny": pa.array([-128, 127], pa.int8()),
    "count": pa.array([2**63 - 1, None], pa.int64()),
    "huge": pa.array([2**64 - 1, 0], pa.uint64()),
    "half": pa.array([1.5, float("-inf")], pa.float32()),
    "number": [0.1, float("inf")],
    "exact": pa.array([Decimal("12.50"), None], pa.decimal128(20, 2)),
    "words": ['a "b" \\ {c},\n', ""],
    "raw": [b"\0\xff", b""],
    "day": [date(2026, 11, 14), None],
    "at": pa.array([datetime(2026, 11, 14, 1, 2, 3, 450_000), None], pa.timestamp("us")),
    "instant": pa.array([datetime(2026, 11, 14, 1, 2, 3, tzinfo=UTC), None], pa.timestamp("ns", "Europe/Berlin")),
    "hour": pa.array([time(1, 2, 3, 4), None], pa.time64("us")),
})  # fmt: skip


async def done(client: weft.Client, registry: Registry, handler: str, **params: Any) -> Any:
    async with weft.Worker(client=client, registry=registry):
        return await client.wait((await client.enqueue(handler, params)).id, timeout=60)


@pytest.fixture
def registry() -> Registry:
    """Handlers that write and read whatever dataset."""
    registry = Registry()

    @registry.task(name="write", retry=0)
    async def write(name: str, rows: list[dict[str, Any]], how: dict[str, Any], ctx: weft.Context) -> int:
        return (await ctx.dataset(name).write(rows, **how)).rows  # type: ignore[no-any-return]

    @registry.task(name="read", retry=0)
    async def read(name: str, partition: str | None, ctx: weft.Context) -> list[int]:
        table = await ctx.dataset(name).read(partition=partition, columns=["id"])
        assert (await ctx.dataset(name).scan(partition=partition)).to_table().num_rows == table.num_rows
        return sorted(table.column("id").to_pylist())

    return registry


async def asked(client: weft.Client, sql: str) -> list[dict[str, Any]]:
    async with client.datasets.query(sql) as answer:
        return [row async for row in answer.records()]


async def tables(conn: Conn) -> dict[str, int]:
    """Return how many rows each table has, seen or not."""
    names = await conn.fetch(
        "select c.relname from pg_class c where c.relnamespace = 'weft_data'::regnamespace and c.relkind = 'r'"
    )
    return {name: await conn.fetchval(f"select count(*) from weft_data.{name}") for (name,) in names}


@with_and_without_a_database
async def test_what_is_written_into_a_table_is_read_asked_and_gone_back_to(
    client: weft.Client, registry: Registry
) -> None:
    assert await client.datasets.create("orders", storage="postgres")
    rows = [{"id": 1, "day": "a"}, {"id": 2, "day": "a"}, {"id": 3, "day": "b"}]
    assert await done(client, registry, "write", name="orders", rows=rows, how={"partition_by": "day"}) == 3
    more = {"mode": "append", "unique_key": "id", "partition_by": "day"}
    again = [{"id": 3, "day": "b"}, {"id": 4, "day": "b"}]
    assert await done(client, registry, "write", name="orders", rows=again, how=more) == 1
    assert await done(client, registry, "read", name="orders", partition=None) == [1, 2, 3, 4]
    assert await done(client, registry, "read", name="orders", partition="b") == [3, 4]
    assert [(part.key, part.rows) for part in await client.datasets.partitions("orders")] == [("a", 2), ("b", 2)]
    assert await asked(client, "select day, sum(id) as ids from orders group by day order by day") == [
        {"day": "a", "ids": 3}, {"day": "b", "ids": 7}
    ]  # fmt: skip
    assert await client.datasets.sample("orders", limit=1) == [{"id": 1, "day": "a"}]
    await done(client, registry, "write", name="orders", rows=[{"id": 9, "day": "c"}], how={})
    assert await done(client, registry, "read", name="orders@1.2", partition=None) == [1, 2, 3, 4]
    assert await asked(client, 'select count(*) as n from "orders@1.1"') == [{"n": 3}]
    await client.datasets.rollback("orders@1.1")
    assert await done(client, registry, "read", name="orders", partition=None) == [1, 2, 3]


@with_and_without_a_database
async def test_every_kind_of_value_that_is_kept_comes_back_as_it_was(client: weft.Client) -> None:
    registry, seen = Registry(), list[pa.Table]()

    @registry.task(name="write")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("kinds").write(KEPT)

    @registry.task(name="read")
    async def read(ctx: weft.Context) -> None:
        seen.append(await ctx.dataset("kinds").read())

    await client.datasets.create("kinds", storage="postgres")
    await done(client, registry, "write")
    await done(client, registry, "read")
    assert seen[0].equals(KEPT)
    [first, _] = await asked(client, "select flag, huge, exact, words, day, hour from kinds order by huge desc")
    assert (first["huge"], first["exact"], first["words"]) == (2**64 - 1, Decimal("12.50"), 'a "b" \\ {c},\n')


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (pa.table({"id": [1], "many": [[1, 2]]}), "many is list<"),
        (pa.table({"_row": [1]}), "_row is a name"),
        (pa.table({"x" * 64: [1]}), "longer than 63 bytes"),
        (pa.table({"id": [1], "text": ["a\0b"]}), "text has a text with a zero byte"),
        (pa.table({"fine": pa.array([1], pa.timestamp("ns"))}), "fine has nanoseconds"),
        (pa.table({"span": pa.array([1], pa.duration("s"))}), "span is duration"),
        (pa.table({"late": pa.array([0, 253_402_300_800], pa.timestamp("s"))}), "late has a year outside of 1 to 9999"),
        (pa.table({"far": pa.array([2_932_897, None], pa.int32()).cast(pa.date32())}), "far has a year outside"),
    ],
)
async def test_what_is_not_kept_is_refused_by_the_name_of_its_column(
    client: weft.Client, conn: Conn, table: pa.Table, named: str
) -> None:
    registry = Registry()

    @registry.task(name="write")
    async def write(ctx: weft.Context) -> str:
        with pytest.raises(weft.InvalidInput) as refused:
            await ctx.dataset("kinds").write(table)
        return str(refused.value)

    await client.datasets.create("kinds", storage="postgres")
    assert named in await done(client, registry, "write")
    assert (await client.datasets.show("kinds")).rows == 0


async def test_a_view_shows_what_readers_see_and_nobody_else_may_read_it(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    await client.datasets.create("orders", storage="postgres")
    view = 'weft_data."default.orders"'

    async def shown() -> list[dict[str, Any]]:
        return [dict(row) for row in await conn.fetch(f"select * from {view} order by 1")]

    for id in (1, 2):
        await done(client, registry, "write", name="orders", rows=[{"id": id}], how={})
    assert await shown() == [{"id": 2}]
    await done(client, registry, "write", name="orders", rows=[{"id": 3, "more": "x"}], how={})
    assert await shown() == [{"id": 3, "more": "x"}]
    await client.datasets.rollback("orders@1.1")
    assert await shown() == [{"id": 1, "more": None}]
    await done(client, registry, "write", name="orders", rows=[{"other": 1.5}], how={"breaking": True})
    assert await shown() == [{"other": 1.5}]
    await client.datasets.rollback("orders@1")
    assert await shown() == [{"id": 1, "more": None}]
    may = "select has_table_privilege('stranger', $1, 'select')"
    await conn.execute("drop role if exists stranger; create role stranger")
    try:
        for name in (view, f"weft_data.{next(iter(await tables(conn)))}"):
            assert not await conn.fetchval(may, name)
        await conn.execute(f"grant select on {view} to stranger")
        await client.datasets.rollback("orders@2")
        assert await shown() == [{"other": 1.5}]
        assert await conn.fetchval(may, view), "what was granted stays"
        await conn.execute(f"create view public.mine as select other from {view}")
        with pytest.raises(weft.DatasetBusy, match="other views are made of its view"):
            await client.datasets.rollback("orders@1")
    finally:
        await conn.execute("drop view if exists public.mine; drop owned by stranger; drop role stranger")


async def test_what_nobody_sees_is_collected_and_nothing_else(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    async def collect(retention: timedelta) -> None:
        collector = DatasetCollector(client.database, weft.Settings.load(environ={}, dataset_retention=retention),
                                     timedelta(0))  # fmt: skip
        while await collector.run_once():
            pass

    await client.datasets.create("orders", storage="postgres")
    await done(client, registry, "write", name="orders", rows=[{"id": 1}, {"id": 2}], how={})
    await done(client, registry, "write", name="orders", rows=[{"id": 3}], how={})
    wrong = [{"id": id} for id in range(70_000)] + [{"id": "no number"}]
    with pytest.raises(weft.TaskFailed, match="Could not convert"):
        await done(client, registry, "write", name="orders", rows=wrong, how={})
    [(name, before)] = (await tables(conn)).items()
    assert before > 60_000
    await collect(timedelta(days=1))
    assert await tables(conn) == {name: 3}
    await collect(timedelta(milliseconds=1))
    assert await tables(conn) == {name: 1}
    await done(client, registry, "write", name="orders", rows=[{"other": 3}], how={"breaking": True})
    await collect(timedelta(milliseconds=1))
    assert list((await tables(conn)).values()) == [1]
    assert list(await tables(conn)) != [name]
    assert await asked(client, "select * from orders") == [{"other": 3}]


@with_and_without_a_database
async def test_many_small_writes_and_large_rows_are_read_in_pages(client: weft.Client, registry: Registry) -> None:
    await client.datasets.create("orders", storage="postgres")
    for begin in (0, 12_000, 12_001):
        ids = range(begin, 12_000 if begin == 0 else begin + 1)
        rows = [{"id": id, "words": "x" * (5_000_000 if id >= 12_000 else 10)} for id in ids]
        how = {"mode": "append", "unique_key": "id"}
        assert await done(client, registry, "write", name="orders", rows=rows, how=how) == len(rows)
    assert await done(client, registry, "read", name="orders", partition=None) == list(range(12_002))
    assert await asked(client, "select count(*) as n, max(len(words)) as longest from orders") == [
        {"n": 12_002, "longest": 5_000_000}
    ]


async def test_a_view_that_is_being_read_holds_nobody_up(client: weft.Client, conn: Conn, registry: Registry) -> None:
    await client.datasets.create("orders", storage="postgres")
    for _ in range(2):
        await done(client, registry, "write", name="orders", rows=[{"id": 1}], how={"breaking": True})
    async with conn.transaction():
        await conn.fetch('select * from weft_data."default.orders"')
        with pytest.raises(weft.DatasetBusy, match="somebody reads through its view"):
            await client.datasets.rollback("orders@1")
        # What changes no columns changes no view.
        await done(client, registry, "write", name="orders", rows=[{"id": 2}], how={})
    assert str(await client.datasets.rollback("orders@1")) == "orders@1.1"


async def test_an_org_reads_and_writes_no_rows_of_another(client: weft.Client, conn: Conn, registry: Registry) -> None:
    await client.datasets.create("orders", storage="postgres")
    await done(client, registry, "write", name="orders", rows=[{"id": 1}], how={})
    version = await conn.fetchval("select id from weft.dataset_version")
    path = await conn.fetchval("select path from weft.dataset_file")
    write, number = path.removesuffix(".rows").split("-")
    await conn.execute("insert into weft.org (id, slug, name) values (7, 'other', 'Other')")
    assert await dataset_rows.read(conn, 1, version, [path], ["id"], 0, 10) == [(1, ["1"])]
    # As if there were no such version.
    for other in (version, 1):
        with pytest.raises(weft.NotFound, match=f"there is no version {other}; its files have been collected"):
            await dataset_rows.read(conn, 7, other, [path], ["id"], 0, 10)
    await conn.execute("set weft.org = '7'")
    one = f"{version}, {write}, {number}"
    for call in (
        f"rows_of({version}, '{{{write}}}', '{{{number}}}', '{{id}}', 0, 10)", f"drop_rows({one})",
        f"add_rows({one}, '{{id}}', '[[\"2\"]]')", f"prepare_table({version}, '{{x}}', '{{text}}')",
    ):  # fmt: skip
        with pytest.raises(asyncpg.PostgresError, match="none that is kept in the database"):
            await conn.execute(f"select weft.{call}")
    await conn.execute("reset weft.org")
    assert sum((await tables(conn)).values()) == 1


async def test_rows_are_added_to_a_write_of_ones_own_that_is_still_open(client: weft.Client, conn: Conn) -> None:
    await client.datasets.create("orders", storage="postgres")
    columns, row = [{"name": "id", "type": "bigint"}], [["1"]]
    fences = []
    for _ in range(2):
        worker_id, task_id = await claimed(conn, client)
        fences.append(Fence(worker_id, task_id, 1))
    mine, other = fences

    async def begun(fence: Fence) -> dataset_writing.Begun:
        return await client.database.run(
            lambda conn: dataset_writing.begin(conn, fence, "orders", dataset_writing.Mode.APPEND, None)
        )

    write = await begun(mine)

    async def add(fence: Fence) -> int:
        return await client.database.run(lambda conn: dataset_rows.add(conn, fence, write.id, 1, columns, row))

    assert await add(mine) == 1
    with pytest.raises(weft.InvalidInput, match="no write into a table that this attempt has begun"):
        await add(other)
    for wrong in ({"name": "x", "type": "text; drop table weft.task"}, {"name": "id", "type": "text"}):
        with pytest.raises(weft.InvalidInput, match="columns"):
            await client.database.run(
                lambda conn, wrong=wrong: dataset_rows.add(conn, mine, write.id, 1, [wrong], row)  # type: ignore[misc]
            )
    with pytest.raises(weft.InvalidInput, match="data"):
        await client.database.run(lambda conn: dataset_rows.add(conn, mine, write.id, 1, columns, [["x"]]))
    staged = dataset_writing.Staged(
        write.id, [""], False, [{"partition": "", "path": f"{write.id}-1.rows", "rows": 1, "bytes": 1}], None, None,
        {"columns": [{"name": "id", "type": "int64", "nullable": True}], "arrow": "x"},
    )  # fmt: skip
    await client.database.run(lambda conn: dataset_writing.stage(conn, mine, staged))
    with pytest.raises(weft.InvalidInput, match="not told of yet"):
        await add(mine)
    with pytest.raises(weft.InvalidInput, match="columns"):
        await dataset_rows.read(conn, 1, write.version_id, [f"{write.id}-1.rows"], ["nothing"], 0, 10)


async def test_a_file_of_another_kind_is_not_staged(client: weft.Client, conn: Conn) -> None:
    await client.datasets.create("orders", storage="postgres")
    fence = Fence(*await claimed(conn, client), 1)
    write = await client.database.run(
        lambda conn: dataset_writing.begin(conn, fence, "orders", dataset_writing.Mode.REPLACE, None)
    )
    staged = dataset_writing.Staged(
        write.id, [""], True, [{"partition": "", "path": f"{write.id}-1.parquet", "rows": 1, "bytes": 1}], None, None,
        {"columns": [{"name": "id", "type": "int64", "nullable": True}], "arrow": "x"},
    )  # fmt: skip
    with pytest.raises(weft.InvalidInput, match=r"NUMBER\.rows"):
        await client.database.run(lambda conn: dataset_writing.stage(conn, fence, staged))
