"""Partitions that several want at once: whoever gives up takes nothing from the others, and none is forgotten."""

from __future__ import annotations

from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from engine.test_deploys import Scene, market
from live_scene import make_dag, make_job, make_output, until
from weft.live import backfilling
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
def scene(client: weft.Client, conn: Conn, registry: Registry) -> Scene:
    return Scene(client, conn, registry)


async def _waiting(scene: Scene, count: int = 1) -> None:
    """Return when so many units of the job wait, one of whose lane runs."""
    await until(lambda: scene.conn.fetchval("select count(*) = $1 from weft.live_unit where state = 'waiting'", count))


async def _stopped(scene: Scene) -> None:
    """Let a unit of the partition run that does not end before the gate is opened."""
    await scene.client.live.deploy(market())
    await scene.tick(1)
    await scene.settled()
    scene.gate.clear()
    assert await scene.client.live.rematerialize("market", "scaled", partitions=["mon"]) == 1
    await until(lambda: scene.conn.fetchval("select count(*) from weft.live_unit where state = 'running'"))


async def test_what_was_written_is_computed_though_a_backfill_that_waited_for_it_is_cancelled(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await _stopped(scene)
        made = await live.backfill("market", "scaled")
        await _waiting(scene)
        await scene.tick(2)
        routed = "select said ->> 'write' = '2' from weft.live_unit where state = 'waiting'"
        await until(lambda: scene.conn.fetchval(routed))
        await live.cancel_backfill(made.id)
        scene.gate.set()
        await scene.settled()
        assert await scene.values("scaled") == [2, 4]


@pytest.mark.parametrize("by", ["name", "backfill"])
async def test_who_asks_for_a_partition_too_gets_it_though_a_backfill_is_cancelled(scene: Scene, by: str) -> None:
    live = scene.client.live
    async with scene.running():
        await _stopped(scene)
        made = await live.backfill("market", "scaled")
        await _waiting(scene)
        if by == "name":
            assert await live.rematerialize("market", "scaled", partitions=["mon"]) == 0
        else:
            await live.backfill("market", "scaled", first="mon")
        before = len(await scene.client.datasets.writes("scaled"))
        await live.cancel_backfill(made.id)
        scene.gate.set()
        await scene.settled()
    assert len(await scene.client.datasets.writes("scaled")) == before + 2


@pytest.mark.parametrize("others", ["before", "after"])
async def test_a_backfill_ends_when_what_waited_already_is_done(scene: Scene, others: str) -> None:
    live = scene.client.live
    async with scene.running():
        await _stopped(scene)
        if others == "before":
            assert await live.rematerialize("market", "scaled", partitions=["mon"]) == 1
        made = await live.backfill("market", "scaled", first="mon")
        if others == "after":
            # Now it is there for others as well.
            assert await live.rematerialize("market", "scaled", partitions=["mon"]) == 0
        await _waiting(scene)
        for _ in range(3):
            assert await backfilling.run_once(scene.client.database) == 0
        (shown,) = await live.backfills("market")
        assert (shown.made, shown.ended_at) == (1, None)
        assert shown.running > 0
        scene.gate.set()
        await until(lambda: _has_ended(scene, made.id))
        await scene.settled()
    (shown,) = await live.backfills("market")
    assert (shown.running, shown.held) == (0, 0)


async def _has_ended(scene: Scene, id: int) -> bool:
    await backfilling.run_once(scene.client.database)
    (shown,) = await scene.client.live.backfills("market")
    if shown.ended_at is None:
        return False
    assert shown.id == id
    left = """select count(*) from weft.live_unit u join weft.live_job j on j.id = u.live_job_id
              where j.name = 'scaled' and u.state <> 'done'"""
    assert await scene.conn.fetchval(left) == 0
    return True


@pytest.mark.parametrize("pages", [1, 100])
async def test_partitions_of_an_input_are_computed_of_the_version_that_readers_see_now(
    client: weft.Client, conn: Conn, pages: int
) -> None:
    writers, registry = Registry(), Registry()

    @writers.task(name="put", retry=0)
    async def put(rows: list[dict[str, Any]], ctx: weft.Context) -> None:
        await ctx.dataset("ticks").write(rows, breaking=True, partition_by="day")

    @operator("copy", registry=registry)
    async def copy(live: LiveContext) -> None:
        await live.write(await live.changes(), partition=live.unit.lane)

    async def become(**days: int) -> None:
        rows = [{"day": day, "id": id} for day, id in days.items()]
        async with weft.Worker(client=client, registry=writers):
            await client.wait((await client.enqueue(put, {"rows": rows})).id, timeout=30)

    await become(a=1, b=2)
    output = await make_output(conn, "copied", "market", "copy")
    dag = await make_dag(conn)
    ticks = await conn.fetchval("select id from weft.dataset where name = 'ticks'")
    job = await make_job(conn, dag, "copy", "copy", inputs=[(ticks, None)], outputs=[output], strategy="partition")
    # One has begun, and one waits.
    await conn.fetch("select weft.turn_live_job($1, 100, false)", job)
    assert await conn.fetch("select lane, state from weft.live_unit order by lane") == [
        ("a", "running"),
        ("b", "ready"),
    ]
    await become(b=20, c=30)
    for _ in range(pages):
        await conn.fetch("select weft.turn_live_job($1, $2, false)", job, 100 // pages)
    await become(c=300, d=400)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await until(lambda: conn.fetchval("select count(*) = 0 from weft.live_unit"))
        await until(lambda: conn.fetchval("select routed_write is not null and left_ids = '{}' from weft.live_input"))
    found = {part.key: part.rows for part in await client.datasets.partitions("copied")}
    assert found == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert sorted(row["id"] for row in await client.datasets.sample("copied")) == [300, 400]
