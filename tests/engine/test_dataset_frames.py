"""Frames of pandas and polars and relations of DuckDB are written by tasks, and read back by each of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

import weft
from weft.worker.registry import Registry

AT = datetime(2026, 11, 18, 12, tzinfo=UTC)
ROWS = [
    {"id": 1, "day": "mon", "kind": "a", "price": 1.5, "at": AT, "tags": ["x", "y"], "who": {"name": "ada"}},
    {"id": 2, "day": "tue", "kind": "b", "price": None, "at": AT, "tags": [], "who": {"name": "eve"}},
    {"id": 3, "day": "mon", "kind": "a", "price": 2.5, "at": None, "tags": ["z"], "who": {"name": None}},
]


def _pandas() -> pd.DataFrame:
    return pd.DataFrame(ROWS).astype({"kind": "category"})


def _polars() -> pl.DataFrame:
    return pl.DataFrame(ROWS, schema_overrides={"kind": pl.Categorical})


FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": _pandas,
    # What is left of a longer one tells by its index which rows these were.
    "pandas, filtered": lambda: pd.concat([_pandas().assign(id=-1), _pandas()]).query("id > 0"),
    "pandas, by its index": lambda: _pandas().set_index("id"),
    "polars": _polars,
    "polars, lazy": lambda: _polars().lazy(),
    "duckdb": lambda: _polars().with_columns(pl.col("kind").cast(pl.String)).to_arrow(),
}


@pytest.mark.parametrize("name", FRAMES)
async def test_a_frame_is_written_once_however_often_and_read_back(
    client: weft.Client, registry: Registry, name: str
) -> None:
    @registry.task(name="write")
    async def write(ctx: weft.Context) -> list[int]:
        with duckdb.connect() as connection:
            made = FRAMES[name]()
            frame = connection.sql("select * from made") if name == "duckdb" else made
            dataset, said = ctx.dataset("orders"), {"mode": "append", "unique_key": ["id"], "partition_by": "day"}
            return [(await dataset.write(frame, **said)).rows for _ in range(2)]

    @registry.task(name="read")
    async def read(ctx: weft.Context) -> list[str]:
        dataset = ctx.dataset("orders")
        table = await dataset.read()
        assert sorted(map(_told, table.to_pylist())) == sorted(map(_told, ROWS))
        assert sorted(pl.from_arrow(await dataset.read(columns=["id"]))["id"]) == [1, 2, 3]
        assert table.to_pandas()["price"].sum() == 4.0
        scanned = await dataset.scan()
        assert pl.scan_pyarrow_dataset(scanned).filter(pl.col("day") == "mon").collect().height == 2
        with duckdb.connect() as connection:
            assert connection.sql("select count(*) from scanned where kind = 'a'").fetchall() == [(2,)]
        return [each.key for each in await dataset.partitions()]

    async with weft.Worker(client=client, registry=registry):
        assert await client.wait((await client.enqueue("write")).id, timeout=60) == [3, 0]
        assert await client.wait((await client.enqueue("read")).id, timeout=60) == ["mon", "tue"]
    assert len(await client.datasets.sample("orders")) == 3


def _told(row: dict[str, Any]) -> str:
    """Return a row as text; the same moment in the same zone may be called otherwise."""
    at = None if row["at"] is None else row["at"].astimezone(UTC).isoformat()
    return repr(sorted((row | {"at": at}).items()))


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (pd.Series([1, 2]), "Series cannot be read as a table"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names"),
        (pl.DataFrame({"wide": pl.Series([1], dtype=pl.Int128)}), "DataFrame cannot be read as a table"),
    ],
    ids=["a column", "two columns of one name", "a type that Arrow has not"],
)
async def test_what_is_no_table_is_refused(client: weft.Client, registry: Registry, frame: Any, problem: str) -> None:
    @registry.task(name="write")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write(frame)

    async with weft.Worker(client=client, registry=registry):
        with pytest.raises(weft.TaskFailed, match=problem):
            await client.wait((await client.enqueue("write")).id, timeout=60)
