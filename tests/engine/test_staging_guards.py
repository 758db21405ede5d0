"""What an attempt begins, tells and reads of datasets is noted as its own: of its task, its attempt, its org."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import MakeClient, claimed_by_a_ghost, until

import weft
from weft.catalog import dataset_keeping, dataset_rows, dataset_writing, datasets
from weft.catalog.dataset_writing import Begun, Mode, Staged
from weft.queue import work
from weft.queue.steps import Fence
from weft.queue.work import Completed

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# Whether somebody waits for a lock that this session has.
WAITING = "select 1 from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))"
COLUMNS = {"columns": [{"name": "id", "type": "int64", "nullable": True}], "arrow": "AAAA"}


async def held(conn: Conn, client: weft.Client, handler: str = "write") -> Fence:
    await client.enqueue(handler)
    return Fence(*await claimed_by_a_ghost(conn), 1)


async def again(conn: Conn, fence: Fence) -> Fence:
    """Let the next attempt of a task hold it."""
    await conn.execute("update weft.task set attempt = attempt + 1 where id = $1", fence.task_id)
    return fence._replace(attempt=fence.attempt + 1)


async def staged(conn: Conn, fence: Fence, begun: Begun, *keys: str, **more: Any) -> None:
    files = [
        {"partition": key, "path": f"{begun.id}-{place}.parquet", "rows": 1, "bytes": 1}
        for place, key in enumerate(keys, 1)
    ]
    said = {"is_whole": False, "seen": None, "seen_schema": begun.schema_hash, "schema": COLUMNS, **more}
    await dataset_writing.stage(conn, fence, Staged(begun.id, keys, files=files, **said))


async def written(conn: Conn, client: weft.Client, name: str, *keys: str, mode: Mode = Mode.REPLACE) -> Begun:
    """Write files of one row by a task of its own."""
    fence = await held(conn, client)
    begun = await dataset_writing.begin(conn, fence, name, mode, None)
    await staged(conn, fence, begun, *keys)
    await work.finish_and_claim(conn, fence.worker_id, [Completed(fence.task_id, fence.attempt, "null")], [], 0)
    return begun


async def noted(conn: Conn) -> list[tuple[Any, ...]]:
    """Return what is noted of what tasks have read."""
    rows = await conn.fetch(
        "select task_id, attempt, place, version_id, write, partitions, pinned from weft.task_input order by 1, 2, 3"
    )
    return [tuple(row) for row in rows]


async def test_an_attempt_does_not_tell_of_what_one_before_it_has_begun(client: weft.Client, conn: Conn) -> None:
    await client.datasets.create("rows", storage="postgres")
    first = await held(conn, client)
    begun = await dataset_writing.begin(conn, first, "orders", Mode.APPEND, None)
    table = await dataset_writing.begin(conn, first, "rows", Mode.APPEND, None)
    second = await again(conn, first)
    with pytest.raises(weft.InvalidInput, match="no write that this attempt has begun"):
        await staged(conn, second, begun, "a")
    with pytest.raises(weft.InvalidInput, match="no write into a table that this attempt has begun"):
        await dataset_rows.add(conn, second, table.id, 1, [{"name": "id", "type": "bigint"}], [["1"]])


async def test_a_write_goes_where_the_last_breaking_write_of_its_own_attempt_and_dataset_went(
    client: weft.Client, conn: Conn
) -> None:
    for name in ("orders", "others"):
        await written(conn, client, name, "a")
    mine, other = await held(conn, client), await held(conn, client)
    current = (await dataset_writing.begin(conn, other, "orders", Mode.APPEND, None)).version_id
    first, last = [
        await dataset_writing.begin(conn, mine, "orders", Mode.REPLACE, None, is_breaking=True) for _ in range(2)
    ]
    # Before its files are told nothing goes there.
    assert (await dataset_writing.begin(conn, mine, "orders", Mode.APPEND, None)).version_id == current
    for begun in (first, last):
        await staged(conn, mine, begun, "", is_whole=True)
    assert (await dataset_writing.begin(conn, mine, "orders", Mode.APPEND, None)).version_id == last.version_id
    assert (await dataset_writing.begin(conn, other, "orders", Mode.APPEND, None)).version_id == current
    apart = (await dataset_writing.begin(conn, mine, "others", Mode.APPEND, None)).version_id
    assert apart not in (first.version_id, last.version_id, current)


async def test_nobody_takes_a_task_away_while_its_attempt_notes_something(client: weft.Client, conn: Conn) -> None:
    fence = await held(conn, client)
    takes = "select 1 from weft.task where id = $1 for update skip locked"
    async with conn.transaction():
        await dataset_writing.org_of(conn, fence)
        assert await client.database.run(lambda other: other.fetch(takes, fence.task_id)) == []
    assert len(await client.database.run(lambda other: other.fetch(takes, fence.task_id))) == 1


async def test_what_an_attempt_reads_is_noted_once_for_each_attempt_and_state(client: weft.Client, conn: Conn) -> None:
    begun, others = [await written(conn, client, name, "a", "b") for name in ("orders", "others")]
    version = begun.version_id

    async def reads(fence: Fence, version: int, write: int, parts: list[str] | None, **how: Any) -> None:
        await dataset_writing.list_files(conn, fence, version, write, parts, ("", 0), 10, **how)

    one, two = await held(conn, client, "read"), await held(conn, client, "read")
    for _ in range(2):
        await reads(one, version, 1, ["a", "b"])
    await reads(one, version, 1, ["a"])
    known = [(one.task_id, 1, 1, version, 1, ["a", "b"], None)]
    assert await noted(conn) == known
    for number, (at, write, parts, how) in enumerate(
        [
            (version, 1, ["c"], {}),
            (version, 0, ["a"], {}),
            (version, 1, ["a"], {"pinned": "write"}),
            (others.version_id, 1, ["a"], {}),
        ],
        2,
    ):
        await reads(one, at, write, parts, **how)
        known.append((one.task_id, 1, number, at, write, parts, how.get("pinned")))
    assert await noted(conn) == known
    await reads(two, version, 1, ["a"])
    known.append((two.task_id, 1, 1, version, 1, ["a"], None))
    assert await noted(conn) == known
    await reads(await again(conn, two), version, 1, ["a"])
    assert await noted(conn) == [*known, (two.task_id, 2, 1, version, 1, ["a"], None)]


async def test_that_an_attempt_has_looked_at_partitions_is_noted_once_for_each_attempt_and_state(
    client: weft.Client, conn: Conn
) -> None:
    begun, others = [await written(conn, client, name, "a") for name in ("orders", "others")]
    version = begun.version_id
    one, two = await held(conn, client, "read"), await held(conn, client, "read")
    # That it has read some, or what was named, is another matter.
    for parts, how in ((["a"], {}), (None, {"pinned": "version"})):
        await dataset_writing.list_files(conn, one, version, 1, parts, ("", 0), 10, **how)  # type: ignore[arg-type]
    for fence, at in ((one, version), (one, version), (one, others.version_id), (two, version)):
        await dataset_writing.list_partitions(conn, fence, at, None, 10)
    await dataset_writing.list_partitions(conn, await again(conn, two), version, None, 10)
    await written(conn, client, "orders", "a")
    await dataset_writing.list_partitions(conn, one, version, None, 10)
    looked = [(*row[:5],) for row in await noted(conn) if row[5] is None and row[6] is None]
    assert looked == [
        (one.task_id, 1, 3, version, 1), (one.task_id, 1, 4, others.version_id, 1), (one.task_id, 1, 5, version, 2),
        (two.task_id, 1, 1, version, 1), (two.task_id, 2, 1, version, 1),
    ]  # fmt: skip


async def test_nothing_is_noted_of_a_version_of_another_org(client: weft.Client, conn: Conn) -> None:
    begun = await written(conn, client, "orders", "a")
    await client.orgs.create("rival")
    rival = (await client.orgs.show("rival")).id
    fence = await held(conn, client, "read")
    await conn.execute("update weft.task set org_id = $2 where id = $1", fence.task_id, rival)
    with pytest.raises(weft.NotFound, match="have been collected"):
        await dataset_writing.list_files(conn, fence, begun.version_id, 1, None, ("", 0), 10)
    with pytest.raises(weft.NotFound, match="have been collected"):
        await dataset_writing.list_partitions(conn, fence, begun.version_id, None, 10)
    assert await noted(conn) == []


async def test_columns_are_made_of_what_the_same_attempt_has_read(client: weft.Client, conn: Conn) -> None:
    begun = await written(conn, client, "orders", "a")
    reader, first = await held(conn, client, "read"), await held(conn, client, "copy")
    await dataset_writing.list_files(conn, first, begun.version_id, 1, None, ("", 0), 10)
    second = await again(conn, first)
    for fence in (reader, second):
        copy = await dataset_writing.begin(conn, fence, f"copy{fence.attempt}", Mode.REPLACE, None)
        with pytest.raises(weft.InvalidInput, match="columns_from"):
            await staged(conn, fence, copy, "a", columns_from=[["id", "orders.id"]])


async def test_a_dataset_that_is_being_begun_is_not_begun_by_another(client: weft.Client, conn: Conn) -> None:
    await client.datasets.create("orders")
    async with conn.transaction():
        await dataset_writing.begin(conn, await held(conn, client), "orders", Mode.APPEND, None)
        taken = "select 1 from weft.dataset for no key update skip locked"
        assert await client.database.run(lambda other: other.fetch(taken)) == []


async def test_the_dataset_of_a_write_is_locked_before_it_is_known_who_writes_it(
    client: weft.Client, conn: Conn
) -> None:
    await client.datasets.create("orders")
    fence = await held(conn, client)
    async with conn.transaction():
        await conn.execute("select 1 from weft.dataset for no key update")
        begins = asyncio.create_task(
            client.database.run(lambda other: dataset_writing.begin(other, fence, "orders", Mode.APPEND, None))
        )
        await until(lambda: conn.fetch(WAITING))
        await conn.execute("update weft.dataset set producer_dag = 'etl', producer_node = 'load'")
    with pytest.raises(weft.InvalidInput, match="written by etl"):
        await begins


async def test_two_datasets_that_one_node_begins_at_once_have_numbers_of_their_own(
    client: weft.Client, conn: Conn
) -> None:
    fences = [await held(conn, client) for _ in range(2)]
    async with conn.transaction():
        await dataset_writing.begin(conn, fences[0], "first", Mode.APPEND, None)
        second = asyncio.create_task(
            client.database.run(lambda other: dataset_writing.begin(other, fences[1], "second", Mode.APPEND, None))
        )
        await until(lambda: conn.fetch(WAITING))
        assert await conn.fetch("select 1 from pg_locks where locktype = 'advisory' and not granted")
    await second
    assert await conn.fetchval("select array_agg(producer_output order by name) from weft.dataset") == [0, 1]


@pytest.mark.parametrize("verb", ["begin", "hand_over"])
async def test_outputs_are_numbered_by_org_workflow_and_node(
    client: weft.Client, make_client: MakeClient, conn: Conn, verb: str
) -> None:
    await client.orgs.create("rival")
    rival = await make_client(org="rival")
    await conn.execute(
        """insert into weft.dataset (org_id, name, storage, producer_dag, producer_node, producer_output, actor)
           select o.id, f.name, '{}', f.dag, f.node, 6, 'ann' from weft.org o join (values
             ('rival', 'theirs', '@task', 'write'), ('default', 'of another', 'etl', 'write'),
             ('default', 'by another', '@task', 'load')) f (slug, name, dag, node) on o.slug = f.slug"""
    )
    assert (await rival.datasets.show("theirs")).producer is not None
    if verb == "begin":
        await dataset_writing.begin(conn, await held(conn, client), "orders", Mode.APPEND, None)
    else:
        await client.datasets.create("orders")
        await client.datasets.hand_over("orders", "@task", "write")
    assert await conn.fetchval("select producer_output from weft.dataset where name = 'orders'") == 0


async def test_only_a_write_into_the_dataset_itself_by_the_attempt_that_runs_is_in_the_way(
    client: weft.Client, conn: Conn
) -> None:
    for name in ("orders", "others"):
        await written(conn, client, name, "a")
    fence = await held(conn, client)
    await dataset_writing.begin(conn, fence, "others", Mode.APPEND, None)
    await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
    with pytest.raises(weft.DatasetBusy):
        await client.datasets.delete("orders")
    # What an attempt before has left is nobody's any more.
    second = await again(conn, fence)
    await client.datasets.delete("orders")
    await dataset_writing.begin(conn, second, "third", Mode.APPEND, None)
    await client.datasets.delete("others")


async def test_the_dataset_of_that_name_comes_back_unless_it_has_been_collected(
    client: weft.Client, conn: Conn
) -> None:
    for name in ("orders", "others", "empty"):
        await client.datasets.create(name)
    await written(conn, client, "orders", "a")
    for name in ("orders", "empty", "others"):
        await client.datasets.delete(name)
    # Without a version it comes back, unless it had one.
    assert (await client.datasets.undelete("empty")).name == "empty"
    deleted = await conn.fetchval("select id from weft.dataset where name like 'orders@%'")
    assert await conn.fetchval(dataset_keeping.SQL.deleted, 1, "orders") == deleted
    await conn.execute("update weft.dataset_version set collected_at = weft.now()")
    with pytest.raises(weft.NotFound):
        await client.datasets.undelete("orders")
    await conn.execute("delete from weft.dataset_version")
    with pytest.raises(weft.NotFound):
        await client.datasets.undelete("orders")
    assert (await datasets.show(conn, 1, "empty")).name == "empty"
