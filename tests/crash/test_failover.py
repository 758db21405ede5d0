"""The primary is killed and its standby promoted: with a synchronous one nothing is lost, with any nothing is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

import weft
from crash.campaign import LIMITS, Nemesis, under_load
from crash.checker import check
from crash.harness import LIVENESS, crew_at, until
from crash.scene import Scene
from crash.standby import cluster_of
from weft.db import migrate


@pytest.mark.long
async def test_nothing_is_lost_when_a_synchronous_standby_is_promoted_under_load(tmp_path: Path, campaign: str) -> None:
    failovers = 1 if campaign == "short" else 10
    async with cluster_of(failovers) as cluster, asyncio.timeout(LIMITS[campaign]):
        await migrate.upgrade(cluster.url)

        async def trouble(nemesis: Nemesis) -> None:
            for _ in range(failovers):
                await cluster.add_standby(is_synchronous=True)
                await asyncio.sleep(nemesis.random.uniform(1.0, 3.0))
                nemesis.note_server_loss(await cluster.fail_over())
            await asyncio.sleep(1.0)

        async with crew_at(cluster.url, tmp_path / "crew") as crew:
            counts = await under_load(crew, 4, trouble, campaign)
    assert counts["acknowledged"] > 0


@pytest.mark.long
async def test_what_an_asynchronous_standby_had_not_heard_of_is_refused_and_work_goes_on(tmp_path: Path) -> None:
    async with cluster_of(1) as cluster:
        await migrate.upgrade(cluster.url)
        await cluster.add_standby(is_synchronous=False)
        scene = Scene(cluster.url, tmp_path / "home")
        async with scene.worker() as worker, weft.Client(settings=scene.settings()) as client:
            known = (await client.enqueue("step")).id
            assert await client.wait(known, timeout=LIVENESS) == 1
            kept = (await client.enqueue("held")).id
            await scene.until_started(kept)
            await cluster.until_standby_knows(kept)
            await cluster.cut_off_standby()
            lost = [(await client.enqueue("held")).id for _ in range(3)]
            await scene.until_started(*lost)
            await cluster.fail_over()
            scene.let_go(kept, *lost)
            assert await client.wait(kept, timeout=LIVENESS) == 1
            assert await client.wait((await client.enqueue("step")).id, timeout=LIVENESS) == 1
            conn = await asyncpg.connect(cluster.url)
            try:
                await until(lambda: _is_fenced(worker, 3), "the outcomes of what is lost are refused")
                assert await conn.fetch("select 1 from weft.tasks where id = any ($1)", lost) == []
                await check(conn)
            finally:
                await conn.close()


async def _is_fenced(worker: weft.Worker, count: int) -> bool:
    return worker.process.fenced == count
