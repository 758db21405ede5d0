"""Somebody else moves a tag amid a merge into it: what is merged is merged into what the tag is at by then."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import weft
from crash.harness import until_call_waits
from crash.history_acts import DEPTH, flow, settings_for
from crash.moments import Moments
from crash.proxy import proxy_to
from history_laws import broken_laws


async def first_of(*tasks: asyncio.Task[Any]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def test_a_merge_into_a_tag_that_is_undone_meanwhile_takes_over_the_whole_line(
    url: str, tmp_path: Path, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    """The other line came of what is undone: all that it has is merged, whenever the undo comes."""
    moments = Moments(campaign)
    async with weft.Client(settings=settings_for(url, tmp_path, "other")) as other:
        for number in moments:
            name = f"w{number}"
            main, faster = f"{name}/main", f"{name}/faster"
            await other.workflows.push(flow(name))
            await other.workflows.patch(main, set={"nodes.fetch.params.size": 2})
            await other.workflows.branch(faster, main)
            await other.workflows.patch(faster, set={"nodes.load.queue": "fast"})
            async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, tmp_path, "me")) as client:
                held = proxy.hold("", moments.at(number, with_setting_up=True))
                merge = asyncio.create_task(client.workflows.merge(faster, into=main))
                reached = asyncio.create_task(held.fired.wait())
                await first_of(merge, reached)
                reached.cancel()
                undo = asyncio.create_task(other.workflows.undo(main))
                waits = asyncio.create_task(until_call_waits(conn, "undo_tag"))
                await first_of(undo, waits)
                waits.cancel()
                assert held.gate is not None
                held.gate.set()
                await asyncio.gather(merge, undo)
            last, *_ = await other.workflows.moves(main)
            if last.verb == "merge":
                whole = (await other.workflows.show(faster)).data
                assert (await other.workflows.show(main)).data == whole, f"undone after statement {number}"
            assert await broken_laws(conn, DEPTH) == []
            if not held.seen:
                moments.over()


async def test_a_compaction_of_a_tag_that_is_moved_meanwhile_is_made_of_what_it_is_at_then(
    url: str, tmp_path: Path, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    moments = Moments(campaign)
    async with weft.Client(settings=settings_for(url, tmp_path, "other")) as other:
        for number in moments:
            name = f"w{number}"
            await other.workflows.push(flow(name))
            await other.workflows.patch(name, set={"nodes.fetch.params.size": 2})
            async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, tmp_path, "me")) as client:
                held = proxy.hold("", moments.at(number, with_setting_up=True))
                compaction = asyncio.create_task(client.workflows.compact(name))
                reached = asyncio.create_task(held.fired.wait())
                await first_of(compaction, reached)
                reached.cancel()
                await other.workflows.patch(name, set={"nodes.fetch.params.size": 3})
                assert held.gate is not None
                held.gate.set()
                await compaction
            assert (await other.workflows.show(name)).data["nodes"]["fetch"]["params"]["size"] == 3
            assert await broken_laws(conn, DEPTH) == []
            if not held.seen:
                moments.over()
    assert moments.statements > 2


async def test_a_snapshot_that_is_removed_before_it_is_read_is_taken_anew(
    url: str, tmp_path: Path, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    """It is found, or just taken, and a collection takes it away between any two statements."""
    size = {"nodes.fetch.params.size": 9}
    moments = Moments(campaign)
    async with weft.Client(settings=settings_for(url, tmp_path, "other")) as other:
        await other.workflows.push(flow("w"))
        for number in moments:
            if number % 2:
                await other.workflows.snapshot("w", set=size)
            async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, tmp_path, "me")) as client:
                held = proxy.hold("", moments.at(1 + number // 2, with_setting_up=True))
                taking = asyncio.create_task(client.workflows.snapshot("w", set=size))
                reached = asyncio.create_task(held.fired.wait())
                await first_of(taking, reached)
                reached.cancel()
                await conn.execute("delete from weft.artifact where kind <> 'version'")
                assert held.gate is not None
                held.gate.set()
                assert (await taking).data["nodes"]["fetch"]["params"]["size"] == 9
            await conn.execute("delete from weft.artifact where kind <> 'version'")
            if not held.seen:
                moments.over()
    assert number > 4


async def test_a_tag_that_somebody_moves_while_it_is_to_be_mended_is_left_to_them(
    url: str, tmp_path: Path, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    mine = "select weft.move_tag(1, 'w/main', 'move', target_id, null, null, false, 'eve', 'mine') from weft.tag"
    other = await asyncpg.connect(url)
    async with weft.Client(settings=settings_for(url, tmp_path, "me")) as client:
        await client.workflows.push(flow("w"))
        await client.workflows.patch("w", set={"nodes.fetch.params.size": 2})
        await conn.execute("update weft.tag set target_id = (select min(id) from weft.artifact)")
        async with other.transaction():
            await other.execute(mine)
            mending = asyncio.create_task(client.workflows.fsck(repair=True))
            await until_call_waits(conn, "weft.")
        assert [finding.mended for finding in await mending] == ["somebody else has moved it meanwhile"]
        assert (await client.workflows.moves("w"))[0].message == "mine"
        assert (await client.workflows.tag("w")).version == 3
    await other.close()


async def test_a_merge_of_what_is_removed_meanwhile_says_what_is_not_there(
    url: str, tmp_path: Path, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    """It is a patch that no tag is at, and a collection takes it away between any two statements."""
    refused = 0
    moments = Moments(campaign)
    async with weft.Client(settings=settings_for(url, tmp_path, "other")) as other:
        for number in moments:
            name = f"w{number}"
            await other.workflows.push(flow(name))
            await other.workflows.snapshot(name, set={"nodes.fetch.params.size": 9})
            source = await conn.fetchval("select id from weft.artifact where kind = 'patch' and workflow_id = $1", name)
            await other.workflows.patch(name, set={"nodes.load.queue": "fast"})
            async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, tmp_path, "me")) as client:
                held = proxy.hold("", moments.at(number, with_setting_up=True))
                merge = asyncio.create_task(client.workflows.merge(source, into=name))
                reached = asyncio.create_task(held.fired.wait())
                await first_of(merge, reached)
                reached.cancel()
                removed = "delete from weft.artifact where kind = 'snapshot' or id = $1"
                with suppress(asyncpg.ForeignKeyViolationError):
                    await conn.execute(removed, source)
                assert held.gate is not None
                held.gate.set()
                (done,) = await asyncio.gather(merge, return_exceptions=True)
            if isinstance(done, BaseException):
                refused += 1
                assert str(done).startswith(f"there is no version {source};"), f"after statement {number}: {done!r}"
            assert await broken_laws(conn, DEPTH) == []
            if not held.seen:
                moments.over()
    assert refused > 3


async def test_a_tag_that_is_protected_meanwhile_is_not_taken_by_naming_its_workflow(
    url: str, tmp_path: Path, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    other = await asyncpg.connect(url)
    async with weft.Client(settings=settings_for(url, tmp_path, "me")) as client:
        await client.workflows.push(flow("w"))
        async with other.transaction():
            await other.execute("select weft.protect_tag(1, 'w/main', true)")
            taking = asyncio.create_task(client.workflows.push(flow("x"), tag="w/main", replaces="w"))
            await until_call_waits(conn, "weft.")
        with pytest.raises(weft.TagConflict, match="is protected"):
            await taking
        assert (await client.workflows.tag("w")).workflow_id == "w"
    await other.close()
