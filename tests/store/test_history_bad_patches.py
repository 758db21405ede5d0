"""Patches that must not be: each is refused with an error that names the operation, and leaves every row as it was."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

import weft
from history_laws import everything

Op = dict[str, Any]
PARAMS = "/nodes/fetch/params"
FLOW: dict[str, Any] = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"handler": "fetch", "params": {"size": 1, "list": [1, 2]}, "next": "load"},
        "load": {"handler": "load", "next": "END"},
        "END": {"type": "end"},
    },
}


def add(path: str, value: Any) -> Op:
    return {"op": "add", "path": path, "value": value}


def nested(levels: int) -> Any:
    """Mappings in mappings."""
    value: Any = 1
    for _ in range(levels):
        value = {"x": value}
    return value


def dug(levels: int) -> list[Op]:
    """Operations of which none is deep, and each goes one level deeper."""
    return [add(PARAMS + "/x" * depth, {}) for depth in range(1, levels + 1)]


NOT_APPLICABLE: dict[str, tuple[list[Op], str]] = {
    "a move into its own child": (
        [{"op": "move", "from": "/nodes/fetch", "path": f"{PARAMS}/me"}], r"ops\[0\]: cannot move /nodes/fetch",
    ),
    "a move of everything into a part of it": (
        [{"op": "move", "from": "", "path": "/nodes/me"}], r"ops\[0\]: cannot move",
    ),
    "a copy of what is not there": (
        [{"op": "copy", "from": "/nodes/nothing", "path": "/nodes/x"}], r"ops\[0\]: cannot copy /nodes/nothing",
    ),
    "copies of copies": (
        [{"op": "copy", "from": PARAMS, "path": f"{PARAMS}/copy{n}"} for n in range(40)],
        r"ops\[\d+\]: copies with those before it more than [\d,]+ bytes",
    ),
    "nothing of the document": ([{"op": "remove", "path": ""}], r"ops\[0\]: cannot remove"),
    "a field of what is not there": ([add("/nodes/nothing/queue", "x")], r"ops\[0\]: cannot add /nodes/nothing/queue"),
    "a replacement of what is not there": (
        [{"op": "replace", "path": "/nodes/load/queue", "value": "x"}], r"ops\[0\]: cannot replace /nodes/load/queue",
    ),
    "a field of a text": ([add("/nodes/fetch/handler/x", 1)], r"ops\[0\]: cannot add /nodes/fetch/handler/x"),
    "a field of a number": ([add(f"{PARAMS}/size/x", 1)], rf"ops\[0\]: cannot add {PARAMS}/size/x"),
    "a place beyond the end of a list": ([add(f"{PARAMS}/list/7", 1)], rf"ops\[0\]: cannot add {PARAMS}/list/7"),
    "a place before the start of a list": (
        [{"op": "remove", "path": f"{PARAMS}/list/-1"}], rf"ops\[0\]: cannot remove {PARAMS}/list/-1",
    ),
    "what comes after the end of a list": (
        [{"op": "remove", "path": f"{PARAMS}/list/-"}], rf"ops\[0\]: cannot remove {PARAMS}/list/-",
    ),
    "a pointer with an escape that there is not": ([add(f"{PARAMS}/~2", 1)], r"ops\[0\]: cannot add .*~2"),
    "a test that fails after others were applied": (
        [add(f"{PARAMS}/a", 1), add(f"{PARAMS}/b", 2), {"op": "test", "path": f"{PARAMS}/a", "value": 2}],
        rf"ops\[2\]: the test of {PARAMS}/a fails: it is 1",
    ),
    "a test for true where there is 1": (
        [{"op": "test", "path": f"{PARAMS}/size", "value": True}], rf"ops\[0\]: the test of {PARAMS}/size fails",
    ),
    "a test of what is not there": (
        [{"op": "test", "path": f"{PARAMS}/none", "value": None}], r"ops\[0\]: the test of .* it is not there",
    ),
}  # fmt: skip

NO_PATCH: dict[str, tuple[Any, str]] = {
    "an operation that there is not": ([{"op": "ad", "path": PARAMS}], r"ops\[0\]\.op: .*Did you mean 'add'\?"),
    "no mapping": ([add(PARAMS, {}), "add"], r"ops\[1\]: must be a mapping"),
    "a path that is no pointer": ([add("nodes/x", 1)], r"ops\[0\]\.path: must be a JSON Pointer"),
    "a path that is no text": ([{"op": "remove", "path": 5}], r"ops\[0\]\.path: must be a JSON Pointer"),
    "no value": ([{"op": "add", "path": PARAMS}], r"ops\[0\]\.value: is missing"),
    "no origin": ([{"op": "move", "path": PARAMS}], r"ops\[0\]\.from: must be a JSON Pointer"),
    "too many operations": ([add(PARAMS, {})] * 10_001, r"ops: has 10,001 operations, and may have 10,000"),
    "ten megabytes of operations": (
        [add(f"{PARAMS}/x{n}", "x" * 1000) for n in range(10_000)], r"ops: has 10,\d+,\d+ bytes, and may have",
    ),
    "half a character": ([add(f"{PARAMS}/x", "\ud800")], r"ops\[0\]\.value: has a lone surrogate"),
    "half a character as a name": ([add(f"{PARAMS}/\udfff", 1)], r"ops\[0\]\.path: has a lone surrogate"),
    "bytes": ([add(f"{PARAMS}/x", b"\xff\xfe")], r"ops\[0\]\.value: is of type bytes"),
    "a number of more than 64 bits": ([add(f"{PARAMS}/x", 2**70)], r"ops\[0\]\.value: is an integer beyond 64 bits"),
    "a key that is no text": ([add(f"{PARAMS}/x", {1: 2})], r"ops\[0\]\.value: has the key 1, and keys must be text"),
    "deep nesting in one operation": ([add(f"{PARAMS}/x", nested(5000))], "ops: is nested deeper than 200 levels"),
    "deep nesting one level at a time": (dug(300), "ops: make a document that is nested too deep"),
}  # fmt: skip

NOT_SOUND: dict[str, tuple[list[Op], str]] = {
    "no end": ([{"op": "remove", "path": "/nodes/END"}], "there is no end"),
    "a second start": ([add("/nodes/S", {"type": "start", "next": "END"})], "nodes.S: there is a start already"),
    "a node that waits for itself": ([add("/nodes/load/next", "load")], "nodes wait for each other: load -> load"),
    "a circle by two operations": (
        [add("/nodes/x", {"handler": "h", "next": "fetch"}), add("/nodes/load/next", ["x", "END"])],
        "nodes wait for each other: fetch -> load -> x -> fetch",
    ),
    "a way to a node that was moved away": (
        [{"op": "move", "from": "/nodes/load", "path": "/nodes/other"}], "nodes.fetch.next: .*'load'",
    ),
    "a node to which nothing leads": (
        [{"op": "copy", "from": "/nodes/load", "path": "/nodes/other"}], "nodes.other: no way leads from 'START'",
    ),
    "a name that is none": ([add("/nodes/a b", {"handler": "h", "next": "END"})], "nodes.a b: 'a b' is no name"),
    "a field that there is not": ([add("/nodes/fetch/colour", "red")], "nodes.fetch.colour: there is no field"),
    "no workflow id": ([{"op": "remove", "path": "/workflow_id"}], "`workflow_id` is missing"),
    "a list in its place": ([{"op": "replace", "path": "", "value": []}], "a definition is a mapping"),
    "an expression that looks ahead": (
        [add(f"{PARAMS}/x", "{{ nodes.load.output }}")], "nodes.fetch.params.x: 'load' does not come before 'fetch'",
    ),
}  # fmt: skip


@pytest.fixture
async def before(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> list[tuple[str, str]]:
    """Every row of the history in which a workflow was pushed and patched once."""
    await client.workflows.push(FLOW)
    await client.workflows.patch("etl", set={"description": "patched"})
    return await everything(conn)


@pytest.mark.parametrize("name", NOT_APPLICABLE | NO_PATCH)
async def test_a_patch_that_cannot_be_applied_is_refused_by_the_name_of_its_operation_and_changes_nothing(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]], name: str
) -> None:
    ops, reason = (NOT_APPLICABLE | NO_PATCH)[name]
    with pytest.raises(weft.InvalidInput, match=reason):
        await client.workflows.patch("etl", ops)
    assert await everything(conn) == before


@pytest.mark.parametrize("name", NOT_SOUND)
async def test_a_patch_whose_result_is_not_sound_is_refused_by_the_name_of_the_field_and_changes_nothing(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]], name: str
) -> None:
    ops, reason = NOT_SOUND[name]
    with pytest.raises(weft.InvalidDefinition, match=reason):
        await client.workflows.patch("etl", ops)
    assert await everything(conn) == before


async def test_a_patch_that_makes_another_workflow_of_it_is_refused_and_changes_nothing(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]]
) -> None:
    with pytest.raises(weft.TagConflict, match="belongs to workflow 'etl'"):
        await client.workflows.patch("etl", [{"op": "replace", "path": "/workflow_id", "value": "other"}])
    assert await everything(conn) == before


async def test_a_patch_of_a_crowded_tag_that_is_refused_does_not_compact_it(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]]
) -> None:
    """The version that would be made of ten patches is written in the transaction of the eleventh."""
    for size in range(2, 11):
        await client.workflows.patch("etl", set={"nodes.fetch.params.size": size})
    await client.workflows.protect("etl")
    crowded = await everything(conn)
    assert (await client.workflows.show("etl")).depth == 10
    with pytest.raises(weft.TagConflict, match="is protected"):
        await client.workflows.patch("etl", set={"nodes.fetch.params.size": 11})
    assert await everything(conn) == crowded


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({}, "at least one operation"),
        ({"nodes.fetsh.queue": "x"}, "there is no 'nodes.fetsh' in the definition. Did you mean 'fetch'?"),
        ({"nodes.fetch.params.size.x": 1}, "'nodes.fetch.params.size' is a value, and has no fields"),
        ({"nodes.fetch.params.list.9": 1}, "'nodes.fetch.params.list' has 2 items and no index 9"),
        ({"nodes..queue": "x"}, "'nodes..queue' is no field"),
    ],
)
async def test_a_field_that_cannot_be_set_is_named_and_nothing_is_changed(
    client: weft.Client,
    conn: asyncpg.Connection[asyncpg.Record],
    before: list[tuple[str, str]],
    wanted: dict[str, Any],
    reason: str,
) -> None:
    with pytest.raises(weft.InvalidInput, match=reason):
        await client.workflows.patch("etl", set=wanted)
    assert await everything(conn) == before
