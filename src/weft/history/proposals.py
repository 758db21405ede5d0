"""What each kind of change makes of the document that a tag is at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from weft.core.errors import InvalidInput, MergeConflict, NotFound
from weft.flow.document import Document
from weft.flow.merging import merge, merge_bases
from weft.flow.patches import Op, apply_ops, check_ops, ops_between, same, touched_nodes
from weft.flow.validation import Checked, check_document
from weft.history import artifacts
from weft.history.contents import Content
from weft.history.reading import Materials, Reader


@dataclass(frozen=True, slots=True)
class New:
    """What a change makes of a document: a version, or a patch when there are ``ops``."""

    verb: str
    checked: Checked
    ops: list[Op] | None = None
    merged_id: int | None = None
    packed: Awaitable[Content] | None = None


@dataclass(frozen=True, slots=True)
class Proposal(ABC):
    """A change that is tried on what a tag is at, and again on what somebody else has moved it to meanwhile."""

    reader: Reader

    @abstractmethod
    async def on(self, head: Materials) -> New | None:
        """Return what it makes of what the tag is at; None when there is nothing to change."""

    def on_nothing(self, tag: str) -> New:
        """Return what it makes where there is no such tag; raises `NotFound` unless it can begin one."""
        raise NotFound("tag", tag)

    def patched(
        self, head: Materials, verb: str, data: dict[str, Any], ops: list[Op], merged_id: int | None = None
    ) -> New:
        """Apply operations to a document of one's own, and check what they touched: the rest is as it was."""
        made = Document(apply_ops(data, ops))
        checked = check_document(made, like=self.reader.shape_of(head), changed=touched_nodes(ops))
        return New(verb, checked, ops, merged_id)


@dataclass(frozen=True, slots=True)
class Push(Proposal):
    """A whole document, which was found sound."""

    checked: Checked
    packed: Awaitable[Content]

    async def on(self, head: Materials) -> New | None:
        """Return a new version, unless the tag is at this very document."""
        return None if await _is_at(self.reader, head, self.checked) else self.on_nothing("")

    def on_nothing(self, tag: str) -> New:
        """Return the first version of a tag."""
        return New("push", self.checked, packed=self.packed)


@dataclass(frozen=True, slots=True)
class Patch(Proposal):
    """Operations, which may depend on the document that they are applied to."""

    ops_for: Callable[[dict[str, Any]], list[Op]]

    async def on(self, head: Materials) -> New | None:
        """Return the patch, unless it changes nothing; raises `InvalidInput` when it cannot be applied here."""
        data = await self.reader.document(head)
        new = self.patched(head, "patch", data, check_ops(self.ops_for(data)))
        return None if await _is_at(self.reader, head, new.checked) else new


@dataclass(frozen=True, slots=True)
class Merge(Proposal):
    """What another line has changed since both parted."""

    tag: str
    other_id: int
    prefer: str | None

    async def on(self, head: Materials) -> New | None:
        """Return the patch that takes it over; raises `MergeConflict` when both changed a field differently."""
        reader, ours_id = self.reader, head.row["id"]
        # Anew for each try: a tag that was taken back meanwhile has parted earlier.
        parted = await _parted_at(reader, ours_id, self.other_id)
        base, theirs = await _common(reader, parted), await _document(reader, self.other_id)
        ours = await reader.document(head)
        ops = _taken_over(base, ours, theirs, self.prefer, f"the merge into {self.tag!r}")
        # Of two lines that went on apart it is noted also when nothing is taken over: what was decided now would be
        # asked again at the next merge.
        went_apart = ours_id not in parted and self.other_id not in parted
        return self.patched(head, "merge", ours, ops, self.other_id) if ops or went_apart else None


@dataclass(frozen=True, slots=True)
class Revert(Proposal):
    """What one change has done, taken back; what came after it stays."""

    tag: str
    change_id: int
    parent_id: int
    prefer: str | None

    async def on(self, head: Materials) -> New | None:
        """Return the patch that takes it back; raises `MergeConflict` when a field was changed again since."""
        change, workflow_id = await self.reader.of(self.change_id), head.row["workflow_id"]
        if change.row["workflow_id"] != workflow_id:
            problem = f"{self.change_id} is one of workflow {change.row['workflow_id']!r}, and {self.tag!r} of"
            raise InvalidInput("change", f"{problem} {workflow_id!r}: there is nothing to take back")
        after, before = await self.reader.document(change), await _document(self.reader, self.parent_id)
        ours = await self.reader.document(head)
        ops = _taken_over(after, ours, before, self.prefer, f"the revert of {self.change_id} in {self.tag!r}")
        return self.patched(head, "revert", ours, ops) if ops else None


async def _is_at(reader: Reader, head: Materials, checked: Checked) -> bool:
    """Whether a tag is at this very document, what is for people included."""
    if not checked.is_sound or head.row["version_hash"].hex() != checked.version_hash:
        return False
    return same(await reader.document(head), checked.document.data)


async def _parted_at(reader: Reader, one: int, other: int) -> list[int]:
    return await reader.database.read(lambda conn: artifacts.parted_at(conn, reader.org_id, one, other))


async def _common(reader: Reader, parted: list[int]) -> dict[str, Any]:
    """Return the document from which two lines went apart: of several the one that they give together.

    Lines that were merged into each other have parted at several places. By either of these alone, what one line has
    taken back since would look as if it had never been changed there, and came back.
    """
    first, *others = parted
    found = await _document(reader, first)
    for other in others:
        earlier = await _common(reader, await _parted_at(reader, first, other))
        found = merge_bases(earlier, found, await _document(reader, other))
    return found


async def _document(reader: Reader, artifact_id: int) -> dict[str, Any]:
    return await reader.document(await reader.of(artifact_id))


def _taken_over(
    base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], prefer: str | None, what: str
) -> list[Op]:
    """Return the operations that take over into ``ours`` what ``theirs`` has changed of ``base``.

    Operations, and not what was merged, whose fields may stand in another order than others will put together.
    """
    merged, conflicts = merge(base, ours, theirs, prefer)
    if conflicts:
        raise MergeConflict(what, conflicts)
    return ops_between(ours, merged)
