"""The laws of the history, each held against rows that break it: a law that nothing can break proves nothing."""

from __future__ import annotations

import asyncpg
import pytest
from history_scene import FLOW

import weft
from history_laws import LAWS, broken_laws

# The moves are: 1 push, 2 patch, 3 patch, 4 undo, 5 redo.
BREAKAGES = {
    "the moves of a tag are numbered without a gap": "update weft.tag_move set version = 9 where version = 5",
    "each move begins where the one before it ended": "update weft.tag_move set from_id = null where version = 3",
    "no move is earlier than the one before it": "update weft.tag_move set moved_at = 'epoch' where version = 3",
    "a tag is where its last move left it": "update weft.tag set position = 2",
    "what is in effect means what the move set that undo would take back": """
        update weft.tag_move set position = 1 where version = 3""",
    "an undo and a redo go to the very version that a move had set": """
        update weft.tag_move set to_id = (select min(id) from weft.artifact) where version = 4""",
    "a change was made on what the tag was at": """
        update weft.artifact set parent_id = (select min(id) from weft.artifact) where depth = 2""",
    "a tag leads to a version or a patch of its workflow": "update weft.tag set workflow_id = 'other'",
    "a patch is on a version, or on a patch of the same version": """
        update weft.artifact set base_id = parent_id where depth = 2""",
    "the rows of a chain are the patches from its version on, in their order": """
        update weft.artifact set chain = array[id, id] where depth = 2""",
    "no chain at which a tag was is longer than the setting": """
        update weft.artifact set chain = array_fill(id, array[11]) where depth = 2""",
    "no chain is longer than the setting by more than the patch of one job": """
        update weft.artifact set chain = array_fill(id, array[12]) where depth = 2""",
}


@pytest.fixture(autouse=True)
async def lived(client: weft.Client) -> None:
    """A tag that was pushed, patched twice, undone and redone."""
    await client.workflows.push(FLOW)
    for size in (2, 3):
        await client.workflows.patch("etl", set={"nodes.fetch.params.size": size})
    await client.workflows.undo("etl")
    await client.workflows.redo("etl")


@pytest.mark.parametrize("law", LAWS)
async def test_rows_that_break_a_law_are_found(conn: asyncpg.Connection[asyncpg.Record], law: str) -> None:
    assert await broken_laws(conn) == []
    await conn.execute("set session_replication_role = replica")
    assert await conn.execute(BREAKAGES[law]) != "UPDATE 0"
    assert law in {name for name, _ in await broken_laws(conn)}
