"""Schedules that are changed while they tick: one job for each tick, and none after it was said that there is none."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

import weft
from crash.campaign import SEED
from crash.harness import until
from crash.job_acts import settings_for
from crash.test_schedule_kill import FLOW, _ticks
from weft.jobs.library import Libraries
from weft.live.ticker import Ticker

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_DUE, _TICKERS = 15, 3
# So that all that is missed is due at once.
LATE = """
  update weft.schedule set anchor = anchor - interval '1 day', next_at = next_at - $2 * interval '1 minute'
  where name = $1 returning next_at"""
BEGUN = "select count(*) from weft.jobs where labels ->> 'schedule' = $1 and created_at > $2 and created_at < $3"
OPEN = """select exists (select 1 from weft.schedule where next_at <= weft.now() and paused_at is null)
  or exists (select 1 from weft.backfill where next_at is not null)"""


class Changes:
    """A schedule that is late, and somebody who changes it."""

    def __init__(self, client: weft.Client, conn: Conn, name: str, chance: random.Random) -> None:
        self._client, self._conn, self.name, self._chance = client, conn, name, chance
        self.is_removed = False
        # Between these nothing may begin.
        self._still: list[tuple[datetime, datetime]] = []

    async def begin(self) -> None:
        await self._client.schedules.add("report", name=self.name, every=60, catch_up="all")
        self.first: datetime = await self._conn.fetchval(LATE, self.name, _DUE)

    async def change(self) -> None:
        """Do something to it; what it is to begin stays the same, unless it is removed."""
        act = self._chance.choice(("pause", "replace", "change", "fill", "fill and cancel", "remove"))
        if act == "pause":
            await self._client.schedules.pause(self.name)
            paused = await self._now()
            await asyncio.sleep(0)
            self._still.append((paused, await self._now()))
            await self._client.schedules.resume(self.name)
        elif act == "replace":
            await self._client.schedules.add("report", name=self.name, every=60, catch_up="all", replace=True)
        elif act == "change":
            await self._client.schedules.change(self.name, priority=self._chance.randint(0, 5))
        elif act.startswith("fill"):
            until = self.first + timedelta(minutes=_DUE - 1)
            filling = await self._client.schedules.backfill(self.name, since=self.first, until=until, at_once=100)
            if act == "fill and cancel":
                await self._client.schedules.cancel_backfill(filling.id)
        elif self._chance.random() < 0.3:
            await self._client.schedules.delete(self.name)
            self._still.append((await self._now(), datetime.max.replace(tzinfo=self.first.tzinfo)))
            self.is_removed = True

    async def require_right(self) -> None:
        """Each tick has begun once, and none while nothing might."""
        made = await _ticks(self._conn, self.name)
        assert len(made) == len(set(made)), self.name
        wanted = [(self.first + timedelta(minutes=number)).isoformat() for number in range(_DUE)]
        assert set(made) <= set(wanted) if self.is_removed else set(wanted) <= set(made), self.name
        for since, end in self._still:
            assert await self._conn.fetchval(BEGUN, self.name, since, end) == 0, (self.name, since, end)

    async def _now(self) -> datetime:
        now: datetime = await self._conn.fetchval("select weft.now()")
        return now


@pytest.mark.timeout(600)
async def test_schedules_that_are_changed_while_three_tickers_tick_begin_each_tick_once_and_none_when_it_is_over(
    url: str, home: Path, campaign: str
) -> None:
    chance = random.Random(SEED)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(weft.Client(settings=settings_for(url, home))) for _ in range(_TICKERS + 1)
        ]
        client = clients.pop()
        await client.workflows.push(FLOW)
        conns = [await asyncpg.connect(url) for _ in range(4)]
        all_changes: list[Changes] = []
        is_over = False

        async def tick(each: weft.Client) -> None:
            ticker = Ticker(each.database, each.ids, Libraries(each.database, lambda: each.blobs))
            while not is_over:
                await ticker.run_once()

        async def act(place: int) -> None:
            for number in range(100 if campaign == "long" else 5):
                changes = Changes(client, conns[place], f"s{place}_{number}", chance)
                all_changes.append(changes)
                await changes.begin()
                while not changes.is_removed and chance.random() < 0.8:
                    await changes.change()

        ticking = [asyncio.create_task(tick(each)) for each in clients]
        await asyncio.gather(*(act(place) for place in range(len(conns))))
        await until(lambda: _is_done(conns[0], ticking), "all that is due has begun")
        is_over = True
        await asyncio.gather(*ticking)
        for changes in all_changes:
            await changes.require_right()
        for conn in conns:
            await conn.close()


async def _is_done(conn: Conn, ticking: list[asyncio.Task[None]]) -> bool:
    return any(each.done() for each in ticking) or not await conn.fetchval(OPEN)
