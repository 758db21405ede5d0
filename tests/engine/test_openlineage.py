"""Who is told of writes as OpenLineage has it: after each, as its schema says, and never in the way of the write."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from engine_scene import MakeClient, until
from openlineage_model import require_openlineage

import weft
from receivers import Receiver, receiving
from weft.jobs.lineage_posting import LineagePosting
from weft.queue.outbox import Effect
from weft.worker.registry import Registry


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.task(name="import")
    async def import_orders(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"price": 1, "quantity": 2}])

    @registry.task(name="sum")
    async def sum_up(ctx: weft.Context) -> None:
        await ctx.dataset("orders").read()
        await ctx.dataset("daily").write([{"total": 2}], columns_from={"total": ["orders.price", "orders.quantity"]})

    return registry


def settings_for(receiver: Receiver, **more: Any) -> dict[str, Any]:
    return {"openlineage_url": f"http://127.0.0.1:{receiver.port}/api/v1/lineage", **more}


async def test_each_write_is_told_with_its_datasets_and_columns(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    flow = {
        "workflow_id": "etl",
        "nodes": {
            "START": {"type": "start", "next": "fetch"},
            "fetch": {"handler": "import", "next": "sum"},
            "sum": {"handler": "sum", "next": "END"},
            "END": {"type": "end"},
        },
    }
    async with receiving() as receiver:
        client = await make_client(**settings_for(receiver, openlineage_token="secret"))
        async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
            job = await client.jobs.submit(flow)
            await client.jobs.wait(job.id, timeout=60)
            received = await receiver.until(4)
            await until(lambda: client.outbox(kind="openlineage", state="done"), lambda rows: len(rows) == 2)
    assert {(each.path, each.headers["authorization"]) for each in received} == {("/api/v1/lineage", "Bearer secret")}
    told = [each.json for each in received]
    for event in told:
        require_openlineage(event)
    by_job = {(event["job"]["name"], event["eventType"]): event for event in told}
    assert by_job.keys() == {(name, kind) for name in ("etl.fetch", "etl.sum") for kind in ("START", "COMPLETE")}
    began, done = by_job["etl.sum", "START"], by_job["etl.sum", "COMPLETE"]
    assert began["run"] == done["run"] != by_job["etl.fetch", "COMPLETE"]["run"]
    assert began["eventTime"] <= done["eventTime"]
    assert done["run"]["facets"]["parent"]["job"] == {"namespace": "weft/default", "name": "etl"}
    ((source,), (output,)) = done["inputs"], done["outputs"]
    assert (source["namespace"], source["name"]) == ("weft/default", "orders")
    assert source["facets"]["version"]["datasetVersion"] == "1.1"
    assert (output["name"], output["facets"]["version"]["datasetVersion"]) == ("daily", "1.1")
    assert output["facets"]["schema"]["fields"] == [{"name": "total", "type": "int64"}]
    origins = output["facets"]["columnLineage"]["fields"]["total"]["inputFields"]
    assert [(each["name"], each["field"]) for each in origins] == [("orders", "price"), ("orders", "quantity")]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert await conn.fetchval("select count(*) from weft.outbox where payload::text like '%secret%'") == 0


async def test_a_receiver_that_is_away_is_told_again_and_holds_up_nothing(
    make_client: MakeClient, registry: Registry
) -> None:
    async with receiving(503, "close") as receiver:
        client = await make_client(**settings_for(receiver))
        async with weft.Worker(client=client, registry=registry):
            await client.wait((await client.enqueue("import")).id, timeout=30)
            # Refused at its first event, closed at the second attempt, taken at the third: both events.
            received = await receiver.until(4)
            (row,) = await until(lambda: client.outbox(kind="openlineage", state="done"), bool)
    assert row.attempts == 3
    assert [each.json["eventType"] for each in received] == ["START", "START", "START", "COMPLETE"]
    assert len({each.json["run"]["runId"] for each in received}) == 1


async def test_without_an_address_nothing_is_noted(client: weft.Client, registry: Registry) -> None:
    async with weft.Worker(client=client, registry=registry):
        await client.wait((await client.enqueue("import")).id, timeout=30)
        await until(lambda: client.outbox(kind="route_event", state="done"), bool)
    assert await client.outbox(kind="openlineage") == []


async def test_events_of_others_that_look_like_writes_are_none(make_client: MakeClient, registry: Registry) -> None:
    async with receiving() as receiver:
        client = await make_client(**settings_for(receiver))
        for payload in (
            {},
            {"dataset": "orders", "version": "1", "write": 1},
            {"dataset": 1, "version": 1, "write": 1},
        ):
            await client.jobs.send_event("dataset.written", payload)
        async with weft.Worker(client=client, registry=registry):
            await until(lambda: client.outbox(kind="route_event", state="done"), lambda rows: len(rows) == 3)
        assert await client.outbox(kind="openlineage") == []
        posting = LineagePosting(client.database, client.settings, str(client.settings.openlineage_url))
        for payload in (None, {}, {"dataset": "orders", "version": 1, "write": 1}, {"dataset": 1, "version": "x"}):
            with pytest.raises(weft.InvalidInput, match="payload"):
                await posting.send(Effect(1, "default", "openlineage", payload, 1, None))
    assert receiver.received == []


async def test_nobody_adds_such_an_effect_himself(client: weft.Client) -> None:
    with pytest.raises(weft.InvalidInput, match="an openlineage is added by the engine"):
        await client.add_effect("openlineage", {"dataset": "orders", "version": 1, "write": 1})
