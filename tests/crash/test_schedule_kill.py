"""One tick is one job, however many orchestrators there are, whatever their clocks say, and whichever of them dies."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.harness import VICTIM, Crew, Performance, Process, until, until_forgotten
from crash.job_acts import settings_for
from crash.moments import Moments
from crash.proxy import proxy_to
from tick_oracle import ZONES, changes_of, ticks_of
from weft.jobs.library import Libraries
from weft.live.ticker import Ticker

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

FLOW: dict[str, Any] = {
    "workflow_id": "report", "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}},
}  # fmt: skip
NOTHING_OPEN = """
    select not exists (select 1 from weft.schedule where next_at <= weft.now() and paused_at is null)
      and not exists (select 1 from weft.backfill where ended_at is null)"""


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each round of ticks."""
    process = await Process.start("crash.apps.job_act", {}, tmp_path / "crew")
    yield process
    await process.finish()


async def _ticks(conn: Conn, name: str) -> list[str]:
    """Return the ticks of a schedule for which there are jobs, as often as there are."""
    told = "select labels ->> 'tick' as tick from weft.jobs where labels ->> 'schedule' = $1 order by 1"
    return [row["tick"] for row in await conn.fetch(told, name)]


async def _due(conn: Conn, number: int) -> datetime:
    """Let the schedule be due at a tick that it never had."""
    statement = """
        update weft.schedule set anchor = date_trunc('hour', weft.now()) - $1 * interval '1 minute',
          next_at = date_trunc('hour', weft.now()) - $1 * interval '1 minute' returning next_at"""
    tick: datetime = await conn.fetchval(statement, number)
    return tick


async def _filled(client: weft.Client, conn: Conn, number: int) -> datetime:
    """Let there be a backfill of one tick that the schedule never had, and no other."""
    anchor = await conn.fetchval("select anchor from weft.schedule")
    tick: datetime = anchor - timedelta(days=number)
    for before in await client.schedules.backfills("report", limit=1):
        await client.schedules.cancel_backfill(before.id)
    await client.schedules.backfill("report", since=tick, until=tick)
    return tick


HAS_MOVED_ON = {
    "schedule": "select next_at > $1 from weft.schedule",
    "backfill": "select made = 1 and next_at is null from weft.backfill where since = $1",
}


@pytest.mark.parametrize("kind", HAS_MOVED_ON)
async def test_whoever_is_killed_between_any_two_statements_has_begun_a_job_and_moved_on_or_neither(
    url: str, home: Path, conn: Conn, copies: Process, kind: str, campaign: str
) -> None:
    done, ticks, moments = [], [], Moments(campaign)
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.workflows.push(FLOW)
        await client.schedules.add("report", every=86400)
        for number in moments:
            tick = await (_due(conn, number) if kind == "schedule" else _filled(client, conn, number))
            async with proxy_to(url) as proxy:
                held = proxy.hold("", moments.at(number))
                order = {"act": "tick", "url": f"{proxy.url}&application_name={VICTIM}", "home": str(home)}
                copies.say(json.dumps(order))
                victim = Performance(copies, int(await copies.hear()))
                is_killed = await victim.is_reached(held.fired)
                if is_killed:
                    await victim.kill()
            await until_forgotten(conn)
            ticks.append(tick.isoformat())
            done.append(ticks[-1] in await _ticks(conn, "report"))
            assert await conn.fetchval(HAS_MOVED_ON[kind], tick) == done[-1], number
            # Another finds nothing in the way, and begins what has not begun.
            await Ticker(client.database, client.ids, Libraries(client.database, lambda: client.blobs)).run_once()
            assert await conn.fetchval(HAS_MOVED_ON[kind], tick), number
            if not is_killed:
                moments.over()
    assert int(await victim.end) == 0
    # Not begun up to some statement, begun from there on; and each once.
    assert done == sorted(done)
    assert done[-1]
    assert moments.statements > 5
    assert await _ticks(conn, "report") == sorted(ticks)


async def test_three_orchestrators_with_wrong_clocks_make_one_job_of_each_tick_whichever_of_them_dies(
    crew: Crew, client: weft.Client, conn: Conn
) -> None:
    """All that a schedule has missed, and both changes of clocks in a dozen zones; two of the three are killed."""
    await client.workflows.push(FLOW)
    await client.schedules.add("report", name="late", every=60, catch_up="all")
    first = await conn.fetchval("update weft.schedule set next_at = next_at - interval '100 minutes' returning next_at")
    expected = {"late": [(first + timedelta(minutes=n)).isoformat() for n in range(100)]}
    for zone in ZONES:
        await client.schedules.add("report", name=zone, cron="30 0-3 * * *", timezone=zone)
        windows = [(each - timedelta(hours=20), each + timedelta(hours=20)) for each in changes_of(zone, 2024)[:2]]
        for since, until_ in windows:
            await client.schedules.backfill(zone, since=since, until=until_, at_once=1000)
        found = [tick for window in windows for tick in ticks_of("30 0-3 * * *", zone, *window)]
        expected[zone] = [tick.isoformat() for tick in found]
    orchestrators = await asyncio.gather(*(crew.orchestrator(skew=skew) for skew in ("ahead", "behind", "erratic")))
    for number, victim in enumerate(orchestrators[:2], 1):
        have_begun = functools.partial(conn.fetchval, "select count(*) >= $1 from weft.jobs", 40 * number)
        await until(have_begun, "jobs have begun")
        await victim.kill()
    await until(lambda: conn.fetchval(NOTHING_OPEN), "all ticks have their jobs, and those of backfills have ended")
    for name, ticks in expected.items():
        made = await _ticks(conn, name)
        # It may have ticked again meanwhile.
        assert made[: len(ticks)] == ticks, name
        assert len(made) == len(set(made)), name
        assert len(made) == len(ticks) or name == "late"
