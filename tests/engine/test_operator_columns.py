"""What the columns are made of that operators of live DAGs write: the SQL of a job tells it, or its author."""

from __future__ import annotations

from typing import Any

import weft
from far import with_and_without_a_database
from live_scene import until
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

TRANSFORM = {"activation": "reactive", "operator": "sql_transform", "execution_strategy": "PerPartition"}
PIVOT = "select * from (pivot changes on symbol in ('A') using sum(price))"


def market() -> dict[str, Any]:
    """Return a DAG of events that become ticks, and of jobs that make others of these."""
    worth = "select symbol as Name, price * quantity as worth, c.* exclude (code) from ticks t join c on code = symbol"
    return {
        "dag": "market",
        "jobs": {
            "ticks": {
                "activation": "source", "operator": "take", "source": {"kind": "event", "event": "tick"},
                "outputs": ["ticks"], "update_strategy": "append", "unique_key": ["id"],
            },
            "told": {
                "activation": "source", "operator": "sql_transform", "source": {"kind": "event", "event": "tick"},
                "config": {"sql": "select id, price from changes"}, "outputs": ["told"],
            },
            "worth": {
                **TRANSFORM, "inputs": ["ticks", "companies"], "outputs": ["worth"],
                "config": {"sql": worth, "tables": {"c": "companies"}, "partition": "none"},
            },
            "wide": {**TRANSFORM, "inputs": ["ticks"], "outputs": ["wide"], "config": {"sql": PIVOT}},
            "ranges": {
                "activation": "reactive", "operator": "range_aggregator", "execution_strategy": "PerUpdate",
                "inputs": ["ticks"], "outputs": ["ranges"], "scaling": {"max_concurrency": 1},
                "config": {
                    "column": "id", "size": 10, "by": ["symbol"],
                    "aggregates": {"last": "last(price)", "spent": "sum(price * quantity)", "ticks": "count(*)"},
                },
            },
            "alerts": {
                "activation": "reactive", "operator": "alert_evaluate", "execution_strategy": "PerUpdate",
                "inputs": ["ticks"], "outputs": ["alerts"], "update_strategy": "append", "unique_key": ["alert_id"],
                "scaling": {"max_concurrency": 1},
                "config": {"condition": "price > 1", "key": ["symbol"], "message": "{id} of {symbol}", "history": True},
            },
            "own": {
                "activation": "reactive", "operator": "own", "execution_strategy": "PerPartition",
                "inputs": ["ticks"], "outputs": ["own"],
            },
        },
    }  # fmt: skip


def operators(registry: Registry) -> None:
    @registry.task(name="companies")
    async def companies(ctx: weft.Context) -> None:
        await ctx.dataset("companies").write([{"code": "A", "city": "Ulm"}])

    @operator("take", registry=registry)
    async def take(live: LiveContext) -> None:
        await live.write([live.unit.payload])

    @operator("own", registry=registry)
    async def own(live: LiveContext) -> None:
        count = (await live.changes()).num_rows
        await live.write([{"count": count}], columns_from={"count": ["ticks.id"]})


async def made_of(client: weft.Client, column: str) -> list[str]:
    found = await client.datasets.lineage(column, direction="up", depth=1)
    return sorted(edge.source for edge in found.edges)


@with_and_without_a_database
async def test_what_the_columns_of_live_jobs_are_made_of_is_told_by_their_sql(
    client: weft.Client, registry: Registry
) -> None:
    operators(registry)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.wait((await client.enqueue("companies")).id, timeout=60)
        await client.live.deploy(market())
        for id in (1, 12):
            said = {"id": id, "symbol": "A", "price": 2.5 * id, "quantity": 2}
            await client.jobs.send_event("tick", said)

        async def is_quiet() -> bool:
            shown = await client.live.show("market")
            return not shown.units and not shown.writes and len(await client.datasets.sample("ticks")) == 2

        await until(is_quiet, 60)
        assert (await client.live.show("market")).held == 0
    assert await made_of(client, "worth.Name") == ["ticks.symbol"]
    assert await made_of(client, "worth.worth") == ["ticks.price", "ticks.quantity"]
    assert await made_of(client, "worth.city") == ["companies.city"]
    assert await made_of(client, "ranges.range_start") == ["ticks.id"]
    assert await made_of(client, "ranges.symbol") == ["ticks.symbol"]
    assert await made_of(client, "ranges.last") == ["ticks.id", "ticks.price"]
    assert await made_of(client, "ranges.spent") == ["ticks.price", "ticks.quantity"]
    assert await made_of(client, "own.count") == ["ticks.id"]
    assert await made_of(client, "alerts.state") == ["ticks.price"]
    assert await made_of(client, "alerts.key") == ["ticks.symbol"]
    assert await made_of(client, "alerts.message") == ["ticks.id", "ticks.symbol"]
    assert await made_of(client, "alerts.row") == [f"ticks.{name}" for name in ("id", "price", "quantity", "symbol")]
    # What nothing is told of is written all the same.
    assert (await client.datasets.sample("wide"))[0]["A"] is not None
    assert len(await client.datasets.sample("told")) == 1


async def test_more_columns_than_are_kept_are_left_out_and_the_rows_are_written(
    client: weft.Client, registry: Registry
) -> None:
    names = [f"c{number}" for number in range(150)]
    # Each of so many columns is made of all of them.
    sums = ", ".join(f"{' + '.join(names)} as {name}" for name in names)

    @operator("take", registry=registry)
    async def take(live: LiveContext) -> None:
        await live.write([live.unit.payload])

    jobs = {
        "wide": {
            "activation": "source", "operator": "take", "source": {"kind": "event", "event": "wide"},
            "outputs": ["wide"],
        },
        "sums": {
            **TRANSFORM, "inputs": ["wide"], "outputs": ["sums"], "config": {"sql": f"select {sums} from changes"},
        },
    }  # fmt: skip
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.live.deploy({"dag": "wide", "jobs": jobs})
        await client.jobs.send_event("wide", dict.fromkeys(names, 1))

        async def is_written() -> bool:
            return (await client.datasets.show("sums")).rows == 1

        await until(is_written, 60)
    assert await made_of(client, "sums.c0") == []
    assert [place.name for place in (await client.datasets.lineage("sums")).places] == ["wide", "sums"]
