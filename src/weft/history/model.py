"""What the history consists of, as callers see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weft.flow.diff import Diff
from weft.flow.model import WorkflowDefinition

# What comes in lists of thousands is not frozen: that would take five times as long to make.


@dataclass(slots=True)
class Artifact:
    """A version, a patch or a snapshot; ``version_hash`` is of what its document means."""

    id: int
    kind: str
    workflow_id: str
    parent_id: int | None
    merged_id: int | None
    base_id: int | None
    depth: int
    digest: str
    version_hash: str
    actor: str
    message: str | None
    created_at: datetime
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class Tag:
    """Where a name stands; ``version`` counts its moves."""

    name: str
    workflow_id: str
    target_id: int
    version: int
    moved_at: datetime
    moved_by: str
    is_protected: bool
    target_kind: str | None = None
    target_hash: str | None = None
    deleted_at: datetime | None = None


@dataclass(slots=True)
class TagMove:
    """One move of a tag; an undo or redo says by ``position`` which move is in effect after it."""

    version: int
    verb: str
    from_id: int | None
    to_id: int | None
    position: int
    moved_at: datetime
    moved_by: str
    message: str | None


@dataclass(frozen=True, slots=True)
class Materialized:
    """A whole document: what an artifact and all that it is made of give.

    ``snapshot_id`` is the artifact that has it whole, when there is one; ``damage`` tells of one that could not be
    read, and was passed over for the patches that it is made of.
    """

    artifact_id: int
    kind: str
    depth: int
    version_hash: str
    data: Mapping[str, Any]
    tag: str | None = None
    tag_version: int | None = None
    snapshot_id: int | None = None
    damage: str | None = None

    @property
    def definition(self) -> WorkflowDefinition:
        """The document as a definition."""
        from weft.flow.document import Document
        from weft.flow.reading import sound
        from weft.flow.validation import check_document

        return sound(check_document(Document(self.data))).model_copy(deep=True)


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants a change, why, of which tag, and what they expect it to be at.

    ``force`` moves a protected tag; ``replaces`` names the other workflow that a tag is of, and will not be any more.
    ``dry_run`` changes nothing.
    """

    tag: str
    actor: str
    message: str | None = None
    expected_version: int | None = None
    expected_hash: str | None = None
    force: bool = False
    replaces: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push, a patch, a merge or a revert; ``created`` is False when there was nothing to change.

    Of a dry run it is what would become of it, with the ``diff`` to what the tag is at; ``artifact_id`` is then that
    at which the tag stays, 0 when there is no such tag.
    """

    artifact_id: int
    version_hash: str
    tag: str
    tag_version: int
    created: bool = True
    compacted: bool = False
    is_dry_run: bool = False
    diff: Diff | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing in the history that is not as it should be; ``mended`` says what was done about it."""

    code: str
    what: str
    problem: str
    mended: str | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection has removed, or would remove."""

    snapshots: int = 0
    patches: int = 0
    blobs: int = 0
    bytes: int = 0
    is_dry_run: bool = False
