"""Three-way merges of definitions, field by field; nothing is merged by halves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.json import Json
from weft.flow.diff import ABSENT
from weft.flow.identity import canonical_json
from weft.flow.patches import same
from weft.flow.problems import Path, dotted, path_in

# The fields of a definition that hold its parts by their names.
_NAMED = ("nodes", "inputs", "groups")
# A text that no document has, for it has a NUL: whatever stands there has been changed.
_UNDECIDED = "\x00undecided"


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
        base = ABSENT if self.base is _UNDECIDED else self.base
        sides = {"base": base, "ours": self.ours, "theirs": self.theirs}
        return {
            "path": dotted(self.path),
            "node": self.node,
            "field": dotted(self.path if self.node is None else self.path[2:]),
            **{side: value for side, value in sides.items() if value is not ABSENT},
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Json]) -> Conflict:
        """Return what `to_json` told of."""
        sides = [told.get(side, ABSENT) for side in ("base", "ours", "theirs")]
        return cls(path_in(told["path"]) or (), *sides)


def merge(
    base: Mapping[str, Json], ours: Mapping[str, Json], theirs: Mapping[str, Json], prefer: str | None = None
) -> tuple[dict[str, Json], list[Conflict]]:
    """Return ours with what theirs changed since ``base``, and what both changed differently.

    With ``prefer``, ``ours`` or ``theirs``, such fields are taken from that side and are no conflicts.
    """
    conflicts: list[Conflict] = []
    merged = _merge(dict(base), dict(ours), dict(theirs), (), prefer, conflicts)
    return merged, conflicts


def merge_bases(base: Mapping[str, Json], one: Mapping[str, Json], other: Mapping[str, Json]) -> dict[str, Json]:
    """Return what two documents give together, as the base of a merge: what they do not agree on is like nothing."""
    found: dict[str, Json] = _merge(dict(base), dict(one), dict(other), (), _UNDECIDED, [])
    return found


def _merge(base: Json, ours: Json, theirs: Json, path: Path, prefer: str | None, conflicts: list[Conflict]) -> Json:
    if _equal(ours, theirs) or _equal(base, theirs):
        return ours
    if _equal(base, ours):
        return theirs
    if isinstance(ours, dict) and isinstance(theirs, dict) and _has_fields(base, path):
        before = {} if base is ABSENT else base
        found = {}
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            value = _merge(
                before.get(key, ABSENT), ours.get(key, ABSENT), theirs.get(key, ABSENT), (*path, key), prefer, conflicts
            )
            if value is not ABSENT:
                found[key] = value
        return found
    if prefer is _UNDECIDED:
        return _UNDECIDED
    if prefer is None:
        conflicts.append(Conflict(path, base, ours, theirs))
    return theirs if prefer == "theirs" else ours


def _has_fields(base: Json, path: Path) -> bool:
    """Whether what both sides have changed is looked at field by field.

    Not where both have made something of what was no mapping, and not a node, an input or a group that both have added:
    of two things of one name nobody wants the half of each.
    """
    return not _is_whole(path) if base is ABSENT else isinstance(base, dict)


def _is_whole(path: Path) -> bool:
    return len(path) == 2 and path[0] in _NAMED


def _equal(one: Json, other: Json) -> bool:
    return one is other or (one is not ABSENT and other is not ABSENT and same(one, other))


def _shown(value: Json) -> str:
    return "removed" if value is ABSENT else canonical_json(value).decode()[:80]
