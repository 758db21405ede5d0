"""The history of definitions: what is pushed and patched is kept, tags move for all to see, undo is an editor's."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from datetime import timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest

from weft.core.errors import (
    BlobUnavailable,
    InvalidDefinition,
    InvalidInput,
    MergeConflict,
    NotFound,
    StateConflict,
    TagConflict,
)
from weft.core.settings import Settings
from weft.db.blobs import open_blobs
from weft.db.database import Database
from weft.flow.document import Document
from weft.flow.patches import Op
from weft.history import artifacts, tags
from weft.history.changes import Changes
from weft.history.model import Pushed, Tag, Wish
from weft.history.reading import Reader
from weft.queue.blobs import KeptBlobs, collect

ORG = 1
FLOW: dict[str, Any] = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"handler": "fetch", "params": {"url": "https://example.com", "size": 1}, "next": "load"},
        "load": {"handler": "load", "queue": "db", "next": "END"},
        "END": {"type": "end"},
    },
}


class History:
    """The verbs of the history on one tag, so that a test reads as a sequence of acts."""

    def __init__(self, database: Database, tag: str = "etl/main") -> None:
        self.database = database
        self.tag = tag
        self.reader = Reader(database, ORG, lambda: KeptBlobs.of(database))
        self.changes = Changes(self.reader)

    def on(self, tag: str) -> History:
        return History(self.database, tag)

    def wish(self, **options: Any) -> Wish:
        return Wish(self.tag, **{"actor": "ann", **options})

    async def push(self, data: dict[str, Any] = FLOW, **options: Any) -> Pushed:
        return await self.changes.push(self.wish(**options), Document(copy.deepcopy(data)))

    async def patch(self, *ops: Op, **options: Any) -> Pushed:
        return await self.changes.patch(self.wish(**options), ops)

    async def size(self, size: int, **options: Any) -> Pushed:
        return await self.patch({"op": "replace", "path": "/nodes/fetch/params/size", "value": size}, **options)

    async def move(self, target: int, **options: Any) -> Tag:
        wish = self.wish(**{"actor": "bob", **options})
        return await self.database.run(lambda conn: tags.move(conn, ORG, wish, target))

    async def undo(self, steps: int = 1, **options: Any) -> Tag:
        wish = self.wish(**{"actor": "bob", **options})
        return await self.database.run(lambda conn: tags.undo(conn, ORG, wish, steps))

    async def redo(self, steps: int = 1, **options: Any) -> Tag:
        wish = self.wish(**{"actor": "bob", **options})
        return await self.database.run(lambda conn: tags.redo(conn, ORG, wish, steps))

    async def show(self) -> Tag:
        return await self.database.read(lambda conn: tags.show(conn, ORG, self.tag))

    async def moves(self, limit: int = 1000) -> list[Any]:
        return await self.database.read(lambda conn: tags.moves(conn, ORG, self.tag, limit=limit))

    async def document(self, **where: Any) -> dict[str, Any]:
        # By a reader of its own, which remembers nothing: what is in the database counts.
        reader = Reader(self.database, ORG, lambda: KeptBlobs.of(self.database))
        found = await reader.find(**(where or {"tag": self.tag}))
        assert found is not None
        return await reader.document(found)

    async def now(self) -> int:
        return int((await self.document())["nodes"]["fetch"]["params"]["size"])


@pytest.fixture
def history(database: Database) -> History:
    return History(database)


async def test_a_push_is_kept_as_it_was_written_and_the_same_again_changes_nothing(history: History) -> None:
    first = await history.push(message="first")
    again = await history.push(copy.deepcopy(FLOW))
    assert (first.created, again.created, again.tag_version) == (True, False, 1)
    assert list((await history.document())["nodes"]) == ["START", "fetch", "load", "END"]
    other = await history.push({**FLOW, "description": "the same in other words"})
    assert (other.created, other.version_hash == first.version_hash) == (True, True)


async def test_patches_are_applied_in_order_and_a_version_is_made_of_ten(history: History) -> None:
    await history.push()
    done = [await history.size(size) for size in range(2, 27)]
    assert [n for n, pushed in enumerate(done) if pushed.compacted] == [10, 20]
    assert await history.now() == 26
    rows = await history.database.read(lambda conn: artifacts.log(conn, ORG, done[-1].artifact_id, limit=100))
    assert [row.depth for row in reversed(rows)] == [0, *range(1, 11), 0, *range(1, 11), 0, *range(1, 6)]
    longest = "select max(n) from (select count(*) as n from weft.patch_chain_member group by head_id) c"
    assert await history.database.read(lambda conn: conn.fetchval(longest)) == 10


async def test_each_old_state_is_still_there_by_its_id_and_by_its_time(history: History, database: Database) -> None:
    done = [await history.push(), *[await history.size(size) for size in range(2, 15)]]
    for size, pushed in enumerate(done, 1):
        assert (await history.document(artifact_id=pushed.artifact_id))["nodes"]["fetch"]["params"]["size"] == size
    for move in await history.moves():
        if move.verb in ("push", "patch"):
            then = await history.document(tag=history.tag, at=move.moved_at)
            assert then == await history.document(artifact_id=move.to_id)
    before = (await history.moves())[-1].moved_at - timedelta(seconds=1)
    assert await history.reader.find(tag=history.tag, at=before) is None


async def test_undo_and_redo_are_those_of_an_editor(history: History) -> None:
    await history.push()
    for size in (2, 3, 4):
        await history.size(size)
    await history.undo()
    await history.undo()
    assert await history.now() == 2
    await history.redo()
    assert await history.now() == 3
    await history.undo(2)
    assert await history.now() == 1
    with pytest.raises(StateConflict, match="nothing to undo: tag etl/main is at its first move"):
        await history.undo()
    await history.redo(10)
    assert await history.now() == 4
    await history.undo(2)
    await history.size(9)  # a new move: what was taken back cannot be made again
    with pytest.raises(StateConflict, match="nothing to redo"):
        await history.redo()
    await history.undo()
    assert await history.now() == 2
    await history.redo()
    assert await history.now() == 9
    verbs = [move.verb for move in reversed(await history.moves())]
    assert verbs.count("undo") == 7
    assert verbs.count("redo") == 5


async def test_a_compaction_is_no_step_to_undo(history: History) -> None:
    await history.push()
    for size in range(2, 12):
        await history.size(size)
    compacted = await history.changes.compact(history.wish())
    assert (compacted.compacted, (await history.show()).target_kind) == (True, "version")
    assert await history.now() == 11
    assert (await history.changes.compact(history.wish())).created is False
    await history.undo()
    assert await history.now() == 10
    await history.redo()
    assert await history.now() == 11


async def test_a_move_says_who_moved_the_tag_when_it_is_not_where_it_was_expected(history: History) -> None:
    first = await history.push(message="begin")
    await history.size(2, actor="eve", message="larger")
    with pytest.raises(TagConflict, match=r"eve moved it at 20\d\d-.* \(larger\)") as caught:
        await history.move(first.artifact_id, expected_version=1)
    assert caught.value.now["version"] == 2
    with pytest.raises(TagConflict):
        await history.move(first.artifact_id, expected_hash=first.version_hash)
    with pytest.raises(TagConflict):
        await history.size(3, expected_version=1)
    assert await history.now() == 2
    await history.move(first.artifact_id, expected_version=2)
    assert await history.now() == 1


async def test_a_protected_tag_moves_by_force_only_and_a_tag_stays_with_its_workflow(history: History) -> None:
    first = await history.push()
    await history.size(2)
    await history.database.run(lambda conn: tags.protect(conn, ORG, history.wish(), True))
    for act in (history.undo(), history.size(3), history.move(first.artifact_id)):
        with pytest.raises(TagConflict, match="is protected"):
            await act
    assert (await history.undo(force=True)).version == 3
    await history.database.run(lambda conn: tags.protect(conn, ORG, history.wish(), False))
    other = await history.on("other/main").push({**FLOW, "workflow_id": "other"})
    with pytest.raises(TagConflict, match="belongs to workflow 'etl'"):
        await history.move(other.artifact_id)
    for wish in ({"force": True}, {"replaces": "elt"}, {"force": True, "replaces": "other"}):
        with pytest.raises(TagConflict, match=r"belongs to workflow 'etl'.*--replaces etl"):
            await history.move(other.artifact_id, **wish)
    await history.database.run(lambda conn: tags.protect(conn, ORG, history.wish(), True))
    with pytest.raises(TagConflict, match="is protected"):
        await history.move(other.artifact_id, replaces="etl")
    assert (await history.move(other.artifact_id, replaces="etl", force=True)).workflow_id == "other"


async def test_a_deleted_tag_can_be_brought_back_and_its_moves_stay(history: History, database: Database) -> None:
    await history.push()
    await history.size(2)
    await database.run(lambda conn: tags.delete(conn, ORG, history.wish(message="gone")))
    with pytest.raises(NotFound):
        await history.show()
    with pytest.raises(NotFound):
        await history.size(3)
    assert await database.read(lambda conn: tags.list_tags(conn, ORG)) == []
    await database.run(lambda conn: tags.undelete(conn, ORG, history.wish()))
    assert await history.now() == 2
    await history.undo()
    assert await history.now() == 1
    await database.run(lambda conn: tags.delete(conn, ORG, history.wish()))
    await history.push({**FLOW, "workflow_id": "anew"})
    assert ((await history.show()).workflow_id, (await history.show()).version) == ("anew", 7)
    with pytest.raises(StateConflict):
        await history.undo()


@pytest.mark.parametrize(
    "how", ["update weft.tag_move set moved_by = 'eve'", "delete from weft.tag_move", "truncate weft.tag_move"]
)
async def test_nobody_changes_where_a_tag_has_been(
    history: History, conn: asyncpg.Connection[asyncpg.Record], how: str
) -> None:
    await history.push()
    with pytest.raises(asyncpg.PostgresError, match="never changed"):
        await conn.execute(how)


BAD: dict[str, tuple[list[Op], type[Exception], str]] = {
    "no such path": ([{"op": "remove", "path": "/nodes/nothing"}], InvalidInput, "cannot remove"),
    "no start": ([{"op": "remove", "path": "/nodes/START"}], InvalidDefinition, "there is no start"),
    "a circle": (
        [{"op": "replace", "path": "/nodes/load/next", "value": "fetch"}], InvalidDefinition, "wait for each other",
    ),
    "a test that fails": ([{"op": "test", "path": "/nodes/load/queue", "value": "x"}], InvalidInput, "it is 'db'"),
    "no operation": ([], InvalidInput, "at least one operation"),
    "far too large": (
        [{"op": "add", "path": "/description", "value": "x" * 10_000_000}], InvalidInput, "push a new version",
    ),
    "no definition any more": ([{"op": "replace", "path": "", "value": 5}], InvalidDefinition, "is a mapping"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_patch_is_refused_with_the_reason_and_changes_nothing(
    history: History, conn: asyncpg.Connection[asyncpg.Record], name: str
) -> None:
    ops, kind, reason = BAD[name]
    await history.push()
    tables = ("blob", "artifact", "tag_move", "patch_chain_member")
    count = f"select {' + '.join(f'(select count(*) from weft.{table})' for table in tables)}"
    before = await conn.fetchval(count)
    with pytest.raises(kind, match=reason):
        await history.patch(*ops)
    assert await conn.fetchval(count) == before


async def test_many_who_patch_move_and_undo_at_once_make_one_chain(
    history: History, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await history.push()

    async def writer(number: int) -> None:
        for step in range(3):
            if number % 5 == 4:
                with contextlib.suppress(StateConflict):
                    await history.undo()
            else:
                op: Op = {"op": "add", "path": f"/nodes/load/params/w{number}_{step}", "value": step}
                try:
                    await history.patch(op)
                except InvalidInput:  # somebody has taken back what made the params
                    await history.patch({"op": "add", "path": "/nodes/load/params", "value": {}})

    await asyncio.gather(*(writer(number) for number in range(20)))
    moves = list(reversed(await history.moves()))
    assert [move.version for move in moves] == list(range(1, len(moves) + 1))
    for before, after in pairwise(moves):
        assert after.from_id == before.to_id
        assert after.moved_at >= before.moved_at
    tag = await history.show()
    assert (tag.version, tag.target_id) == (moves[-1].version, moves[-1].to_id)
    assert await history.document() == await history.document(artifact_id=tag.target_id)


async def test_what_another_line_changed_is_merged_and_what_both_changed_is_told(history: History) -> None:
    base = await history.push()
    branch = history.on("etl/faster")
    await branch.move(base.artifact_id)
    theirs = await branch.patch({"op": "replace", "path": "/nodes/load/queue", "value": "fast"})
    await history.size(2)
    merged = await history.changes.merge(history.wish(), theirs.artifact_id)
    assert merged.created
    document = await history.document()
    assert (document["nodes"]["load"]["queue"], document["nodes"]["fetch"]["params"]["size"]) == ("fast", 2)
    theirs = await branch.size(7)
    with pytest.raises(MergeConflict, match=r"nodes\.fetch\.params\.size: ours 2, theirs 7"):
        await history.changes.merge(history.wish(), theirs.artifact_id)
    assert await history.document() == document
    await history.changes.merge(history.wish(), theirs.artifact_id, prefer="theirs")
    assert await history.now() == 7


async def test_what_was_taken_back_does_not_come_back_from_a_line_that_was_merged_crosswise(history: History) -> None:
    """Both lines have parted at two places, and by the one of them the size has never been another."""
    base = await history.push()
    branch = history.on("etl/faster")
    await branch.move(base.artifact_id)
    for larger, faster in ((history, branch), (branch, history)):
        size = await larger.size(2)
        fast = await faster.patch({"op": "add", "path": "/nodes/load/queue", "value": "fast"})
        await larger.changes.merge(larger.wish(), fast.artifact_id)
        await faster.changes.merge(faster.wish(), size.artifact_id)
        await history.size(1)
        assert (await branch.document())["nodes"]["fetch"]["params"]["size"] == 2
        await history.changes.merge(history.wish(), (await branch.show()).target_id)
        document = await history.document()
        assert (document["nodes"]["load"]["queue"], document["nodes"]["fetch"]["params"]["size"]) == ("fast", 1)
        # From the same beginning, the other way round.
        for each in (history, branch):
            await each.move(base.artifact_id)


async def test_what_two_lines_had_decided_differently_is_a_conflict_when_they_are_merged_crosswise(
    history: History,
) -> None:
    base = await history.push()
    branch = history.on("etl/faster")
    await branch.move(base.artifact_id)
    ours, theirs = await history.size(2), await branch.size(3)
    await history.changes.merge(history.wish(), theirs.artifact_id, prefer="ours")
    await branch.changes.merge(branch.wish(), ours.artifact_id, prefer="ours")
    with pytest.raises(MergeConflict, match=r"nodes\.fetch\.params\.size: ours 2, theirs 3") as caught:
        await history.changes.merge(history.wish(), (await branch.show()).target_id)
    assert [each.to_json().get("base", "none") for each in caught.value.conflicts] == ["none"]


async def test_one_patch_in_the_middle_is_reverted(history: History) -> None:
    first = await history.push()
    wrong = await history.size(2)
    await history.patch({"op": "replace", "path": "/nodes/load/queue", "value": "fast"})
    await history.changes.revert(history.wish(), wrong.artifact_id, first.artifact_id)
    document = await history.document()
    assert (document["nodes"]["load"]["queue"], document["nodes"]["fetch"]["params"]["size"]) == ("fast", 1)


async def test_a_damaged_blob_is_an_error_that_names_it(
    history: History, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await history.push()
    digest = await conn.fetchval("select digest from weft.artifact")
    for damage in ("set_byte(content, 5, get_byte(content, 5) # 255)", "'\\x00'::bytea"):
        await conn.execute(f"update weft.blob set content = {damage}")
        with pytest.raises(BlobUnavailable, match=f"blob {digest} is damaged"):
            await history.document()


async def test_a_large_document_goes_to_the_blob_storage_and_comes_back(
    history: History, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    large = {**FLOW, "nodes": {**FLOW["nodes"], "load": {**FLOW["nodes"]["load"], "params": {"text": "x" * 300_000}}}}
    await history.push(large)
    assert await conn.fetchval("select content is null from weft.blob")
    assert await history.document() == large
    await history.size(2)
    assert (await history.document())["nodes"]["load"]["params"]["text"] == "x" * 300_000


async def test_orgs_do_not_see_each_others_tags(
    history: History, conn: asyncpg.Connection[asyncpg.Record], settings: Settings
) -> None:
    await history.push()
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    theirs = Changes(Reader(history.database, 2, lambda: KeptBlobs.of(history.database)))
    with pytest.raises(NotFound):
        await theirs.patch(history.wish(), [{"op": "remove", "path": "/nodes/load/queue"}])
    mine = await history.show()
    with pytest.raises(NotFound):
        await history.database.run(lambda conn: tags.move(conn, 2, Wish("x", "eve"), mine.target_id))
    await theirs.push(history.wish(), Document(copy.deepcopy(FLOW)))
    assert await history.database.read(lambda conn: conn.fetchval("select count(*) from weft.tag")) == 2
    assert await history.database.read(lambda conn: conn.fetchval("select count(*) from weft.blob")) == 1


async def test_what_the_history_keeps_is_not_collected_and_what_nobody_needs_is(
    history: History, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await history.push()
    await conn.execute("insert into weft.blob (digest, bytes) values ($1, 1)", "0" * 64)
    await conn.execute("update weft.blob set put_at = put_at - interval '3 days'")
    store = open_blobs(history.database.settings)
    assert await history.database.run(lambda mine: collect(mine, store)) == 1
    assert await history.document() == FLOW


async def test_a_tag_is_not_compacted_into_what_means_something_else(
    history: History, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    other = await history.on("etl/other").push({**FLOW, "on_failure": "finish_independent"})
    await history.push()
    with pytest.raises(asyncpg.PostgresError, match="means something else"):
        await conn.execute("select weft.compact_tag(1, $1, $2, null, 'eve')", history.tag, other.artifact_id)
    assert (await history.show()).version == 1
