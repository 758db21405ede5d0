"""Whoever waits for what another writer holds is told in time that nothing was written, and nothing is later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg
import pytest
from history_scene import FLOW

import weft
from history_laws import broken_laws, everything
from weft.history import changes

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

SIZE = {"nodes.fetch.params.size": 9}
PATIENT = "select oid::regprocedure::text from pg_proc where 'lock_timeout=3s' = any (proconfig)"
VERBS: dict[str, Callable[[weft.Workflows], Awaitable[object]]] = {
    "push": lambda w: w.push({**FLOW, "description": "another"}),
    "patch": lambda w: w.patch("etl", set=SIZE),
    "move": lambda w: w.move("etl", "etl/other"),
    "undo": lambda w: w.undo("etl"),
    "redo": lambda w: w.redo("etl"),
    "compact": lambda w: w.compact("etl"),
    "delete": lambda w: w.delete("etl"),
    "undelete": lambda w: w.undelete("etl"),
    "protect": lambda w: w.protect("etl"),
}


@pytest.fixture
async def holder(url: str) -> AsyncIterator[Conn]:
    """A writer that has begun and does not go on."""
    conn = await asyncpg.connect(url)
    yield conn
    await conn.close()


@pytest.fixture
async def _impatient(conn: Conn) -> AsyncIterator[None]:
    """The functions that wait, with less patience, so that the test need not have so much."""
    functions = [row[0] for row in await conn.fetch(PATIENT)]
    for function in functions:
        await conn.execute(f"alter function {function} set lock_timeout = '100ms'")
    yield
    for function in functions:
        await conn.execute(f"alter function {function} set lock_timeout = '3s'")


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("verb", VERBS)
async def test_who_waits_for_a_tag_is_told_and_nothing_is_written(
    client: weft.Client, conn: Conn, holder: Conn, verb: str
) -> None:
    flows = client.workflows
    await flows.push(FLOW)
    await flows.patch("etl", set={"nodes.fetch.params.size": 2})
    await flows.branch("etl/other", "etl")
    await flows.patch("etl", set={"nodes.fetch.params.size": 3})
    if verb == "redo":
        await flows.undo("etl")
    if verb == "undelete":
        await flows.delete("etl")
    before = await everything(conn)
    async with holder.transaction():
        await holder.execute("select 1 from weft.tag where name = 'etl/main' for update")
        with pytest.raises(weft.TagConflict, match=r"held by another writer.*nothing was written"):
            await VERBS[verb](flows)
    assert await everything(conn) == before
    await VERBS[verb](flows)
    assert await broken_laws(conn) == []


@pytest.mark.usefixtures("_impatient")
async def test_who_waits_for_another_that_makes_the_same_tag_is_told(client: weft.Client, holder: Conn) -> None:
    made = await client.workflows.push(FLOW)
    async with holder.transaction():
        await holder.execute(
            "select weft.move_tag(1, 'etl/new', 'move', $1, null, null, false, 'ann', null)", made.artifact_id
        )
        with pytest.raises(weft.TagConflict, match="held by another writer"):
            await client.workflows.branch("etl/new", "etl")


async def test_who_waits_for_a_turn_is_told_and_nothing_is_written(
    client: weft.Client, conn: Conn, holder: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.workflows.push(FLOW)
    monkeypatch.setattr(changes, "_TRIES_OUT_OF_TURN", 0)
    monkeypatch.setattr(client.database, "command_timeout", 0.2)
    before = await everything(conn)
    async with holder.transaction():
        await holder.execute("select pg_advisory_xact_lock(hashtextextended('etl/main', 1))")
        with pytest.raises(weft.TagConflict, match=r"held by another writer.*nothing was written"):
            await client.workflows.patch("etl", set=SIZE)
    assert await everything(conn) == before
    await client.workflows.patch("etl", set=SIZE)


async def test_every_function_that_locks_gives_up_before_its_client_does(conn: Conn) -> None:
    """Ten seconds is the least for which a client waits for an answer."""
    locking = await conn.fetch(
        """select proname, proconfig from pg_proc
        where pronamespace = 'weft'::regnamespace and (
          prosrc ~ 'weft\\.(lock_tag|put_blob|put_artifact)\\(' or proname = 'lock_tag')"""
    )
    assert len(locking) > 8
    for row in locking:
        assert "lock_timeout=3s" in (row["proconfig"] or ()), f"{row['proname']} waits for ever"


async def test_what_is_asked_for_while_everything_is_held_is_told_without_waiting(
    client: weft.Client, holder: Conn
) -> None:
    """What gc would remove is looked for without a lock."""
    await client.workflows.push(FLOW)
    await client.workflows.snapshot("etl", set=SIZE)
    async with holder.transaction():
        await holder.execute("lock table weft.artifact, weft.tag, weft.tag_move, weft.blob in exclusive mode")
        async with asyncio.timeout(60):
            assert (await client.workflows.gc(dry_run=True)).snapshots == 0


async def test_everything_that_refers_to_an_artifact_is_found_by_an_index(conn: Conn) -> None:
    """Each removal asks all of them whether they refer to it."""
    bare = await conn.fetch(
        """select c.conrelid::regclass::text, c.conname from pg_constraint c
        where c.confrelid = 'weft.artifact'::regclass and c.contype = 'f' and not exists (
          select 1 from pg_index i where i.indrelid = c.conrelid and i.indkey[0] = c.conkey[1])"""
    )
    assert [tuple(row) for row in bare] == []
