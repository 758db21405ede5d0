"""Deploys beside others who act at the same moment: no event is lost or comes twice, and one whole version is seen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

import weft
from crash.job_acts import settings_for
from crash.test_deploy_kill import WRONG, _swapped, feed
from weft.data.collecting import DatasetCollector
from weft.live import swapping
from weft.live.collecting import DagCollector
from weft.live.router import Router

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

_EVENTS, _SENDERS = 40, 4


async def test_events_that_are_sent_while_others_go_back_and_forth_come_once_to_each_version(
    url: str, home: Path, conn: Conn
) -> None:
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.live.deploy(feed(0))
        await client.live.deploy(feed(1))
        await _swapped(client, conn)
        is_sending = True

        async def send(sender: int) -> None:
            for number in range(_EVENTS):
                await client.jobs.send_event("told", {"sender": sender, "n": number})

        async def turn() -> int:
            count = 0
            while is_sending:
                count += 1
                await client.live.rollback("feed", version=1 + count % 2)
            return count

        turning = asyncio.create_task(turn())
        await asyncio.gather(*(send(sender) for sender in range(_SENDERS)))
        is_sending = False
        assert await turning > 5
        # Whoever listens again is told of all that came meanwhile.
        for version in (1, 2, 1):
            await client.live.rollback("feed", version=version)
        found = await conn.fetch(
            "select live_job_id, count(*) as units, count(distinct dedupe_key) as events from weft.live_unit group by 1"
        )
        assert [(row["units"], row["events"]) for row in found] == [(_EVENTS * _SENDERS,) * 2] * 2


async def test_all_who_act_at_once_leave_one_whole_version(url: str, home: Path, conn: Conn) -> None:
    """Those who deploy, go back, swap, route and collect at the same time are told, or wait for each other."""
    async with weft.Client(settings=settings_for(url, home, dataset_retention="1ms")) as client:
        await client.live.deploy(feed(0))
        is_over = False
        told: list[str] = []

        async def deploy(first: int) -> None:
            for number in range(12):
                try:
                    await client.live.deploy(feed(first + number))
                except weft.DeployConflict as problem:
                    told.append(problem.code)

        async def go_back() -> None:
            while not is_over:
                try:
                    await client.live.rollback("feed")
                except (weft.NotFound, weft.InvalidInput, weft.StateConflict):
                    await asyncio.sleep(0.01)

        async def look() -> None:
            while not is_over:
                wrong = await conn.fetch(WRONG)
                assert not wrong, [row["what"] for row in wrong]

        async def keep() -> None:
            collectors = (
                DagCollector(client.database, client.settings.dataset_retention),
                DatasetCollector(client.database, client.settings),
            )
            while not is_over:
                await Router(client.database).run_once()
                await swapping.run_once(client.database)
                for collector in collectors:
                    await collector.run_once()

        others = [asyncio.create_task(each()) for each in (go_back, look, keep)]
        await asyncio.gather(*(deploy(first) for first in (100, 200, 300)))
        is_over = True
        await asyncio.gather(*others)
        assert set(told) <= {"deploy_conflict"}
        wrong = await conn.fetch(WRONG)
        assert not wrong
        done = await client.live.deploy(feed(7))
        assert done.changes
        await _swapped(client, conn)
        assert (await client.workflows.show("feed/live")).data == feed(7)
