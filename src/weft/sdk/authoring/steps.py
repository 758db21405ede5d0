"""What a composed workflow consists of before it is a document: steps, the branches and groups that they are in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.sdk.authoring.places import Place


class Branch(NamedTuple):
    """A way on from a conditional: the first is taken when its condition holds, the second when not."""

    conditional: str
    number: int


# The branches that a step is in, the outermost first.
Scope = tuple[Branch, ...]


@dataclass
class Step:
    """A node to be: what it says, which others it needs, in which branches it is, and the author's line."""

    name: str
    entry: dict[str, Any]
    needs: dict[str, None]
    scope: Scope
    place: Place
    group: str | None = None

    @property
    def is_conditional(self) -> bool:
        """Whether it leads on by branches."""
        return self.entry.get("type") == "conditional"


@dataclass
class GroupLinks:
    """What a group waits for, and what waits for it."""

    scope: Scope
    place: Place
    after: dict[str, None] = field(default_factory=dict)
    before: dict[str, None] = field(default_factory=dict)
