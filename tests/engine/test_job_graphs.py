"""Random workflows end as a plain program says: the same states, in order, and nothing is left waiting."""

from __future__ import annotations

import asyncpg
from job_oracle import COMPLETED, FAILED, MISSED, POISONED, Scene, draw

import weft
from weft.worker.registry import Registry

REGISTRY = Registry()


@REGISTRY.task(name="act")
async def act(ok: bool) -> bool:
    if not ok:
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
        rows = await conn.fetch(
            "select node, parent_id, state, reason from weft.task_done where job_id = $1 and node is not null", job.id
        )
        found = {row["node"]: row for row in rows if row["parent_id"] is None}
        for name, wanted in scene.expected().items():
            if name == "START":
                continue
            state, reason = found[name]["state"], found[name]["reason"]
            children = [row["state"] for row in rows if row["node"] == name and row["parent_id"] is not None]
            told = f"seed {scene.seed}, {name}: {state} {reason}, should be {wanted}"
            if scene.nodes[name].kind == "fan_out" and wanted in (COMPLETED, FAILED):
                assert state == COMPLETED, told
                assert sorted(children) == sorted(COMPLETED if ok else FAILED for ok in scene.nodes[name].outcome), told
            elif wanted in (MISSED, POISONED):
                assert (state, reason) == ("skipped", wanted), told
            else:
                assert state == wanted, told
        assert job.state == ("failed" if scene.fails else "completed"), f"seed {scene.seed}"
    assert await conn.fetchval("select count(*) from weft.task") == 0
    assert await conn.fetchval("select count(*) from weft.job") == 0


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
