"""Changes of a workflow, each one move of a tag, or nothing; made anew when somebody else was quicker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg
import orjson

from weft.core.errors import NotFound, TagConflict
from weft.core.settings import Settings
from weft.db.database import CONNECTION_ERRORS
from weft.flow.diff import diff
from weft.flow.document import Document
from weft.flow.patches import Op, check_ops
from weft.flow.reading import sound
from weft.flow.validation import check_document
from weft.history import tags
from weft.history.contents import Content, packing
from weft.history.model import Pushed, Wish
from weft.history.proposals import Merge, New, Patch, Proposal, Push, Revert
from weft.history.reading import SQL, Materials, Reader
from weft.queue.audit import where_from, why

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

# So often a change is made anew on what somebody else has moved the tag to meanwhile, before one waits for one's turn,
# and in it.
_TRIES_OUT_OF_TURN = 4
_TRIES = 100


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
        async with self._asked(wish.tag) as head:
            checked = check_document(document, like=self._reader.shape_at(wish.tag))
            sound(checked)
            return await self._change(wish, Push(self._reader, checked, packed), head)

    async def patch(self, wish: Wish, ops: Sequence[Op]) -> Pushed:
        """Apply a JSON Patch to what a tag is at; the result must be sound, or nothing is changed."""
        checked = check_ops(list(ops))
        return await self._change(wish, Patch(self._reader, lambda _data: checked))

    async def edit(self, wish: Wish, change: Callable[[dict[str, Any]], list[Op]]) -> Pushed:
        """Apply the operations that ``change`` makes of what a tag is at."""
        return await self._change(wish, Patch(self._reader, change))

    async def merge(self, wish: Wish, other_id: int, prefer: str | None = None) -> Pushed:
        """Take over what another line has changed since both parted; raises `MergeConflict`, and merges nothing."""
        return await self._change(wish, Merge(self._reader, wish.tag, other_id, prefer))

    async def revert(self, wish: Wish, artifact_id: int, parent_id: int, prefer: str | None = None) -> Pushed:
        """Take back what one patch has changed, and keep what came after it."""
        return await self._change(wish, Revert(self._reader, wish.tag, artifact_id, parent_id, prefer))

    async def compact(self, wish: Wish) -> Pushed:
        """Make a version of a tag's patches that means the same; no step that undo would take back."""
        return await self._repeated(wish.tag, lambda: self._compacted(wish))

    async def _compacted(self, wish: Wish) -> Pushed | None:
        """Compact a tag once; None when somebody else has moved it meanwhile."""
        head = await self._reader.find(tag=wish.tag)
        if head is None:
            raise NotFound("tag", wish.tag)
        if not _is_expected(wish, head):
            raise await self._conflict(wish.tag)
        if head.row["kind"] == "version":
            return _unchanged(head)
        row, whole = head.row, await self._whole(head)
        try:
            async with tags.explained(wish.tag):
                moved = await self._database.run_alone(lambda conn: self._compact(conn, row, whole, wish.actor))
        except TagConflict as conflict:
            if conflict.why != "moved":
                raise
            return None
        return Pushed(moved["target_id"], row["version_hash"].hex(), row["tag"], moved["version"], compacted=True)

    # --- one change, tried until nobody comes between ---

    @asynccontextmanager
    async def _asked(self, tag: str) -> AsyncIterator[asyncio.Task[Materials | None]]:
        """Ask what a tag is at, and lend the answer: what is done meanwhile takes no longer for it."""
        asked = asyncio.create_task(self._reader.find(tag=tag))
        try:
            await asyncio.sleep(0)  # until the question is on its way
            yield asked
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _change(
        self, wish: Wish, proposal: Proposal, asked: asyncio.Task[Materials | None] | None = None
    ) -> Pushed:
        """Make a change on what the tag is at, and anew when somebody else was quicker and nothing else is expected.

        What the tag is at may have been ``asked`` already: that is good for one try.
        """
        answers = iter([asked] if asked is not None else [])
        return await self._repeated(wish.tag, lambda: self._tried(wish, proposal, next(answers, None)))

    async def _repeated(self, tag: str, attempt: Callable[[], Awaitable[Pushed | None]]) -> Pushed:
        for _ in range(_TRIES_OUT_OF_TURN):
            if (done := await attempt()) is not None:
                return done
        async with self._turn(tag):
            for _ in range(_TRIES):
                if (done := await attempt()) is not None:
                    return done
        raise await self._conflict(tag)

    async def _tried(
        self, wish: Wish, proposal: Proposal, asked: asyncio.Task[Materials | None] | None
    ) -> Pushed | None:
        """Make a change once; None when somebody else has moved the tag meanwhile."""
        head = await (self._reader.find(tag=wish.tag) if asked is None else asked)
        begun = proposal.on_nothing(wish.tag) if head is None else None
        if not _is_expected(wish, head):
            raise await self._conflict(wish.tag)
        new = begun or (None if head is None else await proposal.on(head))
        if new is None:
            return None if head is None else replace(_unchanged(head), is_dry_run=wish.dry_run)
        try:
            return await (self._rehearse if wish.dry_run else self._write)(wish, head, new)
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

    # --- what is written ---

    async def _write(self, wish: Wish, head: Materials | None, new: New) -> Pushed:
        sound(new.checked)
        text = orjson.dumps(new.checked.document.data)
        content = await self._reader.pack(text if new.ops is None else orjson.dumps(new.ops), new.packed)
        is_crowded = new.ops is not None and head is not None and head.row["depth"] >= self._settings.compaction_depth
        if head is not None and is_crowded:
            moved = await self._compact_and_put(wish, head, new, content)
        else:
            onto = _Onto.of(head, wish.tag)
            async with tags.explained(onto.tag):
                moved = await self._database.run_alone(lambda conn: self._put(conn, wish, onto, new, content))
        self._reader.remember(moved["target_id"], wish.tag, text, new.checked.shape)
        hash_, version = new.checked.version_hash, moved["version"]
        return Pushed(moved["target_id"], hash_, moved["name"], version, compacted=is_crowded)

    async def _rehearse(self, wish: Wish, head: Materials | None, new: New) -> Pushed:
        """Return what a change would make: it is written, so that whatever would refuse it does, and taken back."""
        sound(new.checked)
        data, onto = new.checked.document.data, _Onto.of(head, wish.tag)
        content = Content(orjson.dumps(data if new.ops is None else new.ops), self._settings.inline_limit)
        differs = diff({} if head is None else await self._reader.document(head), data)
        moved: list[Record] = []
        with suppress(_Rehearsed):
            async with tags.explained(onto.tag), self._database.transaction() as conn:
                moved.append(await self._put(conn, wish, onto, new, content))
                raise _Rehearsed
        hash_, version = new.checked.version_hash, moved[0]["version"]
        return Pushed(onto.parent_id or 0, hash_, moved[0]["name"], version, is_dry_run=True, diff=differs)

    async def _compact_and_put(self, wish: Wish, head: Materials, new: New, content: Content) -> Record:
        whole = await self._whole(head)

        async def write(conn: type_Connection) -> Record:
            base = await self._compact(conn, head.row, whole, wish.actor)
            return await self._put(conn, wish, _Onto(base["name"], base["target_id"], base["version"]), new, content)

        async with tags.explained(wish.tag):
            return await self._database.run(write)

    async def _put(self, conn: type_Connection, wish: Wish, onto: _Onto, new: New, content: Content) -> Record:
        kind, workflow_id = "version" if new.ops is None else "patch", new.checked.document.data["workflow_id"]
        what = kind, workflow_id, onto.parent_id, new.merged_id
        kept = content.digest, content.bytes, content.stored, bytes.fromhex(new.checked.version_hash)
        how = wish.actor, wish.message, onto.version, wish.force, wish.replaces, where_from(), why()
        moved = await conn.fetchrow(SQL.put_on_tag, self._org_id, onto.tag, new.verb, *what, *kept, *how)
        assert moved is not None
        return moved

    async def _compact(self, conn: type_Connection, row: Record, whole: Content, actor: str) -> Record:
        what = row["tag"], row["workflow_id"], row["id"]
        kept = whole.digest, whole.bytes, whole.stored, row["version_hash"]
        moved = await conn.fetchrow(
            SQL.compact, self._org_id, *what, *kept, actor, row["tag_version"], where_from(), why()
        )
        assert moved is not None
        return moved

    async def _whole(self, head: Materials) -> Content:
        """Return the document of patches as it is kept; there will be one for each few of them, for ever."""
        text = orjson.dumps(await self._reader.document(head))
        return await self._reader.pack(text, packing(text, self._settings, small=True))


class _Rehearsed(Exception):
    """What was written is not to stay."""


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


def _unchanged(head: Materials) -> Pushed:
    row = head.row
    return Pushed(row["id"], row["version_hash"].hex(), row["tag"], row["tag_version"], created=False)


def _is_expected(wish: Wish, head: Materials | None) -> bool:
    version, hash_ = (0, None) if head is None else (head.row["tag_version"], head.row["version_hash"].hex())
    return wish.expected_version in (None, version) and wish.expected_hash in (None, hash_)
