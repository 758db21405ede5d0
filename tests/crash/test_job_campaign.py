"""Jobs whose workers, orchestrators and server are ended in every bad way end as if nobody had died."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import weft
from crash.campaign import PATIENT, SEED, watch
from crash.checker import check_outcomes
from crash.harness import Crew, Process, crew_at, until, until_settled
from crash.ledger import note_server_loss
from job_oracle import Scene, draw, misjudged
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded, migrate
from weft.db.database import CONNECTION_ERRORS

MODULES = ("crash.apps.acting",)
TROUBLES = (*CONNECTION_ERRORS, asyncpg.PostgresError, TimeoutError, weft.WeftError)


class Troupe:
    """Workers and orchestrators that are ended badly, as drawn from a seed, and replaced."""

    def __init__(self, crew: Crew, seed: int) -> None:
        self.crew = crew
        self.random = random.Random(seed + SEED)
        self.workers: list[Process] = []
        self.orchestrators: list[Process] = []

    async def gather(self) -> None:
        """Start all."""
        self.workers = [await self._worker() for _ in range(2)]
        self.orchestrators = [await self._orchestrator() for _ in range(2)]

    async def _worker(self) -> Process:
        return await self.crew.worker(modules=MODULES, **PATIENT)

    async def _orchestrator(self) -> Process:
        return await self.crew.orchestrator(**PATIENT)

    async def kill(self) -> None:
        """SIGKILL one, and start another in its place."""
        crowd = self.random.choice((self.workers, self.orchestrators))
        await crowd.pop(self.random.randrange(len(crowd))).kill()
        # One whose first session is ended does not start, and is started again, as any supervisor would.
        while True:
            with contextlib.suppress(AssertionError):
                crowd.append(await (self._worker() if crowd is self.workers else self._orchestrator()))
                return

    async def pause(self, crowd: list[Process]) -> None:
        """Stop one for longer than its lease, whatever it holds, then let it go on."""
        victim = self.random.choice(crowd)
        victim.pause()
        await asyncio.sleep(self.random.uniform(2.5, 4.0))
        if victim.is_alive:
            victim.resume()


async def _submitted(client: weft.Client, scenes: list[Scene]) -> list[int]:
    """Submit a job of each, again and again until it is acknowledged: each once, by its key."""
    ids = []
    for scene in scenes:
        while True:
            try:
                ids.append((await client.jobs.submit(scene.definition, idempotency_key=f"scene {scene.seed}")).id)
                break
            except TROUBLES:
                await asyncio.sleep(0.02)
    return ids


async def _ended(client: weft.Client, job_id: int) -> weft.Job:
    deadline = time.monotonic() + 300
    while True:
        try:
            return await client.jobs.wait(job_id, timeout=60)
        except TROUBLES:
            assert time.monotonic() < deadline, f"job {job_id} does not end"
            await asyncio.sleep(0.05)


async def _under_trouble(
    crew: Crew, seeds: range, trouble: Callable[[Troupe], Awaitable[None]], *, at_least: int = 0
) -> None:
    """Let jobs be executed while there is trouble, again and again; the invariants are watched all the while."""
    scenes, troupe = [draw(seed) for seed in seeds], Troupe(crew, seeds.start)
    await troupe.gather()
    watching = asyncio.create_task(watch(crew.url))
    rounds = 0

    async def troubled() -> None:
        nonlocal rounds
        while True:
            await trouble(troupe)
            rounds += 1

    async def is_enough() -> bool:
        return rounds >= at_least or causing.done()

    async with weft.Client(
        settings=Settings.load(environ={}, database_url=crew.url, home=crew.folder / "home")
    ) as client:
        causing = asyncio.create_task(troubled())
        try:
            ids = await _submitted(client, scenes)
            jobs = [await _ended(client, job_id) for job_id in ids]
            await until(is_enough, "there was trouble enough", 300)
        finally:
            causing.cancel()
            (problem,) = await asyncio.gather(causing, return_exceptions=True)
        assert isinstance(problem, asyncio.CancelledError), problem
        assert not watching.done(), watching.result()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        conn = await asyncpg.connect(crew.url)
        try:
            await _require_all_right(conn, crew, scenes, jobs)
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
    await _under_trouble(crew, range(1000, 3000 if campaign == "long" else 1040), Troupe.kill, at_least=4)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_jobs_survive_owners_and_workers_that_are_paused_past_their_lease_while_sessions_are_ended(
    crew: Crew, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    async def trouble(troupe: Troupe) -> None:
        pause = asyncio.gather(troupe.pause(troupe.orchestrators), troupe.pause(troupe.workers))
        while not pause.done():
            await asyncio.sleep(troupe.random.uniform(0.2, 0.6))
            await conn.execute(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()"
                " and application_name = 'weft' and random() < 0.2"
            )
        await pause

    await _under_trouble(crew, range(5000, 6000 if campaign == "long" else 5030), trouble, at_least=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_jobs_survive_a_server_that_is_ended_at_once(tmp_path: Path, campaign: str) -> None:
    home = make_home("crash")
    settings = Settings(home=home)
    folder = tmp_path / "crew"

    async def trouble(troupe: Troupe) -> None:
        await asyncio.sleep(troupe.random.uniform(0.5, 2.0))
        assert await embedded.stop(settings, mode="immediate")
        note_server_loss(folder, time.monotonic_ns())
        await asyncio.sleep(troupe.random.choice((0.0, 0.0, 3.0)))
        await embedded.ensure_running(settings)

    try:
        server = await embedded.ensure_running(settings)
        await migrate.upgrade(server.url)
        async with crew_at(server.url, folder) as crew:
            await _under_trouble(crew, range(7000, 8000 if campaign == "long" else 7030), trouble, at_least=2)
    finally:
        await embedded.stop(settings, mode="immediate")
        shutil.rmtree(home, ignore_errors=True)


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
    await Troupe(crew, 0).gather()
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
