"""What differs between two definitions, node by node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.core.json import Json
from weft.flow.patches import Op, ops_between, same
from weft.flow.problems import Path, dotted, path_in


@dataclass(frozen=True)
class Change:
    """A field that differs; what is not there on one side is `ABSENT`."""

    path: Path
    old: Json
    new: Json

    def to_json(self) -> dict[str, Json]:
        """Return the change for programs: a side that has no value has no key."""
        sides = {"old": self.old, "new": self.new}
        return {"path": dotted(self.path), **{side: value for side, value in sides.items() if value is not ABSENT}}

    @classmethod
    def from_json(cls, told: Mapping[str, Json]) -> Change:
        """Return what `to_json` told of."""
        return cls(path_in(told["path"]) or (), told.get("old", ABSENT), told.get("new", ABSENT))


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Any = _Absent()
# Of a workflow, and of a live DAG.
_PARTS = ("nodes", "jobs")


@dataclass(frozen=True)
class Diff:
    """What differs: nodes that came, went or changed, and fields outside of nodes."""

    added: dict[str, Json] = field(default_factory=dict)
    removed: dict[str, Json] = field(default_factory=dict)
    changed: dict[str, list[Change]] = field(default_factory=dict)
    outside: list[Change] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.ops)

    def to_json(self) -> dict[str, Json]:
        """Return the difference for programs."""
        return {
            "nodes": {
                "added": self.added,
                "removed": self.removed,
                "changed": {name: [each.to_json() for each in changes] for name, changes in self.changed.items()},
            },
            "outside": [change.to_json() for change in self.outside],
            "patch": self.ops,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Json]) -> Diff:
        """Return what `to_json` told of."""
        nodes = told["nodes"]
        changed = {name: [Change.from_json(each) for each in found] for name, found in nodes["changed"].items()}
        outside = [Change.from_json(each) for each in told["outside"]]
        return cls(nodes["added"], nodes["removed"], changed, outside, told["patch"])


def diff(old: Mapping[str, Json], new: Mapping[str, Json]) -> Diff:
    """Return what differs between two documents.

    Example::

        found = diff(old.data, new.data)
        print(sorted(found.added), sorted(found.changed))
    """
    before, after = _nodes(old), _nodes(new)
    changed = {name: list(_changes(before[name], after[name], ())) for name in before if name in after}
    rest_before = {key: value for key, value in old.items() if key not in _PARTS}
    rest_after = {key: value for key, value in new.items() if key not in _PARTS}
    return Diff(
        added={name: node for name, node in after.items() if name not in before},
        removed={name: node for name, node in before.items() if name not in after},
        changed={name: changes for name, changes in changed.items() if changes},
        outside=list(_changes(rest_before, rest_after, ())),
        ops=ops_between(dict(old), dict(new)),
    )


def _nodes(data: Mapping[str, Json]) -> dict[str, Json]:
    return {name: node for part in _PARTS if isinstance(data.get(part), dict) for name, node in data[part].items()}


def _changes(old: Json, new: Json, path: Path) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _changes(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key))
    elif old is ABSENT or new is ABSENT or not same(old, new):
        yield Change(path, old, new)
