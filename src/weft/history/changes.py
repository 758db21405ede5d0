"""Changes of a workflow: pushed whole, patched, merged, reverted, compacted; each is one move of a tag, or nothing."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg
import orjson

from weft.core.errors import InvalidInput, MergeConflict, NotFound, TagConflict
from weft.core.settings import Settings
from weft.db.database import CONNECTION_ERRORS
from weft.flow.document import Document
from weft.flow.merging import merge
from weft.flow.patches import Op, apply_ops, check_ops, ops_between, same, touched_nodes
from weft.flow.reading import sound
from weft.flow.validation import Checked, check_document
from weft.history import artifacts, tags
from weft.history.contents import Content, pack, packing
from weft.history.model import Pushed, Wish
from weft.history.reading import SQL, Materials, Reader

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

# So often a change is made anew on what somebody else has moved the tag to meanwhile, before one waits for one's turn,
# and in it.
_TRIES_OUT_OF_TURN = 4
_TRIES = 100


@dataclass(frozen=True, slots=True)
class _New:
    """What a change makes of a document."""

    verb: str
    checked: Checked
    ops: list[Op] | None = None
    merged_id: int | None = None
    packed: Awaitable[Content] | None = None


_Make = Callable[[Materials | None], Awaitable[_New | None]]


class Changes:
    """Makes changes in the org of a reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._database = reader.database
        self._org_id = reader.org_id

    @property
    def _settings(self) -> Settings:
        return self._database.settings

    async def push(self, wish: Wish, document: Document) -> Pushed:
        """Make a new version of a whole document; nothing when the tag is at this very document."""
        packed = packing(orjson.dumps(document.data), self._settings)
        checked = check_document(document, like=self._reader.shape_at(wish.tag))
        sound(checked)

        async def make(head: Materials | None) -> _New | None:
            means_the_same = head is not None and head.row["version_hash"].hex() == checked.version_hash
            if head is not None and means_the_same and same(await self._reader.document(head), document.data):
                return None
            return _New("push", checked, packed=packed)

        return await self._change(wish, make, makes_tag=True)

    async def patch(self, wish: Wish, ops: Sequence[Op]) -> Pushed:
        """Apply a JSON Patch to what a tag is at; the result must be sound, or nothing is changed."""
        checked = check_ops(list(ops))

        async def make(head: Materials | None) -> _New | None:
            return self._patched(head, "patch", apply_ops(await self._document(head), checked), checked)

        return await self._change(wish, make)

    async def edit(self, wish: Wish, change: Callable[[dict[str, Any]], list[Op]]) -> Pushed:
        """Apply the operations that ``change`` makes of what a tag is at."""

        async def make(head: Materials | None) -> _New | None:
            data = await self._document(head)
            ops = check_ops(change(copy.deepcopy(data)))
            return self._patched(head, "patch", apply_ops(data, ops), ops)

        return await self._change(wish, make)

    async def merge(self, wish: Wish, other_id: int, prefer: str | None = None) -> Pushed:
        """Take over what another line has changed since both parted; raises `MergeConflict`, and merges nothing."""
        theirs = await self._reader.document(await self._reader.of(other_id))

        async def base(head: Materials) -> tuple[dict[str, Any], bool]:
            # Anew for each try: a tag that was taken back meanwhile has parted earlier.
            ours = head.row["id"]
            parted = await self._database.read(lambda conn: artifacts.parted_at(conn, self._org_id, ours, other_id))
            # Of two lines that went on apart it is noted also when nothing is taken over: what was decided now would be
            # asked again at the next merge.
            return await self._reader.document(await self._reader.of(parted)), parted not in (ours, other_id)

        return await self._three_way(wish, "merge", f"the merge into {wish.tag!r}", base, theirs, prefer, other_id)

    async def revert(self, wish: Wish, artifact_id: int, parent_id: int, prefer: str | None = None) -> Pushed:
        """Take back what one patch has changed, and keep what came after it."""
        before = await self._reader.document(await self._reader.of(parent_id))

        async def after(head: Materials) -> tuple[dict[str, Any], bool]:
            change, workflow_id = await self._reader.of(artifact_id), head.row["workflow_id"]
            if change.row["workflow_id"] != workflow_id:
                problem = f"{artifact_id} is one of workflow {change.row['workflow_id']!r}, and {wish.tag!r} of"
                raise InvalidInput("change", f"{problem} {workflow_id!r}: there is nothing to take back")
            return await self._reader.document(change), False

        what = f"the revert of {artifact_id} in {wish.tag!r}"
        return await self._three_way(wish, "revert", what, after, before, prefer)

    async def _three_way(
        self, wish: Wish, verb: str, what: str, base: Callable[[Materials], Awaitable[tuple[dict[str, Any], bool]]],
        theirs: dict[str, Any], prefer: str | None, merged_id: int | None = None,
    ) -> Pushed:  # fmt: skip
        """Patch what the tag is at by what ``theirs`` has changed of ``base``, which says if nothing is noted too."""

        async def make(head: Materials | None) -> _New | None:
            assert head is not None
            ours = await self._reader.document(head)
            before, is_noted = await base(head)
            merged, conflicts = merge(before, ours, theirs, prefer)
            if conflicts:
                raise MergeConflict(what, conflicts)
            ops = ops_between(ours, merged)
            # Not what was merged, whose fields may stand in another order: what others will put together of the patch.
            return self._patched(head, verb, apply_ops(ours, ops), ops, merged_id) if ops or is_noted else None

        return await self._change(wish, make)

    async def compact(self, tag: str, actor: str) -> Pushed:
        """Make a version of a tag's patches that means the same; no step that undo would take back."""
        return await self._repeated(tag, lambda: self._compacted(tag, actor))

    async def _compacted(self, tag: str, actor: str) -> Pushed | None:
        """Compact a tag once; None when somebody else has moved it meanwhile."""
        head = await self._reader.find(tag=tag)
        if head is None:
            raise NotFound("tag", tag)
        row = head.row
        if row["kind"] == "version":
            return Pushed(row["id"], row["version_hash"].hex(), row["tag"], row["tag_version"], created=False)
        content = await self._whole(head)

        try:
            async with tags.explained(tag):
                moved = await self._database.run_alone(lambda conn: self._compact(conn, row, content, actor))
        except TagConflict as conflict:
            if conflict.why != "moved":
                raise
            return None
        return Pushed(moved["target_id"], row["version_hash"].hex(), row["tag"], moved["version"], compacted=True)

    def _patched(
        self, head: Materials | None, verb: str, data: Any, ops: list[Op], merged_id: int | None = None
    ) -> _New:
        """Check what operations have made of a document; what they did not touch is as it was."""
        checked = check_document(Document(data), like=self._reader.shape_of(head), changed=touched_nodes(ops))
        return _New(verb, checked, ops, merged_id)

    async def _document(self, head: Materials | None) -> dict[str, Any]:
        assert head is not None
        return await self._reader.document(head)

    async def _kept(self, text: bytes, begun: Awaitable[Content] | None = None) -> Content:
        return await pack(text, self._settings, self._reader.blobs, begun)

    async def _whole(self, head: Materials) -> Content:
        """Return the document of patches as it is kept; there will be one for each few of them, for ever."""
        text = orjson.dumps(await self._reader.document(head))
        return await self._kept(text, packing(text, self._settings, small=True))

    async def _change(self, wish: Wish, make: _Make, *, makes_tag: bool = False) -> Pushed:
        """Make a change on what the tag is at, and anew when somebody else was quicker and nothing else is expected."""
        return await self._repeated(wish.tag, lambda: self._tried(wish, make, makes_tag))

    async def _repeated(self, tag: str, attempt: Callable[[], Awaitable[Pushed | None]]) -> Pushed:
        for _ in range(_TRIES_OUT_OF_TURN):
            if (done := await attempt()) is not None:
                return done
        async with self._turn(tag):
            for _ in range(_TRIES):
                if (done := await attempt()) is not None:
                    return done
        raise await self._conflict(tag)

    async def _tried(self, wish: Wish, make: _Make, makes_tag: bool) -> Pushed | None:
        """Make a change once; None when somebody else has moved the tag meanwhile."""
        head = await self._reader.find(tag=wish.tag)
        if head is None and not makes_tag:
            raise NotFound("tag", wish.tag)
        if not _is_expected(wish, head):
            raise await self._conflict(wish.tag)
        new = await make(head)
        if new is None:
            assert head is not None
            row = head.row
            return Pushed(row["id"], row["version_hash"].hex(), row["tag"], row["tag_version"], created=False)
        try:
            return await self._write(wish, head, new)
        except TagConflict as conflict:
            if conflict.why != "moved" or wish.expected_version is not None or wish.expected_hash is not None:
                raise
            return None

    @asynccontextmanager
    async def _turn(self, tag: str) -> AsyncIterator[None]:
        """Wait until it is one's turn among those who were too slow: each has it once, in their order."""
        # One a client: whoever waits for a turn keeps a connection from those who have theirs.
        async with self._reader.turns, self._database.acquire() as conn:
            transaction = conn.transaction()
            await transaction.start()
            try:
                patience = f"{int(800 * self._database.command_timeout)}ms"
                async with tags.explained(tag):
                    await conn.execute(tags.SQL.take_turn, self._org_id, tag, patience)
                yield
            finally:
                # What was done in the meantime stands, whatever becomes of the turn.
                with suppress(*CONNECTION_ERRORS, asyncpg.PostgresError):
                    await transaction.rollback()

    async def _conflict(self, tag: str) -> TagConflict:
        """Return what tells who has moved the tag, when, to what."""
        now = await self._database.read(lambda conn: conn.fetchrow(tags.SQL.now, self._org_id, tag))
        return TagConflict(tag if now is None else now["tag"], "moved", dict(now or {"version": 0}))

    async def _write(self, wish: Wish, head: Materials | None, new: _New) -> Pushed:
        sound(new.checked)
        text = orjson.dumps(new.checked.document.data)
        content = await self._kept(text if new.ops is None else orjson.dumps(new.ops), new.packed)
        is_crowded = new.ops is not None and head is not None and head.row["depth"] >= self._settings.compaction_depth
        if head is not None and is_crowded:
            moved = await self._compact_and_put(wish, head, new, content)
        else:
            onto = _Onto.of(head, wish.tag)
            async with tags.explained(onto.tag):
                moved = await self._database.run_alone(lambda conn: self._put(conn, wish, onto, new, content))
        self._reader.remember(moved["target_id"], wish.tag, text, new.checked.shape)
        return Pushed(
            moved["target_id"], new.checked.version_hash, moved["name"], moved["version"], compacted=is_crowded
        )  # fmt: skip

    async def _compact_and_put(
        self, wish: Wish, head: Materials, new: _New, content: Content
    ) -> Record:  # fmt: skip
        whole = await self._whole(head)

        async def write(conn: type_Connection) -> Record:
            base = await self._compact(conn, head.row, whole, wish.actor)
            return await self._put(conn, wish, _Onto(base["name"], base["target_id"], base["version"]), new, content)

        async with tags.explained(wish.tag):
            return await self._database.run(write)

    async def _put(self, conn: type_Connection, wish: Wish, onto: _Onto, new: _New, content: Content) -> Record:
        kind, workflow_id = "version" if new.ops is None else "patch", new.checked.document.data["workflow_id"]
        moved = await conn.fetchrow(
            SQL.put_on_tag, self._org_id, onto.tag, new.verb, kind, workflow_id, onto.parent_id, new.merged_id,
            content.digest, content.bytes, content.stored, bytes.fromhex(new.checked.version_hash), wish.actor,
            wish.message, onto.version, wish.force,
        )  # fmt: skip
        assert moved is not None
        return moved

    async def _compact(self, conn: type_Connection, row: Record, whole: Content, actor: str) -> Record:
        moved = await conn.fetchrow(
            SQL.compact, self._org_id, row["tag"], row["workflow_id"], row["id"], whole.digest, whole.bytes,
            whole.stored, row["version_hash"], actor, row["tag_version"],
        )  # fmt: skip
        assert moved is not None
        return moved


class _Onto(NamedTuple):
    """What a new artifact is put onto: a tag, the artifact at which it is, and the version of the tag."""

    tag: str
    parent_id: int | None
    version: int

    @classmethod
    def of(cls, head: Materials | None, tag: str) -> _Onto:
        if head is None:
            # A bare name means the main line to every verb that is to find it again.
            return cls(tag if "/" in tag else f"{tag}/main", None, 0)
        return cls(head.row["tag"], head.row["id"], head.row["tag_version"])


def _is_expected(wish: Wish, head: Materials | None) -> bool:
    version, hash_ = (0, "") if head is None else (head.row["tag_version"], head.row["version_hash"].hex())
    return wish.expected_version in (None, version) and hash_.startswith(wish.expected_hash or "")
