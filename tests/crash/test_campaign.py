"""Campaigns: workers under load are ended in every bad way, and nothing acknowledged is lost or accepted twice."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import asyncpg
import pytest

from crash.campaign import LIMITS, Nemesis, under_load
from crash.harness import Crew, crew_at
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded, migrate


@pytest.mark.long
async def test_nothing_is_lost_when_workers_are_killed_under_load(crew: Crew, campaign: str) -> None:
    kills = 4 if campaign == "short" else 220

    async def trouble(nemesis: Nemesis) -> None:
        for _ in range(kills):
            await asyncio.sleep(nemesis.random.uniform(0.3, 1.0))
            await nemesis.kill()

    async with asyncio.timeout(LIMITS[campaign]):
        counts = await under_load(crew, 1, trouble, campaign)
    assert counts["kills"] == kills
    assert counts["rescued"] > 0


@pytest.mark.long
async def test_nothing_is_lost_when_workers_are_paused_past_their_lease_while_sessions_are_ended_and_others_killed(
    crew: Crew, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    rounds = 1 if campaign == "short" else 60

    async def trouble(nemesis: Nemesis) -> None:
        for _ in range(rounds):
            pause = asyncio.create_task(nemesis.pause())
            while not pause.done():
                await asyncio.sleep(nemesis.random.uniform(0.1, 0.4))
                await nemesis.terminate_backends(conn)
                if nemesis.random.random() < 0.1:
                    await nemesis.kill()
            await pause

    async with asyncio.timeout(LIMITS[campaign]):
        counts = await under_load(crew, 2, trouble, campaign)
    assert counts["pauses"] == rounds
    assert counts["terminated"] > rounds


@pytest.mark.long
async def test_nothing_is_lost_when_postgres_is_killed_under_load(tmp_path: Path, campaign: str) -> None:
    restarts = 2 if campaign == "short" else 40
    home = make_home("crash")
    settings = Settings(home=home)

    async def trouble(nemesis: Nemesis) -> None:
        for _ in range(restarts):
            await asyncio.sleep(nemesis.random.uniform(0.5, 3.0))
            await nemesis.restart(settings)

    try:
        server = await embedded.ensure_running(settings)
        await migrate.upgrade(server.url)
        async with asyncio.timeout(LIMITS[campaign]), crew_at(server.url, tmp_path / "crew") as crew:
            counts = await under_load(crew, 3, trouble, campaign)
        assert counts["restarts"] == restarts
    finally:
        await embedded.stop(settings, mode="immediate")
        shutil.rmtree(home, ignore_errors=True)
