"""Jobs whose workers, orchestrators and server are ended in every bad way end as if nobody had died."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import weft
from crash.campaign import SEED, watch
from crash.checker import check_outcomes
from crash.harness import Crew, until_settled
from crash.troupe import Trouble, Troupe, in_trouble, insisted, mortal_server
from job_oracle import Scene, draw, misjudged

MODULES = ("crash.apps.acting",)


async def _under_trouble(
    crew: Crew, seeds: range, trouble: Trouble, *, at_least: int = 0, at_most: int | None = None
) -> None:
    """Let jobs be executed while there is trouble; each is submitted until that is acknowledged: once, by its key."""
    scenes = [draw(seed) for seed in seeds]
    async with in_trouble(Troupe(crew, seeds.start, MODULES), trouble, at_least=at_least, at_most=at_most) as client:
        jobs = [
            await insisted(client.jobs.submit, scene.definition, idempotency_key=f"scene {scene.seed}")
            for scene in scenes
        ]
        ended = [await insisted(client.jobs.wait, job.id, timeout=60) for job in jobs]
    conn = await asyncpg.connect(crew.url)
    try:
        await _require_all_right(conn, crew, scenes, ended)
    finally:
        await conn.close()


async def _require_all_right(
    conn: asyncpg.Connection[asyncpg.Record], crew: Crew, scenes: list[Scene], jobs: list[weft.Job]
) -> None:
    for scene, job in zip(scenes, jobs, strict=True):
        assert await misjudged(conn, scene, job) == []
    assert await conn.fetchval("select count(*) from weft.job_done") == len(scenes)
    await until_settled(conn)
    await check_outcomes(conn, crew.ledger())


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_jobs_survive_whoever_is_killed(crew: Crew, campaign: str) -> None:
    if campaign == "long":
        await _under_trouble(crew, range(1000, 3000), Troupe.kill, at_least=4)
    else:
        await _under_trouble(crew, range(1000, 1015), Troupe.kill, at_least=2, at_most=10)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_jobs_survive_owners_and_workers_that_are_paused_past_their_lease_while_sessions_are_ended(
    crew: Crew, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    async def trouble(troupe: Troupe) -> None:
        await troupe.pause_and_end_sessions(conn)

    await _under_trouble(crew, range(5000, 6000 if campaign == "long" else 5012), trouble, at_least=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_jobs_survive_a_server_that_is_ended_at_once(tmp_path: Path, campaign: str) -> None:
    async with mortal_server(tmp_path / "crew") as (crew, settings):
        seeds = range(7000, 8000 if campaign == "long" else 7012)
        await _under_trouble(crew, seeds, lambda troupe: troupe.restart(settings), at_least=2)


def _entangled(seed: int) -> dict[str, Any]:
    """Draw a job in which much leads to the same nodes: branches not taken, failures and items come to them at once."""
    chance = random.Random(seed)

    def acting(*following: str) -> dict[str, Any]:
        ok = chance.random() < 0.9
        return {"handler": "act", "params": {"ok": ok}, "retry": {"max_attempts": 1}, "next": list(following)}

    task = {"handler": "act", "params": {"ok": "{{ item }}"}, "retry": {"max_attempts": 1}}
    items = [chance.random() < 0.95 for _ in range(20)]
    branches = [{"condition": f"== {side}", "next": [f"a{n}" for n in range(8) if n % 2 == side]} for side in range(2)]
    nodes: dict[str, Any] = {
        "START": {"type": "start", "next": "choose"},
        "choose": {
            "type": "conditional", "condition_field": chance.randrange(3),
            "branches": [*branches, {"default": True, "next": ["each", "a0", "a1"]}],
        },
        "each": {"type": "fan_out", "items": items, "max_parallel": 4, "task": task, "next": "join"},
        "join": {"type": "fan_in", "next": "END"},
        **{f"a{n}": acting(*(f"b{(n + more) % 8}" for more in range(3))) for n in range(8)},
        **{f"b{n}": acting("join" if n % 2 else "END") for n in range(8)},
        "END": {"type": "end"},
    }  # fmt: skip
    how = chance.choice(("fail_fast", "finish_independent"))
    return {"workflow_id": "entangled", "on_failure": how, "nodes": nodes}


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_hardly_ever_do_those_who_advance_jobs_wait_for_each_other(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    """The server ends one of them when they do, and it tries again: a delay, and a sign of locks in another order."""
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    before, chance, count = await conn.fetchval(deadlocks), random.Random(SEED), 2000 if campaign == "long" else 40
    await Troupe(crew, 0, MODULES).gather()
    watching = asyncio.create_task(watch(crew.url))

    async def executed(seed: int) -> str:
        job_id = (await client.jobs.submit(_entangled(seed) if seed % 2 else draw(seed).definition)).id
        with contextlib.suppress(weft.StateConflict):
            if chance.random() < 0.3:
                await client.jobs.cancel(job_id)
            elif chance.random() < 0.3:
                await client.jobs.pause(job_id)
                await client.jobs.resume(job_id)
        return (await client.jobs.wait(job_id, timeout=300)).state

    ends: set[str] = set()
    for start in range(0, count, 40):
        ends.update(await asyncio.gather(*(executed(seed) for seed in range(start, start + 40))))
    assert not watching.done(), watching.result()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert ends == {"completed", "failed", "cancelled"}
    assert await conn.fetchval(deadlocks) - before <= 1 + count // 100
