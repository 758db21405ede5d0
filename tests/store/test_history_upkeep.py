"""The upkeep of the history: snapshots are made once, damage is found and mended, what nobody uses goes."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from history_scene import FLOW

import weft
from history_laws import make_older
from storages import Storage
from weft.core.errors import BlobUnavailable, InvalidDefinition, InvalidInput, NotFound
from weft.core.settings import Settings

if TYPE_CHECKING:
    from weft.db.database import type_Connection as Conn

DAY = timedelta(days=1)


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[weft.Client]:
    async with weft.Client(settings=settings) as client:
        yield client


@pytest.fixture
async def flows(client: weft.Client) -> weft.Workflows:
    await client.workflows.push(FLOW, message="first")
    for size in (2, 3):
        await client.workflows.patch("etl", set={"nodes.fetch.params.size": size})
    return client.workflows


async def _kinds(conn: Conn) -> dict[str, int]:
    return {row[0]: row[1] for row in await conn.fetch("select kind::text, count(*) from weft.artifact group by 1")}


async def _codes(flows: weft.Workflows, **options: Any) -> list[tuple[str, bool]]:
    return [(finding.code, finding.mended is not None) for finding in await flows.fsck(**options)]


# --- snapshots ---


async def test_a_snapshot_is_made_once_and_then_found(flows: weft.Workflows, conn: Conn) -> None:
    kept = await flows.snapshot("etl")
    again = await flows.snapshot("etl/main")
    assert (kept.kind, kept.data["nodes"]["fetch"]["params"]) == ("snapshot", {"size": 3})
    assert kept.snapshot_id == again.snapshot_id
    assert (await flows.show("etl")).snapshot_id == kept.snapshot_id
    assert (await flows.show("etl")).version_hash == kept.version_hash
    assert await _kinds(conn) == {"version": 1, "patch": 2, "snapshot": 1}


async def test_a_version_is_its_own_snapshot(flows: weft.Workflows, conn: Conn) -> None:
    first = (await flows.log("etl"))[-1]
    assert (await flows.snapshot(first.id)).snapshot_id == first.id
    assert "snapshot" not in await _kinds(conn)


async def test_a_patch_of_one_job_moves_no_tag_and_the_same_again_is_found(flows: weft.Workflows, conn: Conn) -> None:
    before = await flows.tag("etl")
    kept = await flows.snapshot("etl", set={"nodes.fetch.params.size": 9})
    again = await flows.snapshot("etl", [{"op": "replace", "path": "/nodes/fetch/params/size", "value": 9}])
    other = await flows.snapshot("etl", set={"nodes.fetch.params.size": 10})
    assert (kept.data["nodes"]["fetch"]["params"]["size"], kept.snapshot_id) == (9, again.snapshot_id)
    assert other.snapshot_id != kept.snapshot_id
    assert await flows.tag("etl") == before
    assert await _kinds(conn) == {"version": 1, "patch": 4, "snapshot": 2}


async def test_many_who_take_the_same_snapshot_at_once_get_one(flows: weft.Workflows, conn: Conn) -> None:
    taken = await asyncio.gather(*(flows.snapshot("etl", set={"nodes.fetch.params.size": 9}) for _ in range(12)))
    assert len({each.snapshot_id for each in taken}) == 1
    assert await _kinds(conn) == {"version": 1, "patch": 3, "snapshot": 1}


async def test_a_snapshot_of_what_is_not_sound_is_refused_and_nothing_is_kept(
    flows: weft.Workflows, conn: Conn
) -> None:
    before = await _kinds(conn)
    with pytest.raises(InvalidDefinition, match="no start"):
        await flows.snapshot("etl", [{"op": "remove", "path": "/nodes/START"}])
    with pytest.raises(InvalidInput, match="either ops or set"):
        await flows.snapshot("etl", [], set={"nodes.fetch.params.size": 1})
    with pytest.raises(NotFound):
        await flows.snapshot("elt")
    kept = await flows.snapshot("etl")
    with pytest.raises(NotFound):
        await flows.move("etl", kept.artifact_id)
    with pytest.raises(InvalidInput, match="not on a snapshot"):
        await flows.snapshot(kept.artifact_id, set={"nodes.fetch.params.size": 1})
    assert await _kinds(conn) == {**before, "snapshot": 1}


# --- gc ---


async def test_what_nobody_uses_goes_after_the_grace_and_all_that_a_tag_was_at_stays(
    flows: weft.Workflows, conn: Conn
) -> None:
    await flows.undo("etl", 2)
    await flows.push({**FLOW, "description": "another way on"})
    await flows.snapshot("etl")
    await flows.snapshot("etl", set={"nodes.fetch.params.size": 9})
    assert await flows.gc(DAY) == weft.Collected()
    await make_older(conn)
    tried = await flows.gc(DAY, dry_run=True)
    assert await _kinds(conn) == {"version": 2, "patch": 3, "snapshot": 1}
    done = await flows.gc(DAY)
    assert (done.snapshots, done.patches, done.blobs) == (1, 1, 2)
    assert (tried.is_dry_run, tried.snapshots, tried.patches, tried.blobs, tried.bytes) == (
        True, done.snapshots, done.patches, done.blobs, done.bytes,
    )  # fmt: skip
    assert await _kinds(conn) == {"version": 2, "patch": 2}
    assert await flows.gc(DAY) == weft.Collected()
    assert await _codes(flows) == []
    for move in await flows.moves("etl"):
        assert move.to_id is not None
        assert (await flows.show(move.to_id)).data["workflow_id"] == "etl"


async def test_a_blob_that_another_room_uses_is_not_collected(
    flows: weft.Workflows, client: weft.Client, conn: Conn
) -> None:
    task = await client.enqueue("noop", {"x": "a" * 400_000})
    await conn.execute("insert into weft.blob (digest, bytes) values ($1, 7)", "0" * 64)
    await make_older(conn)
    assert (await flows.gc(DAY)).blobs == 1
    assert (await client.get_task(task.id)).params == {"x": "a" * 400_000}


async def test_a_grace_that_is_too_short_is_refused(flows: weft.Workflows) -> None:
    with pytest.raises(InvalidInput, match="one hour at least"):
        await flows.gc(timedelta(minutes=59))


async def test_every_table_that_refers_to_blobs_or_artifacts_is_registered_as_a_user(conn: Conn) -> None:
    """Who adds a reference and forgets the view would have what it refers to looked at for removal."""
    for table, view in (("blob", "blob_use"), ("artifact", "artifact_use")):
        columns = await conn.fetch(
            """select distinct c.conrelid::regclass::text as name from pg_constraint c
            where c.confrelid = $1::regclass and c.contype = 'f'""",
            f"weft.{table}",
        )  # fmt: skip
        registered = await conn.fetchval("select pg_get_viewdef($1::regclass)", f"weft.{view}")
        assert columns
        for row in columns:
            assert row["name"] in registered, f"{row['name']} refers to weft.{table} and is not in weft.{view}"


# --- fsck ---


async def test_a_history_that_is_whole_has_nothing_to_tell(flows: weft.Workflows) -> None:
    for size in range(4, 30):
        await flows.patch("etl", set={"nodes.fetch.params.size": size})
    await flows.branch("etl/faster", "etl")
    await flows.patch("etl/faster", set={"nodes.fetch.queue": "fast"})
    await flows.merge("etl/faster", into="etl")
    await flows.snapshot("etl", set={"nodes.fetch.params.size": 9})
    await flows.undo("etl", 5)
    await flows.delete("etl/faster")
    seen: list[int] = []
    assert await flows.fsck(on_progress=seen.append) == []
    assert seen == [sum(1 for _ in range(seen[-1]))]


_OF_SNAPSHOT = "where digest = (select digest from weft.artifact where kind = 'snapshot')"
_OF_PATCH = "where digest = (select digest from weft.artifact where cardinality(chain) = 2)"
DAMAGE: dict[str, tuple[str, str, bool]] = {
    "a tag at nothing": ("update weft.tag set target_id = 1", "orphaned_tag", True),
    "a tag that is not where it was moved": (
        "update weft.tag set target_id = (select min(id) from weft.artifact)", "astray_tag", True,
    ),
    "a tag with another number": ("update weft.tag set version = 99, position = 99", "astray_tag", True),
    "a chain that lacks a patch": (
        "update weft.artifact set chain = array[id] where cardinality(chain) = 2", "wrong_chain", True,
    ),
    "a chain on another base": (
        "update weft.artifact set base_id = 5 where cardinality(chain) = 2", "wrong_chain", True,
    ),
    "a hash of something else": (
        "update weft.artifact set version_hash = sha256('x') where cardinality(chain) = 1", "wrong_hash", True,
    ),
    "a generation of another": ("update weft.artifact set generation = 77 where depth = 2", "wrong_generation", True),
    "a plan of something else": (
        "update weft.artifact set plan_hash = sha256('x') where kind = 'snapshot'", "wrong_plan", True,
    ),
    "a snapshot that is damaged": (
        f"update weft.blob set content = '\\x00' {_OF_SNAPSHOT}", "lost_blob", True,
    ),
    "a snapshot without its blob": (
        f"delete from weft.blob {_OF_SNAPSHOT}", "lost_blob", True,
    ),
    "a patch that is damaged": (
        f"update weft.blob set content = '\\x00' {_OF_PATCH}", "lost_blob", False,
    ),
    "a move that is missing": ("delete from weft.tag_move where version = 2", "broken_moves", False),
    "a number of a move that is missing": (
        """delete from weft.tag_move where version = 2;
        update weft.tag_move set from_id = (select to_id from weft.tag_move where version = 1) where version = 3""",
        "broken_moves", False,
    ),
    "an artifact of another workflow": (
        "update weft.artifact set workflow_id = 'x' where depth = 1", "wrong_workflow", True,
    ),
    "a tag of another workflow": ("update weft.tag set workflow_id = 'x'", "wrong_workflow", True),
    "a merge of what is not there": ("update weft.artifact set merged_id = 5 where depth = 2", "no_merged", False),
    "a version of nothing": ("update weft.artifact set parent_id = 5 where kind = 'version'", "no_parent", False),
    "a version of what was made of it": (
        "update weft.artifact set parent_id = (select id from weft.artifact where depth = 2) where kind = 'version'",
        "circle", False,
    ),
    "a tag that is lost": ("delete from weft.tag", "lost_tag", True),
    "a blob that nothing refers to": (
        "insert into weft.blob (digest, bytes, put_at) values (repeat('0', 64), 7, now() - interval '2 days')",
        "unreachable_blob", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
async def test_damage_is_found_and_mended_from_what_is_true(flows: weft.Workflows, conn: Conn, name: str) -> None:
    damage, code, is_mended = DAMAGE[name]
    before = copy.deepcopy((await flows.show("etl")).data)
    await flows.snapshot("etl")
    assert await _codes(flows) == []
    await conn.execute("set session_replication_role = replica")
    await conn.execute("alter table weft.tag_move disable trigger all")
    await conn.execute(damage)
    await conn.execute("alter table weft.tag_move enable trigger all")
    await conn.execute("set session_replication_role = origin")
    found = await _codes(flows)
    assert (code, False) in found
    assert all(not mended for _, mended in found)
    assert found == await _codes(flows), "without --repair nothing is written"
    mended = await _codes(flows, repair=True)
    assert (code, is_mended) in mended
    if is_mended:
        assert await _codes(flows) == []
        assert (await flows.show("etl")).data == before
        assert (await flows.moves("etl"))[0].to_id == (await flows.tag("etl")).target_id


async def test_a_compacted_version_that_is_damaged_comes_back_from_its_patches(
    flows: weft.Workflows, conn: Conn
) -> None:
    compacted = await flows.compact("etl")
    before = (await flows.show("etl")).data
    digest = await conn.fetchval("select digest from weft.artifact where id = $1", compacted.artifact_id)
    await conn.execute("update weft.blob set content = '\\x00' where digest = $1", digest)
    assert await _codes(flows) == [("lost_blob", False)]
    assert await _codes(flows, repair=True) == [("lost_blob", True)]
    async with weft.Client(settings=flows._session.settings) as other:
        assert (await other.workflows.show("etl")).data == before


async def test_a_large_compacted_version_that_is_damaged_in_its_storage_comes_back_from_its_patches(
    settings: Settings, storage: Storage
) -> None:
    large = copy.deepcopy(FLOW)
    large["nodes"]["fetch"]["params"]["text"] = "x" * 300_000
    own = dataclasses.replace(settings, blob_url=storage.url)
    async with weft.Client(settings=own) as client:
        await client.workflows.push(large)
        (first,) = storage.digests()
        await client.workflows.patch("etl", set={"nodes.fetch.params.size": 2})
        await client.workflows.compact("etl")
        (compacted,) = set(storage.digests()) - {first}
    storage.write(compacted, b"{}")
    async with weft.Client(settings=own) as client:
        with pytest.raises(BlobUnavailable, match=f"{compacted} is damaged"):
            await client.workflows.show("etl")
        assert await _codes(client.workflows) == [("lost_blob", False)]
        (finding,) = await client.workflows.fsck(repair=True)
        assert "is kept there under `damaged`" in (finding.mended or "")
    assert storage.damaged(compacted) == {b"{}"}
    async with weft.Client(settings=own) as client:
        assert (await client.workflows.show("etl")).data["nodes"]["fetch"]["params"] == {
            "size": 2,
            "text": "x" * 300_000,
        }
        assert await _codes(client.workflows) == []


async def test_a_tag_whose_target_is_gone_goes_back_to_the_last_that_is_there_and_says_so(
    flows: weft.Workflows, conn: Conn
) -> None:
    head, before = [move.to_id for move in await flows.moves("etl")][:2]
    await conn.execute("set session_replication_role = replica")
    await conn.execute("delete from weft.artifact where id = $1", head)
    await conn.execute("set session_replication_role = origin")
    (finding,) = await flows.fsck(repair=True)
    assert (finding.code, finding.what) == ("orphaned_tag", "tag etl/main")
    assert finding.mended == f"moved to {before}, the last place of it that is there"
    last = (await flows.moves("etl"))[0]
    assert (last.verb, last.to_id, last.message) == ("move", before, "what it was at is not there any more")
    assert [move.version for move in await flows.moves("etl")] == [4, 3, 2, 1]
    assert await _codes(flows) == []
