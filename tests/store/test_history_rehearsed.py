"""What a change would make is told without a trace; points of the past; who protects a tag is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from history_scene import FLOW, SIZE, three_versions

import weft
from history_laws import everything
from weft.core.errors import InvalidInput, NotFound, TagConflict
from weft.core.settings import Settings

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

OTHER = {**FLOW, "workflow_id": "other"}


@pytest.fixture
async def flows(settings: Settings) -> AsyncIterator[weft.Workflows]:
    async with three_versions(settings) as found:
        yield found


async def size(flows: weft.Workflows, which: str) -> int:
    return int((await flows.show(which)).data["nodes"]["fetch"]["params"]["size"])


async def test_a_dry_run_tells_what_would_become_of_a_change_and_leaves_no_trace(
    flows: weft.Workflows, conn: Conn
) -> None:
    await flows.branch("etl/side", "etl~1")
    await flows.patch("etl/side", set={"nodes.fetch.queue": "fast"})
    before = await everything(conn)
    planned = [
        await flows.push({**FLOW, "description": "new"}, dry_run=True),
        await flows.push(OTHER, dry_run=True),
        await flows.patch("etl", set={SIZE: 4}, dry_run=True),
        await flows.merge("etl/side", into="etl", dry_run=True),
        await flows.revert("etl", "etl~0", dry_run=True),
    ]
    assert await everything(conn) == before
    assert [(each.tag, each.tag_version, each.is_dry_run) for each in planned] == [
        ("etl/main", 4, True),
        ("other/main", 1, True),
        *[("etl/main", 4, True)] * 3,
    ]
    patched = await flows.patch("etl", set={SIZE: 4})
    assert (patched.version_hash, patched.is_dry_run, patched.diff) == (planned[2].version_hash, False, None)
    assert planned[2].diff is not None
    assert planned[2].diff.ops == [{"op": "replace", "path": "/nodes/fetch/params/size", "value": 4}]


async def test_a_dry_run_is_refused_where_the_change_would_be(flows: weft.Workflows, conn: Conn) -> None:
    await flows.push(OTHER)
    await flows.protect("other")
    before = await everything(conn)
    for tag, expect in (("other", None), ("etl", 1)):
        with pytest.raises(TagConflict):
            await flows.patch(tag, set={SIZE: 9}, expect=expect, dry_run=True)
    with pytest.raises(TagConflict, match="belongs to workflow 'etl'"):
        await flows.push(OTHER, tag="etl/main", dry_run=True)
    with pytest.raises(weft.InvalidDefinition):
        await flows.patch("etl", set={"nodes.fetch.next": "nowhere"}, dry_run=True)
    assert await everything(conn) == before


@pytest.mark.parametrize(
    "ops", [[{"op": "replace"}], [{"op": "test"}], [{"op": "replace", "value": 9}, {"op": "replace"}]]
)
async def test_a_patch_that_changes_nothing_is_no_step_to_undo(
    flows: weft.Workflows, ops: list[dict[str, Any]]
) -> None:
    done = await flows.patch("etl", [{"path": "/nodes/fetch/params/size", "value": 3, **op} for op in ops])
    assert (done.created, done.tag_version) == (False, 3)
    await flows.undo("etl")
    assert await size(flows, "etl") == 2


async def test_points_are_counted_along_changes_and_moves_and_time(flows: weft.Workflows) -> None:
    await flows.undo("etl")
    assert [await size(flows, point) for point in ("etl~", "etl~0", "etl@3", "etl@3~2", "etl/main@1", "etl@4")] == [
        1, 2, 3, 1, 1, 2,
    ]  # fmt: skip
    assert await size(flows, f"etl@{datetime.now(UTC).isoformat()}") == 2
    moved = await flows.move("etl", "etl@1")
    assert moved.target_id == (await flows.log("etl@1"))[0].id
    with pytest.raises(NotFound, match="which has 1 before it"):
        await flows.show("etl@2~2")
    for wrong in ("etl@9", "etl@2000-01-01", "nothing~1", "nothing@1", "nothing@2h ago"):
        with pytest.raises(NotFound):
            await flows.show(wrong)
    for wrong in ("etl@soon", "etl@~1", "~1", "a b~1"):
        with pytest.raises(InvalidInput):
            await flows.show(wrong)


async def test_a_point_of_another_org_is_not_there(flows: weft.Workflows, settings: Settings, conn: Conn) -> None:
    there = (await flows.tag("etl")).target_id
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'two', 'Two')")
    async with weft.Client(settings=replace(settings, org="two")) as other:
        for point in ("etl~1", "etl@1"):
            with pytest.raises(NotFound):
                await other.workflows.show(point)
        with pytest.raises(NotFound, match="which has 0 before it"):
            await other.workflows.show(f"{there}~9")


async def test_who_protects_a_tag_and_frees_it_is_kept(flows: weft.Workflows, conn: Conn) -> None:
    await flows.protect("etl")
    await flows.protect("etl", False)
    with pytest.raises(NotFound):
        await flows.protect("nothing")
    acts = "select verb, subject_kind, subject_name, actor <> '' from weft.audits where verb = any ($1) order by id"
    rows = await conn.fetch(acts, ["protect", "free"])
    assert [tuple(row) for row in rows] == [("protect", "tag", "etl/main", True), ("free", "tag", "etl/main", True)]


async def test_of_a_protected_tag_that_was_deleted_it_is_told_how_it_comes_back(flows: weft.Workflows) -> None:
    await flows.protect("etl")
    await flows.delete("etl", force=True)
    for act in (flows.delete("etl"), flows.branch("etl/main", "etl@1"), flows.undo("etl")):
        with pytest.raises((TagConflict, NotFound), match="undelete etl/main"):
            await act
    assert (await flows.undelete("etl")).version == 5
