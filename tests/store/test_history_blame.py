"""Blame tells of each field the change that last touched it, through merges, compactions and whole versions."""

from __future__ import annotations

import copy
from typing import Any

import weft

FLOW: dict[str, Any] = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"handler": "fetch", "params": {"size": 1, "tags": ["a"], "none": {}}, "next": "load"},
        "load": {"handler": "load", "queue": "db", "next": "END"},
        "END": {"type": "end"},
    },
}
SIZE, TAGS, QUEUE = (
    ("nodes", "fetch", "params", "size"),
    ("nodes", "fetch", "params", "tags"),
    ("nodes", "load", "queue"),
)
NONE = ("nodes", "fetch", "params", "none")


async def blamed(client: weft.Client) -> dict[tuple[str | int, ...], str | None]:
    return {path: change.message for path, change in (await client.workflows.blame("etl")).items()}


async def test_each_field_and_nothing_else_is_told_of(client: weft.Client) -> None:
    await client.workflows.push(FLOW, message="first")
    await client.workflows.patch("etl", set={"nodes.fetch.params.none.inner": 1}, message="inner")
    await client.workflows.patch("etl", [{"op": "remove", "path": "/nodes/fetch/params/tags"}], message="no tags")
    found = await blamed(client)
    assert TAGS not in found
    assert NONE not in found
    assert found[*NONE, "inner"] == "inner"
    assert {message for path, message in found.items() if path != (*NONE, "inner")} == {"first"}


async def test_what_was_set_and_set_back_is_of_the_last_change(client: weft.Client) -> None:
    await client.workflows.push(FLOW, message="first")
    await client.workflows.patch("etl", set={"nodes.load.queue": "fast"}, message="fast")
    await client.workflows.patch("etl", set={"nodes.load.queue": "db"}, message="back")
    assert (await blamed(client))[QUEUE] == "back"


async def test_a_merge_is_not_blamed_for_what_either_line_has_changed(client: weft.Client) -> None:
    await client.workflows.push(FLOW, message="first")
    await client.workflows.branch("etl/next", "etl")
    await client.workflows.patch("etl/next", set={"nodes.fetch.params.size": 2}, message="theirs")
    await client.workflows.patch("etl/next", set={"nodes.fetch.params.tags": ["b"]}, message="both, there")
    await client.workflows.patch("etl", set={"nodes.load.queue": "fast"}, message="ours")
    await client.workflows.patch("etl", set={"nodes.fetch.params.tags": ["b"]}, message="both, here")
    await client.workflows.merge("etl/next", into="etl", message="merge")
    found = await blamed(client)
    assert (found[SIZE], found[QUEUE], found[TAGS]) == ("theirs", "ours", "both, here")
    assert "merge" not in found.values()


async def test_a_compaction_and_a_version_are_blamed_only_for_what_they_change(client: weft.Client) -> None:
    await client.workflows.push(FLOW, message="first")
    await client.workflows.patch("etl", set={"nodes.fetch.params.size": 2}, message="size")
    await client.workflows.compact("etl")
    whole = copy.deepcopy((await client.workflows.show("etl")).data)
    whole["nodes"]["load"]["queue"] = "fast"
    await client.workflows.push(whole, message="whole")
    found = await blamed(client)
    assert (found[SIZE], found[QUEUE], found[TAGS]) == ("size", "whole", "first")


async def test_what_a_merge_decided_is_not_asked_again(client: weft.Client) -> None:
    flows = client.workflows
    await flows.push(FLOW, message="first")
    await flows.branch("etl/next", "etl")
    await flows.patch("etl/next", set={"nodes.load.queue": "slow"})
    await flows.patch("etl", set={"nodes.load.queue": "fast"})
    noted = await flows.merge("etl/next", into="etl", prefer="ours")
    assert (noted.created, (await flows.show("etl")).data["nodes"]["load"]["queue"]) == (True, "fast")
    assert not (await flows.merge("etl/next", into="etl")).created
    # And two lines that merge each other come to rest.
    assert (await flows.merge("etl", into="etl/next")).created
    for source, into in (("etl/next", "etl"), ("etl", "etl/next")):
        assert not (await flows.merge(source, into=into)).created
    await flows.patch("etl/next", set={"nodes.fetch.params.size": 9})
    await flows.merge("etl/next", into="etl")
    nodes = (await flows.show("etl")).data["nodes"]
    assert (nodes["load"]["queue"], nodes["fetch"]["params"]["size"]) == ("fast", 9)
    assert await flows.fsck() == []
