"""Which tag a name means, and which workflow a tag is of: the same for every verb."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

import weft
from history_laws import broken_laws


def flow(name: str, size: int = 1) -> dict[str, Any]:
    return {
        "workflow_id": name,
        "nodes": {
            "START": {"type": "start", "next": "fetch"},
            "fetch": {"handler": "fetch", "params": {"size": size}, "next": "END"},
            "END": {"type": "end"},
        },
    }


@pytest.mark.parametrize("verb", ["move", "push", "undelete"])
async def test_a_bare_name_means_the_main_line_to_every_verb(client: weft.Client, verb: str) -> None:
    first = await client.workflows.push(flow("etl"))
    await client.workflows.push(flow("etl", 2))
    if verb == "move":
        await client.workflows.move("etl", first.artifact_id)
    elif verb == "push":
        await client.workflows.push(flow("etl", 3), tag="etl")
    else:
        await client.workflows.delete("etl")
        await client.workflows.undelete("etl")
    assert [tag.name for tag in await client.workflows.list()] == ["etl/main"]


async def test_a_workflows_own_name_that_is_new_becomes_its_main_line(client: weft.Client) -> None:
    assert (await client.workflows.push(flow("etl"), tag="etl")).tag == "etl/main"
    assert (await client.workflows.push(flow("etl", 2), tag="etl")).tag_version == 2
    assert [tag.name for tag in await client.workflows.list()] == ["etl/main"]


@pytest.mark.parametrize("verb", ["undo", "redo"])
async def test_a_tag_that_comes_back_from_another_workflow_is_of_its_own_again(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], verb: str
) -> None:
    await client.workflows.push(flow("etl"))
    await client.workflows.push(flow("other"))
    await client.workflows.move("etl/main", "other/main", force=True)
    await client.workflows.undo("etl")
    if verb == "redo":
        await client.workflows.redo("etl")
    assert (await client.workflows.tag("etl")).workflow_id == ("etl" if verb == "undo" else "other")
    assert await broken_laws(conn) == []
    await client.workflows.patch("etl", set={"nodes.fetch.params.size": 2})


async def test_a_tag_of_that_very_name_comes_before_the_main_line(client: weft.Client) -> None:
    await client.workflows.push(flow("etl"), tag="etl/first")
    await client.workflows.branch("etl", "etl/first")
    await client.workflows.branch("etl/main", "etl")
    await client.workflows.patch("etl/main", set={"nodes.fetch.params.size": 2})
    assert (await client.workflows.show("etl")).tag == "etl"
    assert (await client.workflows.tag("etl")).name == "etl"
    await client.workflows.patch("etl", set={"nodes.fetch.params.size": 3})
    assert (await client.workflows.show("etl/main")).data["nodes"]["fetch"]["params"]["size"] == 2


async def test_a_deleted_tag_stands_at_nothing_and_is_neither_undone_nor_deleted_again(client: weft.Client) -> None:
    await client.workflows.push(flow("etl"))
    await client.workflows.push(flow("etl", 2))
    await client.workflows.branch("etl/other", "etl")
    assert (await client.workflows.log("etl"))[0].tags == ("etl/main", "etl/other")
    await client.workflows.delete("etl/other")
    assert (await client.workflows.log("etl"))[0].tags == ("etl/main",)
    await client.workflows.push(flow("etl", 3))
    await client.workflows.undo("etl/main")
    with pytest.raises(weft.StateConflict, match="is live"):
        await client.workflows.undelete("etl/main")
    await client.workflows.delete("etl/main")
    # There is a move to take back, and one to make again: if the tag were there.
    for act in (client.workflows.undo, client.workflows.redo, client.workflows.delete):
        with pytest.raises(weft.NotFound):
            await act("etl/main")
    await client.workflows.undelete("etl/main")
    last, before, *others = await client.workflows.moves("etl/main")
    assert (last.verb, last.from_id, before.verb, before.to_id, len(others)) == ("undelete", None, "delete", None, 4)
    assert last.to_id == before.from_id


async def test_a_push_to_a_name_without_a_slash_makes_a_line_of_the_workflow(client: weft.Client) -> None:
    for tag, made in (("main", "etl/main"), ("etl", "etl/main"), ("next", "etl/next"), ("etl/x/y", "etl/x/y")):
        pushed = await client.workflows.push(flow("etl", 1), tag=tag)
        assert pushed.tag == made
    assert (await client.workflows.push(flow("sales", 1), tag="main")).tag == "sales/main"
    # What is there is meant, whoever made it.
    await client.workflows.branch("release", "etl")
    assert (await client.workflows.push(flow("etl", 2), tag="release")).tag == "release"
    with pytest.raises(weft.TagConflict, match="belongs to workflow"):
        await client.workflows.push(flow("etl", 3), tag="sales")
