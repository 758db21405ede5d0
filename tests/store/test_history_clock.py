"""A clock that is set back: the order in which things were changed is not told by it."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

import weft
from history_laws import broken_laws

FLOW: dict[str, Any] = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"handler": "fetch", "params": {"size": 1}, "next": "load"},
        "load": {"handler": "load", "queue": "db", "next": "END"},
        "END": {"type": "end"},
    },
}


@pytest.fixture
async def set_back(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """A workflow that was pushed, and then the clock was set back by an hour."""
    await client.workflows.push(FLOW, message="first")
    await conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile parallel safe"
        " return clock_timestamp() - interval '1 hour'"
    )


async def size(client: weft.Client, tag: str, size: int) -> weft.Pushed:
    return await client.workflows.patch(tag, set={"nodes.fetch.params.size": size}, message=f"size {size}")


@pytest.mark.usefixtures("set_back")
async def test_no_move_is_earlier_than_the_one_before_it(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await size(client, "etl", 2)
    await client.workflows.undo("etl")
    await client.workflows.redo("etl")
    assert await broken_laws(conn) == []
    last, *_ = await client.workflows.moves("etl")
    shown = await client.workflows.show("etl", at=last.moved_at)
    assert shown.data["nodes"]["fetch"]["params"]["size"] == 2


@pytest.mark.usefixtures("set_back")
async def test_two_lines_parted_at_the_last_version_that_both_have(client: weft.Client) -> None:
    await size(client, "etl", 2)
    await client.workflows.branch("etl/larger", "etl")
    await size(client, "etl/larger", 3)
    await client.workflows.patch("etl", set={"nodes.load.queue": "fast"})
    await client.workflows.merge("etl/larger", into="etl")
    nodes = (await client.workflows.show("etl")).data["nodes"]
    assert (nodes["fetch"]["params"]["size"], nodes["load"]["queue"]) == (3, "fast")


@pytest.mark.usefixtures("set_back")
async def test_a_field_is_blamed_on_the_change_that_touched_it_last(client: weft.Client) -> None:
    await size(client, "etl", 2)
    blamed = await client.workflows.blame("etl")
    assert blamed["nodes", "fetch", "params", "size"].message == "size 2"
    assert blamed["nodes", "load", "queue"].message == "first"


@pytest.mark.usefixtures("set_back")
async def test_the_log_begins_with_what_was_changed_last(client: weft.Client) -> None:
    await size(client, "etl", 2)
    assert [each.message for each in await client.workflows.log("etl")] == ["size 2", "first"]


@pytest.mark.usefixtures("set_back")
async def test_the_history_is_whole_to_who_looks_through_it(client: weft.Client) -> None:
    await size(client, "etl", 2)
    await client.workflows.snapshot("etl")
    assert await client.workflows.fsck() == []
