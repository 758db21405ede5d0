"""What of datasets goes and what stays, by the statements that decide it: nothing goes that something points to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import claimed_by_a_ghost

import weft
from engine.test_deploys import market
from weft.data.collecting import SQL, DatasetCollector
from writing import written

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

MONTH = timedelta(days=30)


async def _dataset(conn: Conn, name: str, deleted: str | None = None) -> int:
    return int(
        await conn.fetchval(
            """insert into weft.dataset (org_id, name, storage, actor, deleted_at)
               values (1, $1, '{"kind": "parquet"}', 'ann', weft.now() - $2::text::interval) returning id""",
            name, deleted,
        )
    )  # fmt: skip


async def _version(conn: Conn, dataset: int, number: int, retired: str | None = None, **more: Any) -> int:
    said = {"config_hash": f"h{number}", "oldest_write": 0, "last_write": 0, **more}
    return int(
        await conn.fetchval(
            f"""insert into weft.dataset_version
                 (org_id, dataset_id, number, location, actor, retired_at, {", ".join(said)})
               values (1, $1, $2, 'x/', 'ann', weft.now() - $3::text::interval,
                 {", ".join(f"${place}" for place in range(4, 4 + len(said)))}) returning id""",
            dataset, number, retired, *said.values(),
        )
    )  # fmt: skip


async def _write(conn: Conn, version: int, number: int, ago: str = "0 days") -> None:
    await conn.execute(
        """insert into weft.dataset_write (version_id, number, org_id, mode, partitions, rows, bytes, rows_removed,
             written_at, actor)
           values ($1, $2, 1, 'append', 1, 1, 1, 0, weft.now() - $3::text::interval, 'ann')""",
        version, number, ago,
    )  # fmt: skip


async def _file(conn: Conn, version: int, path: str, added_by: int, removed_by: int | None = None) -> int:
    return int(
        await conn.fetchval(
            """insert into weft.dataset_file
                 (version_id, org_id, partition_key, path, rows, bytes, added_by, removed_by)
               values ($1, 1, '', $2, 1, 1, $3, $4) returning id""",
            version, path, added_by, removed_by,
        )
    )  # fmt: skip


async def _staged(conn: Conn, dataset: int, version: int, task: int = 1, attempt: int = 1) -> int:
    return int(
        await conn.fetchval(
            """insert into weft.staged_write (org_id, task_id, attempt, dataset_id, version_id, follows, mode)
               values (1, $1, $2, $3, $4, true, 'append') returning id""",
            task, attempt, dataset, version,
        )
    )  # fmt: skip


async def test_only_states_that_are_past_the_retention_are_closed_and_none_is_opened_again(conn: Conn) -> None:
    dataset = await _dataset(conn, "orders")
    old, young = await _version(conn, dataset, 1), await _version(conn, dataset, 2)
    for number, ago in ((1, "60 days"), (2, "40 days"), (3, "1 day")):
        await _write(conn, old, number, ago)
    await _write(conn, young, 1, "1 day")
    for version in (old, young):
        await _file(conn, version, "1-0.parquet", 1, 2)
    assert [row["id"] for row in await conn.fetch(SQL.close_states, MONTH, None)] == [old]
    assert await conn.fetch(SQL.close_states, MONTH, None) == []
    assert await conn.fetchval("select oldest_write from weft.dataset_version where id = $1", old) == 2
    await conn.execute("update weft.dataset_version set oldest_write = 3 where id = $1", old)
    assert await conn.fetch(SQL.close_states, MONTH, None) == []


async def test_a_file_goes_when_no_state_has_it_and_no_other_write_has_brought_it_back(conn: Conn) -> None:
    dataset = await _dataset(conn, "orders")
    version = await _version(conn, dataset, 1, oldest_write=3)
    other = await _version(conn, dataset, 2, oldest_write=3)
    await _file(conn, version, "stands.parquet", 1)
    await _file(conn, version, "seen.parquet", 1, 4)
    gone = await _file(conn, version, "gone.parquet", 1, 3)
    # In another version that is another file.
    await _file(conn, other, "gone.parquet", 1)
    back = await _file(conn, version, "back.parquet", 1, 2)
    await _file(conn, version, "back.parquet", 3)
    # One that came back and went again goes with whichever is looked at first, unless a state has it that may be read.
    twice = [await _file(conn, version, "twice.parquet", by, by + 1) for by in (1, 2)]
    again = await _file(conn, version, "again.parquet", 1, 2)
    await _file(conn, version, "again.parquet", 3, 4)
    rows = {row["id"]: row["is_last"] for row in await conn.fetch(SQL.removed_files, 100, None)}
    assert rows == {gone: True, back: False, again: False, twice[0]: True, twice[1]: True}
    await conn.execute(SQL.forget_files, [version] * 2, [gone, back])
    left = await conn.fetch("select path from weft.dataset_file where version_id = $1 order by path, id", version)
    assert [row["path"].partition(".")[0] for row in left] == [
        "again", "again", "back", "seen", "stands", "twice", "twice",
    ]  # fmt: skip


async def test_what_came_back_and_went_again_leaves_no_file_behind(client: weft.Client, home: Any) -> None:
    await written(client, "orders", 1, 2)
    await client.datasets.rollback("orders@1.1")
    await written(client, "orders", 3)
    collector = DatasetCollector(client.database, client.settings, timedelta(0), retention=timedelta(milliseconds=1))
    while await collector.run_once():
        pass
    assert await client.datasets.sample("orders") == [{"value": 3}]
    assert len([*(home / "data").rglob("*.parquet")]) == 1


async def test_a_version_is_closed_once_when_it_is_long_past_and_nothing_is_written_into_it(conn: Conn) -> None:
    dataset = await _dataset(conn, "orders")
    past = await _version(conn, dataset, 1, "60 days")
    await _version(conn, dataset, 2, "1 day")
    await _version(conn, dataset, 3)
    await _staged(conn, dataset, await _version(conn, dataset, 4, "60 days"))
    last = await _version(conn, dataset, 5, "60 days")
    assert {row["id"] for row in await conn.fetch(SQL.close_versions, MONTH, None)} == {past, last}
    hashes = await conn.fetch("select config_hash from weft.dataset_version where collected_at is not null order by id")
    assert [row["config_hash"] for row in hashes] == [f"h1@{past}", f"h5@{last}"]
    assert await conn.fetch(SQL.close_versions, MONTH, None) == []


async def test_whoever_closes_versions_passes_those_over_that_somebody_takes_up_again(
    client: weft.Client, conn: Conn
) -> None:
    version = await _version(conn, await _dataset(conn, "orders"), 1, "60 days")
    async with conn.transaction():
        await conn.execute("update weft.dataset_version set retired_at = null where id = $1", version)
        assert await client.database.run(lambda other: other.fetch(SQL.close_versions, MONTH, None)) == []


@pytest.mark.parametrize("table", ["live_output", "dag_version_dataset", "staged_write"])
async def test_a_deleted_dataset_stays_while_something_has_one_of_its_versions(
    client: weft.Client, conn: Conn, table: str
) -> None:
    await client.live.deploy(market())
    for version in await conn.fetch("select dataset_id, id from weft.dataset_version"):
        await _staged(conn, *version)
    for other in ("live_input", "live_output", "dag_version_dataset", "staged_write"):
        if other != table:
            await conn.execute(f"delete from weft.{other}")
    await conn.execute("update weft.dataset set deleted_at = weft.now() - interval '1 year'")
    assert await conn.fetch(SQL.close_deleted, MONTH, None) == []
    await conn.execute(f"delete from weft.{table}")
    assert len(await conn.fetch(SQL.close_deleted, MONTH, None)) == 3


async def test_versions_of_a_deleted_dataset_are_closed_once_and_those_of_others_not(conn: Conn) -> None:
    gone, young, kept = (
        await _dataset(conn, "gone", "60 days"), await _dataset(conn, "young", "1 day"), await _dataset(conn, "kept")
    )  # fmt: skip
    version = await _version(conn, gone, 1)
    for dataset in (young, kept):
        await _version(conn, dataset, 1)
    assert [row["id"] for row in await conn.fetch(SQL.close_deleted, MONTH, None)] == [version]
    assert await conn.fetch(SQL.close_deleted, MONTH, None) == []
    # What is registered again is another.
    assert await conn.fetchval("select config_hash from weft.dataset_version where id = $1", version) == str(version)


async def test_a_dataset_is_forgotten_when_it_was_deleted_long_ago_and_nothing_is_left_of_it(
    client: weft.Client, conn: Conn
) -> None:
    gone = await _dataset(conn, "gone", "60 days")
    await _dataset(conn, "young", "1 day")
    await _dataset(conn, "kept")
    await _version(conn, await _dataset(conn, "has a version", "60 days"), 1)
    await client.datasets.create("rates")
    dag = market()
    dag["jobs"]["again"]["inputs"] = ["scaled", "rates"]
    await client.live.deploy(dag)
    await conn.execute("update weft.dataset set deleted_at = weft.now() - interval '60 days' where name = 'rates'")
    assert [row["id"] for row in await conn.fetch(SQL.forget_datasets, MONTH, None)] == [gone]


async def test_a_version_is_forgotten_when_it_is_closed_and_has_no_file_left(conn: Conn) -> None:
    dataset = await _dataset(conn, "orders")
    open_one, closed = await _version(conn, dataset, 1), await _version(conn, dataset, 2)
    await conn.execute("update weft.dataset_version set collected_at = weft.now() where id = $1", closed)
    file = await _file(conn, closed, "1-0.parquet", 1)
    await _file(conn, open_one, "1-1.parquet", 1)
    assert [row["id"] for row in await conn.fetch(SQL.closed_versions, 10, None)] == [closed]
    assert [row["id"] for row in await conn.fetch(SQL.files_of, closed, 10)] == [file]
    for version in (open_one, closed):
        assert await conn.fetch(SQL.forget_version, version) == []
    await conn.execute("delete from weft.dataset_file")
    assert await conn.fetch(SQL.forget_version, open_one) == []
    assert [row["id"] for row in await conn.fetch(SQL.forget_version, closed)] == [closed]


async def test_a_write_came_to_nothing_whatever_other_tasks_do(client: weft.Client, conn: Conn) -> None:
    dataset = await _dataset(conn, "orders")
    version = await _version(conn, dataset, 1)
    await client.enqueue("write")
    _, running = await claimed_by_a_ghost(conn)
    goes_on, lost = [await _staged(conn, dataset, version, task) for task in (running, 7)]
    assert [row["id"] for row in await conn.fetch(SQL.abandoned, timedelta(seconds=-1), 10, None)] == [lost]
    await conn.execute(SQL.forget_writes, [lost])
    assert [row["id"] for row in await conn.fetch("select id from weft.staged_write")] == [goes_on]
