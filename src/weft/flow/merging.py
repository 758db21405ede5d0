"""Three-way merges of definitions, field by field; nothing is merged by halves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.json import Json
from weft.flow.diff import ABSENT
from weft.flow.identity import canonical_json
from weft.flow.patches import same
from weft.flow.problems import Path, dotted


@dataclass(frozen=True)
class Conflict:
    """A field that both sides changed, each in its own way; what a side does not have is `ABSENT`."""

    path: Path
    base: Json
    ours: Json
    theirs: Json

    @property
    def node(self) -> str | None:
        """The node that it is in, if it is in one."""
        return str(self.path[1]) if len(self.path) > 1 and self.path[0] == "nodes" else None

    def __str__(self) -> str:
        return f"{dotted(self.path)}: ours {_shown(self.ours)}, theirs {_shown(self.theirs)}"

    def to_json(self) -> dict[str, Json]:
        """Return the conflict for programs: a side that has no value has no key."""
        sides = {"base": self.base, "ours": self.ours, "theirs": self.theirs}
        return {
            "path": dotted(self.path),
            "node": self.node,
            "field": dotted(self.path if self.node is None else self.path[2:]),
            **{side: value for side, value in sides.items() if value is not ABSENT},
        }


def merge(
    base: Mapping[str, Json], ours: Mapping[str, Json], theirs: Mapping[str, Json], prefer: str | None = None
) -> tuple[dict[str, Json], list[Conflict]]:
    """Return ours with what theirs changed since ``base``, and what both changed differently.

    With ``prefer``, ``ours`` or ``theirs``, such fields are taken from that side and are no conflicts.
    """
    conflicts: list[Conflict] = []
    merged = _merge(dict(base), dict(ours), dict(theirs), (), prefer, conflicts)
    return merged, conflicts


def _merge(base: Json, ours: Json, theirs: Json, path: Path, prefer: str | None, conflicts: list[Conflict]) -> Json:
    if _equal(ours, theirs) or _equal(base, theirs):
        return ours
    if _equal(base, ours):
        return theirs
    if isinstance(ours, dict) and isinstance(theirs, dict):
        before = base if isinstance(base, dict) else {}
        found = {}
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            value = _merge(
                before.get(key, ABSENT), ours.get(key, ABSENT), theirs.get(key, ABSENT), (*path, key), prefer, conflicts
            )
            if value is not ABSENT:
                found[key] = value
        return found
    if prefer is None:
        conflicts.append(Conflict(path, base, ours, theirs))
    return theirs if prefer == "theirs" else ours


def _equal(one: Json, other: Json) -> bool:
    return one is other or (one is not ABSENT and other is not ABSENT and same(one, other))


def _shown(value: Json) -> str:
    return "removed" if value is ABSENT else canonical_json(value).decode()[:80]
