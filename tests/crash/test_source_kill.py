"""What comes to a source comes once, however many orchestrators there are, whatever their clocks say, whoever dies."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

import weft
from crash.harness import VICTIM, Crew, Performance, Process, until, until_forgotten
from crash.job_acts import settings_for
from crash.moments import Moments
from crash.proxy import proxy_to
from live_scene import make_dag, make_job
from tick_oracle import ZONES, changes_of, ticks_of
from weft.live.source_ticks import SourceTicker

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each round."""
    process = await Process.start("crash.apps.live_act", {}, tmp_path / "crew")
    yield process
    await process.finish()


async def _ticks(conn: Conn, job_id: int) -> list[str]:
    """Return the ticks of a source for which there are units, as often as there are, in their order."""
    told = "select said ->> 'at' as at from weft.live_unit where live_job_id = $1 and kind = 'tick' order by id"
    return [row["at"] for row in await conn.fetch(told, job_id)]


async def test_whoever_is_killed_between_any_two_statements_has_made_a_unit_and_moved_on_or_neither(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    done, ticks, moments = [], [], Moments(campaign)
    start = await conn.fetchval("select date_trunc('hour', weft.now())")
    source = {"kind": "interval", "every": timedelta(days=365), "anchor": start, "next_at": start, "catch_up": "all"}
    job = await make_job(conn, await make_dag(conn), "clock", "clock", source={**source, "timezone": "UTC"})
    async with weft.Client(settings=settings_for(url, home)) as client:
        for number in moments:
            tick = start - timedelta(minutes=number)
            await conn.execute("update weft.live_source set next_at = $1, anchor = $1", tick)
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
            done.append(ticks[-1] in await _ticks(conn, job))
            assert await conn.fetchval("select next_at > $1 from weft.live_source", tick) == done[-1], number
            # Another finds nothing in the way, and takes what has not been taken.
            await SourceTicker(client.database).run_once()
            assert await conn.fetchval("select next_at > $1 from weft.live_source", tick), number
            if not is_killed:
                moments.over()
    assert int(await victim.end) == 0
    # Not taken up to some statement, taken from there on; and each once.
    assert done == sorted(done)
    assert done[-1]
    assert not done[0]
    assert sorted(await _ticks(conn, job)) == sorted(ticks)


async def test_three_orchestrators_with_wrong_clocks_make_one_unit_of_each_tick_whichever_of_them_dies(
    crew: Crew, conn: Conn
) -> None:
    """Both changes of clocks in a dozen zones, and what an interval has missed; two of the three are killed."""
    expected: dict[int, list[str]] = {}
    dag, now = await make_dag(conn), await conn.fetchval("select weft.now()")
    first = now - timedelta(minutes=299, seconds=30)
    late = {"kind": "interval", "every": timedelta(minutes=1), "anchor": first, "next_at": first, "timezone": "UTC"}
    job = await make_job(conn, dag, "late", "x:y", source={**late, "catch_up": "all"}, max_backlog=1000)
    expected[job] = [(first + timedelta(minutes=n)).isoformat() for n in range(300)]
    for zone in ZONES:
        for number, change in enumerate(changes_of(zone, 2024)[:2]):
            since, end = change - timedelta(hours=40), change + timedelta(hours=40)
            found = ticks_of("30 0-3 * * *", zone, since, end)
            source = {"kind": "cron", "cron": "30 0-3 * * *", "timezone": zone, "anchor": since, "next_at": found[0]}
            job = await make_job(
                conn, dag, f"{zone} {number}", "x:y", source={**source, "catch_up": "all"}, max_backlog=len(found)
            )
            expected[job] = [tick.isoformat() for tick in found]
    total = sum(len(ticks) for ticks in expected.values())
    made = functools.partial(conn.fetchval, "select count(*) >= $1 from weft.live_unit")
    orchestrators = await asyncio.gather(*(crew.orchestrator(skew=skew) for skew in ("ahead", "behind", "erratic")))
    for number, victim in enumerate(orchestrators[:2], 1):
        await until(functools.partial(made, total * number // 3), "ticks have become units")
        await victim.kill()
    await until(functools.partial(made, total), "all ticks have their units")
    for job, ticks in expected.items():
        # What goes on may have ticked again meanwhile.
        assert (await _ticks(conn, job))[: len(ticks)] == ticks
        assert await conn.fetchval(
            "select count(*) = count(distinct dedupe_key) from weft.live_unit where live_job_id = $1", job
        )
