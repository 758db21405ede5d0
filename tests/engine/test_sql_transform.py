"""The operator `sql_transform`: queries over what was written, each in a process behind walls."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg
import pytest

import weft
from far import with_and_without_a_database
from live_scene import until
from operator_scene import OperatorScene
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

SPENT = "select customer, sum(price)::bigint as spent from changes group by customer order by customer"


@with_and_without_a_database
async def test_each_partition_is_what_the_query_makes_of_it(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    await scene.job("spent", "sql_transform", {"sql": SPENT}, ["orders"], "spent", strategy="partition")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("orders", "mon", [{"customer": "ann", "price": 3}, {"customer": "ann", "price": 4}])
        await scene.put("orders", "tue", [{"customer": "bob", "price": 5}])
        await scene.settled()
        await scene.put("orders", "mon", [{"customer": "bob", "price": 1}])
        await scene.settled()
        found = await scene.rows("spent")
    assert sorted((row["customer"], row["spent"]) for row in found) == [("bob", 1), ("bob", 5)]
    keys = await conn.fetch(
        "select p.partition_key from weft.dataset_partition p join weft.dataset_version v on v.id = p.version_id "
        "join weft.dataset d on d.id = v.dataset_id where d.name = 'spent' order by 1"
    )
    assert [row["partition_key"] for row in keys] == ["mon", "tue"]


async def test_rows_that_an_update_added_are_joined_with_another_input_and_spread_over_partitions(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    sql = "select c.*, p.city from changes c join people p on p.name = c.customer"
    config = {"sql": sql, "tables": {"people": "customers"}, "partition_by": "city"}
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("customers", None, [{"name": "ann", "city": "Ulm"}, {"name": "bob", "city": "Rom"}])
        await scene.job(
            "placed", "sql_transform", config, ["orders"], "placed", append=["id"],
        )  # fmt: skip
        await conn.execute(
            "insert into weft.live_input (live_job_id, place, org_id, dataset_id, version_id, is_internal, "
            "routed_write) select j.id, 1, 1, d.id, d.current_id, false, 1 from weft.live_job j, weft.dataset d "
            "where d.name = 'customers'"
        )
        await scene.add("orders", "mon", [{"id": 1, "customer": "ann"}])
        await scene.add("orders", "mon", [{"id": 2, "customer": "bob"}, {"id": 3, "customer": "ann"}])
        await scene.settled()
        found = await scene.rows("placed")
    assert sorted((row["id"], row["city"]) for row in found) == [(1, "Ulm"), (2, "Rom"), (3, "Ulm")]
    assert (
        await conn.fetchval("select sum(rows) from weft.dataset_write w join weft.live_output o using (version_id)")
        == 3
    )


async def test_a_write_into_several_partitions_is_transformed_partition_by_partition(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    sql = "select count(*) as n, min(id) as id from changes"
    await scene.job("counted", "sql_transform", {"sql": sql}, ["orders"], "counted")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.spread("orders", "day", [{"id": n, "day": f"day-{n % 3}"} for n in range(10)])
        await scene.settled()
        found = await scene.rows("counted")
    assert sorted((row["id"], row["n"]) for row in found) == [(0, 4), (1, 3), (2, 3)]


@pytest.mark.parametrize("where", [{"partition": "none"}, {"partition_by": "customer"}])
async def test_who_ends_late_leaves_what_another_has_made_of_more(
    client: weft.Client, conn: Conn, registry: Registry, where: dict[str, str]
) -> None:
    scene = OperatorScene(client, conn, registry)
    config = {"sql": SPENT.replace("changes", "orders"), **where}
    job = await scene.job(
        "spent", "sql_transform", config, ["orders"], "spent", strategy="partition", max_concurrency=2
    )
    running = "select lane from weft.live_unit where live_job_id = $1 and state = 'running'"
    async with weft.Orchestrator(client=client):
        await client.live.pause("market")
        async with weft.Worker(client=client, registry=registry):
            await scene.put("orders", "mon", [{"customer": "ann", "price": 3}])
        await client.live.resume("market")
        await until(lambda: conn.fetchval(running, job))
        async with conn.transaction():
            await conn.execute(
                "select 1 from weft.task where id = (select task_id from weft.live_unit where lane = 'mon') for update"
            )
            async with weft.Worker(client=client, registry=registry):
                await scene.put("orders", "tue", [{"customer": "ann", "price": 4}, {"customer": "bob", "price": 5}])
                written = "select count(*) from weft.dataset_write w join weft.live_output o using (version_id)"
                await until(lambda: conn.fetchval(written))
        async with weft.Worker(client=client, registry=registry):
            await scene.settled()
            found = await scene.rows("spent")
    assert sorted((row["customer"], row["spent"]) for row in found) == [("ann", 7), ("bob", 5)]


async def test_what_is_wrong_with_a_query_is_told_with_its_place_and_not_tried_again(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    wrong = {
        "column": ("select id,\n  prize\nfrom changes", 'line 2, column 3: Binder Error: Referenced column "prize"'),
        "syntax": ("select id\nfrm changes here", "line 2, column 5: Parser Error"),
        "long": (f"select {'1 + ' * 60} missing from changes", "line 1, column 249: Binder Error"),
        "table": ("select * from chnges", "there is no table 'chnges'"),
        "file": ("select * from read_csv('/etc/passwd')", "the table function read_csv is not for queries"),
        "two": ("select 1; select 2", "a query is one statement, and this is 2"),
        "copy": ("copy (select 1) to '/tmp/x'", "only queries are run here, and this is COPY"),
        "config": ("select 1 as n", "config.partition_b: Extra inputs are not permitted"),
    }
    jobs = {
        name: await scene.job(
            name, "sql_transform", {"sql": sql, **({"partition_b": "n"} if name == "config" else {})}, ["orders"],
            f"out_{name}",
        )
        for name, (sql, _) in wrong.items()
    }  # fmt: skip
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("orders", None, [{"id": 1}])
        for name, job in jobs.items():
            assert wrong[name][1] in await scene.error(job), name
    assert await conn.fetchval("select max(attempt) from weft.task_done where handler = 'live.sql_transform'") == 1


async def test_events_are_rows_of_changes(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = OperatorScene(client, conn, registry)
    sql = "select symbol, price * 2 as twice from changes"
    await scene.job(
        "doubled", "sql_transform", {"sql": sql}, output="doubled", append=["symbol"],
        source={"kind": "event", "event": "quote"},
    )  # fmt: skip
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.jobs.send_event("quote", {"symbol": "X", "price": 4})
        await scene.settled()
        assert await scene.rows("doubled") == [{"symbol": "X", "twice": 8}]


async def test_after_a_crash_an_operator_runs_in_a_process_of_its_own(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    await scene.job("spent", "sql_transform", {"sql": SPENT}, ["orders"], "spent")
    async with weft.Orchestrator(client=client):
        async with weft.Worker(client=client, registry=registry, queues=["other"]):
            pass
        async with weft.Worker(client=client, registry=registry):
            await scene.put("orders", None, [{"customer": "ann", "price": 3}])
            await scene.settled()
        await conn.execute("update weft.queue set paused_at = weft.now() where name = 'default'")
        await conn.execute("update weft.live_input set routed_write = 0")
        await conn.execute("select weft.hint_live()")
        await until(lambda: conn.fetchval("select count(*) = 1 from weft.task where handler = 'live.sql_transform'"))
        await conn.execute("update weft.task set crashes = 1 where handler = 'live.sql_transform'")
        await conn.execute("update weft.queue set paused_at = null where name = 'default'")
        async with weft.Worker(client=client, registry=registry):
            await scene.settled()
            assert await scene.rows("spent") == [{"customer": "ann", "spent": 3}]
