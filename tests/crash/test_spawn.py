"""Workers that are killed while their tasks make others, or wait for them: nothing is made twice, nothing is lost."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

import weft
from crash.harness import Crew, Process
from weft.jobs.items import Task

MODULES = ("crash.apps.spawning",)
TOTAL = sum(number * 10 + each for number in range(5) for each in range(5))


async def _worker(crew: Crew) -> Process:
    return await crew.worker(modules=MODULES, worker_loss_limit=1000, worker_crash_limit=1000)


async def _killed_again_and_again(crew: Crew, chance: random.Random, workers: list[Process]) -> None:
    while True:
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        await workers.pop(0).kill()
        workers.append(await _worker(crew))


@pytest.mark.timeout(600)
async def test_a_later_attempt_finds_what_was_made_before_the_crash(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    count = 100 if campaign == "long" else 4
    await crew.orchestrator(worker_loss_limit=1000)
    workers = [await _worker(crew) for _ in range(2)]
    killing = asyncio.create_task(_killed_again_and_again(crew, random.Random(campaign), workers))
    try:
        jobs = [(await client.jobs.submit_graph("tried", Task("spawn:root", name="root"))).id for _ in range(count)]
        for job_id in jobs[: count // 2]:
            await client.jobs.wait(job_id, timeout=300)
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    for job_id in jobs:
        job = await client.jobs.wait(job_id, timeout=120)
        assert (job.state, job.result) == ("completed", TOTAL)
    made = await conn.fetch(
        "select handler, count(*)::int as n from weft.task_done where parent_id is not null group by 1"
    )
    assert {row["handler"]: row["n"] for row in made} == {"spawn:branch": 5 * count, "spawn:leaf": 25 * count}
    assert await conn.fetchval("select count(*) from weft.attempt") > 0
    assert await conn.fetchval("select count(*) from weft.task where job_id is not null") == 0
