"""What was tried on the history to break it: damage is told and mended, and nothing is changed on the way."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from history_scene import FLOW

import weft
from weft.cli.definitions import read_assignments, read_ops
from weft.core.errors import BlobUnavailable, NotFound, WeftError
from weft.core.settings import Settings
from weft.flow.patches import check_ops
from weft.flow.reading import read_text, sound
from weft.flow.validation import check_text
from weft.flow.writing import write_yaml
from weft.history.reading import Documents

if TYPE_CHECKING:
    from weft.db.database import type_Connection as Conn


def flow(**params: Any) -> dict[str, Any]:
    made = copy.deepcopy(FLOW)
    made["nodes"]["fetch"]["params"] |= params
    return made


async def patched(settings: Settings, count: int = 4) -> list[weft.Pushed]:
    """Push a flow and patches that add a field each, by a client that is gone afterwards with all it remembers."""
    async with weft.Client(settings=settings) as client:
        await client.workflows.push(FLOW)
        return [await client.workflows.patch("etl", set={f"nodes.fetch.params.f{n}": n}) for n in range(count)]


async def lose(conn: Conn, statement: str, *values: Any) -> None:
    await conn.execute("set session_replication_role = replica")
    await conn.execute(statement, *values)
    await conn.execute("set session_replication_role = origin")


LOST_BLOB = "delete from weft.blob where digest = (select digest from weft.artifact where id = $1)"


# --- what is lost is told, and never left out ---


async def test_a_document_without_one_of_its_patches_is_not_shown(settings: Settings, conn: Conn) -> None:
    made = await patched(settings)
    await lose(conn, LOST_BLOB, made[1].artifact_id)
    async with weft.Client(settings=settings) as client:
        with pytest.raises(BlobUnavailable):
            await client.workflows.show("etl")


async def test_a_repair_writes_no_hash_of_a_document_that_lacks_a_patch(settings: Settings, conn: Conn) -> None:
    made = await patched(settings)
    await lose(conn, LOST_BLOB, made[1].artifact_id)
    async with weft.Client(settings=settings) as client:
        found = await client.workflows.fsck(repair=True)
    assert {each.code for each in found} == {"lost_blob", "no_document"}
    kept = await conn.fetchval("select version_hash from weft.artifact where id = $1", made[-1].artifact_id)
    assert kept.hex() == made[-1].version_hash


@pytest.mark.parametrize("verb", ["show", "blame", "fsck", "compact"])
async def test_a_lost_row_of_a_blob_is_told_by_every_verb(settings: Settings, conn: Conn, verb: str) -> None:
    await patched(settings)
    await lose(conn, "delete from weft.blob where digest = (select digest from weft.artifact where kind = 'version')")
    async with weft.Client(settings=settings) as client:
        call = getattr(client.workflows, verb)
        if verb == "fsck":
            assert "lost_blob" in {each.code for each in await call(repair=True)}
        else:
            with pytest.raises(WeftError):
                await call("etl")


# --- fsck ---


async def test_a_clock_that_went_back_is_no_damage(settings: Settings, conn: Conn) -> None:
    now = await conn.fetchval("select pg_get_functiondef('weft.now'::regproc)")
    async with weft.Client(settings=settings) as client:
        await client.workflows.push(FLOW)
        await conn.execute(
            "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
            "return clock_timestamp() - interval '10 minutes'"
        )
        try:
            await client.workflows.patch("etl", set={"nodes.fetch.params.size": 2})
        finally:
            await conn.execute(now)
        assert await client.workflows.fsck() == []


async def test_a_patch_that_holds_no_patch_is_told(settings: Settings, conn: Conn) -> None:
    made = await patched(settings)
    await lose(
        conn,
        "update weft.artifact set digest = (select digest from weft.artifact where kind = 'version') where id = $1",
        made[1].artifact_id,
    )
    async with weft.Client(settings=settings) as client:
        assert "bad_patch" in {each.code for each in await client.workflows.fsck(repair=True)}


@pytest.mark.parametrize(
    "damage",
    [
        "update weft.artifact set generation = 0 where id = $1",
    ],
)
async def test_damage_is_found(settings: Settings, conn: Conn, damage: str) -> None:
    made = await patched(settings)
    await lose(conn, damage, made[1].artifact_id)
    async with weft.Client(settings=settings) as client:
        assert await client.workflows.fsck() != []


async def test_lines_that_go_round_in_a_circle_end(settings: Settings, conn: Conn) -> None:
    made = await patched(settings)
    async with weft.Client(settings=settings) as client:
        await client.workflows.push(flow(alone=1) | {"workflow_id": "alone"})
        alone = (await client.workflows.tag("alone")).target_id
    await lose(
        conn, "update weft.artifact set parent_id = $1 where id <> $2 and kind = 'version'", made[1].artifact_id, alone
    )
    await conn.execute("set statement_timeout = '3s'")
    assert await conn.fetchval("select weft.parted_at($1, $2)", made[-1].artifact_id, alone) is None


# --- what callers do with what they get ---


def test_a_definition_that_a_caller_changes_is_the_callers_own() -> None:
    text = '{"workflow_id": "own", "nodes": {"START": {"type": "start", "next": "a"}, ' \
        '"a": {"handler": "own", "params": {"size": 1}, "next": "END"}, "END": {"type": "end"}}}'  # fmt: skip
    read = weft.read_definition(text)
    read.nodes["a"].params["size"] = 99  # type: ignore[union-attr]
    other = weft.read_definition(text.replace("1}", "99}"))
    assert weft.read_definition(text).nodes["a"].params == {"size": 1}  # type: ignore[union-attr]
    assert check_text(text).version_hash != check_text(text.replace("1}", "99}")).version_hash
    assert other.nodes["a"].params == {"size": 99}  # type: ignore[union-attr]


def test_what_is_remembered_of_small_documents_is_bounded() -> None:
    remembered = Documents()
    shape = check_text(str(FLOW).replace("'", '"')).shape
    for id in range(30_000):
        remembered.put(id, b"x" * 120, shape)
    assert len(remembered._shapes) <= 10_000


# --- moves and collection at the same time ---


async def test_a_move_to_what_is_collected_meanwhile_is_told(settings: Settings, conn: Conn, url: str) -> None:
    async with weft.Client(settings=settings) as client:
        await client.workflows.push(FLOW)
        kept = await client.workflows.snapshot("etl", set={"nodes.fetch.params.size": 7})
        patch = await conn.fetchval("select parent_id from weft.artifact where id = $1", kept.snapshot_id)
        other = await asyncpg.connect(url)
        try:
            async with other.transaction():
                await other.execute("delete from weft.artifact where id = $1", kept.snapshot_id)
                await other.execute("delete from weft.artifact where id = $1", patch)
                moving = asyncio.create_task(client.workflows.move("etl/kept", patch))
                await asyncio.sleep(0.5)
            with pytest.raises(NotFound):
                await moving
        finally:
            await other.close()


# --- what is written is what is read ---


def test_a_pair_of_escaped_surrogates_is_one_character() -> None:
    assert read_text(r'{"x-k": "\ud83d\ude00"}').data == {"x-k": "\U0001f600"}


@pytest.mark.parametrize("text", ["1e5", "12e4567", "0o17", "1E3", "a\x85b", "a\u202eb", "\u2066x\u2069", "\U000e0041"])
def test_a_document_that_was_shown_can_be_pushed_again_and_hides_nothing(text: str) -> None:
    shown = write_yaml(flow(text=text, **{text: 1}))
    assert read_text(shown).data == flow(text=text, **{text: 1})
    assert all(char.isprintable() for char in shown.replace("\n", ""))


def test_integers_beyond_64_bits_are_not_rounded_and_refused(tmp_path: Path) -> None:
    large = 99999999999999999999
    assert read_assignments([f"nodes.fetch.params.size={large}"]) == {"nodes.fetch.params.size": large}
    file = tmp_path / "patch.json"
    file.write_text(f'[{{"op": "add", "path": "/x-k", "value": {large}}}]')
    with pytest.raises(weft.InvalidInput, match="beyond 64 bits"):
        check_ops(read_ops(file))


def test_a_patch_that_is_far_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "patch.json"
    with file.open("wb") as hole:
        hole.truncate(2**40)
    with pytest.raises(weft.InvalidInput, match=r"file: .* has more than"):
        read_ops(file)


@pytest.mark.parametrize("line", ["description: second", "x-k: 123456789012345678901234567890", "x-k: !!int 3"])
def test_what_a_push_would_refuse_is_refused_as_a_text_too(line: str) -> None:
    with pytest.raises(WeftError):
        sound(check_text(write_yaml({**FLOW, "description": "first"}) + line))
