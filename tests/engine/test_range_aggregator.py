"""The operator `range_aggregator`: what is written of a range is what the input has, whatever came how and when."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from depth import daily
from far import with_and_without_a_database
from live_scene import until
from operator_scene import OperatorScene
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CANDLES = {
    "column": "number", "size": 10, "by": ["symbol"],
    "aggregates": {
        "open": "first(price)", "close": "last(price)", "high": "max(price)", "n": "count(*)",
        "total": "sum(price)::bigint", "mean": "avg(price)",
    },
}  # fmt: skip


def ticks(*numbers: int, symbol: str = "X") -> list[dict[str, Any]]:
    return [{"number": n, "symbol": symbol, "price": n * 7 % 13} for n in numbers]


def candles_of(rows: list[dict[str, Any]], highest: int, size: int = 10, lateness: int = 0) -> list[dict[str, Any]]:
    """What the output must have: ranges that are complete, by a model in plain Python."""
    found = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["number"]):
        found[row["number"] // size, row["symbol"]].append(row["price"])
    return [
        {
            "range_start": range_ * size, "range_end": (range_ + 1) * size, "symbol": symbol, "open": prices[0],
            "close": prices[-1], "high": max(prices), "n": len(prices), "total": sum(prices),
            "mean": sum(prices) / len(prices),
        }
        for (range_, symbol), prices in sorted(found.items())
        if (range_ + 1) * size + lateness <= highest
    ]  # fmt: skip


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["range_start"], row["symbol"]))


@with_and_without_a_database
async def test_a_range_is_written_when_it_is_complete_and_amended_when_more_comes(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    await scene.job("candles", "range_aggregator", CANDLES, ["ticks"], "candles")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        given = ticks(1, 5, 9)
        await scene.add("ticks", None, given)
        await scene.settled()
        assert (
            await conn.fetchval("select count(*) from weft.dataset_write w join weft.live_output o using (version_id)")
            == 0
        )
        given += ticks(12, 20) + ticks(3, 7, symbol="Y")
        await scene.add("ticks", None, given[3:])
        await scene.settled()
        assert ordered(await scene.rows("candles")) == candles_of(given, 20)
        given += ticks(8)
        await scene.add("ticks", None, ticks(8))
        await scene.settled()
        assert ordered(await scene.rows("candles")) == candles_of(given, 20)
        await scene.put("ticks", None, ticks(15, 31))
        await scene.settled()
        assert ordered(await scene.rows("candles")) == candles_of(ticks(15, 31), 31)
        keys = await conn.fetch(
            "select p.partition_key from weft.dataset_partition p join weft.live_output o using (version_id) order by 1"
        )
    assert [row["partition_key"] for row in keys] == ["0", "10"]


@pytest.mark.parametrize("strategy", ["update", "partition"])
@pytest.mark.parametrize("seed", daily(range(3), 3))
async def test_whatever_is_written_in_whatever_order_the_ranges_are_those_of_the_input(
    client: weft.Client, conn: Conn, registry: Registry, strategy: str, seed: int
) -> None:
    chosen = random.Random(seed)
    scene = OperatorScene(client, conn, registry)
    config = {**CANDLES, "lateness": 5}
    standing: dict[str, list[dict[str, Any]]] = defaultdict(list)
    states: dict[int, dict[str, list[dict[str, Any]]]] = {}
    next_number = 0
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for partition in "abcd":
            standing[partition] = ticks(*range(next_number, next_number := next_number + 8), symbol=partition)
            await scene.put("ticks", partition, standing[partition])
        await scene.job(
            "candles", "range_aggregator", config, ["ticks"], "candles", strategy=strategy, max_concurrency=4
        )
        for _ in range(25):
            partition = chosen.choice("abcd")
            how = chosen.choice(["add", "add", "late", "put", "spread", "empty", "back"])
            count = chosen.randrange(1, 12)
            write = (await client.datasets.show("ticks")).write
            assert write is not None
            states[write] = {key: list(rows) for key, rows in standing.items()}
            if how == "back":
                write = chosen.choice(sorted(states))
                await client.datasets.rollback(f"ticks@1.{write}")
                standing = defaultdict(list, {key: list(rows) for key, rows in states[write].items()})
                continue
            if how == "late":
                rows = ticks(*(chosen.randrange(next_number) for _ in range(count)), symbol=partition)
            else:
                rows = ticks(*range(next_number, next_number := next_number + count), symbol=partition)
            if how == "spread":
                rows = [row | {"symbol": chosen.choice("abcd")} for row in rows]
                await scene.spread("ticks", "symbol", rows)
                for row in rows:
                    standing[row["symbol"]].append(row)
            elif how in ("put", "empty"):
                kept = [] if how == "empty" else chosen.sample(standing[partition], len(standing[partition]) // 2)
                standing[partition] = [*kept, *rows]
                await scene.put("ticks", partition, standing[partition])
            else:
                standing[partition] += rows
                await scene.add("ticks", partition, rows)
        await scene.settled()
        found = await scene.rows("candles")
        assert await conn.fetchval("select count(*) from weft.live_unit") == 0
    everything = [row for rows in standing.values() for row in rows]
    # Of what was taken back some may have gone before anybody saw it.
    seen = "select (state->>'highest')::int from weft.operator_state where state_key = 'ranges'"
    highest = await conn.fetchval(seen)
    assert max(row["number"] for row in everything) <= highest < next_number
    # Of rows with one number either may be the first.
    expected = candles_of(everything, highest, lateness=5)
    ends = ("open", "close")
    assert [{k: v for k, v in row.items() if k not in ends} for row in ordered(found)] == [
        {k: v for k, v in row.items() if k not in ends} for row in expected
    ]


@with_and_without_a_database
@pytest.mark.parametrize("taken_back", [[], [31]])
async def test_rows_that_only_another_partition_has_seen_go_when_they_are_taken_back(
    client: weft.Client, conn: Conn, registry: Registry, taken_back: list[int]
) -> None:
    """No unit of their own partition has seen them: it is for all three writes, and begins when they are gone."""
    scene = OperatorScene(client, conn, registry)
    await scene.job("candles", "range_aggregator", CANDLES, ["ticks"], "candles", strategy="partition")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for partition, number in (("b", 41), ("a", 42)):
            await scene.put("ticks", partition, ticks(number, symbol=partition))
        await scene.settled()
        await client.live.pause("market")
        await scene.add("ticks", "a", ticks(3, 15, symbol="a"))
        await scene.add("ticks", "b", ticks(4, 61, symbol="b"))
        await scene.put("ticks", "a", ticks(*taken_back, symbol="a"))
        await client.live.resume("market")
        await scene.settled()
        assert ordered(await scene.rows("candles")) == candles_of(
            ticks(4, 41, 61, symbol="b") + ticks(*taken_back, symbol="a"), 61
        )


async def test_rows_that_their_own_partition_had_taken_back_before_another_read_them_are_in_no_range(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    """Whoever reads no further than its own unit would find rows that are gone, and that nobody is to look for."""
    scene = OperatorScene(client, conn, registry)
    job = await scene.job(
        "candles", "range_aggregator", CANDLES, ["ticks"], "candles", strategy="partition", max_concurrency=2
    )

    async def units(*lanes: str) -> bool:
        rows = await conn.fetch("select lane from weft.live_unit where live_job_id = $1 and task_id is not null", job)
        return {row["lane"] for row in rows} == set(lanes)

    async with weft.Orchestrator(client=client):
        async with weft.Worker(client=client, registry=registry):
            await scene.put("ticks", "a", ticks(3, symbol="a"))
            await scene.put("ticks", "b", ticks(41, symbol="b"))
            await scene.settled()
            await scene.put("ticks", "a", [])
            await scene.settled()
            await client.live.pause("market")
            await scene.add("ticks", "a", ticks(15, symbol="a"))
            await scene.add("ticks", "b", ticks(16, symbol="b"))
            await scene.put("ticks", "a", [])
        await client.live.resume("market")
        await until(lambda: units("a", "b"))
        async with conn.transaction():
            await conn.execute(
                "select 1 from weft.task where id = (select task_id from weft.live_unit where lane = 'b') for update"
            )
            async with weft.Worker(client=client, registry=registry):
                await until(lambda: units("b"))
        async with weft.Worker(client=client, registry=registry):
            await scene.settled()
            assert ordered(await scene.rows("candles")) == candles_of(ticks(16, 41, symbol="b"), 41)


async def test_a_unit_of_a_version_that_is_read_no_more_takes_nothing_from_those_of_the_other(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    job = await scene.job(
        "candles", "range_aggregator", CANDLES, ["ticks"], "candles", strategy="partition", max_concurrency=2
    )
    running = "select lane from weft.live_unit where live_job_id = $1 and task_id is not null and state = 'running'"
    later = ticks(5, 16, 41, symbol="a") + ticks(7, symbol="c")

    async def has_run(partition: str) -> bool:
        state = "select (state->>'version')::int from weft.operator_state where state_key = 'in:' || $1::text"
        return bool(await conn.fetchval(state, partition) == 2)

    async with weft.Orchestrator(client=client):
        await client.live.pause("market")
        async with weft.Worker(client=client, registry=registry):
            await scene.put("ticks", "c", ticks(3, symbol="c"))
        await client.live.resume("market")
        await until(lambda: conn.fetchval(running, job))
        async with conn.transaction():
            await conn.execute(
                "select 1 from weft.task where id = (select task_id from weft.live_unit where lane = 'c') for update"
            )
            async with weft.Worker(client=client, registry=registry):
                await scene.begin("ticks", "symbol", later)
                await until(lambda: has_run("a"))
        async with weft.Worker(client=client, registry=registry):
            await scene.settled()
            assert ordered(await scene.rows("candles")) == candles_of(later, 41)


@with_and_without_a_database
@pytest.mark.parametrize("strategy", ["update", "partition"])
async def test_rows_go_with_which_an_earlier_state_of_the_input_takes_back(
    client: weft.Client, conn: Conn, registry: Registry, strategy: str
) -> None:
    scene = OperatorScene(client, conn, registry)
    await scene.job("candles", "range_aggregator", CANDLES, ["ticks"], "candles", strategy=strategy)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for numbers in ((3, 41), (4, 15), (16, 5)):
            await scene.add("ticks", "a", ticks(*numbers))
            await scene.settled()
        await client.datasets.rollback("ticks@1.1")
        await scene.add("ticks", "a", ticks(25))
        await scene.settled()
        assert ordered(await scene.rows("candles")) == candles_of(ticks(3, 25, 41), 41)
        # One of those that went comes back, another goes.
        await client.datasets.rollback("ticks@1.2")
        await scene.settled()
        assert ordered(await scene.rows("candles")) == candles_of(ticks(3, 4, 15, 41), 41)


async def test_rows_go_that_stood_there_when_the_job_began_and_had_no_unit_of_their_own(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    """The job has no room for a unit of their partition until that is gone, with all that came into it."""
    scene = OperatorScene(client, conn, registry)
    running = "select lane from weft.live_unit where live_job_id = $1 and state = 'running'"
    async with weft.Orchestrator(client=client):
        async with weft.Worker(client=client, registry=registry):
            await scene.spread("ticks", "symbol", ticks(5, 15, symbol="a") + ticks(3, symbol="b"))
        job = await scene.job("candles", "range_aggregator", CANDLES, ["ticks"], "candles", max_backlog=1)
        await until(lambda: conn.fetchval(running, job))
        async with conn.transaction():
            await conn.execute(
                "select 1 from weft.task where id = (select task_id from weft.live_unit where lane = 'a') for update"
            )
            async with weft.Worker(client=client, registry=registry):
                await scene.add("ticks", "b", ticks(41, symbol="b"))
                await scene.put("ticks", "a", ticks(15, symbol="a"))
                await scene.put("ticks", None, ticks(61))
        async with weft.Worker(client=client, registry=registry):
            await scene.settled()
            assert await scene.rows("candles") == candles_of(ticks(61), 61) == []


async def test_rows_of_another_partition_that_belong_to_no_range_fail_its_own_units_alone(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    job = await scene.job("candles", "range_aggregator", CANDLES, ["ticks"], "candles", strategy="partition")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("ticks", "b", ticks(4, 41, symbol="b"))
        await scene.settled()
        await scene.add("ticks", "b", [{"number": None, "symbol": "b", "price": 1}])
        assert "number has nulls" in await scene.error(job)
        await scene.add("ticks", "a", ticks(3, symbol="a"))
        await scene.settled()
        assert [unit.lane for unit in await client.live.units("market", "candles")] == ["b"]
        assert ordered(await scene.rows("candles")) == candles_of(ticks(4, 41, symbol="b") + ticks(3, symbol="a"), 41)
        await scene.put("ticks", "b", ticks(41, symbol="b"))
        await scene.settled()
        assert ordered(await scene.rows("candles")) == candles_of(ticks(41, symbol="b") + ticks(3, symbol="a"), 41)


@pytest.mark.parametrize("strategy", ["update", "partition"])
async def test_a_job_goes_on_that_has_noted_of_its_partitions_no_writes(
    client: weft.Client, conn: Conn, registry: Registry, strategy: str
) -> None:
    """As it was kept at first: of each partition the ranges alone, of ranges a list of partitions."""
    scene = OperatorScene(client, conn, registry)
    await scene.job("candles", "range_aggregator", CANDLES, ["ticks"], "candles", strategy=strategy)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for partition in "ab":
            await scene.put("ticks", partition, ticks(3, 15, 41, symbol=partition))
        await scene.settled()
        await conn.execute(
            "update weft.operator_state set state = json_build_object('ranges', state->'ranges') "
            "where state_key like 'in:%'"
        )
        await conn.execute(
            "update weft.operator_state set state = (state::jsonb || jsonb_build_object("
            "  'partitions', array(select json_object_keys(state->'partitions') order by 1)))::json "
            "where state_key like 'at:%'"
        )
        await scene.add("ticks", "a", ticks(4, symbol="a"))
        await scene.put("ticks", "b", ticks(5, symbol="b"))
        await scene.settled()
        left = ticks(3, 4, 15, 41, symbol="a") + ticks(5, symbol="b")
        assert ordered(await scene.rows("candles")) == candles_of(left, 41)


@with_and_without_a_database
async def test_what_stands_there_when_a_job_begins_is_not_late_in_whichever_partition(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        standing = ticks(1, 5, 41, symbol="a") + ticks(2, 17, symbol="b")
        await scene.spread("ticks", "symbol", standing)
        await scene.job(
            "candles", "range_aggregator", {**CANDLES, "late": "drop"}, ["ticks"], "candles", strategy="partition"
        )
        await scene.settled()
        assert ordered(await scene.rows("candles")) == candles_of(standing, 41)
        await scene.add("ticks", "b", ticks(3, 25, symbol="b"))
        await scene.settled()
        found = ordered(await scene.rows("candles"))
    assert found == candles_of(standing + ticks(25, symbol="b"), 41)


async def test_what_comes_late_is_left_out_or_refused_as_the_dag_says(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    dropping = await scene.job(
        "dropped", "range_aggregator", {**CANDLES, "late": "drop"}, ["ticks"], "dropped",
        append=["range_start", "symbol"],
    )  # fmt: skip
    failing = await scene.job("failing", "range_aggregator", {**CANDLES, "late": "fail"}, ["ticks"], "failing")
    amending = await scene.job("amending", "range_aggregator", CANDLES, ["ticks"], "amending", append=["range_start"])
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.add("ticks", None, ticks(1, 5, 20))
        # What stands there when a job begins is no more late than what it stands beside.
        for job in (dropping, failing):
            await scene.settled(job)
        await scene.add("ticks", None, ticks(7, 30))
        assert "1 ranges that are closed, the first at 0" in await scene.error(failing)
        assert "say update_strategy: replace" in await scene.error(amending)
        await scene.settled(dropping)
        found = ordered(await scene.rows("dropped"))
    assert found == candles_of(ticks(1, 5, 20), 30)


async def test_ranges_of_times_are_of_seconds(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = OperatorScene(client, conn, registry)
    began = datetime(1969, 12, 31, 23, 58, 30, tzinfo=UTC)

    @registry.task(name="clock")
    async def clock(ctx: weft.Context) -> None:
        rows = [{"at": began + timedelta(seconds=7 * n + 0.5), "n": n} for n in range(40)]
        await ctx.dataset("clock").write(rows)

    config = {"column": "at", "size": "1m", "aggregates": {"first": "first(n)", "n": "count(*)"}}
    await scene.job("minutes", "range_aggregator", config, ["clock"], "minutes")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.wait((await client.enqueue("clock")).id, timeout=60)
        await scene.settled()
        found = await scene.rows("minutes")
    counted: dict[int, list[int]] = defaultdict(list)
    for n in range(40):
        counted[int((began + timedelta(seconds=7 * n + 0.5)).timestamp() // 60) * 60].append(n)
    expected = [(start, ns[0], len(ns)) for start, ns in sorted(counted.items())][:-1]
    assert sorted((row["range_start"], row["first"], row["n"]) for row in found) == expected


async def test_bad_columns_are_told(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = OperatorScene(client, conn, registry)
    wrong = {
        "missing": ({**CANDLES, "column": "nmber"}, "there is no column 'nmber'; there are number, symbol, price"),
        "words": ({**CANDLES, "column": "symbol"}, "symbol is string: ranges are of numbers or times"),
        "sum": ({**CANDLES, "aggregates": {"x": "sum(prize)"}}, 'Referenced column "prize" not found'),
        "zero": ({**CANDLES, "size": 0}, "config.size: Input should be greater than or equal to 1"),
    }
    jobs = {
        name: await scene.job(name, "range_aggregator", config, ["ticks"], f"out_{name}")
        for name, (config, _) in wrong.items()
    }
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("ticks", None, ticks(1, 50))
        for name, job in jobs.items():
            assert wrong[name][1] in await scene.error(job), name
