"""A tag that was patched very often: what it costs to keep and to read does not grow, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from history_laws import broken_laws

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

DEPTH = 10
TAG = "etl/main"
FLOW: dict[str, Any] = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"handler": "fetch", "params": {"size": 0}, "next": "END"},
        "END": {"type": "end"},
    },
}


async def size_at(client: weft.Client, which: str | int = TAG) -> int:
    return int((await client.workflows.show(which)).data["nodes"]["fetch"]["params"]["size"])


async def patch_often(client: weft.Client, times: int) -> None:
    """Patch so often, each time to the number of the patch."""
    for size in range(1, times + 1):
        await client.workflows.patch(TAG, set={"nodes.fetch.params.size": size})


async def walk(client: weft.Client, verb: str, steps: int) -> None:
    """Undo or redo so many steps, as many at once as may be."""
    while steps:
        now = min(steps, 1000)
        await getattr(client.workflows, verb)(TAG, now)
        steps -= now


@pytest.fixture
def patches(campaign: str) -> int:
    return 10_000 if campaign == "long" else 300


@pytest.mark.timeout(1200)
async def test_a_tag_that_was_patched_often_costs_no_more_to_keep_and_to_read_and_forgets_nothing(
    client: weft.Client, conn: Conn, patches: int
) -> None:
    first = (await client.workflows.push(FLOW)).artifact_id
    await patch_often(client, patches)
    await require_few_chain_rows(conn, patches)
    assert await broken_laws(conn, DEPTH) == []
    # Back over every compaction to the very first version, with looks on the way, and forth again.
    for size in range(patches - 100, -1, -100):
        await walk(client, "undo", 100)
        assert await size_at(client) == size
    assert (await client.workflows.tag(TAG)).target_id == first
    with pytest.raises(weft.StateConflict):
        await client.workflows.undo(TAG)
    await walk(client, "redo", patches)
    assert await size_at(client) == patches
    with pytest.raises(weft.StateConflict):
        await client.workflows.redo(TAG)
    assert await broken_laws(conn, DEPTH) == []


async def require_few_chain_rows(conn: Conn, patches: int) -> None:
    """Chains of 1, 2 … 10 patches follow each other: 55 rows for ten patches, and fewer for what is left over."""
    made, rows = await conn.fetchrow(
        "select (select count(*) from weft.artifact where kind = 'patch'), count(*) from weft.patch_chain_member"
    ) or (0, 0)
    assert made == patches
    assert rows <= patches * (DEPTH + 1) / 2


async def test_a_document_is_made_of_a_version_and_at_most_ten_patches(
    client: weft.Client, settings: weft.Settings, conn: Conn
) -> None:
    """All other blobs are taken away, and somebody who has never seen it can still read it."""
    await client.workflows.push(FLOW)
    for size in range(1, 2 * DEPTH + 3):
        await client.workflows.patch(TAG, set={"nodes.fetch.params.size": size})
        needed = await blobs_of(conn, (await client.workflows.tag(TAG)).target_id)
        assert len(needed) <= DEPTH + 1
        async with without_other_blobs(conn, needed), weft.Client(settings=settings) as reader:
            assert await size_at(reader) == size


async def blobs_of(conn: Conn, head: int) -> list[str]:
    """Return the digests of the version and the patches that a document is made of."""
    rows = await conn.fetch(
        """select a.digest from weft.artifact h
           join weft.artifact a on a.id = coalesce(h.base_id, h.id)
             or a.id in (select m.member_id from weft.patch_chain_member m where m.head_id = h.id)
           where h.id = $1""",
        head,
    )
    return [row[0] for row in rows]


@asynccontextmanager
async def without_other_blobs(conn: Conn, kept: list[str]) -> AsyncIterator[None]:
    """Set all blobs aside but some, for a while."""
    await conn.execute("set session_replication_role = replica")
    await conn.execute("create temp table aside as select * from weft.blob")
    await conn.execute("delete from weft.blob where digest <> all ($1)", kept)
    yield
    await conn.execute("insert into weft.blob select * from aside on conflict do nothing")
    await conn.execute("drop table aside")
    await conn.execute("reset session_replication_role")
