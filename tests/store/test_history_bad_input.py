"""What callers pass to the history and should not: an error of ours that names the argument, and nothing is changed."""

from __future__ import annotations

import copy
import math
from typing import Any

import asyncpg
import pytest
from history_scene import FLOW

import weft
from history_laws import everything


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.fixture
async def before(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> list[tuple[str, str]]:
    """Every row of the history in which a workflow was pushed, patched, undone; another tag was deleted."""
    await client.workflows.push(FLOW)
    for size in (2, 3):
        await client.workflows.patch("etl", set={"nodes.fetch.params.size": size})
    await client.workflows.undo("etl")
    await client.workflows.branch("etl/gone", "etl")
    await client.workflows.delete("etl/gone")
    return await everything(conn)


# JSON has no such value, or PostgreSQL's JSON cannot hold it; as params of a task each of them is refused.
NO_JSON = {
    "nan": math.nan, "infinity": math.inf, "NUL": "a\0b", "half a character": "\ud800", "a large integer": 2**70,
    "bytes": b"x", "a set": {1}, "a key that is no text": {1: 2}, "deep nesting": nested(300),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_JSON)
async def test_a_value_that_is_no_json_is_not_pushed_and_not_changed_into_another(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]], name: str
) -> None:
    document = copy.deepcopy(FLOW)
    document["nodes"]["fetch"]["params"]["x"] = NO_JSON[name]
    with pytest.raises((weft.InvalidInput, weft.InvalidDefinition)):
        await client.workflows.push(document)
    assert await everything(conn) == before


@pytest.mark.parametrize("name", ["nan", "infinity", "NUL"])
async def test_a_value_that_is_no_json_is_not_patched_in_and_not_changed_into_another(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]], name: str
) -> None:
    with pytest.raises((weft.InvalidInput, weft.InvalidDefinition)):
        await client.workflows.patch("etl", set={"nodes.fetch.params.x": NO_JSON[name]})
    assert await everything(conn) == before


ACTS: dict[str, Any] = {
    "undo": lambda w, **options: w.undo("etl", **options),
    "redo": lambda w, **options: w.redo("etl", **options),
    "move": lambda w, **options: w.move("etl/prod", "etl", **options),
    "branch": lambda w, **options: w.branch("etl/new", "etl", **options),
    "delete": lambda w, **options: w.delete("etl", **options),
    "undelete": lambda w, **options: w.undelete("etl/gone", **options),
}


@pytest.mark.parametrize("message", ["a\0b", 5], ids=["NUL", "a number"])
@pytest.mark.parametrize("act", ACTS)
async def test_a_message_that_cannot_be_kept_is_refused_by_every_verb(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]], act: str, message: Any
) -> None:
    with pytest.raises(weft.InvalidInput, match="message"):
        await ACTS[act](client.workflows, message=message)
    assert await everything(conn) == before


@pytest.mark.parametrize("expect", ["zz", 2**70, 4.5], ids=str)
@pytest.mark.parametrize("act", ["undo", "redo"])
async def test_an_expectation_that_is_none_is_refused(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]], act: str, expect: Any
) -> None:
    with pytest.raises(weft.InvalidInput, match="expect"):
        await ACTS[act](client.workflows, expect=expect)
    assert await everything(conn) == before


async def test_an_undo_that_expects_another_meaning_is_refused(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]]
) -> None:
    for act in ("undo", "redo", "delete"):
        with pytest.raises(weft.TagConflict, match="not where it was expected"):
            await ACTS[act](client.workflows, expect="deadbeef" * 8)
        with pytest.raises(weft.TagConflict, match="not where it was expected"):
            await ACTS[act](client.workflows, expect="deadbeef")
        with pytest.raises(weft.InvalidInput, match=r"expect: 'deadbe' is neither .* 7 digits are enough"):
            await ACTS[act](client.workflows, expect="deadbe")
    assert await everything(conn) == before
    await client.workflows.undo("etl", expect=(await client.workflows.show("etl")).version_hash[:7])


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("message", lambda w: w.snapshot("etl", message="a\0b")),
        ("message", lambda w: w.snapshot("etl", message=5)),
        ("workflow_id", lambda w: w.list(workflow_id=5)),
        ("after", lambda w: w.list(after="a\0")),
        ("is_protected", lambda w: w.protect("etl", "no")),
    ],
)
async def test_an_argument_of_another_kind_is_refused_by_its_name(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], before: list[tuple[str, str]], field: str, call: Any
) -> None:
    with pytest.raises(weft.InvalidInput, match=field):
        await call(client.workflows)
    assert await everything(conn) == before
