"""States and versions of datasets by the rows that tell them: of this dataset and write, and as they were seen then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from engine.test_staging_guards import again, held, staged, written
from live_scene import make_output
from weft.catalog import dataset_writing
from weft.catalog.dataset_writing import Mode
from weft.catalog.datasets import SQL
from weft.queue import work
from weft.queue.work import Completed

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def version(conn: Conn, dataset: int, number: int, **more: Any) -> int:
    said = {"config_hash": f"h{number}", "last_write": 0, **more}
    places = ", ".join(f"${place}" for place in range(3, 3 + len(said)))
    return int(
        await conn.fetchval(
            f"""insert into weft.dataset_version (org_id, dataset_id, number, location, actor, {", ".join(said)})
                values (1, $1, $2, 'x/', 'ann', {places}) returning id""", dataset, number, *said.values(),
        )
    )  # fmt: skip


async def all_but(conn: Conn, version_id: int) -> list[str]:
    """Return all rows of versions but those of one."""
    found: list[Any] = []
    for table, key in (
        ("dataset_version", "id"),
        ("dataset_file", "version_id"),
        ("dataset_partition", "version_id"),
        ("dataset_write", "version_id"),
    ):
        found += await conn.fetch(f"select * from weft.{table} where {key} <> $1 order by 1, 2", version_id)
    return [str(row) for row in found]


async def complete(conn: Conn, fence: Any) -> None:
    await work.finish_and_claim(conn, fence.worker_id, [Completed(fence.task_id, fence.attempt, "null")], [], 0)


async def test_one_version_is_current_and_the_one_before_is_retired_from_then_on(conn: Conn) -> None:
    dataset, first = await make_output(conn, "orders", "etl", "load")
    second = await version(conn, dataset, 2, retired_at=await conn.fetchval("select weft.now()"))
    current = "select weft.make_current($1, $2)"
    assert await conn.fetchval(current, dataset, first) is False
    assert await conn.fetchval("select count(*) from weft.dataset_seen") == 1
    assert await conn.fetchval(current, dataset, second) is True
    rows = await conn.fetch("select retired_at is null, current_at is null from weft.dataset_version order by number")
    assert [(*row,) for row in rows] == [(False, False), (True, False)]
    assert await conn.fetchval(current, dataset, first) is True
    rows = await conn.fetch("select retired_at is null from weft.dataset_version order by number")
    assert [row[0] for row in rows] == [True, False]
    seen = await conn.fetch("select version_id from weft.dataset_seen order by at")
    assert [row[0] for row in seen] == [first, second, first]


async def test_two_versions_that_become_current_in_one_moment_leave_the_last(conn: Conn) -> None:
    dataset, first = await make_output(conn, "orders", "etl", "load")
    second = await version(conn, dataset, 2)
    await conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
        "return '2030-01-01'::timestamptz"
    )
    for each in (second, first, second):
        await conn.execute("select weft.make_current($1, $2)", dataset, each)
    seen = await conn.fetch("select version_id from weft.dataset_seen order by at")
    assert [row[0] for row in seen] == [first, second]


async def test_what_is_written_and_gone_back_to_changes_its_own_version_alone(client: weft.Client, conn: Conn) -> None:
    for _ in range(6):
        other = await written(conn, client, "others", "a", "b")
    for keys in (("a", "b"), ("b", "c"), ("a",)):
        begun = await written(conn, client, "orders", *keys)
    keys = "select array_agg(partition_key order by partition_key) from weft.{} where version_id = $1"
    partitions, files = keys.format("dataset_partition"), keys.format("dataset_file") + " and removed_by is null"
    for look in (files, partitions):
        assert await conn.fetchval(look, begun.version_id) == ["a", "b", "c"]
    before = await all_but(conn, begun.version_id)
    fence = await held(conn, client)
    whole = await dataset_writing.begin(conn, fence, "orders", Mode.REPLACE, None)
    await staged(conn, fence, whole, "z", is_whole=True)
    await complete(conn, fence)
    for look in (files, partitions):
        assert await conn.fetchval(look, begun.version_id) == ["z"]
    await client.datasets.rollback("orders@1.2")
    for look in (files, partitions):
        assert await conn.fetchval(look, begun.version_id) == ["a", "b", "c"]
    assert await all_but(conn, begun.version_id) == before
    for look in (files, partitions):
        assert await conn.fetchval(look, other.version_id) == ["a", "b"]
    added = "select array_agg(added_by order by id) from weft.dataset_file where version_id = $1 and removed_by is null"
    assert await conn.fetchval(added, begun.version_id) == [5, 5, 5]
    gone = "select array_agg(removed_by order by id) from weft.dataset_file where version_id = $1 and removed_by > 0"
    before_last = await conn.fetchval(gone, begun.version_id)
    await written(conn, client, "orders", "d", mode=Mode.APPEND)
    await client.datasets.rollback("orders@1.5")
    assert await conn.fetchval(added, begun.version_id) == [5, 5, 5], "what stands stays"
    counts = await conn.fetch(
        "select partition_key, rows from weft.dataset_partition where version_id = $1 order by 1", begun.version_id
    )
    assert [(*row,) for row in counts] == [("a", 1), ("b", 1), ("c", 1)]
    assert await all_but(conn, begun.version_id) == before
    assert await conn.fetchval(gone, begun.version_id) == [*before_last, 7], "and what had gone has gone when it did"


async def test_nobody_goes_back_to_what_has_been_collected(client: weft.Client, conn: Conn) -> None:
    for _ in range(3):
        begun = await written(conn, client, "orders", "a")
    back = "select weft.roll_back_version($1, $2, 'ann')"
    await conn.execute("update weft.dataset_version set oldest_write = 2")
    with pytest.raises(asyncpg.PostgresError, match="has been collected"):
        await conn.execute(back, begun.version_id, 1)
    assert await conn.fetchval(back, begun.version_id, 2) == 4
    await conn.execute("update weft.dataset_version set collected_at = weft.now()")
    with pytest.raises(asyncpg.PostgresError, match="has been collected"):
        await conn.execute(back, begun.version_id, 2)


async def test_what_was_taken_away_is_known_to_who_has_seen_it(client: weft.Client, conn: Conn) -> None:
    """Who goes by what he has seen of a partition that is gone is not let in, whoever took it away, and how."""
    for key in ("a", "b"):
        begun = await written(conn, client, "orders", key, mode=Mode.APPEND)
    lost = "select lost_by, columns_by from weft.dataset_version"
    assert (*(await conn.fetchrow(lost) or ()),) == (0, 1)
    await client.datasets.rollback("orders@1.1")
    assert (*(await conn.fetchrow(lost) or ()),) == (3, 1)
    await client.datasets.rollback("orders@1.2")
    assert (*(await conn.fetchrow(lost) or ()),) == (3, 1), "nothing was taken away by that"
    fence = await held(conn, client)
    whole = await dataset_writing.begin(conn, fence, "orders", Mode.REPLACE, None)
    await staged(conn, fence, whole, "z", is_whole=True)
    await complete(conn, fence)
    assert (*(await conn.fetchrow(lost) or ()),) == (5, 1)
    assert (
        await conn.fetchval("select lost_by from weft.dataset_partition where version_id = $1", begun.version_id) == 5
    )


async def test_of_each_partition_it_is_known_when_something_was_taken_away(client: weft.Client, conn: Conn) -> None:
    await written(conn, client, "orders", "a", "b", mode=Mode.APPEND)
    await written(conn, client, "orders", "a")
    await written(conn, client, "orders", "a", mode=Mode.APPEND)
    lost = await conn.fetch("select partition_key, lost_by, last_write from weft.dataset_partition order by 1")
    assert [(*row,) for row in lost] == [("a", 2, 3), ("b", 0, 1)]


async def test_what_an_attempt_itself_has_written_and_what_is_as_before_makes_nothing_void(
    client: weft.Client, conn: Conn
) -> None:
    # Both saw no columns, and have the same.
    fences = [await held(conn, client) for _ in range(2)]
    begun = [await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None) for fence in fences]
    for fence, write, key in zip(fences, begun, ("a", "b"), strict=True):
        await staged(conn, fence, write, key)
    for fence in fences:
        await complete(conn, fence)
    fence = await held(conn, client)
    for _ in range(2):
        write = await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
        await staged(conn, fence, write, "a", seen=write.write)
    await complete(conn, fence)
    assert await conn.fetchval("select rows from weft.dataset_version") == 4


async def test_a_write_has_what_its_own_attempt_has_read_and_leaves_what_others_have_begun(
    client: weft.Client, conn: Conn
) -> None:
    source, stale = [await written(conn, client, name, "a") for name in ("source", "stale")]
    await written(conn, client, "orders", "a")
    first = await held(conn, client)
    await dataset_writing.list_files(conn, first, stale.version_id, 1, None, ("", 0), 10)
    left = await dataset_writing.begin(conn, first, "orders", Mode.APPEND, None)
    await staged(conn, first, left, "left")
    second = await again(conn, first)
    await dataset_writing.list_files(conn, second, source.version_id, 1, None, ("", 0), 10)
    other = await held(conn, client)
    for fence, key in ((other, "other"), (second, "b")):
        begun = await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
        await staged(conn, fence, begun, key)
    apart = await dataset_writing.begin(conn, second, "apart", Mode.APPEND, None)
    await staged(conn, second, apart, "c")
    unfinished = [
        (await dataset_writing.begin(conn, second, name, Mode.APPEND, None)).id for name in ("unfinished", "orders")
    ]
    await complete(conn, second)
    made = await conn.fetch(
        """select d.name, w.keys from weft.dataset_write w join weft.dataset_version v on v.id = w.version_id
             join weft.dataset d on d.id = v.dataset_id where w.task_id = $1 order by 1""", second.task_id,
    )  # fmt: skip
    assert [(*row,) for row in made] == [("apart", ["c"]), ("orders", ["b"])]
    for look in (
        "select distinct input_id from weft.dataset_write_input",
        "select distinct input_id from weft.dataset_edge",
    ):
        inputs = [row[0] for row in await conn.fetch(look)]
        assert inputs == [
            await conn.fetchval("select dataset_id from weft.dataset_version where id = $1", source.version_id)
        ]
    remaining = {row[0] for row in await conn.fetch("select id from weft.staged_write")}
    assert remaining >= {left.id, *unfinished}
    assert len(remaining) == 4, "and that of the other task"


async def test_a_write_into_a_version_that_is_not_current_does_not_make_it_so(client: weft.Client, conn: Conn) -> None:
    await written(conn, client, "orders", "a")
    dataset, current = await conn.fetchrow("select id, current_id from weft.dataset") or (0, 0)
    built = await version(conn, dataset, 2)
    fence = await held(conn, client)
    begun = await dataset_writing.begin(conn, fence, "orders", Mode.REPLACE, None)
    await conn.execute("update weft.staged_write set version_id = $1, follows = false", built)
    await staged(conn, fence, begun, "a", seen_schema=None)
    await complete(conn, fence)
    assert await conn.fetchval("select last_write from weft.dataset_version where id = $1", built) == 1
    assert await conn.fetchval("select current_id from weft.dataset") == current


async def test_versions_writes_and_files_are_those_of_one_dataset(client: weft.Client, conn: Conn) -> None:
    found: dict[str, tuple[int, int]] = {}
    for name in ("orders", "others"):
        for _ in range(2):
            begun = await written(conn, client, name, "a", "b", mode=Mode.APPEND)
        found[name] = (await conn.fetchval("select id from weft.dataset where name = $1", name), begun.version_id)
    dataset, current = found["orders"]
    older = await version(conn, dataset, 2)
    gone = await version(conn, dataset, 3, collected_at=await conn.fetchval("select weft.now()"))
    assert [row["id"] for row in await conn.fetch(SQL.versions, 1, dataset, None, 10)] == [older, current]
    assert [row["id"] for row in await conn.fetch(SQL.versions, 1, dataset, 2, 10)] == [current]
    assert [row["id"] for row in await conn.fetch(SQL.version, 1, dataset, None)] == [current]
    assert [row["id"] for row in await conn.fetch(SQL.version, 1, dataset, 2)] == [older]
    assert await conn.fetch(SQL.version, 1, dataset, 3) == []
    assert [row["number"] for row in await conn.fetch(SQL.writes, 1, current, None, 10)] == [2, 1]
    assert [row["number"] for row in await conn.fetch(SQL.writes, 1, current, 2, 10)] == [1]

    async def files(write: int, keys: list[str] | None = None, since: int = -1) -> int:
        return len(await conn.fetch(SQL.files, 1, current, write, keys, "", 0, 10, since))

    assert [await files(2), await files(1), await files(0), await files(2, ["a"]), await files(2, None, 1)] == [
        4,
        2,
        0,
        2,
        2,
    ]
    assert [row["key"] for row in await conn.fetch(SQL.partitions, 1, current, None, 10)] == ["a", "b"]
    assert [row["key"] for row in await conn.fetch(SQL.partitions, 1, current, "a", 10)] == ["b"]
    assert len(await conn.fetch(SQL.latest_partitions, 1, current, 10)) == 2
    assert gone not in (older, current)


async def test_at_a_time_that_version_is_told_which_was_seen_with_what_was_written_by_then(
    client: weft.Client, conn: Conn
) -> None:
    other = await written(conn, client, "others", "a")
    first = await written(conn, client, "orders", "a")
    dataset = await conn.fetchval("select id from weft.dataset where name = 'orders'")
    moment = await conn.fetchval("select weft.now()")
    await written(conn, client, "orders", "a")
    second = await version(conn, dataset, 2)
    await conn.execute("select weft.make_current($1, $2)", dataset, second)
    now = await conn.fetchval("select weft.now()")
    ids = [await conn.fetchrow(SQL.version_at, 1, dataset, at) for at in (moment, now, moment - timedelta(days=1))]
    assert [None if row is None else (row["id"], row["last_write"]) for row in ids] == [
        (first.version_id, 1), (second, 0), None,
    ]  # fmt: skip
    await conn.execute("update weft.dataset_version set collected_at = weft.now() where id = $1", first.version_id)
    assert await conn.fetchrow(SQL.version_at, 1, dataset, moment) is None
    assert other.version_id != first.version_id
