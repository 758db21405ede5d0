"""Lays out tasks and groups as rows and edges: what is new, what it waits for, what waits for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft.core.errors import InvalidInput
from weft.flow.names import MAX_NAME
from weft.jobs.items import Group, Item

OPEN, CLOSE = "@open", "@close"
# An edge: what comes first, and what waits for it.
Pair = tuple[Item, Item]


def gather(items: Iterable[Item]) -> tuple[list[Item], list[Pair]]:
    """Return what is to be added for ``items``, and the pairs that the job does not know yet.

    What is added brings along what it waits for, its group, and what is in it.
    """
    given = dict.fromkeys(items)
    seen = dict(given)
    queue = list(seen)
    pairs: list[Pair] = []
    for item in queue:
        if item.id is not None and item not in given:
            continue
        near: list[Item] = []
        for before, is_known in item.before.items():
            if not is_known:
                near.append(before)
                pairs.append((before, item))
        if item.id is None:
            for after in item.after:
                if after.id is not None and after not in given:
                    pairs.append((item, after))
            if item.group is not None:
                near.append(item.group)
        if isinstance(item, Group):
            near += [member for member in item.members if member.id is None]
        for other in near:
            if other not in seen:
                seen[other] = None
                queue.append(other)
    return [item for item in queue if item.id is None], pairs


@dataclass(slots=True)
class Layout:
    """Rows by their places: first an item each, a group by its close; then the gates; then what is there already.

    A gate leads to what is in its group, and all of that leads to the close. So whatever waits for a group, or a group
    for something, is one edge. There is a gate only where a group, or one that it is in, waits for something.
    """

    items: list[Item]
    ids: list[int] = field(default_factory=list)
    gates: list[Group] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    _places: dict[Item, int] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)
    _gate_places: dict[Item, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, items: list[Item], pairs: Sequence[Pair], ids: list[int], end_id: int, gates: Mapping[int, int | None]
    ) -> Layout:
        """Lay out; ``ids`` are enough for every item and a gate each, ``gates`` are those of groups that are there."""
        found = cls(items)
        found._places = {item: place for place, item in enumerate(items)}
        waiting = {after for _, after in pairs}
        found.gates = _gated(items, waiting, gates)
        found._gate_places = {group: len(items) + place for place, group in enumerate(found.gates)}
        found.ids = ids[: len(items) + len(found.gates)]
        found._add_pairs(pairs, gates)
        found._add_members(gates, pairs, end_id)
        return found

    @property
    def new(self) -> int:
        """How many rows are new."""
        return len(self.items) + len(self.gates)

    @property
    def known(self) -> Mapping[int, int]:
        """The ids of what is there already, with their places."""
        return self._known

    def gate_of(self, group: Item) -> int | None:
        """Return the id of a new group's gate."""
        place = self._gate_places.get(group)
        return None if place is None else self.ids[place]

    def _edge(self, source: int, target: int) -> None:
        self.sources.append(source)
        self.targets.append(target)

    def _place(self, item: Item) -> int:
        place = self._places.get(item)
        return self._of_known(item.id) if place is None else place

    def _of_known(self, id: int | None) -> int:
        assert id is not None
        place = self._known.get(id)
        if place is None:
            place = self._known[id] = len(self.ids)
            self.ids.append(id)
        return place

    def _add_pairs(self, pairs: Sequence[Pair], gates: Mapping[int, int | None]) -> None:
        places = self._places
        if not self._gate_places and all(item.id is None for pair in pairs for item in pair):
            # Large graphs are made at once, and mostly of tasks.
            self.sources = [places[before] for before, _ in pairs]
            self.targets = [places[after] for _, after in pairs]
            return
        for before, after in pairs:
            if after in self._gate_places:
                target = self._gate_places[after]
            elif after.id is not None and after.id in gates:
                if (gate := gates[after.id]) is None:
                    raise InvalidInput(
                        "dependencies", f"{after.called} has begun: nothing came before it when it was added to the job"
                    )
                target = self._of_known(gate)
            else:
                target = self._place(after)
            self._edge(self._place(before), target)

    def _add_members(self, gates: Mapping[int, int | None], pairs: Sequence[Pair], end_id: int) -> None:
        leading = {before for before, _ in pairs}
        inside = {after for before, after in pairs if before._group is not None and before._group is after._group}
        for place, item in enumerate(self.items):
            group, own_gate = item._group, self._gate_places.get(item)
            if own_gate is not None and isinstance(item, Group) and not item.members:
                self._edge(own_gate, place)
            if group is None:
                if item not in leading:
                    self._edge(place, self._of_known(end_id))
                continue
            self._edge(place, self._place(group))
            gate = self._gate_places.get(group)
            if gate is None and group.id is not None and (known := gates.get(group.id)) is not None:
                gate = self._of_known(known)
            # What waits for another of its group waits for the gate by that.
            if gate is not None and item not in inside:
                self._edge(gate, place if own_gate is None else own_gate)

    def forget_edges(self, known: Collection[tuple[int, int]]) -> None:
        """Leave out edges, by ids, that are there already."""
        if known:
            edges = zip(self.sources, self.targets, strict=True)
            left = [(s, t) for s, t in edges if (self.ids[s], self.ids[t]) not in known]
            self.sources, self.targets = [s for s, _ in left], [t for _, t in left]

    def require_order(self, stored: Iterable[tuple[int, int]], called: Mapping[int, str]) -> None:
        """Refuse circles, with the way round; ``stored`` says what leads to what, by ids, among what is there."""
        count = len(self.ids)
        after: list[list[int]] = [[] for _ in range(count)]
        waits = [0] * count
        extra = [(self._known[a], self._known[b]) for a, b in stored]
        for source, target in (*zip(self.sources, self.targets, strict=True), *extra):
            after[source].append(target)
            waits[target] += 1
        order = [place for place in range(count) if waits[place] == 0]
        for place in order:
            for target in after[place]:
                waits[target] -= 1
                if waits[target] == 0:
                    order.append(target)
        if len(order) < count:
            circle = _circle(after, set(range(count)).difference(order))
            names = [
                name for name, before in _with_last(self._called(place, called) for place in circle) if name != before
            ]
            raise InvalidInput("dependencies", f"nothing of a circle can begin: {' → '.join(names)}")

    def _called(self, place: int, known: Mapping[int, str]) -> str:
        if place < len(self.items):
            return self.items[place].called
        if place < self.new:
            return self.gates[place - len(self.items)].called
        return known.get(self.ids[place], str(self.ids[place]))


def _with_last(names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    last: str | None = None
    for name in names:
        yield name, last
        last = name


def _gated(items: Sequence[Item], waiting: set[Item], gates: Mapping[int, int | None]) -> list[Group]:
    """Return the new groups that have a gate."""
    groups = [item for item in items if isinstance(item, Group)]
    found: dict[Group, None] = {}
    for group in groups:
        above = group.group
        if group in waiting or (above is not None and above.id is not None and gates.get(above.id) is not None):
            found[group] = None
    open_ = list(found)
    for group in open_:
        for member in group.members:
            if isinstance(member, Group) and member not in found:
                found[member] = None
                open_.append(member)
    return open_


def _circle(after: Sequence[Sequence[int]], left: set[int]) -> list[int]:
    """Return a way round, its first place again at its end: of what is left each has one before it that is left."""
    before: dict[int, int] = {}
    for source in sorted(left, reverse=True):
        for target in after[source]:
            if target in left:
                before[target] = source
    walk, seen = [min(left)], {min(left)}
    while (place := before[walk[-1]]) not in seen:
        walk.append(place)
        seen.add(place)
    return [place, *reversed(walk[walk.index(place) :])]


def names_of(items: Sequence[Item], ids: Sequence[int] | None) -> list[str]:
    """Return the names of nodes: their own; else that of the handler, with a number, or with the ids given."""
    taken = {item.name for item in items if item.name is not None}
    numbers: dict[str, int] = {}
    found = []
    for place, item in enumerate(items):
        if isinstance(item, Group):
            name = path_of(item)
        elif item.name is not None:
            name = item.name
        elif ids is not None:
            name = f"{_safe(item.called)}-{ids[place]}"
        else:
            name = base = _safe(item.called)
            number = numbers.get(base, 1)
            while name in taken:
                number += 1
                name = f"{base}-{number}"
            numbers[base] = number
            taken.add(name)
        found.append(name)
    return found


def _safe(name: str) -> str:
    """Return what can be the name of a node, with room for a number."""
    word = re.sub(r"[^A-Za-z0-9_-]", "_", name)[: MAX_NAME - 24]
    return word if word[:1].isalpha() or word[:1] == "_" else f"_{word}"


def path_of(group: Group) -> str:
    """Return the name of a group with those it is in; its own alone when that would be too long."""
    parts, above, size = [group.called], group.group, len(group.called)
    while above is not None and size <= MAX_NAME:
        parts.append(above.called)
        size += 1 + len(parts[-1])
        above = above.group
    return "/".join(reversed(parts)) if size <= MAX_NAME else group.called
