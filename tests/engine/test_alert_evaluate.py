"""The operator `alert_evaluate`: an alert is told once, and its end, with what it is told by."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
from datetime import time
from decimal import Decimal
from typing import Any, TypeAlias

import asyncpg
import pyarrow as pa
import pytest
from engine_scene import MakeClient

import weft
from far import with_and_without_a_database
from live_scene import until
from operator_scene import OperatorScene
from receivers import receiving
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

HIGH = {
    "condition": "price > 100", "key": ["symbol"], "order_by": "number", "for": 2, "severity": "critical",
    "message": "{symbol} stands at {price} ({state}, {unknown})",
}  # fmt: skip


def quotes(symbol: str, *prices: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"symbol": symbol, "number": first + place, "price": price} for place, price in enumerate(prices)]


def told(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((row["alert_id"], row["message"]) for row in rows)


@with_and_without_a_database
async def test_an_alert_begins_and_ends_once_for_each_key(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = OperatorScene(client, conn, registry)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.add("quotes", None, quotes("OLD", 500, 500, 500))
        await scene.job("high", "alert_evaluate", HIGH, ["quotes"], "alerts", append=["alert_id"])
        await scene.settled()
        await scene.add("quotes", None, quotes("A", 101, 99, 102) + quotes("B", 50))
        await scene.settled()
        assert (
            await conn.fetchval("select count(*) from weft.dataset_write w join weft.live_output o using (version_id)")
            == 0
        )
        await scene.add("quotes", None, quotes("A", 103, 104, first=3) + quotes("B", 200, 201, first=1))
        await scene.settled()
        await scene.add("quotes", None, quotes("A", 105, 3, 2, first=5))
        await scene.settled()
        # What was seen before counts no more, however often it comes.
        await scene.add("quotes", None, quotes("A", 900, 900, 900, first=2))
        await scene.settled()
        found = await scene.rows("alerts")
    assert told(found) == [
        ('{"symbol":"A"}#1:firing', "A stands at 103 (firing, {unknown})"),
        ('{"symbol":"A"}#1:resolved', "A stands at 3 (resolved, {unknown})"),
        ('{"symbol":"B"}#1:firing', "B stands at 201 (firing, {unknown})"),
    ]
    assert {row["severity"] for row in found} == {"critical"}


@with_and_without_a_database
@pytest.mark.parametrize("strategy", ["update", "partition"])
async def test_what_was_there_before_the_job_is_told_only_where_the_dag_says_so(
    client: weft.Client, conn: Conn, registry: Registry, strategy: str
) -> None:
    scene = OperatorScene(client, conn, registry)
    config = {**HIGH, "for": 1}
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.add("quotes", "a", quotes("A", 101, 99, 102))
        await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"], strategy=strategy)
        await scene.settled()
        await scene.add("quotes", "a", quotes("A", 99, 103, first=3))
        await scene.settled()
        found = await scene.rows("alerts")
    assert [row["alert_id"] for row in found] == ['{"symbol":"A"}#1:firing']
    assert found[0]["message"].startswith("A stands at 103")


async def test_what_comes_while_a_job_begins_is_told_though_it_is_looked_at_with_what_was_there(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    running = "select lane from weft.live_unit where live_job_id = $1 and state = 'running'"
    more = "select (said->>'write')::int = 3 from weft.live_unit where lane = 'b'"
    async with weft.Orchestrator(client=client):
        async with weft.Worker(client=client, registry=registry):
            for symbol in "AB":
                await scene.add("quotes", symbol.lower(), quotes(symbol, 101))
        job = await scene.job(
            "high", "alert_evaluate", {**HIGH, "for": 1}, ["quotes"], "alerts", append=["alert_id"],
            strategy="partition",
        )  # fmt: skip
        await until(lambda: conn.fetchval(running, job))
        async with conn.transaction():
            await conn.execute(
                "select 1 from weft.task where id = (select task_id from weft.live_unit where lane = 'a') for update"
            )
            async with weft.Worker(client=client, registry=registry):
                await scene.add("quotes", "b", quotes("B", 102, first=1))
                await until(lambda: conn.fetchval(more))
        async with weft.Worker(client=client, registry=registry):
            await scene.settled()
            found = await scene.rows("alerts")
    assert told(found) == [('{"symbol":"B"}#1:firing', "B stands at 102 (firing, {unknown})")]


async def test_a_condition_over_an_aggregate_and_another_input(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    query = (
        "select symbol, avg(price) as mean, any_value(l.most) as most from changes join limits l using (symbol) "
        "group by symbol"
    )
    config = {"query": query, "condition": "mean > most", "key": ["symbol"]}
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("limits", None, [{"symbol": "A", "most": 10}, {"symbol": "B", "most": 1000}])
        await scene.add("quotes", None, quotes("A", 1))
        await scene.job("mean", "alert_evaluate", config, ["quotes", "limits"], "alerts", append=["alert_id"])
        await scene.settled()
        await scene.add("quotes", None, quotes("A", 5, 30) + quotes("B", 5, 30))
        await scene.settled()
        assert [row["alert_id"] for row in await scene.rows("alerts")] == ['{"symbol":"A"}#1:firing']


async def test_receivers_are_told_with_a_signature_in_order_and_only_by_the_version_in_effect(
    make_client: MakeClient, conn: Conn, registry: Registry
) -> None:
    secret = b"s" * 32
    client = await make_client(callback_allowed="127.0.0.1", callback_secret=secret.decode())
    scene = OperatorScene(client, conn, registry)
    async with receiving(500) as receiver:
        config = {**HIGH, "callback_url": receiver.url}
        config["history"] = True
        job = await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"])
        async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
            await scene.add("quotes", None, quotes("A", 101, 102, 3))
            # The first was refused once.
            got = (await receiver.until(3))[1:]
            assert [(each.json["event"], each.json["alert_id"]) for each in got] == [
                ("alert.firing", '{"symbol":"A"}#1:firing'),
                ("alert.resolved", '{"symbol":"A"}#1:resolved'),
            ]
            assert all(each.is_signed_by(secret) for each in got)
            first = got[0].json
            assert (first["org"], first["dag"], first["job"], first["key"]) == (
                "default",
                "market",
                "high",
                {"symbol": "A"},
            )
            assert first["row"] == {"symbol": "A", "number": 1, "price": 102}
            await scene.settled()
            await in_effect_is_another(client, conn, scene.dag)
            await scene.add("quotes", None, quotes("A", 101, 102, first=10))
            await scene.settled(job)
            assert await conn.fetchval("select count(*) from weft.outbox where kind = 'callback'") == 2
            assert len(await scene.rows("alerts")) == 3


def by_hand(rows: list[dict[str, Any]], streak: int) -> list[tuple[str, int]]:
    """Return the alerts that rows come to in their order: the id of each, and the number of its row."""
    found, seen = list[tuple[str, int]](), dict[str, tuple[int, bool, int]]()
    for row in sorted(rows, key=lambda row: int(row["number"])):
        high, is_firing, count = seen.get(row["symbol"], (0, False, 0))
        high, name = high + 1 if row["price"] > 100 else 0, f'{{"symbol":"{row["symbol"]}"}}'
        if not is_firing and high >= streak:
            is_firing, count = True, count + 1
            found.append((f"{name}#{count}:firing", row["number"]))
        elif is_firing and not high:
            is_firing = False
            found.append((f"{name}#{count}:resolved", row["number"]))
        seen[row["symbol"]] = high, is_firing, count
    return sorted(found)


async def test_a_great_many_rows_come_to_the_same_alerts_and_are_not_kept_all_at_once(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene, chance = OperatorScene(client, conn, registry), random.Random(7)
    rows = [
        {"symbol": f"S{chance.randrange(5)}", "number": number, "price": chance.choice((50, 150, 200))}
        for number in chance.sample(range(1, 60_001), 60_000)
    ]
    config = HIGH | {"message": "{number}", "for": 6, "history": True}
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.add("quotes", None, rows)
        tracemalloc.start()
        try:
            job = await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"])
            await scene.settled(job)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000, "with what is loaded: all at once 33"
        finally:
            tracemalloc.stop()
        found = await scene.rows("alerts")
    assert sorted((row["alert_id"], int(row["message"])) for row in found) == by_hand(rows, 6)
    assert len(found) > 2000, "more than are kept at once"


async def test_more_alerts_than_can_be_told_are_written_all_and_told_by_their_number(
    make_client: MakeClient, conn: Conn, registry: Registry
) -> None:
    client = await make_client(callback_secret="s" * 32)
    scene = OperatorScene(client, conn, registry)
    config = {"condition": "price > 100", "key": ["symbol"], "history": True}
    config["callback_url"] = "https://there.is.no.such.host.invalid/"
    job = await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"], max_attempts=1)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.add("quotes", None, [{"symbol": f"S{number}", "price": 200} for number in range(1500)])
        await scene.settled(job)
        assert await conn.fetchval("select last_error from weft.live_job where id = $1", job) is None
        assert len(await scene.rows("alerts")) == 1500
    told = "select payload ->> 'event' as event, count(*) as n, max(payload ->> 'count') as more from weft.outbox"
    found = await conn.fetch(f"{told} where kind = 'callback' group by 1 order by 1")
    assert [tuple(row) for row in found] == [("alert.firing", 999, None), ("alert.more", 1, "501")]


async def test_alerts_that_are_too_large_to_be_told_all_are_told_by_their_number(
    make_client: MakeClient, conn: Conn, registry: Registry
) -> None:
    client = await make_client(callback_secret="s" * 32, value_limit="80000")
    scene = OperatorScene(client, conn, registry)
    config = {"condition": "price > 100", "key": ["symbol"], "history": True}
    config["callback_url"] = "https://there.is.no.such.host.invalid/"
    job = await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"], max_attempts=1)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        many = [{"symbol": f"S{number}", "price": 200, "text": "x" * 4000} for number in range(15)]
        await scene.add("quotes", None, many)
        await scene.settled(job)
        assert await conn.fetchval("select last_error from weft.live_job where id = $1", job) is None
        assert (
            await conn.fetchval("select sum(rows) from weft.dataset_write w join weft.live_output using (version_id)")
            == 15
        )
    told = "select payload ->> 'event' as event, count(*) as n, max(payload ->> 'count') as more from weft.outbox"
    found = await conn.fetch(f"{told} where kind = 'callback' group by 1 order by 1")
    assert [tuple(row) for row in found] == [("alert.firing", 2, None), ("alert.more", 1, "13")]


async def test_values_that_json_does_not_have_keep_no_alert_from_being_told(
    make_client: MakeClient, conn: Conn, registry: Registry
) -> None:
    client = await make_client(callback_secret="s" * 32)
    scene = OperatorScene(client, conn, registry)
    odd = pa.table({
        "symbol": ["a\0b", "c"], "ratio": [math.nan, math.inf], "ratios": [[-math.inf], [None]], "price": [200, 200],
    })  # fmt: skip

    @registry.task(name="odd")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("quotes").write(odd)

    config = {
        "condition": "price > 100",
        "key": ["symbol", "ratio"],
        "history": True,
        "callback_url": "https://x.invalid",
    }
    job = await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"], max_attempts=1)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.wait((await client.enqueue("odd")).id, timeout=60)
        await scene.settled(job)
        assert await conn.fetchval("select last_error from weft.live_job where id = $1", job) is None
    found = [
        json.loads(row[0])
        for row in await conn.fetch("select payload -> 'row' from weft.outbox where kind = 'callback'")
    ]
    assert sorted(found, key=lambda row: str(row["symbol"])) == [
        {"symbol": "a\ufffdb", "ratio": "NaN", "ratios": ["-Infinity"], "price": 200},
        {"symbol": "c", "ratio": "Infinity", "ratios": [None], "price": 200},
    ]  # fmt: skip


EXACT = {
    "a number of more than 53 bits": pa.array([Decimal(2**60), Decimal(2**60 + 1)], pa.decimal128(38, 0)),
    "a nanosecond": pa.array([1_800_000_000_000_000_001, 1_800_000_000_000_000_002], pa.timestamp("ns")),
    "a day": pa.array([1, 2], pa.date32()),
}


async def test_zero_of_either_sign_is_one_key(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = OperatorScene(client, conn, registry)
    config = {"condition": "true", "key": ["level"], "for": 2, "history": True}
    summed = {"column": "number", "size": 10, "by": ["level"], "aggregates": {"n": "count(*)"}}
    await scene.job("seen", "alert_evaluate", config, ["levels"], "alerts", append=["alert_id"])
    await scene.job("summed", "range_aggregator", summed, ["levels"], "sums")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.add("levels", None, [{"level": level, "number": 1} for level in (-0.0, 0.0, -0.0)])
        await scene.add("levels", None, [{"level": 1.0, "number": 20}])
        await scene.settled()
        assert [row["alert_id"] for row in await scene.rows("alerts")] == ['{"level":0.0}#1:firing']
        assert [row["n"] for row in await scene.rows("sums")] == [3]


@pytest.mark.parametrize("what", EXACT)
async def test_a_row_that_is_hardly_after_the_last_one_counts(
    client: weft.Client, conn: Conn, registry: Registry, what: str
) -> None:
    scene = OperatorScene(client, conn, registry)

    @registry.task(name="exact")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("quotes").write(pa.table({"symbol": ["A", "A"], "number": EXACT[what], "price": [200, 2]}))

    config = {"condition": "price > 100", "key": ["symbol"], "order_by": "number", "history": True}
    await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"])
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.wait((await client.enqueue("exact")).id, timeout=60)
        await scene.settled()
        assert [row["state"] for row in await scene.rows("alerts")] == ["firing", "resolved"]


@pytest.mark.parametrize("value", [math.nan, math.inf, time(1, 2)])
async def test_what_has_no_order_is_told(client: weft.Client, conn: Conn, registry: Registry, value: Any) -> None:
    scene = OperatorScene(client, conn, registry)

    @registry.task(name="odd")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("quotes").write([{"symbol": "A", "number": value, "price": 200}])

    config = {**HIGH, "history": True}
    job = await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"], max_attempts=1)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.wait((await client.enqueue("odd")).id, timeout=60)
        assert "config.order_by: number has a value by which rows have no order" in await scene.error(job)


async def in_effect_is_another(client: weft.Client, conn: Conn, dag: int) -> None:
    """Let a version of a DAG be in effect that has no jobs: those that there are belong to one that is built beside."""
    nodes = {"a": {"type": "start", "next": "b"}, "b": {"type": "end"}}
    pushed = await client.workflows.push({"workflow_id": "market", "nodes": nodes})
    version = await conn.fetchval(
        "insert into weft.dag_version (org_id, dag_id, number, artifact_id, state, actor) "
        "values (1, $1, 1, $2, 'live', 'ann') returning id", dag, pushed.artifact_id,
    )  # fmt: skip
    await conn.execute("update weft.live_dag set version_id = $2 where id = $1", dag, version)


async def test_alerts_have_their_rest(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = OperatorScene(client, conn, registry)
    config = {"condition": "price > 100", "cooldown": "1h", "resolved": False, "history": True}
    await scene.job("high", "alert_evaluate", config, ["quotes"], "alerts", append=["alert_id"])
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.add("quotes", None, quotes("A", 101, 1, 101, 1, 101))
        await scene.settled()
        assert [row["alert_id"] for row in await scene.rows("alerts")] == ["{}#1:firing"]
        key = await conn.fetchval("select state_key from weft.operator_state")
        await conn.execute(
            "update weft.operator_state set state = jsonb_set(state::jsonb, '{\"{}\", \"fired_at\"}', "
            "to_jsonb((weft.now() - interval '61 minutes')::text)) where state_key = $1", key,
        )  # fmt: skip
        await scene.add("quotes", None, quotes("A", 102))
        await scene.settled()
        assert [row["alert_id"] for row in await scene.rows("alerts")] == ["{}#1:firing", "{}#2:firing"]


async def test_a_condition_that_is_wrong_is_told(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = OperatorScene(client, conn, registry)
    wrong = {
        "column": (
            {"condition": "prize > 1"},
            'config.condition: line 2, column 1: Binder Error: Referenced column "prize"',
        ),
        "table": ({"condition": "true", "query": "select * from quots"}, "config.query: there is no table 'quots'"),
        "order": ({"condition": "true", "order_by": "number", "query": "select null as number"}, "rows have no order"),
        "url": (
            {"condition": "true", "callback_url": "ftp://x"},
            "callback_url: must begin with https:// or http:// and name a host",
        ),
    }
    jobs = {
        name: await scene.job(
            name, "alert_evaluate", {**config, "history": True}, ["quotes"], f"out_{name}", append=["alert_id"]
        )
        for name, (config, _) in wrong.items()
    }
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.add("quotes", None, quotes("A", 1))
        for name, job in jobs.items():
            assert wrong[name][1] in await scene.error(job), name
