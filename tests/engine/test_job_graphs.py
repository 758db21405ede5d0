"""Random workflows end as a plain program says: the same states, in order, and nothing is left waiting."""

from __future__ import annotations

import asyncio
import random

import asyncpg
from engine_scene import until

import weft
from crash.checker import breaches
from job_oracle import POISONED, Scene, draw, misjudged
from weft.worker.registry import Registry

REGISTRY = Registry()


@REGISTRY.task(name="act")
async def act(ctx: weft.Context, ok: bool, failures: int = 0) -> bool:
    if not ok or ctx.attempt <= failures:
        raise ValueError("as drawn")
    return True


async def _ended(client: weft.Client, scenes: list[Scene]) -> list[weft.Job]:
    async with weft.Worker(client=client, registry=REGISTRY, concurrency=50), weft.Orchestrator(client=client):
        handles = [await client.jobs.submit(scene.definition) for scene in scenes]
        return [await client.jobs.wait(handle.id, timeout=60) for handle in handles]


async def test_jobs_end_as_a_plain_program_says(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    seeds = range(3000 if campaign == "long" else 150)
    scenes = [draw(seed) for seed in seeds]
    for scene, job in zip(scenes, await _ended(client, scenes), strict=True):
        assert await misjudged(conn, scene, job) == []
    assert await conn.fetchval("select count(*) from weft.task") == 0
    assert await conn.fetchval("select count(*) from weft.job") == 0


async def test_jobs_that_are_cancelled_at_any_moment_end_as_cancelled_or_as_a_plain_program_says(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    scenes = [draw(seed) for seed in range(10_000, 13_000 if campaign == "long" else 10_100)]
    chance = random.Random(1)

    async def executed(scene: Scene) -> tuple[weft.Job, bool]:
        handle = await client.jobs.submit(scene.definition)
        if (steps := chance.choice((0, 1, 2, 4, None))) is None:
            await client.jobs.wait(handle.id, timeout=60)
        else:
            await until(lambda: _ended_steps(client, handle.id), lambda ended: ended is None or ended >= steps)
        return await cancelled(handle.id)

    async def cancelled(job_id: int) -> tuple[weft.Job, bool]:
        is_cancelled = True
        try:
            await client.jobs.cancel(job_id)
        except weft.StateConflict:
            is_cancelled = False
        return await client.jobs.wait(job_id, timeout=60), is_cancelled

    unbegun = [(await client.jobs.submit(scene.definition)).id for scene in scenes[:5]]
    for job_id in unbegun:
        await client.jobs.cancel(job_id)
    async with weft.Worker(client=client, registry=REGISTRY, concurrency=50), weft.Orchestrator(client=client):
        found = [(await client.jobs.wait(job_id, timeout=60), True) for job_id in unbegun]
        for start in range(5, len(scenes), 20):
            found += await asyncio.gather(*map(executed, scenes[start : start + 20]))
            assert await breaches(conn) == {}
    for scene, (job, is_cancelled) in zip(scenes, found, strict=True):
        if is_cancelled:
            assert job.state == "cancelled", f"seed {scene.seed}"
            assert await misjudged(conn, scene, job, is_cancelled=True) == []
        else:
            assert await misjudged(conn, scene, job) == []
    assert {is_cancelled for _, is_cancelled in found} == {True, False}
    assert await conn.fetchval("select count(*) from weft.task where node is not null") == 0
    assert await conn.fetchval("select count(*) from weft.job") == 0


async def _ended_steps(client: weft.Client, job_id: int) -> int | None:
    """Return how many nodes of a job have ended; None when the job has."""
    if (await client.jobs.show(job_id)).state.is_final:
        return None
    return sum(node.ended_at is not None for node in await client.jobs.nodes(job_id))


async def test_a_job_that_fails_fast_starts_nothing_after_what_failed(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    scenes = [draw(seed, "fail_fast") for seed in range(150)]
    for scene, job in zip(scenes, await _ended(client, scenes), strict=True):
        assert job.state == ("failed" if scene.fails else "completed"), f"seed {scene.seed}"
        rows = {
            row["node"]: row["state"]
            for row in await conn.fetch(
                "select node, state from weft.task_done where job_id = $1 and node is not null and parent_id is null",
                job.id,
            )
        }
        for name, wanted in scene.expected().items():
            if name != "START" and wanted == POISONED:
                assert rows[name] == "skipped", f"seed {scene.seed}, {name}: {rows[name]}"
    assert await conn.fetchval("select count(*) from weft.task") == 0
    assert await conn.fetchval("select count(*) from weft.job") == 0
