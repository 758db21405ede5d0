"""Two orgs with the same names: neither sees, moves, mends or removes what is the other's."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest
from history_scene import FLOW

import weft
from weft.core.errors import InvalidInput, NotFound
from weft.core.settings import Settings

if TYPE_CHECKING:
    from weft.db.database import type_Connection as Conn


@pytest.fixture
async def ours(settings: Settings) -> AsyncIterator[weft.Workflows]:
    async with weft.Client(settings=settings) as client:
        yield client.workflows


@pytest.fixture
async def theirs(settings: Settings, conn: Conn, ours: weft.Workflows) -> AsyncIterator[weft.Workflows]:
    """Another org, in which there is a workflow of that name, and more."""
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    async with weft.Client(settings=replace(settings, org="acme", actor="eve")) as client:
        await client.workflows.push({**copy.deepcopy(FLOW), "description": "theirs"}, message="theirs")
        for size in (20, 30):
            await client.workflows.patch("etl", set={"nodes.fetch.params.size": size}, message="theirs")
        await client.workflows.branch("etl/theirs", "etl")
        await client.workflows.snapshot("etl")
        yield client.workflows


async def _ids(workflows: weft.Workflows) -> list[int]:
    return [artifact.id for artifact in await workflows.log("etl")]


async def test_a_name_is_that_of_one_s_own_org(ours: weft.Workflows, theirs: weft.Workflows) -> None:
    with pytest.raises(NotFound):
        await ours.show("etl")
    with pytest.raises(NotFound):
        await ours.tag("etl")
    with pytest.raises(NotFound):
        await ours.moves("etl")
    with pytest.raises(NotFound):
        await ours.patch("etl", set={"nodes.fetch.params.size": 2})
    with pytest.raises(weft.TagConflict, match="there is no such tag"):
        await ours.push(FLOW, expect=3)
    await ours.push(FLOW, message="ours")
    assert (await ours.show("etl")).data == FLOW
    assert [move.message for move in await ours.moves("etl")] == ["ours"]
    assert [tag.name for tag in await ours.list()] == ["etl/main"]
    assert [tag.name for tag in await ours.list(workflow_id="etl")] == ["etl/main"]
    mine, his = [{each.id for each in await w.artifacts(workflow_id=only)} for w in (ours, theirs) for only in ("etl",)]
    assert [{each.id for each in await w.artifacts()} for w in (ours, theirs)] == [mine, his]
    assert not mine & his
    assert len(await theirs.moves("etl")) == 3
    then = (await theirs.moves("etl"))[0].moved_at
    assert (await theirs.show("etl", at=then)).data["nodes"]["fetch"]["params"]["size"] == 30
    with pytest.raises(NotFound):
        await ours.show("etl", at=then)
    with pytest.raises(weft.TagConflict, match="not where it was expected") as caught:
        await ours.push({**FLOW, "description": "again"}, expect=3)
    assert (caught.value.now["version"], caught.value.now["moved_by"]) == (1, (await ours.tag("etl")).moved_by)


VERBS: dict[str, Callable[[weft.Workflows, int], Awaitable[object]]] = {
    "show": lambda w, id: w.show(id),
    "log": lambda w, id: w.log(id),
    "artifact": lambda w, id: w.artifact(id),
    "log before it": lambda w, id: w.log("etl", before=id),
    "blame": lambda w, id: w.blame(id),
    "move": lambda w, id: w.move("etl", id, force=True),
    "branch": lambda w, id: w.branch("etl/stolen", id),
    "merge": lambda w, id: w.merge(id, into="etl"),
    "revert": lambda w, id: w.revert("etl", id),
    "snapshot": lambda w, id: w.snapshot(id),
    "snapshot of a patch": lambda w, id: w.snapshot(id, set={"nodes.fetch.params.size": 5}),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_an_id_of_another_org_is_not_there(
    ours: weft.Workflows, theirs: weft.Workflows, conn: Conn, verb: str
) -> None:
    await ours.push(FLOW)
    before = await conn.fetchval("select count(*) from weft.artifact")
    for id in await _ids(theirs):
        with pytest.raises((NotFound, InvalidInput)):
            await VERBS[verb](ours, id)
    assert await conn.fetchval("select count(*) from weft.artifact") == before


async def test_a_hash_of_another_org_is_not_there_and_one_s_own_is_found(
    ours: weft.Workflows, theirs: weft.Workflows
) -> None:
    with pytest.raises(NotFound):
        await ours.show((await theirs.show("etl")).version_hash)
    mine = await ours.push(FLOW)
    same = (await theirs.log("etl"))[-1]
    assert same.version_hash == mine.version_hash
    assert (await ours.show(mine.version_hash)).artifact_id == mine.artifact_id
    assert (await theirs.show(mine.version_hash)).artifact_id == same.id
    assert all(artifact.tags == ("etl/main",) for artifact in await ours.log("etl"))


async def test_moves_of_one_org_leave_the_other_s_tag_where_it_is(ours: weft.Workflows, theirs: weft.Workflows) -> None:
    before = await theirs.tag("etl")
    await ours.push(FLOW)
    await ours.patch("etl", set={"nodes.fetch.params.size": 2})
    await ours.protect("etl")
    assert not (await theirs.tag("etl")).is_protected
    await ours.undo("etl", force=True)
    await ours.redo("etl", force=True)
    await ours.delete("etl", force=True)
    with pytest.raises(NotFound):
        await ours.undelete("etl/theirs")
    assert await theirs.tag("etl") == before
    await theirs.undo("etl")


async def test_a_snapshot_of_the_same_plan_is_each_org_s_own(ours: weft.Workflows, theirs: weft.Workflows) -> None:
    await ours.push({**copy.deepcopy(FLOW), "description": "theirs"})
    for size in (20, 30):
        await ours.patch("etl", set={"nodes.fetch.params.size": size})
    kept = [await each.snapshot("etl", set={"nodes.fetch.params.size": 7}) for each in (ours, theirs)]
    assert kept[0].data == kept[1].data
    assert kept[0].snapshot_id != kept[1].snapshot_id
    assert (await ours.snapshot("etl")).snapshot_id != (await theirs.snapshot("etl")).snapshot_id


async def test_damage_in_one_org_is_none_in_the_other_and_is_mended_there_only(
    ours: weft.Workflows, theirs: weft.Workflows, conn: Conn
) -> None:
    await ours.push(FLOW)
    for size in range(2, 9):
        await ours.patch("etl", set={"nodes.fetch.params.size": size})
    before = [await each.moves("etl") for each in (ours, theirs)]
    await conn.execute("set session_replication_role = replica")
    await conn.execute("update weft.artifact set version_hash = sha256('x') where org_id = 2 and depth = 1")
    await conn.execute("update weft.tag set version = 77 where org_id = 2 and name = 'etl/main'")
    await conn.execute("delete from weft.tag_move where org_id = 2 and tag = 'etl/theirs'")
    seen: list[int] = []
    assert await ours.fsck(repair=True, on_progress=seen.append) == []
    assert seen == [8] == [await ours._count_artifacts()]
    codes = sorted(finding.code for finding in await theirs.fsck(repair=True))
    assert codes == ["astray_tag", "astray_tag", "wrong_hash"]
    assert [finding.code for finding in await theirs.fsck()] == ["astray_tag"]
    assert [await each.moves("etl") for each in (ours, theirs)] == before
    assert (await theirs.show("etl")).data["nodes"]["fetch"]["params"]["size"] == 30


async def test_a_tag_whose_target_is_gone_goes_back_to_where_it_was_in_its_own_org(
    ours: weft.Workflows, theirs: weft.Workflows, conn: Conn
) -> None:
    await ours.push(FLOW)
    for size in range(2, 9):
        await ours.patch("etl", set={"nodes.fetch.params.size": size})
    mine, gone = await ours.tag("etl"), (await theirs.tag("etl")).target_id
    await conn.execute("set session_replication_role = replica")
    await conn.execute("delete from weft.artifact where id = $1 or parent_id = $1", gone)
    await theirs.fsck(repair=True)
    assert (await theirs.moves("etl"))[0].verb == "move"
    assert (await theirs.show("etl")).data["nodes"]["fetch"]["params"]["size"] == 20
    assert await ours.tag("etl") == mine
    assert await ours.fsck() == []


async def test_no_hint_tells_a_name_of_another_org(ours: weft.Workflows, theirs: weft.Workflows) -> None:
    with pytest.raises(NotFound) as caught:
        await ours.tag("etl/their")
    assert "theirs" not in str(caught.value)
    with pytest.raises(NotFound, match="etl/theirs"):
        await theirs.tag("etl/their")


async def test_what_one_org_does_not_use_is_not_removed_by_the_other(
    ours: weft.Workflows, theirs: weft.Workflows, conn: Conn
) -> None:
    await ours.push(FLOW)
    back = (2 * 24 * 3600 * 1000) << 22
    await conn.execute("set session_replication_role = replica")
    await conn.execute("update weft.artifact set id = id - $1 where kind = 'snapshot'", back)
    await conn.execute("set session_replication_role = origin")
    assert (await ours.gc(timedelta(days=1), dry_run=True)).snapshots == 0
    assert (await ours.gc(timedelta(days=1))).snapshots == 0
    assert (await theirs.gc(timedelta(days=1))).snapshots == 1


async def test_no_patch_is_put_on_an_artifact_of_another_org(
    ours: weft.Workflows, theirs: weft.Workflows, conn: Conn
) -> None:
    await ours.push(FLOW)
    parent = (await theirs.tag("etl")).target_id
    put = "select weft.put_artifact(1, 'patch', 'etl', $1, null, 'x', 1, null, sha256('x'), 'eve', null)"
    with pytest.raises(asyncpg.PostgresError, match="there is no version"):
        await conn.fetchval(put, parent)


async def test_a_lost_tag_of_one_org_is_none_in_the_other(
    ours: weft.Workflows, theirs: weft.Workflows, conn: Conn
) -> None:
    await conn.execute("set session_replication_role = replica")
    await conn.execute("delete from weft.tag where org_id = 2 and name = 'etl/main'")
    await ours.push(FLOW)
    assert [(finding.code, finding.mended is not None) for finding in await ours.fsck(repair=True)] == []
    assert [finding.code for finding in await theirs.fsck(repair=True)] == ["lost_tag"]
    assert (await theirs.show("etl")).data["nodes"]["fetch"]["params"]["size"] == 30


async def test_a_move_from_what_is_only_another_org_s_is_as_one_from_what_is_not_there(
    ours: weft.Workflows, theirs: weft.Workflows, conn: Conn
) -> None:
    await ours.push(FLOW)
    for size in (2, 3):
        await ours.patch("etl", set={"nodes.fetch.params.size": size})
    await conn.execute("set session_replication_role = replica")
    await conn.execute("alter table weft.tag_move disable trigger all")
    await conn.execute(
        "update weft.tag_move set to_id = $1 where org_id = 1 and version = 2", (await theirs.tag("etl")).target_id
    )
    await conn.execute("alter table weft.tag_move enable trigger all")
    assert [finding.code for finding in await ours.fsck()] == []


async def test_what_another_org_has_deleted_is_told_to_nobody_else(
    ours: weft.Workflows, theirs: weft.Workflows
) -> None:
    await theirs.delete("etl")
    with pytest.raises(NotFound) as caught:
        await ours.show("etl")
    assert "undelete" not in str(caught.value)
    with pytest.raises(NotFound, match="undelete etl/main"):
        await theirs.show("etl")


async def test_the_workflow_of_another_org_s_tag_is_no_hindrance(ours: weft.Workflows, theirs: weft.Workflows) -> None:
    await theirs.push({**FLOW, "workflow_id": "other"}, tag="etl/main", replaces="etl")
    await ours.push(FLOW)  # after them, so that theirs is the row that would be met first
    assert (await ours.push({**FLOW, "name": "x"}, force=True)).tag_version == 2
