"""Changes of a workflow: pushed whole, patched, merged, reverted, compacted; each is one move of a tag, or nothing."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.core.errors import InvalidInput, MergeConflict, NotFound, TagConflict
from weft.core.settings import Settings
from weft.db.blobs import Blobs
from weft.flow.document import Document
from weft.flow.identity import version_hash
from weft.flow.merging import merge
from weft.flow.patches import Op, apply_ops, check_ops, ops_between, same
from weft.flow.reading import sound
from weft.flow.validation import check_document
from weft.history import artifacts, tags
from weft.history.artifacts import Materials, plan_of_version, plan_with
from weft.history.contents import Content, content_of
from weft.history.model import Pushed

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database, type_Connection

# So often a change is made anew on what somebody else has moved the tag to meanwhile.
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants a change, why, of which tag, and what they expect it to be at."""

    tag: str
    actor: str
    message: str | None = None
    expected_version: int | None = None
    expected_hash: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class _New:
    """What a change makes of a document."""

    verb: str
    data: dict[str, Any]
    ops: list[Op] | None = None
    merged_id: int | None = None


class Changes:
    """Makes changes in one org."""

    def __init__(self, database: Database, org_id: int, blobs: Callable[[], Blobs]) -> None:
        self._database = database
        self._org_id = org_id
        self._blobs = blobs

    @property
    def _settings(self) -> Settings:
        return self._database.settings

    async def push(self, wish: Wish, data: Mapping[str, Any]) -> Pushed:
        """Make a new version of a whole document; nothing when the tag is at this very document."""
        whole = dict(data)

        async def make(head: Materials | None) -> _New | None:
            if head is not None and same(await head.document(self._blobs), whole):
                return None
            return _New("push", whole)

        return await self._change(wish, make)

    async def patch(self, wish: Wish, ops: Sequence[Op]) -> Pushed:
        """Apply a JSON Patch to what a tag is at; the result must be sound, or nothing is changed."""
        checked = check_ops(list(ops))

        async def make(head: Materials | None) -> _New | None:
            return _New("patch", apply_ops(await self._document(head, wish), checked), checked)

        return await self._change(wish, make)

    async def edit(self, wish: Wish, change: Callable[[dict[str, Any]], list[Op]]) -> Pushed:
        """Apply the operations that ``change`` makes of what a tag is at."""

        async def make(head: Materials | None) -> _New | None:
            data = await self._document(head, wish)
            ops = check_ops(change(copy.deepcopy(data)))
            return _New("patch", apply_ops(data, ops), ops)

        return await self._change(wish, make)

    async def merge(self, wish: Wish, other_id: int, base_id: int, prefer: str | None = None) -> Pushed:
        """Take over what another line has changed since both parted; raises `MergeConflict`, and merges nothing."""
        base, theirs = await self._documents(base_id, other_id)
        return await self._three_way(wish, "merge", f"the merge into {wish.tag!r}", base, theirs, prefer, other_id)

    async def revert(self, wish: Wish, artifact_id: int, parent_id: int, prefer: str | None = None) -> Pushed:
        """Take back what one patch has changed, and keep what came after it."""
        after, before = await self._documents(artifact_id, parent_id)
        what = f"the revert of {artifact_id} in {wish.tag!r}"
        return await self._three_way(wish, "revert", what, after, before, prefer)

    async def _three_way(
        self, wish: Wish, verb: str, what: str, base: dict[str, Any], theirs: dict[str, Any], prefer: str | None,
        merged_id: int | None = None,
    ) -> Pushed:  # fmt: skip
        """Patch what the tag is at by what ``theirs`` has changed of ``base``."""

        async def make(head: Materials | None) -> _New | None:
            ours = await self._document(head, wish)
            merged, conflicts = merge(base, ours, theirs, prefer)
            if conflicts:
                raise MergeConflict(what, conflicts)
            ops = ops_between(ours, merged)
            return _New(verb, merged, ops, merged_id) if ops else None

        return await self._change(wish, make)

    async def compact(self, tag: str, actor: str) -> Pushed:
        """Make a version of a tag's patches that means the same; no step that undo would take back."""
        head = await self._head(tag)
        if head is None:
            raise NotFound("tag", tag)
        row = head.row
        if row["kind"] == "version":
            return Pushed(row["id"], row["version_hash"].hex(), tag, row["tag_version"], created=False)
        content = await self._kept(await head.document(self._blobs))

        async with tags.explained(tag):
            moved = await self._database.run(lambda conn: self._compact(conn, tag, row, content, actor))
        return Pushed(moved["target_id"], row["version_hash"].hex(), tag, moved["version"], compacted=True)

    async def _head(self, tag: str) -> Materials | None:
        return await self._database.read(lambda conn: artifacts.materials(conn, self._org_id, tag=tag))

    async def _document(self, head: Materials | None, wish: Wish) -> dict[str, Any]:
        if head is None:
            raise NotFound("tag", wish.tag)
        return await head.document(self._blobs)

    async def _documents(self, *ids: int) -> list[dict[str, Any]]:
        return [await self._document_of(id) for id in ids]

    async def _document_of(self, artifact_id: int) -> dict[str, Any]:
        found = await self._database.read(lambda conn: artifacts.materials(conn, self._org_id, artifact_id=artifact_id))
        if found is None:
            raise NotFound("version", artifact_id)
        return await found.document(self._blobs)

    async def _kept(self, value: Any) -> Content:
        """Return a value as it is stored; what is large is put into the blob storage first."""
        content = content_of(value, self._settings.inline_limit)
        if content.stored is None:
            if content.bytes > self._settings.value_limit:
                raise InvalidInput(
                    "definition", f"has {content.bytes:,} bytes, and may have {self._settings.value_limit:,}"
                )
            await self._blobs().put(content.data)
        return content

    async def _change(self, wish: Wish, make: Callable[[Materials | None], Awaitable[_New | None]]) -> Pushed:
        """Make a change on what the tag is at, and anew when somebody else was quicker and nothing else is expected."""
        tries = 0
        while True:
            tries += 1
            head = await self._head(wish.tag)
            self._require_expected(wish, head)
            new = await make(head)
            if new is None:
                assert head is not None
                row = head.row
                return Pushed(row["id"], row["version_hash"].hex(), wish.tag, row["tag_version"], created=False)
            try:
                return await self._write(wish, head, new)
            except TagConflict as conflict:
                is_expected = wish.expected_version is not None or wish.expected_hash is not None
                if conflict.why != "moved" or is_expected or tries >= _TRIES:
                    raise

    def _require_expected(self, wish: Wish, head: Materials | None) -> None:
        if wish.expected_version is None and wish.expected_hash is None:
            return
        found = (0, "") if head is None else (head.row["tag_version"], head.row["version_hash"].hex())
        if wish.expected_version not in (None, found[0]) or not found[1].startswith(wish.expected_hash or ""):
            raise TagConflict(wish.tag, "moved", {"version": found[0], "hash": found[1]})

    async def _write(self, wish: Wish, head: Materials | None, new: _New) -> Pushed:
        hash_ = version_hash(sound(check_document(Document(new.data))))
        content = await self._kept(new.data if new.ops is None else new.ops)
        is_crowded = new.ops is not None and head is not None and head.row["depth"] >= self._settings.compaction_depth
        whole = await self._kept(await head.document(self._blobs)) if head is not None and is_crowded else None

        async def write(conn: type_Connection) -> Record:
            onto = _Onto.of(head)
            if head is not None and whole is not None:
                moved = await self._compact(conn, wish.tag, head.row, whole, wish.actor)
                onto = _Onto(moved["target_id"], moved["target_id"], 0, plan_of_version(whole.digest), moved["version"])
            return await self._put(conn, wish, onto, new, content, hash_)

        async with tags.explained(wish.tag):
            moved = await self._database.run(write)
        return Pushed(moved["target_id"], hash_, wish.tag, moved["version"], compacted=is_crowded)

    async def _put(
        self, conn: type_Connection, wish: Wish, onto: _Onto, new: _New, content: Content, hash_: str
    ) -> Record:
        is_patch = new.ops is not None
        moved = await conn.fetchrow(
            artifacts.SQL.put_on_tag, self._org_id, wish.tag, new.verb, "patch" if is_patch else "version",
            new.data["workflow_id"], onto.parent_id, new.merged_id, onto.base_id if is_patch else None,
            onto.depth + 1 if is_patch else 0, content.digest, content.bytes, content.stored, bytes.fromhex(hash_),
            plan_with(onto.plan, content.digest) if is_patch else None, wish.actor, wish.message, onto.tag_version,
            wish.force,
        )  # fmt: skip
        assert moved is not None
        return moved

    async def _compact(self, conn: type_Connection, tag: str, row: Record, whole: Content, actor: str) -> Record:
        moved = await conn.fetchrow(
            artifacts.SQL.compact, self._org_id, tag, row["workflow_id"], row["id"], whole.digest, whole.bytes,
            whole.stored, row["version_hash"], actor, None, row["tag_version"],
        )  # fmt: skip
        assert moved is not None
        return moved


@dataclass(frozen=True, slots=True)
class _Onto:
    """What a new artifact is put onto: the tag's target, the version under it, and the version of the tag."""

    parent_id: int | None
    base_id: int | None
    depth: int
    plan: bytes
    tag_version: int

    @classmethod
    def of(cls, head: Materials | None) -> _Onto:
        if head is None:
            return cls(None, None, 0, b"", 0)
        row = head.row
        return cls(row["id"], row["base_id"] or row["id"], row["depth"], head.plan, row["tag_version"])
