"""Who writes a dataset, and whether it is there: handed over, deleted and brought back, never amid a write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from engine_scene import MakeClient, until

import weft
from weft.catalog.dataset_keeping import SQL as KEEPING
from weft.data.collecting import SQL as COLLECTING
from weft.data.collecting import DatasetCollector
from weft.worker.registry import Registry
from writing import written

# Whether somebody waits for a lock that this session has.
WAITING = "select 1 from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))"


@asynccontextmanager
async def amid_a_write(client: weft.Client, name: str) -> AsyncIterator[weft.TaskHandle]:
    """A task that has written into a dataset and does not end before the block does."""
    registry, begun, go_on = Registry(), asyncio.Event(), asyncio.Event()

    @registry.task(name="write one row", queue="datasets", retry=0)
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset(name).write([{"value": 9}])
        begun.set()
        await go_on.wait()

    await client.create_queue("datasets")
    async with weft.Worker(client=client, registry=registry, queues=["datasets"]):
        handle = await client.enqueue(write)
        await begun.wait()
        try:
            yield handle
        finally:
            go_on.set()
            await client.wait(handle.id, timeout=60)


async def attempt_by(client: weft.Client, handler: str, name: str) -> str | None:
    """Let a handler write into a dataset; return why it was refused."""
    registry = Registry()

    @registry.task(name=handler)
    async def write(ctx: weft.Context) -> str | None:
        try:
            await ctx.dataset(name).write([{"value": 5}])
        except weft.InvalidInput as problem:
            return str(problem)
        return None

    async with weft.Worker(client=client, registry=registry):
        return await client.wait((await client.enqueue(write)).id, timeout=60)  # type: ignore[no-any-return]


async def test_a_dataset_is_handed_over_and_then_written_by_the_other_alone(client: weft.Client) -> None:
    await written(client, "orders", 1)
    assert "written by the handler write one row" in str(await attempt_by(client, "other", "orders"))
    handed = await client.datasets.hand_over("orders", "@task", "other")
    assert str(handed.producer) == "the handler other"
    assert await attempt_by(client, "other", "orders") is None
    assert "written by the handler other" in str(await attempt_by(client, "write one row", "orders"))
    handed = await client.datasets.hand_over("orders", "etl", "load")
    assert str(handed.producer) == "etl, node load"
    entries = await client.audit(limit=10)
    told = [entry.detail for entry in entries if entry.verb == "hand-over"]
    assert told[0] == {"from": "the handler other", "to": "etl, node load"}


async def test_handing_over_to_who_writes_it_already_changes_nothing(client: weft.Client) -> None:
    await written(client, "orders", 1)
    await client.datasets.hand_over("orders", "@task", "write one row")
    assert [entry.verb for entry in await client.audit(limit=10) if entry.verb == "hand-over"] == []
    assert str((await client.datasets.show("orders")).producer) == "the handler write one row"


async def test_a_node_that_is_handed_two_datasets_numbers_them(client: weft.Client) -> None:
    for name in ("a", "b"):
        await client.datasets.create(name)
        await client.datasets.hand_over(name, "etl", "load")
    outputs = [(await client.datasets.show(name)).producer for name in ("a", "b")]
    assert [each.output for each in outputs if each] == [0, 1]


@pytest.mark.parametrize("verb", ["hand_over", "delete"])
async def test_nothing_is_taken_away_from_a_task_that_writes(client: weft.Client, verb: str) -> None:
    await written(client, "orders", 1)
    more: tuple[Any, ...] = ("etl", "load") if verb == "hand_over" else ()
    async with amid_a_write(client, "orders") as handle:
        with pytest.raises(weft.DatasetBusy, match=f"task {handle.id} writes it"):
            await getattr(client.datasets, verb)("orders", *more)
    assert await client.datasets.sample("orders") == [{"value": 9}]
    await getattr(client.datasets, verb)("orders", *more)


@pytest.mark.parametrize(
    ("workflow", "node"), [("@other", "x"), ("", "x"), ("etl", ""), ("@outside", "register"), ("e\0", "x")]
)
async def test_nobody_is_no_producer(client: weft.Client, workflow: str, node: str) -> None:
    await client.datasets.create("orders")
    with pytest.raises(weft.InvalidInput):
        await client.datasets.hand_over("orders", workflow, node)
    with pytest.raises(weft.NotFound):
        await client.datasets.hand_over("nothing", "etl", "load")


async def test_what_is_registered_is_not_handed_over(make_client: MakeClient, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    client = await make_client(data_outside=str(tmp_path))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    await client.datasets.register("theirs", str(tmp_path))
    with pytest.raises(weft.InvalidInput, match="nothing to hand over"):
        await client.datasets.hand_over("theirs", "etl", "load")


@pytest.mark.parametrize("storage", ["parquet", "postgres"])
async def test_a_deleted_dataset_is_gone_and_comes_back_whole(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], storage: str
) -> None:
    await client.datasets.create("orders", storage=storage)
    await written(client, "orders", 1, 2)
    gone = await client.datasets.delete("orders")
    assert (gone.name, gone.rows) == ("orders", 1)
    assert await client.datasets.list() == []
    assert await conn.fetch("select * from weft.datasets") == []
    with pytest.raises(weft.NotFound):
        await client.datasets.sample("orders")
    with pytest.raises(weft.NotFound):
        await client.datasets.delete("orders")
    await written(client, "orders", 7)
    with pytest.raises(weft.InvalidInput, match="there is another dataset orders by now"):
        await client.datasets.undelete("orders")
    await client.datasets.delete("orders")
    assert (await client.datasets.undelete("orders")).rows == 1
    assert await client.datasets.sample("orders") == [{"value": 7}], "the one that was deleted last"
    await client.datasets.delete("orders")
    await conn.execute(
        "update weft.dataset set deleted_at = deleted_at + interval '1 hour' where last_version = 1 and id = $1",
        gone.id,
    )
    await client.datasets.undelete("orders")
    assert await client.datasets.sample("orders@1.1") == [{"value": 1}]
    if storage == "postgres":
        assert await conn.fetchval('select value from weft_data."default.orders"') == 2
    assert [entry.verb for entry in await client.audit(limit=2)] == ["undelete", "delete"]


@pytest.mark.parametrize("storage", ["parquet", "postgres"])
async def test_after_the_retention_nothing_is_left_of_a_deleted_dataset(
    make_client: MakeClient, home: Path, conn: asyncpg.Connection[asyncpg.Record], storage: str
) -> None:
    client = await make_client(dataset_retention="1ms")
    await client.datasets.create("orders", storage=storage)
    await client.datasets.create("kept", storage=storage)
    await written(client, "orders", 1)
    await written(client, "kept", 2)
    await client.datasets.delete("orders")
    collector = DatasetCollector(client.database, client.settings, timedelta(0))
    while await collector.run_once():
        pass
    with pytest.raises(weft.NotFound, match="none of that name was deleted"):
        await client.datasets.undelete("orders")
    assert [row["name"] for row in await conn.fetch("select name from weft.dataset")] == ["kept"]
    assert await client.datasets.sample("kept") == [{"value": 2}]
    files = [path for path in (home / "data").rglob("*.parquet")]
    tables = await conn.fetchval(
        "select count(*) from pg_class where relnamespace = 'weft_data'::regnamespace and relkind = 'r'"
    )
    assert len(files) + tables == 1


async def test_another_org_deletes_and_hands_over_nothing(client: weft.Client, make_client: MakeClient) -> None:
    await written(client, "orders", 1)
    await client.orgs.create("other")
    other = await make_client(org="other")
    with pytest.raises(weft.NotFound):
        await other.datasets.delete("orders")
    with pytest.raises(weft.NotFound):
        await other.datasets.hand_over("orders", "etl", "load")
    await client.datasets.delete("orders")
    with pytest.raises(weft.NotFound):
        await other.datasets.undelete("orders")
    # Each brings back its own, whichever was deleted last.
    await written(other, "orders", 2)
    await other.datasets.delete("orders")
    await client.datasets.undelete("orders")
    assert await client.datasets.sample("orders") == [{"value": 1}]


async def test_a_task_that_reads_reads_on_when_its_dataset_is_deleted(client: weft.Client) -> None:
    await written(client, "orders", 1)
    registry = Registry()

    @registry.task(name="read", retry=0)
    async def read(ctx: weft.Context) -> list[int]:
        await ctx.dataset("orders").partitions()
        await client.datasets.delete("orders")
        return (await ctx.dataset("orders").read()).column("value").to_pylist()  # type: ignore[no-any-return]

    async with weft.Worker(client=client, registry=registry):
        assert await client.wait((await client.enqueue(read)).id, timeout=60) == [1]


async def test_who_brings_back_and_who_collects_do_not_cross(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await written(client, "orders", 1)
    await client.datasets.delete("orders")
    long_ago = timedelta(0)
    async with conn.transaction():
        assert await conn.fetchrow(KEEPING.deleted, 1, "orders") is not None
        assert await client.database.run(lambda other: other.fetch(COLLECTING.close_deleted, long_ago, None)) == []
    async with conn.transaction():
        assert len(await conn.fetch(COLLECTING.close_deleted, long_ago, None)) == 1
        # Whoever would bring it back waits, and then finds nothing.
        back = asyncio.create_task(client.datasets.undelete("orders"))
        await until(lambda: conn.fetch(WAITING))
    with pytest.raises(weft.NotFound):
        await back
