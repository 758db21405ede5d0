"""Damage that was tried on the history: nobody is given wrong data, and every verb says what is the matter."""

from __future__ import annotations

import asyncio
import bz2
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson
import pytest
from history_scene import FLOW, SIZE, three_versions

import weft
from history_laws import broken_laws
from weft.core.errors import BlobUnavailable, InvalidInput, NotFound
from weft.core.settings import Settings
from weft.db.embedded_layout import home_dir

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
async def flows(settings: Settings) -> AsyncIterator[weft.Workflows]:
    async with three_versions(settings) as found:
        yield found


async def damage(conn: Conn, *statements: str) -> None:
    await conn.execute("set session_replication_role = replica")
    for statement in statements:
        await conn.execute(statement)
    await conn.execute("set session_replication_role = origin")


async def codes(flows: weft.Workflows, **options: Any) -> list[tuple[str, bool]]:
    return [(finding.code, finding.mended is not None) for finding in await flows.fsck(**options)]


# --- snapshots ---


async def test_snapshots_with_each_other_s_plan_are_removed_and_made_again(flows: weft.Workflows, conn: Conn) -> None:
    kept = [await flows.snapshot("etl", set={SIZE: size}) for size in (7, 8)]
    one, other = [
        await conn.fetchval("select plan_hash from weft.artifact where id = $1", each.artifact_id) for each in kept
    ]
    change = "update weft.artifact set plan_hash = $2 where id = $1"
    for id, plan in ((kept[0], bytes(32)), (kept[1], one), (kept[0], other)):
        await conn.execute(change, id.artifact_id, plan)
    assert await codes(flows) == [("wrong_plan", False)] * 2
    assert await codes(flows, repair=True) == [("wrong_plan", True)] * 2
    assert await codes(flows) == []
    assert (await flows.snapshot("etl", set={SIZE: 7})).data["nodes"]["fetch"]["params"] == {"size": 7}


async def test_a_snapshot_of_another_document_is_removed_and_made_again(flows: weft.Workflows, conn: Conn) -> None:
    kept = await flows.snapshot("etl")
    await conn.execute(
        "update weft.artifact set digest = (select digest from weft.artifact where kind = 'version') where id = $1",
        kept.artifact_id,
    )
    assert await codes(flows) == [("wrong_snapshot", False)]
    assert await codes(flows, repair=True) == [("wrong_snapshot", True)]
    assert await codes(flows) == []
    async with weft.Client(settings=flows._session.settings) as other:
        assert (await other.workflows.show("etl")).data["nodes"]["fetch"]["params"] == {"size": 3}
        assert (await other.workflows.snapshot("etl")).data["nodes"]["fetch"]["params"] == {"size": 3}


async def test_a_snapshot_that_means_something_else_is_not_served(
    settings: Settings, flows: weft.Workflows, conn: Conn
) -> None:
    kept = await flows.snapshot("etl")
    await conn.execute(
        """update weft.artifact s set digest = v.digest, version_hash = v.version_hash
        from weft.artifact v where v.kind = 'version' and s.id = $1""",
        kept.artifact_id,
    )
    async with weft.Client(settings=settings) as other:
        assert (await other.workflows.show("etl")).data["nodes"]["fetch"]["params"] == {"size": 3}
        with pytest.raises(BlobUnavailable, match="fsck --repair"):
            await other.workflows.show(kept.artifact_id)


async def test_a_snapshot_after_a_merge_of_fields_in_another_order_is_right(
    settings: Settings, flows: weft.Workflows
) -> None:
    await flows.branch("etl/other", "etl")
    ours, theirs = copy.deepcopy((await flows.show("etl")).data), copy.deepcopy((await flows.show("etl")).data)
    node = theirs["nodes"]["fetch"]
    theirs["nodes"]["fetch"] = {"queue": "fast", **dict(reversed(node.items())), "timeout_seconds": 5}
    await flows.push(theirs, tag="etl/other")
    await flows.push({**ours, "description": "ours"}, tag="etl/main")
    await flows.merge("etl/other", into="etl")
    async with weft.Client(settings=settings) as other:
        # What the one remembers, the other puts together of the patch that was written.
        assert orjson.dumps((await flows.show("etl")).data) == orjson.dumps((await other.workflows.show("etl")).data)
    merged = await flows.snapshot("etl")
    assert merged.data["nodes"]["fetch"]["queue"] == "fast"
    assert await codes(flows) == []


async def test_a_snapshot_that_changes_the_name_of_the_workflow_is_one_of_that_name(
    flows: weft.Workflows, conn: Conn
) -> None:
    await flows.snapshot("etl", [{"op": "replace", "path": "/workflow_id", "value": "elt"}])
    assert await codes(flows) == []


# --- tags ---


async def test_a_tag_whose_row_is_lost_is_told_of_by_every_verb_that_would_make_it(
    flows: weft.Workflows, conn: Conn
) -> None:
    before = await flows.tag("etl")
    await damage(conn, "delete from weft.tag")
    for verb in (
        flows.push(FLOW),
        flows.undelete("etl"),
        flows.undelete("etl/main"),
        flows.move("etl/main", before.target_id),
    ):
        with pytest.raises(weft.TagConflict, match=r"has moves, and no place.*fsck --repair"):
            await verb
    assert await codes(flows, repair=True) == [("lost_tag", True)]
    await flows.protect("etl", False)
    assert await flows.tag("etl") == before
    assert await broken_laws(conn) == []


async def test_a_deleted_tag_whose_row_is_lost_comes_back_deleted(flows: weft.Workflows, conn: Conn) -> None:
    before = await flows.undo("etl")
    await flows.delete("etl")
    for verb in (flows.protect, flows.redo, flows.undo):
        with pytest.raises(NotFound):
            await verb("etl/main")
    await damage(conn, "delete from weft.tag")
    assert await codes(flows, repair=True) == [("lost_tag", True)]
    assert await flows.list() == []
    assert (await flows.undelete("etl")).target_id == before.target_id
    assert await broken_laws(conn) == []


async def test_a_redo_of_what_is_not_there_is_told(flows: weft.Workflows, conn: Conn) -> None:
    lost = (await flows.moves("etl"))[0].to_id
    await flows.undo("etl")
    await damage(conn, f"delete from weft.artifact where id = {lost}")
    with pytest.raises(NotFound, match=f"there is no version {lost}"):
        await flows.redo("etl")
    assert await flows.tag("etl")


async def test_an_undo_passes_over_what_is_not_there(flows: weft.Workflows, conn: Conn) -> None:
    _, lost, first = await flows.moves("etl")
    await damage(conn, f"delete from weft.artifact where id = {lost.to_id}")
    assert (await flows.undo("etl")).target_id == first.to_id
    with pytest.raises(weft.StateConflict, match="nothing to undo"):
        await flows.undo("etl")


async def test_a_tag_that_was_moved_away_from_what_is_lost_is_undone_from_there(
    flows: weft.Workflows, conn: Conn
) -> None:
    lost, second, first = await flows.moves("etl")
    await damage(conn, f"delete from weft.artifact where id = {lost.to_id}")
    assert await codes(flows, repair=True) == [("orphaned_tag", True)]
    assert (await flows.tag("etl")).target_id == second.to_id
    assert (await flows.undo("etl")).target_id == first.to_id
    assert (await flows.redo("etl")).target_id == second.to_id
    assert await codes(flows) == []


async def test_a_lost_tag_comes_back_protected_for_nobody_can_tell_that_it_was_not(
    flows: weft.Workflows, conn: Conn
) -> None:
    await damage(conn, "delete from weft.tag")
    (finding,) = await flows.fsck(repair=True)
    assert "`weft workflows protect etl/main --off`" in (finding.mended or "")
    with pytest.raises(weft.TagConflict, match="is protected"):
        await flows.patch("etl", set={SIZE: 9})
    await flows.protect("etl", False)
    await flows.patch("etl", set={SIZE: 9})


# --- what was damaged, and what a repair does to it ---


async def test_a_damaged_snapshot_is_passed_over_where_its_patches_give_the_same(
    settings: Settings, flows: weft.Workflows, conn: Conn
) -> None:
    kept = await flows.snapshot("etl")
    digest = await conn.fetchval("select digest from weft.artifact where id = $1", kept.artifact_id)
    for damaged in ("set_byte(content, 5, get_byte(content, 5) # 255)", "'\\x00'::bytea"):
        await conn.execute(f"update weft.blob set content = {damaged} where digest = $1", digest)
        async with weft.Client(settings=settings) as other:
            for which in ("etl", kept.artifact_id, "etl"):
                shown = await other.workflows.show(which)
                assert shown.data == kept.data
                assert f"blob {digest} is damaged" in (shown.damage or "")
    patch = await conn.fetchval("select parent_id from weft.artifact where id = $1", kept.artifact_id)
    await conn.execute(
        "update weft.blob set content = '\\x00' where digest = (select digest from weft.artifact where id = $1)", patch
    )
    async with weft.Client(settings=settings) as other:
        with pytest.raises(BlobUnavailable, match=f"blob {digest} is damaged"):
            await other.workflows.show("etl")


async def test_what_a_repair_replaces_is_kept_aside(settings: Settings, flows: weft.Workflows, conn: Conn) -> None:
    kept = await flows.snapshot("etl")
    digest = await conn.fetchval("select digest from weft.artifact where id = $1", kept.artifact_id)
    await conn.execute("update weft.blob set content = 'no document' where digest = $1", digest)
    assert (await flows.show("etl")).damage is None  # of what this client remembers
    (finding,) = await flows.fsck(repair=True)
    place = Path((finding.mended or "").rpartition(" ")[2])
    assert (finding.code, place.read_bytes()) == ("lost_blob", b"no document")
    assert place.parent == home_dir(settings) / "damaged"
    async with weft.Client(settings=settings) as other:
        assert (await other.workflows.show(kept.artifact_id)).damage is None


async def test_a_snapshot_whose_lost_text_was_written_otherwise_is_removed(flows: weft.Workflows, conn: Conn) -> None:
    kept = await flows.snapshot("etl")
    await damage(
        conn,
        "insert into weft.blob (digest, bytes, content) values (repeat('a', 64), 1, '\\x00')",
        f"update weft.artifact set digest = repeat('a', 64) where id = {kept.artifact_id}",
    )
    assert await codes(flows, repair=True) == [("wrong_snapshot", True)]
    assert await codes(flows) == []


async def test_a_hash_that_is_written_anew_is_told_with_the_one_that_was_there(
    flows: weft.Workflows, conn: Conn
) -> None:
    shown = await flows.show("etl")
    change = "update weft.artifact set version_hash = decode(repeat('ab', 32), 'hex') where id = $1"
    await conn.execute(change, shown.artifact_id)
    (finding,) = await flows.fsck()
    digest = await conn.fetchval("select digest from weft.artifact where id = $1", shown.artifact_id)
    assert [part in finding.problem for part in ("ab" * 32, shown.version_hash, digest)] == [True] * 3


async def test_a_client_that_has_read_everything_before_looks_at_what_is_there(
    flows: weft.Workflows, conn: Conn
) -> None:
    for artifact in await flows.log("etl"):
        await flows.show(artifact.id)
    of_version = "(select digest from weft.artifact where kind = 'version')"
    await conn.execute(f"update weft.blob set content = '\\x00' where digest = {of_version}")
    assert [finding.code for finding in await flows.fsck()] == ["lost_blob", "no_document", "no_document"]
    with pytest.raises(BlobUnavailable):
        await flows.show("etl")


async def test_a_tag_can_be_moved_away_from_what_is_not_there(flows: weft.Workflows, conn: Conn) -> None:
    moves = await flows.moves("etl")
    await damage(conn, f"delete from weft.artifact where id = {moves[0].to_id}")
    with pytest.raises(NotFound):
        await flows.move("etl/main", moves[0].to_id or 0)
    assert (await flows.move("etl/main", moves[1].to_id or 0)).target_id == moves[1].to_id
    assert await codes(flows) == []


# --- what is asked for wrongly ---


async def test_a_log_of_what_is_not_there_is_no_empty_log(flows: weft.Workflows) -> None:
    with pytest.raises(NotFound, match="there is no version 123456789012345"):
        await flows.log(123456789012345)
    with pytest.raises(NotFound, match="there is no version 123456789012345"):
        await flows.log("etl", before=123456789012345)
    first = (await flows.log("etl"))[-1]
    assert await flows.log("etl", before=first.id) == []


async def test_a_change_of_another_workflow_is_not_reverted(flows: weft.Workflows) -> None:
    await flows.push({**copy.deepcopy(FLOW), "workflow_id": "other"})
    change = await flows.patch("other", set={SIZE: 2})
    with pytest.raises(InvalidInput, match=r"change: .* is one of workflow 'other'"):
        await flows.revert("etl", change.artifact_id)
    with pytest.raises(InvalidInput, match="weft workflows log"):
        await flows.revert("etl", "x")


@pytest.mark.parametrize("form", ["set", "ops", "snapshot"])
async def test_what_a_caller_changes_after_its_call_is_not_written(
    settings: Settings, flows: weft.Workflows, form: str
) -> None:
    value = {"deep": [1]}
    ops: list[dict[str, Any]] = [{"op": "add", "path": "/nodes/fetch/params/y", "value": value}]
    async with weft.Client(settings=settings) as other:
        patching: asyncio.Future[Any]
        if form == "set":
            patching = asyncio.ensure_future(other.workflows.patch("etl", set={"nodes.fetch.params.y": value}))
        elif form == "ops":
            patching = asyncio.ensure_future(other.workflows.patch("etl", ops))
        else:
            patching = asyncio.ensure_future(other.workflows.snapshot("etl", ops))
        await asyncio.sleep(0)
        value["deep"].append(2)
        done = await patching
    assert (await flows.show(done.artifact_id)).data["nodes"]["fetch"]["params"] == {"size": 3, "y": {"deep": [1]}}


# --- blobs ---


async def test_blobs_that_no_org_uses_are_told_of_once_and_without_a_name(flows: weft.Workflows, conn: Conn) -> None:
    await conn.execute(
        "insert into weft.blob (digest, bytes, put_at) select repeat(n::text, 64), 7, now() - interval '2 days' "
        "from generate_series(1, 3) n"
    )
    (finding,) = await flows.fsck()
    assert (finding.code, finding.what) == ("unreachable_blob", "blobs")
    assert "no org uses 3 of them, 21 bytes" in finding.problem


async def test_a_document_that_is_pushed_again_mends_what_is_damaged(
    flows: weft.Workflows, conn: Conn, settings: Settings
) -> None:
    first = (await flows.log("etl"))[-1]
    await conn.execute("update weft.blob set content = '\\x00' where digest = $1", first.digest)
    async with weft.Client(settings=settings) as fresh:
        with pytest.raises(BlobUnavailable):
            await fresh.workflows.show(first.id)
        await fresh.workflows.push(FLOW, tag="etl/again")
        assert (await fresh.workflows.show(first.id)).data == FLOW
    assert await flows.fsck() == []
    (kept,) = (home_dir(settings) / "damaged").iterdir()
    assert (kept.name.startswith(f"{first.digest}-"), kept.read_bytes()) == (True, b"\0")


async def test_what_was_compressed_in_another_way_is_not_taken_for_damaged(
    flows: weft.Workflows, conn: Conn, settings: Settings
) -> None:
    first = (await flows.log("etl"))[-1]
    other = bz2.compress(orjson.dumps(FLOW))
    changed = "update weft.blob set content = $2 where digest = $1"
    assert await conn.execute(changed, first.digest, other) == "UPDATE 1"
    assert (await flows.show(first.id)).data == FLOW
    await flows.push(FLOW, tag="etl/again")
    assert not (home_dir(settings) / "damaged").exists()


# --- names ---


async def test_a_name_means_what_is_there_before_what_was_deleted(flows: weft.Workflows) -> None:
    other = copy.deepcopy(FLOW) | {"workflow_id": "q"}
    await flows.branch("q", "etl")
    await flows.push(other, tag="q/main")
    await flows.delete("q")
    now = (await flows.moves("q/main"))[0]
    assert (await flows.show("q", at=now.moved_at)).data["workflow_id"] == "q"
    assert [move.verb for move in await flows.moves("q")] == ["push"]


async def test_a_tag_of_a_name_that_was_deleted_can_be_made(flows: weft.Workflows) -> None:
    await flows.push(copy.deepcopy(FLOW) | {"workflow_id": "c2"})
    await flows.delete("c2")
    assert (await flows.branch("c2", "etl")).name in ("c2", "c2/main")
    assert await flows.fsck() == []
