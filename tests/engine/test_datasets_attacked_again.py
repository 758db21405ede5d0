"""Datasets that several change at once, go back and forth, and are collected: nothing is left over or out of order."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from engine.test_dataset_guards import _complete as complete
from engine.test_dataset_guards import _held as held
from engine.test_dataset_guards import _staged as staged
from engine.test_dataset_tables import tables
from engine.test_deploys import Scene, market
from live_scene import until
from weft.catalog import dataset_writing, datasets
from weft.catalog.dataset_writing import Mode
from weft.data.collecting import DatasetCollector
from weft.sdk.session import seeing
from weft.worker.registry import Registry
from writing import written

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
def scene(client: weft.Client, conn: Conn, registry: Registry) -> Scene:
    return Scene(client, conn, registry)


@pytest.mark.parametrize("storage", ["parquet", "postgres"])
async def test_a_file_that_came_back_and_went_again_is_removed(
    client: weft.Client, make_client: MakeClient, home: Path, conn: Conn, storage: str
) -> None:
    await client.datasets.create("orders", storage=storage)
    await written(client, "orders", 1)
    await written(client, "orders", 2)
    await client.datasets.rollback("orders@1.1")
    await written(client, "orders", 3)
    collector = DatasetCollector(client.database, (await make_client(dataset_retention="1ms")).settings, timedelta(0))
    while await collector.run_once():
        pass
    assert await client.datasets.sample("orders") == [{"value": 3}]
    if storage == "parquet":
        assert len(list((home / "data").rglob("*.parquet"))) == 1
    else:
        assert list((await tables(conn)).values()) == [1]


async def test_the_later_a_write_is_the_higher_its_number(client: weft.Client, conn: Conn, url: str) -> None:
    fences = []
    for _ in range(2):
        fence = await held(conn, client)
        begun = await dataset_writing.begin(conn, fence, "orders", Mode.APPEND, None)
        await dataset_writing.stage(conn, fence, staged(begun, "a"))
        fences.append(fence)
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute("select 1 from weft.dataset_version for no key update")
            early = asyncio.create_task(complete(conn, fences[0]))
            await until(lambda: client.database.read(_is_waiting))
            await complete(other, fences[1])
        await early
    finally:
        await other.close()
    rows = await conn.fetch("select task_id, written_at from weft.dataset_write order by number")
    assert [row["task_id"] for row in rows] == [fences[1].task_id, fences[0].task_id]
    assert sorted(row["written_at"] for row in rows) == [row["written_at"] for row in rows]


async def _is_waiting(conn: Any) -> bool:
    return bool(await conn.fetchval("select count(*) from pg_locks where not granted"))


async def test_at_no_time_was_seen_what_nobody_saw(client: weft.Client, conn: Conn, registry: Registry) -> None:
    @registry.task(name="write one row", retry=0)
    async def work(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"id": "x"}], breaking=True)

    await written(client, "orders", 1, 2)
    async with weft.Worker(client=client, registry=registry):
        await client.wait((await client.enqueue(work)).id, timeout=30)
    await client.datasets.rollback("orders@1.1")
    (seen, gone) = await conn.fetchrow(
        """select (select max(at) from weft.dataset_seen), (select max(written_at) from weft.dataset_write)"""
    )
    assert gone <= seen
    assert str(await client.datasets.state("orders", as_of=seen)) == "orders@1.3"
    assert str(await client.datasets.state("orders", as_of=seen - timedelta(microseconds=1))) == "orders@2.1"


async def test_what_is_swapped_together_was_swapped_at_one_time(scene: Scene, conn: Conn) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await scene.client.live.deploy(market(3))
        await scene.client.live.wait("market", 2, timeout=30)
        await scene.client.live.rollback("market")
    rows = await conn.fetch(
        """select count(distinct at), count(*) from weft.dataset_seen s join weft.dataset d on d.id = s.dataset_id
           where d.name in ('scaled', 'again') and s.version_id in (
               select id from weft.dataset_version where number = 1)
             and s.at > (select created_at from weft.dag_version where number = 2)"""
    )
    assert [tuple(row) for row in rows] == [(1, 2)]
    assert await conn.fetchval("select count(distinct at) from weft.dataset_seen") == 3


async def test_nobody_sees_a_dataset_by_a_role_of_the_name_of_one_that_is_gone(
    client: weft.Client, make_client: MakeClient, conn: Conn
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    theirs = await make_client(org="acme")
    for each in (client, theirs):
        await each.datasets.create("orders")
        for role in ("finance", "sales"):
            await each.roles.create(role)
        await each.datasets.grant("orders", ["finance", "sales"])
    await client.roles.delete("finance")
    assert (await theirs.datasets.show("orders")).read_roles == ("finance", "sales")
    assert (await client.datasets.show("orders")).read_roles == ("sales",)
    await client.roles.create("finance")
    with seeing(frozenset({"finance"})), pytest.raises(weft.NotFound):
        await client.datasets.show("orders")


async def test_a_role_that_is_being_deleted_is_not_given_a_dataset(client: weft.Client, url: str) -> None:
    await client.datasets.create("orders")
    await client.roles.create("finance")
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await datasets.set_read_roles(other, 1, "orders", ["finance"], "ann")
            deleting = asyncio.create_task(client.roles.delete("finance"))
            await until(lambda: client.database.read(_is_waiting))
        await deleting
        assert (await client.datasets.show("orders")).read_roles == ()
        with pytest.raises(weft.InvalidInput, match="no role 'finance'"):
            await client.datasets.grant("orders", ["finance"])
    finally:
        await other.close()


async def test_who_reads_a_table_for_long_keeps_no_other_reader_waiting(
    client: weft.Client, conn: Conn, url: str, registry: Registry
) -> None:
    @registry.task(name="write one row", retry=0)
    async def work(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"value": 2, "more": 3}])

    await client.datasets.create("orders", storage="postgres")
    await written(client, "orders", 1)
    seen = 'select * from weft_data."default.orders"'
    other = await asyncpg.connect(url)
    try:
        async with weft.Worker(client=client, registry=registry):
            async with other.transaction():
                await other.fetch(seen)
                task = await client.enqueue(work)
                with pytest.raises(weft.TaskFailed, match=r"orders.*new column"):
                    await client.wait(task.id, timeout=30)
                assert await conn.fetch(seen, timeout=10) == [(1,)]
            await client.wait((await client.enqueue(work)).id, timeout=30)
    finally:
        await other.close()
    assert await conn.fetch(seen) == [(2, 3)]
