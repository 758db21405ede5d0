"""Who may write what of a dataset: the attempt that holds its task, what it has begun, by what is still so."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from engine_scene import claimed_by_a_ghost

import weft
from weft.catalog import dataset_versions, dataset_writing, datasets
from weft.catalog.dataset_reading import Named, state_of
from weft.catalog.dataset_writing import Begun, Mode, Staged
from weft.core.data_errors import WriteConflict
from weft.data.collecting import DatasetCollector
from weft.queue import work
from weft.queue.steps import Fence
from weft.queue.work import Completed

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

COLUMNS = {"columns": [{"name": "id", "type": "int64", "nullable": True}], "arrow": "AAAA"}
OTHERS = {"columns": [{"name": "other", "type": "int64", "nullable": True}], "arrow": "AAAA"}


async def _held(conn: Conn, client: weft.Client, handler: str = "write") -> Fence:
    await client.enqueue(handler)
    return Fence(*await claimed_by_a_ghost(conn), 1)


def _staged(begun: Begun, *partitions: str, **more: Any) -> Staged:
    files = [
        {"partition": key, "path": f"{begun.id}-{place}.parquet", "rows": 1, "bytes": 10}
        for place, key in enumerate(partitions)
    ]
    said = {"is_whole": False, "seen": None, "seen_schema": begun.schema_hash, "schema": COLUMNS, **more}
    return Staged(begun.id, partitions, files=files, **said)


async def _written(conn: Conn, client: weft.Client, *partitions: str, mode: Mode = Mode.APPEND, **more: Any) -> Fence:
    fence = await _held(conn, client)
    begun = await dataset_writing.begin(conn, fence, "orders", mode, None)
    await dataset_writing.stage(conn, fence, _staged(begun, *partitions, **more))
    await _complete(conn, fence)
    return fence


async def _complete(conn: Conn, fence: Fence) -> None:
    done = [Completed(fence.task_id, fence.attempt, "null")]
    assert await work.finish_and_claim(conn, fence.worker_id, done, [], 0) == ([], [])


@pytest.mark.parametrize("lost", ["worker", "attempt", "state"])
async def test_an_attempt_that_holds_its_task_no_more_writes_and_reads_nothing(
    client: weft.Client, conn: Conn, lost: str
) -> None:
    fence = await _held(conn, client)
    begun = await dataset_writing.begin(conn, fence, "orders", Mode.REPLACE, None)
    changes = {"worker": "worker_id = worker_id + 1", "attempt": "attempt = 2", "state": "state = 'scheduled'"}
    await conn.execute(f"update weft.task set {changes[lost]} where id = $1", fence.task_id)
    staged = _staged(begun, "a")
    for call in (
        lambda: dataset_writing.begin(conn, fence, "orders", Mode.REPLACE, None),
        lambda: dataset_writing.stage(conn, fence, staged),
        lambda: dataset_writing.read(conn, fence, Named("orders")),
        lambda: dataset_writing.list_files(conn, fence, begun.version_id, 0, None, ("", 0), 10),
    ):
        with pytest.raises(weft.LeaseLost):
            await call()
    assert await conn.fetchval("select partitions from weft.staged_write where id = $1", begun.id) is None


async def test_an_attempt_tells_of_its_own_writes_alone_and_once(client: weft.Client, conn: Conn) -> None:
    mine, other = await _held(conn, client), await _held(conn, client)
    begun = await dataset_writing.begin(conn, mine, "orders", Mode.APPEND, None)
    with pytest.raises(weft.InvalidInput, match="is no write that this attempt has begun"):
        await dataset_writing.stage(conn, other, _staged(begun, "a"))
    await dataset_writing.stage(conn, mine, _staged(begun, "a"))
    # Who has not heard the answer says the same again.
    await dataset_writing.stage(conn, mine, _staged(begun, "a"))
    with pytest.raises(weft.InvalidInput, match="is no write that this attempt has begun"):
        await dataset_writing.stage(conn, mine, _staged(begun, "b"))
    await _complete(conn, mine)
    rows = await conn.fetch("select partition_key, last_write from weft.dataset_partition")
    assert [tuple(row) for row in rows] == [("a", 1)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"path": "../1.parquet"}, "files.path"),
        ({"path": "1-1.parquet"}, "files.path"),
        ({"partition": "b"}, "files.partition"),
        ({"rows": -1}, "files.rows"),
        ({"bytes": "1"}, "files.bytes"),
    ],
)
async def test_files_are_those_of_the_write_itself(
    client: weft.Client, conn: Conn, change: dict[str, Any], problem: str
) -> None:
    fence = await _held(conn, client)
    begun = await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
    staged = _staged(begun, "a")
    files = [{**staged.files[0], **change}]
    with pytest.raises(weft.InvalidInput, match=problem):
        await dataset_writing.stage(conn, fence, Staged(begun.id, ["a"], False, files, None, None, COLUMNS))


async def test_a_write_that_goes_by_what_has_changed_is_void_and_so_is_the_outcome(
    client: weft.Client, conn: Conn
) -> None:
    await _written(conn, client, "a", "b")
    by_rows, by_columns, by_version = [await _held(conn, client) for _ in range(3)]
    begun = [
        await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
        for fence in (by_rows, by_columns, by_version)
    ]
    await dataset_writing.stage(conn, by_rows, _staged(begun[0], "a", seen=begun[0].write))
    await dataset_writing.stage(conn, by_columns, _staged(begun[1], "c", schema=OTHERS))
    await dataset_writing.stage(conn, by_version, _staged(begun[2], "d"))
    # Another partition is no matter.
    await _written(conn, client, "b")
    untouched = await _held(conn, client)
    again = await dataset_writing.begin(conn, untouched, "orders", Mode.APPEND, None)
    await dataset_writing.stage(conn, untouched, _staged(again, "a", seen=again.write))
    await _complete(conn, untouched)
    with pytest.raises(WriteConflict, match="the same partition"):
        await _complete(conn, by_rows)
    assert await conn.fetchval("select state from weft.tasks where id = $1", by_rows.task_id) == "running"
    changed = await _held(conn, client)
    more = {"columns": [*COLUMNS["columns"], {"name": "more", "type": "int64", "nullable": True}], "arrow": "AAAA"}
    wider = await dataset_writing.begin(conn, changed, "orders", Mode.APPEND, None)
    await dataset_writing.stage(conn, changed, _staged(wider, "e", schema=more))
    await _complete(conn, changed)
    with pytest.raises(WriteConflict, match="changed its columns"):
        await _complete(conn, by_columns)
    breaking = await _held(conn, client)
    anew = await dataset_writing.begin(conn, breaking, "orders", Mode.REPLACE, None, is_breaking=True)
    await dataset_writing.stage(conn, breaking, _staged(anew, "", is_whole=True, schema=OTHERS))
    await _complete(conn, breaking)
    with pytest.raises(WriteConflict, match="another version"):
        await _complete(conn, by_version)
    assert str(await state_of(conn, 1, Named("orders"))) == "orders@2.1"


async def test_what_came_to_nothing_stays_while_whoever_lost_it_may_write_on(client: weft.Client, conn: Conn) -> None:
    fence = await _held(conn, client)
    await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
    await conn.execute("update weft.task set attempt = 2 where id = $1", fence.task_id)
    await dataset_writing.begin(conn, fence._replace(attempt=2), "orders", Mode.APPEND, None)
    staged = "select attempt from weft.staged_write order by 1"
    collector = DatasetCollector(client.database, client.settings, timedelta(hours=1))
    await collector.run_once()
    assert [row[0] for row in await conn.fetch(staged)] == [1, 2]
    await conn.execute("update weft.staged_write set created_at = created_at - interval '2 hours'")
    # Nor is what is still being written collected, however long it takes.
    await collector.run_once()
    assert [row[0] for row in await conn.fetch(staged)] == [2]
    await conn.execute("update weft.task set state = 'ready', worker_id = null where id = $1", fence.task_id)
    await collector.run_once()
    assert await conn.fetch(staged) == []


async def test_what_an_attempt_before_the_last_has_staged_comes_to_nothing(client: weft.Client, conn: Conn) -> None:
    fence = await _held(conn, client)
    begun = await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
    await dataset_writing.stage(conn, fence, _staged(begun, "a"))
    await conn.execute("update weft.task set attempt = 2 where id = $1", fence.task_id)
    second = fence._replace(attempt=2)
    begun = await dataset_writing.begin(conn, second, "orders", Mode.APPEND, None)
    await dataset_writing.stage(conn, second, _staged(begun, "b"))
    # One that it has begun and not ended is none.
    await dataset_writing.begin(conn, second, "orders", Mode.REPLACE, None)
    await _complete(conn, second)
    assert [row["partition_key"] for row in await conn.fetch("select partition_key from weft.dataset_file")] == ["b"]
    assert await conn.fetchval("select count(*) from weft.staged_write") == 2
    assert await conn.fetchval("select count(*) from weft.dataset_write") == 1


async def test_counts_are_those_of_the_files_whatever_was_written_and_gone_back_to(
    client: weft.Client, conn: Conn
) -> None:
    await _written(conn, client, "a", "b", mode=Mode.REPLACE)
    await _written(conn, client, "b", "c", mode=Mode.APPEND)
    await _written(conn, client, "b", mode=Mode.REPLACE)
    await _written(conn, client, "d", mode=Mode.REPLACE, is_whole=True)
    for write in (2, 3, 4, 1):
        await dataset_versions.roll_back(conn, 1, Named("orders", 1, write), "me")
        told = await conn.fetchrow("select rows, bytes, files, last_write from weft.dataset_version")
        counted = await conn.fetchrow(
            "select sum(rows)::bigint, sum(bytes)::bigint, count(*) from weft.dataset_file where removed_by is null"
        )
        assert told is not None
        assert counted is not None
        assert (*told,)[:3] == (*counted,)
        parts = await conn.fetch("select partition_key, rows, files from weft.dataset_partition order by 1")
        files = await conn.fetch(
            """select partition_key, sum(rows)::bigint, count(*)::int from weft.dataset_file where removed_by is null
               group by 1 order by 1"""
        )
        assert [(*row,) for row in parts] == [(*row,) for row in files]
    shown = await datasets.show(conn, 1, "orders")
    assert (shown.rows, shown.write) == (2, 8)


async def test_another_org_finds_and_changes_nothing(client: weft.Client, conn: Conn) -> None:
    await _written(conn, client, "a")
    await client.orgs.create("rival")
    rival = (await client.orgs.show("rival")).id
    assert await datasets.list_datasets(conn, rival) == []
    version = await conn.fetchval("select id from weft.dataset_version")
    # As if there were no such version.
    with pytest.raises(weft.NotFound, match="have been collected"):
        await dataset_writing.dataset_reading.files(conn, rival, version, 1, None, ("", 0), 10)
    with pytest.raises(weft.NotFound, match="have been collected"):
        await dataset_writing.dataset_reading.partitions(conn, rival, version, "", 10)
    assert await dataset_writing.dataset_reading.latest_partitions(conn, rival, version, 10) == []
    for call in (
        lambda: datasets.show(conn, rival, "orders"),
        lambda: datasets.describe(conn, rival, "orders", "x", "me"),
        lambda: datasets.set_read_roles(conn, rival, "orders", [], "me"),
        lambda: dataset_versions.list_versions(conn, rival, "orders", before=None, limit=10),
        lambda: dataset_versions.roll_back(conn, rival, Named("orders", 1), "me"),
    ):
        with pytest.raises(weft.NotFound):
            await call()


async def test_orgs_may_have_datasets_of_one_name(client: weft.Client, conn: Conn) -> None:
    await client.orgs.create("rival")
    rival = (await client.orgs.show("rival")).id
    await datasets.create(conn, rival, "orders", None, {"kind": "parquet"}, "them")
    await _written(conn, client, "a")
    assert (await datasets.show(conn, 1, "orders")).rows == 1
    assert (await datasets.show(conn, rival, "orders")).rows == 0


async def test_a_node_numbers_the_datasets_that_it_writes_and_keeps_each(client: weft.Client, conn: Conn) -> None:
    for name in ("first", "second", "first"):
        fence = await _held(conn, client)
        await dataset_writing.begin(conn, fence, name, Mode.REPLACE, None)
    found = [(await datasets.show(conn, 1, name)).producer for name in ("first", "second")]
    assert [None if each is None else (each.node, each.output) for each in found] == [("write", 0), ("write", 1)]


async def test_what_an_attempt_before_has_begun_anew_is_not_gone_on_with(client: weft.Client, conn: Conn) -> None:
    await _written(conn, client, "a")
    fence = await _held(conn, client)
    broken = await dataset_writing.begin(conn, fence, "orders", Mode.REPLACE, None, is_breaking=True)
    await dataset_writing.stage(conn, fence, _staged(broken, "", is_whole=True, schema=OTHERS))
    own = await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
    await conn.execute("update weft.task set attempt = 2 where id = $1", fence.task_id)
    again = await dataset_writing.begin(conn, fence._replace(attempt=2), "orders", Mode.APPEND, None)
    assert own.version_id == broken.version_id != again.version_id
