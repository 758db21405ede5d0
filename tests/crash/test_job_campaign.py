"""Jobs whose workers and orchestrators are killed again and again end as if nobody had died."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

import weft
from crash.harness import Crew, Process
from job_oracle import draw, misjudged

MODULES = ("crash.apps.acting",)


async def _replaced(crew: Crew, chance: random.Random, workers: list[Process], orchestrators: list[Process]) -> None:
    """Kill one process at a time, and start another in its place."""
    while True:
        crowd = chance.choice((workers, orchestrators))
        victim = crowd.pop(chance.randrange(len(crowd)))
        await victim.kill()
        crowd.append(await (_worker(crew) if crowd is workers else _orchestrator(crew)))


async def _worker(crew: Crew) -> Process:
    return await crew.worker(modules=MODULES, worker_loss_limit=1000)


async def _orchestrator(crew: Crew) -> Process:
    return await crew.orchestrator(worker_loss_limit=1000)


@pytest.mark.timeout(600)
async def test_jobs_survive_whoever_is_killed(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    chance = random.Random(campaign)
    scenes = [draw(seed) for seed in range(1000, 3000 if campaign == "long" else 1040)]
    workers = [await _worker(crew) for _ in range(2)]
    orchestrators = [await _orchestrator(crew) for _ in range(2)]
    killing = asyncio.create_task(_replaced(crew, chance, workers, orchestrators))
    try:
        handles = [await client.jobs.submit(scene.definition) for scene in scenes]
        for handle in handles:
            await client.jobs.wait(handle.id, timeout=300)
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    for scene, handle in zip(scenes, handles, strict=True):
        assert await misjudged(conn, scene, await client.jobs.show(handle.id)) == []
    assert await conn.fetchval("select count(*) from weft.job") == 0
    assert await conn.fetchval("select count(*) from weft.task where node is not null") == 0
