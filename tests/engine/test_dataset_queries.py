"""Queries over datasets: by name, version and time, over what whoever asks may see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_scene import MakeClient

import weft
from weft.core.query_errors import InvalidQuery, QueryLimitReached
from weft.sdk.session import seeing
from weft.worker.registry import Registry
from writing import written

BAD = ("", "drop table orders", "select * from read_csv('/etc/passwd')", "select nothing from orders", "select")


async def rows(client: weft.Client, sql: str, as_of: datetime | None = None) -> list[dict[str, object]]:
    async with client.datasets.query(sql, as_of=as_of) as answer:
        return [row async for row in answer.records()]


async def test_a_query_reads_datasets_by_name_version_write_and_time(client: weft.Client) -> None:
    await written(client, "orders", 1, 2)
    await written(client, "team/late orders", 7)
    assert await rows(client, "select value from orders") == [{"value": 2}]
    assert await rows(client, 'select value from "orders@1.1"') == [{"value": 1}]
    both = 'select o.value + l.value as sum from orders o, "team/late orders" l'
    assert await rows(client, both) == [{"sum": 9}]
    first = (await client.datasets.writes("orders"))[1].written_at
    assert await rows(client, "select value from orders", first) == [{"value": 1}]
    with pytest.raises(weft.NotFound, match="orders"):
        await rows(client, "select value from orders", first - timedelta(days=1))
    with pytest.raises(weft.NotFound, match="nothing"):
        await rows(client, "select * from nothing")
    assert await client.datasets.sample("orders", limit=5) == [{"value": 2}]
    assert await client.datasets.sample("orders@1.1") == [{"value": 1}]


async def test_what_is_not_seen_is_not_there_for_queries(client: weft.Client) -> None:
    await written(client, "orders", 1)
    await client.roles.create("finance")
    await client.datasets.grant("orders", ["finance"])
    with seeing(frozenset({"sales"})), pytest.raises(weft.NotFound):
        await rows(client, "select * from orders")
    with seeing(frozenset({"finance"})):
        assert await rows(client, "select * from orders") == [{"value": 1}]


async def test_partitions_and_columns_that_came_later_are_read_as_one_table(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="write")
    async def write(day: str, ctx: weft.Context) -> None:
        table = {"day": [day], "price": [Decimal("1.50")], "at": [datetime(2026, 11, 14, tzinfo=UTC)]}
        if day > "2026-11-14":
            table["more"] = [1]
        await ctx.dataset("daily").write(pa.table(table), partition=day)

    @registry.task(name="clear")
    async def clear(ctx: weft.Context) -> None:
        await ctx.dataset("empty").write(
            pa.table({"id": pa.array([], pa.int64()), "words": pa.array([], pa.list_(pa.string()))})
        )

    async with weft.Worker(client=client, registry=registry):
        for day in ("2026-11-14", "2026-11-15"):
            await client.wait((await client.enqueue(write, {"day": day})).id, timeout=30)
        await client.wait((await client.enqueue(clear)).id, timeout=30)
    assert await rows(client, "select day, more, sum(price) as total from daily group by all order by day") == [
        {"day": "2026-11-14", "more": None, "total": Decimal("1.50")},
        {"day": "2026-11-15", "more": 1, "total": Decimal("1.50")},
    ]
    assert await rows(client, "select count(*) as n, max(id) as id from empty where len(words) > 0") == [
        {"n": 0, "id": None}
    ]


@pytest.mark.parametrize("format", ["arrow", "parquet", "csv"])
async def test_answers_come_in_the_form_that_was_asked_for(client: weft.Client, tmp_path: Path, format: str) -> None:
    await written(client, "orders", 5)
    async with client.datasets.query("select value, 'x' as word from orders", format=format) as answer:
        data = await answer.read()
    if format == "csv":
        assert data.decode().split() == ['"value","word"', '5,"x"']
        return
    table = pa.ipc.open_stream(data).read_all() if format == "arrow" else pq.read_table(pa.BufferReader(data))
    assert table.to_pylist() == [{"value": 5, "word": "x"}]


async def test_what_is_no_query_is_refused_and_the_next_is_answered(client: weft.Client) -> None:
    await written(client, "orders", 1)
    for sql in (
        "",
        "drop table orders",
        "select * from read_csv('/etc/passwd')",
        "select nothing from orders",
        "select",
    ):
        with pytest.raises(InvalidQuery):
            await rows(client, sql)
    with pytest.raises(InvalidQuery, match="`weft datasets list`"):
        await rows(client, "show tables")
    with pytest.raises(weft.InvalidInput, match="format"):
        async with client.datasets.query("select 1", format="xml"):
            pass
    assert await rows(client, "select count(*) as n from orders") == [{"n": 1}]


async def test_a_limit_of_rows_holds(make_client: MakeClient) -> None:
    limited = await make_client(query_rows=10)
    with pytest.raises(QueryLimitReached, match="more than 10 rows"):
        await rows(limited, "select * from range(11)")
