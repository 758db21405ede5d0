"""The graph of a definition: what leads to what, groups resolved to their members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from weft.flow.problems import Path

# So many circles are looked for; what is beyond them is told when they are mended.
_MOST_CIRCLES = 50
# So many ways may there be in all: from group to group leads one from each of its last to each of the other's first.
MAX_WAYS = 1_000_000


class Link(NamedTuple):
    """A ``next`` as it is written: from a node or a group, by a branch or not, to the name of a node or a group."""

    source: str
    target: str
    path: Path
    branch: int | None = None
    from_group: bool = False


def links_of(data: Mapping[str, Any]) -> Iterator[Link]:
    """Yield every ``next`` of a document, whatever else is wrong with it."""
    for name, node in _mappings(data.get("nodes")):
        yield from links_of_node(name, node)
    yield from links_of_groups(data)


def links_of_node(name: str, node: dict[str, Any]) -> list[Link]:
    """Return every ``next`` of a node, those of its branches too."""
    after, branches = node.get("next"), node.get("branches")
    if branches is None and isinstance(after, str):
        return [Link(name, after, ("nodes", name, "next"))]  # by far the most are such
    found = list(_links(name, node, ("nodes", name), None, from_group=False))
    for place, branch in enumerate(branches if isinstance(branches, list) else ()):
        if isinstance(branch, dict):
            found += _links(name, branch, ("nodes", name, "branches", place), place, from_group=False)
    return found


def links_of_groups(data: Mapping[str, Any]) -> Iterator[Link]:
    """Yield every ``next`` of the groups of a document."""
    for name, group in _mappings(data.get("groups")):
        yield from _links(name, group, ("groups", name), None, from_group=True)


def _mappings(value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, entry in value.items() if isinstance(value, dict) else ():
        if isinstance(entry, dict):
            yield name, entry


def _links(source: str, holder: dict[str, Any], path: Path, branch: int | None, *, from_group: bool) -> Iterator[Link]:
    target = holder.get("next")
    if isinstance(target, str):
        yield Link(source, target, (*path, "next"), branch, from_group)
    elif isinstance(target, list):
        for place, each in enumerate(target):
            if isinstance(each, str):
                yield Link(source, each, (*path, "next", place), branch, from_group)


def groups_of(data: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the nodes of each group, those of the groups in it too, in the order of the document."""
    found: dict[str, list[str]] = {name: [] for name, _ in _mappings(data.get("groups"))}
    for name, node in _mappings(data.get("nodes")):
        group = node.get("group")
        if isinstance(group, str) and group:
            parts = group.split("/")
            for length in range(1, len(parts) + 1):
                found.setdefault("/".join(parts[:length]), []).append(name)
    return found


class Graph:
    """Which node leads to which; a ``next`` that names a group leads to those of it that wait for none of it."""

    def __init__(self, names: Iterable[str], links: Iterable[Link], groups: Mapping[str, list[str]]) -> None:
        self.names = list(names)
        self.next: dict[str, list[str]] = {name: [] for name in self.names}
        self.previous: dict[str, list[str]] = {name: [] for name in self.names}
        self.groups = groups
        # What would lead to more ways than there may be, and does not.
        self.excessive: list[Link] = []
        self._ways: set[tuple[str, str]] = set()
        of_groups = []
        for link in links:
            if link.from_group or link.target not in self.next:
                of_groups.append(link)
            elif link.source in self.next:
                self._add(link.source, link.target)
        # From what is written between nodes follows which of a group come first and last.
        for link, sources, targets in [(link, self._sources(link), self._targets(link)) for link in of_groups]:
            if len(self._ways) + len(sources) * len(targets) > MAX_WAYS:
                self.excessive.append(link)
                continue
            for source in sources:
                for target in targets:
                    self._add(source, target)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Graph:
        """Return the graph of a document."""
        return cls((name for name, _ in _mappings(data.get("nodes"))), links_of(data), groups_of(data))

    def _sources(self, link: Link) -> list[str]:
        return self._lasts(link.source) if link.from_group else [link.source] if link.source in self.next else []

    def _targets(self, link: Link) -> list[str]:
        return [link.target] if link.target in self.next else self._firsts(link.target)

    def _add(self, source: str, target: str) -> None:
        if (source, target) not in self._ways:
            self._ways.add((source, target))
            self.next[source].append(target)
            self.previous[target].append(source)

    def _firsts(self, group: str) -> list[str]:
        members = set(self.groups.get(group, ()))
        return [name for name in self.groups.get(group, ()) if not members.intersection(self.previous[name])]

    def _lasts(self, group: str) -> list[str]:
        members = set(self.groups.get(group, ()))
        return [name for name in self.groups.get(group, ()) if not members.intersection(self.next[name])]

    @cached_property
    def order(self) -> list[str]:
        """The nodes, each after all that lead to it; those on a circle, and behind one, are left out."""
        waiting = {name: len(before) for name, before in self.previous.items()}
        found = [name for name, count in waiting.items() if count == 0]
        for name in found:
            for target in self.next[name]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    found.append(target)
        return found

    def circles(self) -> list[list[str]]:
        """Return circles, the first node of each again at its end, by where they begin in the document.

        Every way between nodes that wait for each other is on one of them, unless there are too many to show; of each
        such set of nodes at least one is.
        """
        places = {name: place for place, name in enumerate(self.names)}
        found: list[list[str]] = []
        for knot in self._knots(set(self.names).difference(self.order)):
            told: set[tuple[str, str]] = set()
            for source in sorted(knot, key=places.__getitem__):
                for target in self.next[source]:
                    if target in knot and (source, target) not in told and (not told or len(found) < _MOST_CIRCLES):
                        circle = _from_first([source, *self._shortest(target, source, knot)], places)
                        told.update(pairwise(circle))
                        found.append(circle)
        return sorted(found, key=lambda circle: places[circle[0]])

    def _knots(self, names: set[str]) -> list[set[str]]:
        """Return the largest sets of ``names`` of which each leads to each other (Tarjan, without recursion)."""
        found: list[set[str]] = []
        seen: dict[str, int] = {}
        lows: dict[str, int] = {}
        open_: list[str] = []
        is_open: set[str] = set()
        for start in (name for name in self.names if name in names):
            walk = [] if start in seen else [(start, iter(self.next[start]))]
            while walk:
                name, ways = walk[-1]
                if name not in seen:
                    seen[name] = lows[name] = len(seen)
                    open_.append(name)
                    is_open.add(name)
                target = next((each for each in ways if each in names and (each not in seen or each in is_open)), None)
                if target is None:
                    walk.pop()
                    if walk:
                        lows[walk[-1][0]] = min(lows[walk[-1][0]], lows[name])
                    if lows[name] == seen[name]:
                        knot = {open_.pop()}
                        while name not in knot:
                            knot.add(open_.pop())
                        is_open -= knot
                        found += [knot] if len(knot) > 1 or name in self.next[name] else []
                elif target in seen:
                    lows[name] = min(lows[name], seen[target])
                else:
                    walk.append((target, iter(self.next[target])))
        return found

    def _shortest(self, start: str, end: str, names: set[str]) -> list[str]:
        """Return the shortest way from one node to another that leads to it, both named, through ``names`` alone."""
        came_from: dict[str, str | None] = {start: None}
        open_ = [start]
        for name in open_:
            if name == end:
                break
            for target in self.next[name]:
                if target in names and target not in came_from:
                    came_from[target] = name
                    open_.append(target)
        way: list[str] = []
        step: str | None = end
        while step is not None:
            way.append(step)
            step = came_from[step]
        return way[::-1]

    def reached(self, start: str) -> set[str]:
        """Return what can be reached from a node, and the node."""
        seen, open_ = {start}, [start]
        while open_:
            for name in self.next[open_.pop()]:
                if name not in seen:
                    seen.add(name)
                    open_.append(name)
        return seen

    @cached_property
    def _ancestors(self) -> tuple[dict[str, int], dict[str, int]]:
        places = {name: place for place, name in enumerate(self.names)}
        above = dict.fromkeys(self.names, 0)

        def gather(names: list[str]) -> bool:
            is_new = False
            for name in names:
                bits = above[name]
                for before in self.previous[name]:
                    bits |= above[before] | 1 << places[before]
                is_new = is_new or bits != above[name]
                above[name] = bits
            return is_new

        gather(self.order)
        # What is on a circle or behind one has no order: it is gone through until nothing new comes.
        ordered = set(self.order)
        circling = [name for name in self.names if name not in ordered]
        while gather(circling):
            pass
        return places, above

    def comes_before(self, earlier: str, later: str) -> bool:
        """Whether one node leads to another, over any number of others."""
        if earlier == later or earlier in self.previous[later]:
            return earlier != later
        places, above = self._ancestors
        return bool(above[later] >> places[earlier] & 1)


def _from_first(circle: list[str], places: Mapping[str, int]) -> list[str]:
    """Return a closed way from the node of it that stands first in the document, round to it again."""
    circle = circle[:-1]
    first = min(range(len(circle)), key=lambda step: places[circle[step]])
    return [*circle[first:], *circle[:first], circle[first]]
