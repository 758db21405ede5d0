"""The tables that datasets are kept in, by the functions alone that touch them: each its own table, rows and view."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg
import orjson
import pytest

import weft
from engine.test_settling_guards import waits_or_is_done
from live_scene import make_output
from weft.catalog.dataset_rows import SQL

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
OF_KIND = (
    """select relname from pg_class where relnamespace = 'weft_data'::regnamespace and relkind::text = $1 order by 1"""
)


async def kept(conn: Conn, name: str = "orders") -> tuple[int, int]:
    """Make a dataset that is kept in the database; return it and its version."""
    made = await make_output(conn, name, "@task", name)
    await conn.execute("""update weft.dataset set storage = '{"kind": "postgres"}' where id = $1""", made[0])
    return made


async def prepare(conn: Conn, version: int, **columns: str | None) -> None:
    await conn.execute("select weft.prepare_table($1, $2, $3)", version, [*columns], [*columns.values()])


async def add(conn: Conn, version: int, write: int, file: int, names: Sequence[str], *rows: Sequence[Any]) -> int:
    return int(
        await conn.fetchval(
            "select weft.add_rows($1, $2, $3, $4, $5)", version, write, file, names, orjson.dumps(rows).decode()
        )
    )


async def read(
    conn: Conn, version: int, files: Sequence[tuple[int, int]], names: Sequence[str], after: int = 0, most: int = 100
) -> list[list[str]]:
    writes, numbers = [write for write, _ in files], [number for _, number in files]
    rows = await conn.fetch(
        "select texts from weft.rows_of($1, $2, $3, $4, $5, $6)", version, writes, numbers, names, after, most
    )
    return [row["texts"] for row in rows]


async def show(conn: Conn, dataset: int, *columns: str, is_shown: bool = True) -> None:
    told = orjson.dumps({"columns": [{"name": name, "type": "int64"} for name in columns]}).decode()
    await conn.execute("update weft.dataset_version set columns = $2 where dataset_id = $1", dataset, told)
    await conn.execute("select weft.show_table($1, $2)", dataset, is_shown)


async def names(conn: Conn, kind: str) -> list[str]:
    return [row["relname"] for row in await conn.fetch(OF_KIND, kind)]


async def test_a_table_is_that_of_a_version_of_ones_own_org_which_is_kept_in_the_database(conn: Conn) -> None:
    _, version = await kept(conn)
    _, other = await make_output(conn, "files", "@task", "files")
    for wrong in (other, 1):
        with pytest.raises(asyncpg.PostgresError, match="none that is kept in the database"):
            await prepare(conn, wrong, id="bigint")
    await conn.execute("set weft.org = '7'")
    with pytest.raises(asyncpg.PostgresError, match="none that is kept in the database"):
        await prepare(conn, version, id="bigint")
    assert await names(conn, "r") == []


async def test_two_who_begin_at_once_make_one_table_and_add_a_column_once(client: weft.Client, conn: Conn) -> None:
    _, version = await kept(conn)
    for columns in ({"id": "bigint"}, {"id": "bigint", "day": "date"}):
        async with conn.transaction():
            await prepare(conn, version, **columns)
            prepares = asyncio.create_task(client.database.run(lambda other: prepare(other, version, **columns)))  # noqa: B023
            await waits_or_is_done(conn, prepares)
        await prepares
    assert await add(conn, version, 1, 1, ["id", "day"], ["1", "2026-11-14"]) == 1


async def test_who_finds_all_columns_there_holds_nobody_up(client: weft.Client, conn: Conn) -> None:
    _, version = await kept(conn)
    await prepare(conn, version, id="bigint")
    async with conn.transaction():
        await prepare(conn, version, id="bigint")
        await client.database.run(lambda other: prepare(other, version, id="bigint"))
        assert await client.database.run(lambda other: add(other, version, 1, 1, ["id"], ["1"])) == 1


async def test_a_column_is_added_once_to_its_own_table_and_never_changes_its_type(conn: Conn) -> None:
    versions = [(await kept(conn, name))[1] for name in ("orders", "others")]
    await prepare(conn, versions[0], id="bigint", at="timestamptz", day="timestamp", price="numeric(10,2)")
    await prepare(conn, versions[1], other="text")
    for _ in range(2):
        await prepare(conn, versions[1], at="text", id="text")
        await prepare(conn, versions[0], id="bigint", at="timestamptz", day="timestamp", price="numeric(10,2)")
    for wrong in ("text", "integer"):
        with pytest.raises(asyncpg.PostgresError, match="columns: id is kept as bigint"):
            await prepare(conn, versions[0], id=wrong)
    for wrong in (None, "text; drop table weft.task", "weft.span", "numeric(10,2), x text"):
        with pytest.raises(asyncpg.PostgresError, match="columns: new cannot be kept as"):
            await prepare(conn, versions[0], new=wrong)
    assert await add(conn, versions[1], 1, 1, ["id", "at"], ["x", "y"]) == 1


async def test_rows_are_those_of_the_files_that_are_said_in_their_order(conn: Conn) -> None:
    versions = [(await kept(conn, name))[1] for name in ("orders", "others")]
    assert await read(conn, versions[0], [(1, 1)], ["id"]) == []
    # Columns of the same names, which are of other types elsewhere.
    await prepare(conn, versions[1], id="text", day="bytea")
    await prepare(conn, versions[0], id="bigint", day="text")
    for file in ((1, 1), (1, 2), (2, 1)):
        rows = [[str(10 * sum(file) + number), "x"] for number in (3, 1, 2)]
        assert await add(conn, versions[0], *file, ["id", "day"], *rows) == 3
    await add(conn, versions[1], 1, 1, ["id", "day"], ["9", "ff"])
    assert await read(conn, versions[0], [(1, 2)], ["id"]) == [["33"], ["31"], ["32"]]
    both = [["23"], ["21"], ["22"], ["33"], ["31"], ["32"]]
    assert await read(conn, versions[0], [(2, 1), (1, 1)], ["id"]) == both
    assert await read(conn, versions[0], [(2, 1), (1, 1)], ["id"], after=1, most=2) == [["21"], ["22"]]
    assert await read(conn, versions[1], [(1, 1)], ["day", "id"]) == [["ff", "9"]]
    for wrong in (["id", "nothing"], ["ctid"]):
        with pytest.raises(asyncpg.PostgresError, match="columns: the table has only"):
            await read(conn, versions[0], [(1, 1)], wrong)
    await conn.execute(f"alter table weft_data.{(await names(conn, 'r'))[0]} drop column day")
    with pytest.raises(asyncpg.PostgresError, match="columns: the table has only 0"):
        await read(conn, versions[0], [(1, 1)], ["day"])


async def test_values_come_back_as_they_were_whatever_the_session_says(conn: Conn) -> None:
    _, version = await kept(conn)
    kinds = {"at": "timestamptz", "day": "date", "clock": "timestamp", "number": "double precision", "raw": "bytea"}
    row = ["2026-03-04 01:02:03", "2026-03-04", "2026-03-04 01:02:03", "0.30000000000000004", "00ff"]
    await conn.execute("set timezone = 'Asia/Tokyo'; set datestyle = 'SQL, DMY'; set extra_float_digits = -10")
    await prepare(conn, version, **kinds)
    await add(conn, version, 1, 1, [*kinds], row)
    assert await read(conn, version, [(1, 1)], [*kinds]) == [row]


async def test_only_rows_of_the_file_or_the_write_that_is_said_are_dropped(conn: Conn) -> None:
    versions = [(await kept(conn, name))[1] for name in ("orders", "others", "empty")]
    for version in versions[:2]:
        await prepare(conn, version, id="bigint")
        for file in ((1, 1), (1, 2), (2, 1)):
            await add(conn, version, *file, ["id"], ["1"])
    drops = "select weft.drop_rows($1, $2, $3)"
    assert await conn.fetchval(drops, versions[0], 1, 1) == 1
    assert await conn.fetchval(drops, versions[0], 1, None) == 1
    assert await conn.fetchval(drops, versions[2], 1, None) == 0
    files = [(1, 1), (1, 2), (2, 1)]
    assert [len(await read(conn, version, files, ["id"])) for version in versions[:2]] == [1, 3]


async def test_only_the_table_of_a_version_that_was_collected_is_dropped(conn: Conn) -> None:
    versions = [(await kept(conn, name))[1] for name in ("orders", "others")]
    for version in versions:
        await prepare(conn, version, id="bigint")
    both = await names(conn, "r")
    await conn.execute("update weft.dataset_version set collected_at = weft.now() where id = $1", versions[0])
    await conn.execute("select weft.drop_table($1)", versions[1])
    assert await names(conn, "r") == both
    await conn.execute("select weft.drop_table($1)", versions[0])
    assert len(await names(conn, "r")) == 1
    assert await conn.fetchval("select to_regclass(weft.data_table($1)) is not null", versions[1])


@pytest.mark.parametrize(("statement", "other"), [("drop", "update"), ("drop_table", "key share")])
async def test_who_drops_rows_or_a_table_waits_for_who_is_at_the_version(
    client: weft.Client, conn: Conn, statement: str, other: str
) -> None:
    """He who removes the version, or who drops rows of it: there may be neither table nor version afterwards."""
    _, version = await kept(conn)
    await prepare(conn, version, id="bigint")
    await conn.execute("update weft.dataset_version set collected_at = weft.now() where id = $1", version)
    said = (version, 1, None) if statement == "drop" else (version,)
    async with conn.transaction():
        await conn.execute(f"select 1 from weft.dataset_version where id = $1 for {other}", version)
        dropping = asyncio.create_task(client.database.run(lambda own: own.execute(getattr(SQL, statement), *said)))
        await waits_or_is_done(conn, dropping)
        assert not dropping.done()
    await dropping


async def test_a_view_shows_the_rows_of_the_files_that_stand(conn: Conn) -> None:
    dataset, version = await kept(conn)
    await prepare(conn, version, id="bigint", more="bigint")
    for write in (1, 2, 3):
        await add(conn, version, write, 1, ["id"], [str(write)])
    for write, removed_by in ((1, 2), (2, None)):
        await conn.execute(
            """insert into weft.dataset_file
                 (version_id, org_id, partition_key, path, rows, bytes, added_by, removed_by)
               values ($1, 1, '', $2, 1, 1, 1, $3)""", version, f"{write}-1.rows", removed_by,
        )  # fmt: skip
    await show(conn, dataset, "id")
    assert [(*row,) for row in await conn.fetch('select * from weft_data."default.orders"')] == [(2,)]
    # Whatever else somebody may do with it is no leave to read it.
    await conn.execute("drop role if exists stranger; create role stranger")
    try:
        await conn.execute('grant insert on weft_data."default.orders" to stranger')
        await show(conn, dataset, "more", "id")
        may = "select has_table_privilege('stranger', 'weft_data.\"default.orders\"', 'select')"
        assert not await conn.fetchval(may)
    finally:
        await conn.execute("drop owned by stranger; drop role stranger")


async def test_a_view_is_there_while_its_dataset_is_and_there_is_something_to_show(conn: Conn) -> None:
    dataset, version = await kept(conn)
    await show(conn, dataset, "id")
    assert await names(conn, "v") == [], "nobody has prepared a table"
    await prepare(conn, version, id="bigint")
    await conn.execute("update weft.dataset_version set columns = null")
    await conn.execute("select weft.show_table($1)", dataset)
    assert await names(conn, "v") == [], "nobody has written a column"
    await show(conn, dataset, "id")
    assert await names(conn, "v") == ["default.orders"]
    await show(conn, dataset, "id", "never prepared")
    assert await names(conn, "v") == []
    await show(conn, dataset, "id")
    await conn.execute("set weft.org = '7'")
    await conn.execute("select weft.show_table($1, false)", dataset)
    await conn.execute("reset weft.org")
    assert await names(conn, "v") == ["default.orders"], "it is of another org"
    await show(conn, dataset, "id", is_shown=False)
    assert await names(conn, "v") == []
    await show(conn, dataset, "id")
    await conn.execute("update weft.dataset set deleted_at = weft.now()")
    await show(conn, dataset, "id")
    assert await names(conn, "v") == []


async def test_datasets_whose_names_begin_alike_have_views_of_their_own(conn: Conn) -> None:
    made = [await kept(conn, "o" * 63 + end) for end in "ab"]
    for dataset, version in made:
        await prepare(conn, version, id="bigint")
        await show(conn, dataset, "id")
    assert sorted(await names(conn, "v")) == sorted(f"d{dataset}" for dataset, _ in made)


async def test_nothing_is_shown_of_what_is_kept_in_files(conn: Conn) -> None:
    dataset, _ = await make_output(conn, "files", "@task", "files")
    await show(conn, dataset, "id")
    assert await names(conn, "v") == []
