"""Workers that are killed while their tasks make others, or wait for them: nothing is made twice, nothing is lost."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

import weft
from crash.checker import check
from crash.harness import Crew, Process, until
from weft.jobs.items import Task

MODULES = ("crash.apps.spawning",)
TOTAL = sum(number * 10 + each for number in range(5) for each in range(5))


async def _worker(crew: Crew) -> Process:
    return await crew.worker(modules=MODULES, worker_loss_limit=1000, worker_crash_limit=1000)


async def _all_killed(crew: Crew, workers: list[Process]) -> None:
    """Kill all at once, and start others in their place."""
    for worker in workers:
        await worker.kill()
    workers[:] = [await _worker(crew) for _ in workers]


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_later_attempt_finds_what_was_made_before_the_crash(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    count, kills = (100, 50) if campaign == "long" else (4, 2)
    await crew.orchestrator(worker_loss_limit=1000)
    workers = [await _worker(crew) for _ in range(2)]
    jobs = [(await client.jobs.submit_graph("tried", Task("spawn:root", name="root"))).id for _ in range(count)]
    # Whenever more of them have ended, and the first of all while everybody waits for it.
    ended = "select count(*) from weft.task_done where handler = 'spawn:leaf'"
    for kill in range(kills):
        wanted = 25 * count * kill // kills + 1
        while await conn.fetchval(ended) < wanted:  # noqa: ASYNC110  nobody is told of what others' tasks have made
            await asyncio.sleep(0.005)
        await _all_killed(crew, workers)
    for job_id in jobs:
        job = await client.jobs.wait(job_id, timeout=300)
        assert (job.state, job.result) == ("completed", TOTAL)
    made = await conn.fetch(
        "select handler, count(*)::int as n from weft.task_done where parent_id is not null group by 1"
    )
    assert {row["handler"]: row["n"] for row in made} == {"spawn:branch": 5 * count, "spawn:leaf": 25 * count}
    assert await conn.fetchval("select count(*) from weft.attempt") > 0
    assert await conn.fetchval("select count(*) from weft.task where job_id is not null") == 0


@pytest.mark.timeout(600)
async def test_the_slot_that_tasks_of_a_key_lend_each_other_is_neither_lost_nor_had_twice(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    count, kills = (100, 30) if campaign == "long" else (5, 2)
    await client.limit_queue("default", 1, key="k")
    await crew.orchestrator(worker_loss_limit=1000)
    workers = [await _worker(crew) for _ in range(2)]
    elders = [Task("spawn:elder", {"url": crew.url}, name=f"elder-{n}", concurrency_key="k") for n in range(count)]
    job = await client.jobs.submit_graph("tried", elders)
    # While one rests, and another of the key is at work, or it would go on.
    lent = "select exists (select 1 from weft.key_loan l join weft.task t on t.id = l.task_id and t.state = 'running')"
    for _ in range(kills):
        await until(lambda: conn.fetchval(lent), "one rests")
        await _all_killed(crew, workers)
        await check(conn)
    ended = await client.jobs.wait(job.id, timeout=300)
    assert (ended.state, ended.error) == ("completed", None)
    made = await conn.fetchval("select count(*) from weft.task_done where handler = 'spawn:young'")
    assert made == 2 * count
    assert await conn.fetchval("select held from weft.key_slot where key = 'k'") == 0
