"""What nobody uses is removed: also by a process that dies amid it, and beside those who go on writing."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

import weft
from crash.harness import VICTIM, Process
from crash.history_acts import DEPTH, UPKEEP, flow, seen_of, settings_for
from crash.moments import Moments
from crash.proxy import proxy_to
from crash.test_history_kill import Performance, for_victims
from history_laws import broken_laws, make_older
from weft.history import collecting

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

DAY = timedelta(days=1)
KINDS = "select kind::text, count(*) from weft.artifact group by 1"


async def kinds(conn: Conn) -> dict[str, int]:
    return {row[0]: row[1] for row in await conn.fetch(KINDS)}


async def start(copies: Process, url: str, home: Path, actor: str) -> Performance:
    order = {"act": "gc", "url": url, "home": str(home), "actor": actor, "name": "", "prepared": None}
    copies.say(json.dumps(order))
    return Performance(copies, int(await copies.hear()))


@pytest.mark.long
async def test_a_collection_killed_between_any_two_statements_takes_nothing_that_is_used_and_can_be_done_again(
    url: str, tmp_path: Path, conn: Conn, campaign: str
) -> None:
    plan, home, moments, rounds = UPKEEP["gc"], tmp_path / "home", Moments(campaign, every=2), 0
    copies = await Process.start("crash.apps.history_act", {}, tmp_path / "crew")
    async with weft.Client(settings=settings_for(url, home, "setter")) as client:
        for number in moments:
            rounds += 1
            name = f"w{rounds}"
            await plan.prepare(client.workflows, name)
            await make_older(conn)
            async with proxy_to(url) as proxy:
                held = proxy.hold("", moments.at(number, with_setting_up=True))
                victim = await start(copies, for_victims(proxy), home, VICTIM)
                is_held = await victim.is_reached(held.fired)
                if is_held:
                    await victim.kill()
            async with weft.Client(settings=settings_for(url, home, "other")) as other:
                for each in range(1, rounds + 1):
                    assert await seen_of(other.workflows, f"w{each}") == plan.seen[0]
                assert [finding.code for finding in await other.workflows.fsck() if "blob" not in finding.code] == []
                await other.workflows.gc(DAY)
                assert await other.workflows.fsck() == []
            assert await broken_laws(conn, DEPTH) == []
            assert await kinds(conn) == {"version": rounds, "patch": 2 * rounds}
            if not is_held:
                moments.over()
    await copies.finish()
    assert moments.statements > 5


async def test_what_is_taken_into_use_while_it_is_being_removed_is_there_afterwards(
    url: str, tmp_path: Path, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots are taken, places gone back to, documents pushed again, while all that is unused goes at once."""
    monkeypatch.setattr(collecting, "SHORTEST_GRACE", timedelta(0))
    home = tmp_path / "home"
    removed = 0

    async def collect(client: weft.Client, until: asyncio.Event) -> None:
        nonlocal removed
        while not until.is_set():
            removed += (await client.workflows.gc(0.001)).snapshots

    async def use(client: weft.Client, name: str) -> None:
        w = client.workflows
        await w.push(flow(name))
        for size in range(2, 12):
            await w.patch(name, set={"nodes.fetch.params.size": size})
            kept = await w.snapshot(name, set={"nodes.fetch.params.size": size + 100})
            assert kept.data["nodes"]["fetch"]["params"]["size"] == size + 100
            await w.undo(name)
            await w.redo(name)
            await w.push(flow(name, size))

    async with (
        weft.Client(settings=settings_for(url, home, "keeper")) as keeper,
        weft.Client(settings=settings_for(url, home, "writer")) as writer,
    ):
        done = asyncio.Event()
        collecting_ = asyncio.create_task(collect(keeper, done))
        await asyncio.gather(*(use(writer, f"w{number}") for number in range(3)))
        done.set()
        await collecting_
        assert removed > 0
        assert [finding for finding in await keeper.workflows.fsck() if "blob" not in finding.code] == []
        assert await broken_laws(conn, DEPTH) == []
