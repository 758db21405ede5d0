"""The history of definitions as plain Python: documents that never change, and an editor's undo for each tag."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]
Op = dict[str, Any]
Place = tuple[str, ...]

MISSING: Any = object()
# What two versions that are merged into each other disagree on: no document has it.
UNDECIDED = "\x00"


class Refused(Exception):
    """What the product must answer instead of changing something: the name of its error."""

    def __init__(self, error: str, conflicts: set[tuple[str | None, Place]] | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.conflicts = conflicts


@dataclass(frozen=True, eq=False)
class Version:
    """A document, and what it was made from."""

    number: int
    text: str
    parent: Version | None
    merged: Version | None
    depth: int

    @property
    def document(self) -> Document:
        """A copy, so that nobody changes it."""
        return dict(json.loads(self.text))


@dataclass
class ModelMove:
    verb: str
    to: Version | None


@dataclass
class ModelTag:
    """A tag with its undo stack: ``done[:place + 1]`` can be taken back down to the first, the rest made again."""

    name: str
    target: Version
    done: list[Version]
    place: int = 0
    is_protected: bool = False
    is_deleted: bool = False
    moves: list[ModelMove] = field(default_factory=list)

    @property
    def version(self) -> int:
        return len(self.moves)

    @property
    def can_undo(self) -> bool:
        return not self.is_deleted and self.place > 0

    @property
    def can_redo(self) -> bool:
        return not self.is_deleted and self.place + 1 < len(self.done)


class Model:
    """All tags of one workflow, and every version that ever was."""

    def __init__(self, compaction_depth: int) -> None:
        self.compaction_depth = compaction_depth
        self.tags: dict[str, ModelTag] = {}
        self.versions: list[Version] = []

    # --- the verbs ---

    def push(self, name: str, document: Document, *, expect: int | None = None, force: bool = False) -> bool:
        """False: it is there already."""
        self._require_sound(document)
        tag = self._live(name)
        self._require(expect, tag)
        if tag is not None and same(tag.target.document, document):
            return False
        self._require_free(self.tags.get(name), force)
        self._set(name, "push", self._make(document, None if tag is None else tag.target))
        return True

    def patch(self, name: str, ops: list[Op], *, expect: int | None = None, force: bool = False) -> bool:
        """False: it changes nothing."""
        tag = self._known(name)
        self._require(expect, tag)
        document = applied(tag.target.document, ops)
        if same(tag.target.document, document):
            return False
        self._change(tag, "patch", document, force=force)
        return True

    def merge(self, source: Version | str, into: str, *, prefer: str | None = None, force: bool = False) -> bool:
        """False: there is nothing to take over."""
        ours, theirs = self._known(into), self._known(source).target if isinstance(source, str) else source
        places = parted(ours.target, theirs)
        if not places:
            raise Refused("InvalidInput")
        is_noted = ours.target not in places and theirs not in places
        base = common(places)
        return self._three_way(ours, "merge", base, theirs, prefer, force, merged=theirs, is_noted=is_noted)

    def revert(self, name: str, change: Version, *, prefer: str | None = None, force: bool = False) -> bool:
        tag = self._known(name)
        if change.parent is None:
            raise Refused("InvalidInput")
        return self._three_way(tag, "revert", change.document, change.parent, prefer, force)

    def compact(self, name: str) -> bool:
        """False: there are no patches to make a version of."""
        tag = self._known(name)
        if tag.target.depth == 0:
            return False
        self._compact(tag)
        return True

    def undo(self, name: str, steps: int, *, expect: int | None = None, force: bool = False) -> None:
        self._walk("undo", name, steps, -1, expect, force)

    def redo(self, name: str, steps: int, *, expect: int | None = None, force: bool = False) -> None:
        self._walk("redo", name, steps, 1, expect, force)

    def move(self, name: str, to: Version | str, *, expect: int | None = None, force: bool = False) -> None:
        target = self._known(to).target if isinstance(to, str) else to
        tag = self.tags.get(name)
        if tag is None and expect:
            raise Refused("NotFound")
        if tag is not None:
            self._require(expect, None if tag.is_deleted else tag)
        self._require_free(tag, force)
        self._set(name, "move", target)

    def branch(self, new: str, source: Version | str) -> None:
        self.move(new, source, expect=0)

    def delete(self, name: str, *, force: bool = False) -> None:
        tag = self._known(name)
        self._require_free(tag, force)
        tag.is_deleted = True
        tag.moves.append(ModelMove("delete", None))

    def undelete(self, name: str) -> None:
        tag = self.tags.get(name)
        if tag is None:
            raise Refused("NotFound")
        if not tag.is_deleted:
            raise Refused("StateConflict")
        tag.is_deleted = False
        tag.moves.append(ModelMove("undelete", tag.target))

    def protect(self, name: str, is_protected: bool) -> None:
        self._known(name).is_protected = is_protected

    # --- what they have in common ---

    def _live(self, name: str) -> ModelTag | None:
        tag = self.tags.get(name)
        return None if tag is None or tag.is_deleted else tag

    def _known(self, name: str) -> ModelTag:
        tag = self._live(name)
        if tag is None:
            raise Refused("NotFound")
        return tag

    def _require(self, expect: int | None, tag: ModelTag | None) -> None:
        if expect is not None and expect != (0 if tag is None else tag.version):
            raise Refused("TagConflict")

    def _require_free(self, tag: ModelTag | None, force: bool) -> None:
        if tag is not None and tag.is_protected and not force:
            raise Refused("TagConflict")

    def _require_sound(self, document: Document) -> None:
        if not is_sound(document):
            raise Refused("InvalidDefinition")

    def _make(
        self, document: Document, parent: Version | None, *, merged: Version | None = None, depth: int = 0
    ) -> Version:
        made = Version(len(self.versions), json.dumps(document), parent, merged, depth)
        self.versions.append(made)
        return made

    def _set(self, name: str, verb: str, target: Version) -> None:
        """Move a tag as one step: what was taken back cannot be made again, and a tag made anew begins anew."""
        tag = self.tags.setdefault(name, ModelTag(name, target, []))
        tag.done = [target] if tag.is_deleted else [*tag.done[: tag.place + 1], target]
        tag.place = len(tag.done) - 1
        tag.target, tag.is_deleted = target, False
        tag.moves.append(ModelMove(verb, target))

    def _change(
        self, tag: ModelTag, verb: str, document: Document, *, force: bool, merged: Version | None = None
    ) -> None:
        self._require_sound(document)
        self._require_free(tag, force)
        if tag.target.depth >= self.compaction_depth:
            self._compact(tag)
        self._set(tag.name, verb, self._make(document, tag.target, merged=merged, depth=tag.target.depth + 1))

    def _compact(self, tag: ModelTag) -> None:
        """The same document on its own; the undo stack stays as it is."""
        tag.target = self._make(tag.target.document, tag.target)
        tag.moves.append(ModelMove("compact", tag.target))

    def _three_way(
        self, tag: ModelTag, verb: str, base: Document, theirs: Version, prefer: str | None, force: bool,
        merged: Version | None = None, is_noted: bool = False,
    ) -> bool:  # fmt: skip
        ours = tag.target.document
        document, conflicts = three_way(base, ours, theirs.document, prefer)
        if conflicts:
            raise Refused("MergeConflict", {(node_of(place), place) for place in conflicts})
        if same(ours, document) and not is_noted:
            return False
        self._change(tag, verb, document, force=force, merged=merged)
        return True

    def _walk(self, verb: str, name: str, steps: int, by: int, expect: int | None, force: bool) -> None:
        tag = self._known(name)
        self._require(expect, tag)
        self._require_free(tag, force)
        if not 0 <= tag.place + by < len(tag.done):
            raise Refused("StateConflict")
        for _ in range(steps):
            if not 0 <= tag.place + by < len(tag.done):
                break
            tag.place += by
            tag.target = tag.done[tag.place]
            tag.moves.append(ModelMove(verb, tag.target))


# --- documents ---


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; 1, 1.0 and true are three."""
    return one is other or (
        one is not MISSING
        and other is not MISSING
        and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    )


def at(document: Any, place: Place) -> Any:
    """What is at a place, or `MISSING`."""
    for part in place:
        if not isinstance(document, dict) or part not in document:
            return MISSING
        document = document[part]
    return document


def applied(document: Document, ops: list[Op]) -> Document:
    """A JSON Patch on mappings, one operation after the other."""
    made = copy.deepcopy(document)
    for op in ops:
        place = tuple(op["path"].split("/")[1:])
        holder = at(made, place[:-1])
        if not isinstance(holder, dict) or (op["op"] != "add" and place[-1] not in holder):
            raise Refused("InvalidInput")
        if op["op"] == "remove":
            del holder[place[-1]]
        else:
            holder[place[-1]] = copy.deepcopy(op["value"])
    return made


def is_sound(document: Document) -> bool:
    """Whether a document of this test means something: START, then the group `work`, then END."""
    nodes = document["nodes"]
    steps = {name: node for name, node in nodes.items() if name not in ("START", "END")}
    if not steps or not {"START", "END"} <= nodes.keys() or any("handler" not in step for step in steps.values()):
        return False
    if any(step.get("next", "END") not in nodes for step in steps.values()):
        return False
    return not any(_comes_back(steps, name) for name in steps)


def _comes_back(steps: dict[str, Any], start: str) -> bool:
    seen: set[str] = set()
    name = steps[start].get("next")
    while name in steps and name not in seen:
        if name == start:
            return True
        seen.add(name)
        name = steps[name].get("next")
    return False


def ancestors(version: Version) -> set[Version]:
    """A version and all that it was made from."""
    found: set[Version] = set()
    ahead: list[Version | None] = [version]
    while ahead:
        each = ahead.pop()
        if each is not None and each not in found:
            found.add(each)
            ahead += [each.parent, each.merged]
    return found


def parted(one: Version, other: Version) -> list[Version]:
    """The versions that both were made from, without those that others of these were made from; the newest first."""
    both = ancestors(one) & ancestors(other)
    older = {each for version in both for each in ancestors(version) - {version}}
    return sorted(both - older, key=lambda version: version.number, reverse=True)


def common(places: list[Version]) -> Document:
    """What several versions give together; what they disagree on has a value that nobody has given."""
    first, *others = places
    document = first.document
    for other in others:
        document, _ = three_way(common(parted(first, other)), document, other.document, UNDECIDED)
    return document


def node_of(place: Place) -> str | None:
    """The node that a place is in."""
    return place[1] if len(place) > 1 and place[0] == "nodes" else None


def places_in(document: Any, above: Place = ()) -> set[Place]:
    """Every place of a document, mappings and what they hold."""
    found = {above}
    if isinstance(document, dict):
        for key, value in document.items():
            found |= places_in(value, (*above, key))
    return found


def goes_on(was: Any, place: Place) -> bool:
    """Whether two mappings that both sides made of what was there are told apart field by field."""
    return isinstance(was, dict) or (
        was is MISSING and (len(place) != 2 or place[0] not in ("nodes", "inputs", "groups"))
    )


def three_way(
    base: Document, ours: Document, theirs: Document, prefer: str | None = None
) -> tuple[Document, set[Place]]:
    """Go through all places from the outside in; return ours with what theirs changed, and where both did."""
    merged, settled, conflicts = copy.deepcopy(ours), set[Place](), set[Place]()
    for place in sorted(places_in(ours) | places_in(theirs) | places_in(base), key=len):
        if any(place[:length] in settled for length in range(len(place))):
            continue
        was, mine, yours = at(base, place), at(ours, place), at(theirs, place)
        if same(mine, yours) or same(was, yours):
            settled.add(place)
        elif same(was, mine):
            settled.add(place)
            merged = put(merged, place, yours)
        elif not (isinstance(mine, dict) and isinstance(yours, dict) and goes_on(was, place)):
            settled.add(place)
            if prefer == UNDECIDED:
                merged = put(merged, place, UNDECIDED)
            elif prefer == "theirs":
                merged = put(merged, place, yours)
            elif prefer is None:
                conflicts.add(place)
    return merged, conflicts


def put(document: Document, place: Place, value: Any) -> Document:
    """The document with a value at a place, or with nothing there."""
    if not place:
        return dict(copy.deepcopy(value))
    holder = at(document, place[:-1])
    if value is MISSING:
        holder.pop(place[-1], None)
    else:
        holder[place[-1]] = copy.deepcopy(value)
    return document
