"""What errors about definitions tell of: a place in a document, and what is the matter there."""

from __future__ import annotations

from typing import Any, Protocol

FieldPath = tuple[str | int, ...]


class DefinitionProblem(Protocol):
    """One thing that is wrong with a definition; `weft.flow.problems` makes them."""

    @property
    def code(self) -> str:
        """What it is, for programs."""

    @property
    def path(self) -> FieldPath:
        """Where it is in the document."""

    @property
    def message(self) -> str:
        """What it is, for people."""

    @property
    def line(self) -> int | None:
        """Where it is in the file, from 1, if there is one."""

    @property
    def column(self) -> int | None:
        """Where it is on the line, from 1."""

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""


class FieldConflict(Protocol):
    """A field that both sides of a merge have changed, each in its own way; `weft.flow.merging` makes them."""

    @property
    def path(self) -> FieldPath:
        """Where it is in the document."""

    @property
    def node(self) -> str | None:
        """The node that it is in, if it is in one."""

    @property
    def base(self) -> Any:
        """What it was when both parted."""

    @property
    def ours(self) -> Any:
        """What it is where something is merged into."""

    @property
    def theirs(self) -> Any:
        """What it is on the other side."""

    def to_json(self) -> dict[str, Any]:
        """Return it for programs: a side that has no value has no key."""
