"""What is removed of live DAGs: nothing that anybody may go back to, and after the retention all of the rest."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest
from engine_scene import Clock

import weft
from engine.test_deploys import Scene, market
from live_scene import until
from weft.data.collecting import SQL as COLLECTING
from weft.data.collecting import DatasetCollector
from weft.live import swapping
from weft.live.collecting import DagCollector
from weft.live.router import Router
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
def scene(client: weft.Client, conn: Conn, registry: Registry) -> Scene:
    return Scene(client, conn, registry)


async def _collect(scene: Scene) -> int:
    client, gone = scene.client, 0
    for _ in range(5):
        gone += await DagCollector(client.database, client.settings.dataset_retention).run_once()
        await DatasetCollector(client.database, client.settings, timedelta(0)).run_once()
    return gone


async def _swapped(scene: Scene) -> None:
    async def is_swapped() -> bool:
        await Router(scene.client.database).run_once()
        return bool(await swapping.run_once(scene.client.database))

    await until(is_swapped)


async def _is_stopped(scene: Scene) -> bool:
    await Router(scene.client.database).run_once()
    found = await scene.conn.fetchval("select count(*) from weft.live_job where state = 'draining'")
    return int(found) == 0


async def test_versions_can_be_gone_back_to_within_the_retention_and_go_after_it(
    scene: Scene, clock: Clock, home: Path
) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await scene.client.live.deploy(market(3))
        await scene.client.live.wait("market", 2, timeout=30)
        await scene.settled()
        await until(lambda: _is_stopped(scene))
    await clock.advance(days=29)
    assert await _collect(scene) == 0
    await scene.client.live.rollback("market")
    assert await scene.values("scaled") == [2]
    await scene.client.live.rollback("market", version=2)
    await until(lambda: _is_stopped(scene))
    await clock.advance(days=31)
    # One version, and two jobs that it had alone.
    assert await _collect(scene) == 3
    assert [each.number for each in await scene.client.live.history("market")] == [2]
    assert [each.number for each in await scene.client.datasets.versions("scaled")] == [2]
    assert [each.number for each in await scene.client.datasets.versions("ticks")] == [1]
    assert await scene.values("scaled") == [3]
    assert await scene.conn.fetchval("select count(*) from weft.operator_state") == 2
    with pytest.raises(weft.NotFound):
        await scene.client.live.rollback("market")
    with pytest.raises(weft.NotFound):
        await scene.client.live.rollback("market", version=1)
    # The tag still knows where it has been.
    assert len(await scene.client.workflows.moves("market/live")) == 4
    files = {path.name for path in (home / "data").rglob("*.parquet")}
    assert files == {row["path"] for row in await scene.conn.fetch("select path from weft.dataset_file")}
    # What was collected is built anew, as if it had never been.
    async with scene.running():
        done = await scene.client.live.deploy(market())
        assert {each.name: each.action for each in done.datasets} == {
            "ticks": "reused", "scaled": "rebuilt", "again": "rebuilt",
        }  # fmt: skip
        await scene.client.live.wait("market", done.version, timeout=30)
        await scene.settled()
        assert await scene.values("again") == [20]
    assert (await scene.client.datasets.state("scaled")).version == 3


async def test_a_version_that_is_being_collected_is_not_taken_up_again(scene: Scene, clock: Clock) -> None:
    async with scene.running():
        for factor in (2, 3):
            await scene.client.live.deploy(market(factor))
            await scene.client.live.wait("market", factor - 1, timeout=30)
        await until(lambda: _is_stopped(scene))
    await clock.advance(days=31)
    settings = scene.client.settings
    while await DagCollector(scene.client.database, settings.dataset_retention).run_once():
        pass
    was = {each.name: each.action for each in (await scene.client.live.plan(market())).datasets}
    await scene.conn.execute(COLLECTING.close_versions, settings.dataset_retention, None)
    now = {each.name: each.action for each in (await scene.client.live.plan(market())).datasets}
    assert (was["scaled"], now["scaled"]) == ("reused", "rebuilt")


async def test_what_is_being_built_and_what_was_given_up(scene: Scene, clock: Clock) -> None:
    await scene.client.live.deploy(market())
    await scene.client.live.deploy(market(3))
    await scene.client.live.deploy(market(4))
    await until(lambda: _is_stopped(scene))
    await clock.advance(days=31)
    # What was given up goes, however long the other is being built.
    assert await _collect(scene) == 3
    assert {each.number: each.state for each in await scene.client.live.history("market")} == {
        1: "live", 3: "building",
    }  # fmt: skip
    assert [each.number for each in await scene.client.datasets.versions("scaled")] == [3, 1]
    await _swapped(scene)
    assert (await scene.client.datasets.state("scaled")).version == 3


async def test_a_dag_that_is_drained_keeps_its_datasets(scene: Scene, clock: Clock) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await scene.client.live.drain("market")
        await until(lambda: _is_stopped(scene))
    await clock.advance(days=31)
    assert await _collect(scene) == 4
    assert await scene.values("scaled") == [2]
    assert (await scene.client.live.show("market")).version is None
    async with scene.running():
        done = await scene.client.live.deploy(market())
        assert (done.version, done.at_once) == (2, True)
        assert {each.action for each in done.datasets} == {"reused"}
        await scene.tick(2)
        await scene.settled()
        assert await scene.values("again") == [20, 40]


async def test_a_job_stays_while_another_still_reads_what_it_has_written(scene: Scene, clock: Clock) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await scene.client.live.drain("market")
        await until(lambda: _is_stopped(scene))
    await clock.advance(days=31)
    await scene.conn.execute("update weft.live_job set state = 'draining' where name = 'again'")
    # The version, and no job: each is read by the next.
    assert await _collect(scene) == 1
    await scene.conn.execute("update weft.live_job set state = 'stopped' where name = 'again'")
    assert await _collect(scene) == 3
