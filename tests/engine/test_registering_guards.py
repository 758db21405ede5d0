"""What is registered of others' files, by the rows that it leaves: a version for each range, and no other touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import asyncpg

import weft
from weft.catalog.dataset_registering import Registration, register

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
STANDING = """select array_agg(path order by path) from weft.dataset_file f
  where f.added_by <= $1 and (f.removed_by is null or f.removed_by > $1)"""


def columns(*names: str) -> dict[str, Any]:
    return {"columns": [{"name": name, "type": "int64", "nullable": True} for name in names], "arrow": "x"}


async def registered(
    conn: Conn, name: str, *paths: str, start: int | None = None, end: int | None = None, address: str = "/data/",
    has: tuple[str, ...] = ("id",), fits: Callable[[str], None] = lambda _: None, replace: bool = True,
) -> str:  # fmt: skip
    """Register files of one row, each a partition; return the state."""
    files = [{"partition": path, "path": path, "rows": 1, "bytes": 1} for path in paths]
    wanted = Registration(address, "**/*.parquet", "none", start, end)
    return str(await register(conn, 1, name, wanted, files, columns(*has), fits, "ann", replace=replace))


async def test_each_range_of_each_dataset_is_a_version_of_its_own(conn: Conn) -> None:
    ranges = [(0, 9), (0, 19), (5, 9), (None, None), (0, 9)]
    for name in ("theirs", "others"):
        found = [await registered(conn, name, "a", start=start, end=end, replace=False) for start, end in ranges]
        assert found == [f"{name}@{number}.1" for number in (1, 2, 3, 4, 1)]


async def test_a_registration_touches_its_own_version_alone(client: weft.Client, conn: Conn) -> None:
    await registered(conn, "others", "a", "b")
    before = [
        await conn.fetch(f"select * from weft.{table} order by 1, 2")
        for table in ("dataset_file", "dataset_partition", "dataset_version")
    ]
    version = await conn.fetchval("select current_id from weft.dataset where name = 'others'")
    for paths in (("a", "b"), ("b",), ("c",)):
        await registered(conn, "theirs", *paths)
    after = [
        await conn.fetch(f"select * from weft.{table} where {key} = $1 order by 1, 2", version)
        for table, key in (
            ("dataset_file", "version_id"),
            ("dataset_partition", "version_id"),
            ("dataset_version", "id"),
        )
    ]
    assert after == before
    await conn.execute("delete from weft.dataset_file where version_id = $1", version)
    # Each state has the files that were found then, however often others have taken their place since.
    assert [await conn.fetchval(STANDING, write) for write in (1, 2, 3)] == [["a", "b"], ["b"], ["c"]]
    assert [part.key for part in await client.datasets.partitions("theirs")] == ["c"]


async def test_it_is_known_when_something_was_taken_away_and_the_columns_have_changed(conn: Conn) -> None:
    by = "select v.lost_by, v.columns_by from weft.dataset d join weft.dataset_version v on v.id = d.current_id"
    for has, wanted in ((("id",), (1, 1)), (("id",), (2, 1)), (("id", "more"), (3, 3))):
        await registered(conn, "theirs", "a", has=has)
        row = await conn.fetchrow(by)
        assert row is not None
        assert (*row,) == wanted


async def test_columns_must_fit_those_that_readers_of_the_dataset_see(conn: Conn) -> None:
    asked: list[str] = []
    await registered(conn, "others", "a", has=("elsewhere",), fits=asked.append)
    await registered(conn, "theirs", "a", has=("id",), fits=asked.append)
    await registered(conn, "theirs", "b", has=("id", "more"), fits=asked.append)
    assert len(asked) == 1
    assert "elsewhere" not in asked[0]
