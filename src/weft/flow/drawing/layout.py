"""Where everything of a picture stands: boxes in layers, frames around groups, ways that pass beside boxes.

Each box stands in a layer below all that lead to it. A way over several layers has a bend in each that it passes, which
takes up room as a box does. A group is laid out by itself, and then takes part as one thing in all the layers that it
covers: so nothing else comes to stand in its frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from weft.flow.drawing.picture import Group, Picture, Way

HEIGHT = 46.0
_GAP, _LAYER_GAP, _LABEL, _BEND = 26.0, 40.0, 20.0, 12.0
_SLOPE, _WIDEST_GAP = 0.06, 120.0
# Around a group: below and beside its members, and above them, where its title stands.
_PAD, _TITLE = 12.0, 26.0
_SWEEPS = 8
# So many steps are taken to put things near to each other; beyond, they stand as they come.
_MOST_STEPS = 1_000_000
# A picture with more bends than this is no picture for people: long ways go straight then.
_MOST_BENDS = 20_000


class Bend(NamedTuple):
    """Where a way passes a layer."""

    way: Way
    layer: int


Point = str | Bend


@dataclass(frozen=True)
class Rect:
    """A rectangle; ``x`` and ``y`` are of its left upper corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Return the x of its middle."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Layer:
    """A row of boxes: where ways begin to come together above it, where it begins, and where ways part below it."""

    entry: float
    top: float
    exit: float


@dataclass(frozen=True)
class Layout:
    """Where boxes and frames stand, and by which layers each way passes at which x; a way back has no entry there."""

    boxes: dict[str, Rect]
    frames: dict[Group, Rect]
    ways: dict[Way, list[tuple[float, Layer]]]
    width: float
    height: float


@dataclass(eq=False)
class _Thing:
    """What has one place in a container: a box, a bend, or a group with all that is in it."""

    first: int
    last: int
    width: float
    wish: float
    # The middles of boxes and bends, and the left edges and widths of frames, each from the left edge of this.
    middles: dict[Point, float] = field(default_factory=dict)
    frames: dict[Group, tuple[float, float]] = field(default_factory=dict)
    x: float = 0
    # For each way to another thing in the container: that one, and how far to the right of it this wants to be.
    above: list[tuple[_Thing, float]] = field(default_factory=list)
    below: list[tuple[_Thing, float]] = field(default_factory=list)

    def wished(self, is_downwards: bool | None) -> float:
        """Return where it wants to be: by what leads to it, by what it leads to, or by both."""
        near = {True: self.above, False: self.below, None: self.above + self.below}[is_downwards]
        return _mean([other.x + apart for other, apart in near], self.x)


@dataclass(frozen=True)
class Sizes:
    """How wide boxes, the labels of ways, and the titles of groups are."""

    boxes: Mapping[str, float]
    labels: Mapping[Way, float]
    titles: Mapping[Group, float]


def lay_out(picture: Picture, sizes: Sizes) -> Layout:
    """Return where everything of a picture stands, from 0, 0 on."""
    plan = _Plan(picture, sizes)
    whole = plan.arranged(())
    layers = plan.layers(whole.middles)
    boxes = {
        name: Rect(whole.middles[name] - sizes.boxes[name] / 2, layers[plan.layer[name]].top, sizes.boxes[name], HEIGHT)
        for name in picture.boxes
    }
    frames = {}
    for group, (left, width) in whole.frames.items():
        top = layers[plan.first[group]].top - _TITLE * plan.above[group]
        bottom = layers[plan.last[group]].top + HEIGHT + _PAD * plan.below[group]
        frames[group] = Rect(left, top, width, bottom - top)
    ways = {
        way: [(whole.middles[point], layers[plan.layer[point]]) for point in points]
        for way, points in plan.points.items()
    }
    return Layout(boxes, frames, ways, whole.width, layers[-1].exit if layers else 0)


class _Plan:
    """The layers of a picture, what stands in them, and what each group covers of them."""

    def __init__(self, picture: Picture, sizes: Sizes) -> None:
        depths = _depths(picture)
        self._titles = sizes.titles
        self._labels = sizes.labels
        self.layer: dict[Point, int] = {}
        self.layer.update(depths)
        self._width: dict[Point, float] = {}
        self._width.update(sizes.boxes)
        self._group: dict[Point, Group] = {name: box.way_in for name, box in picture.boxes.items()}
        self.points: dict[Way, list[Point]] = {}
        downwards = [way for way in picture.ways if depths[way[0]] < depths[way[1]]]
        has_bends = sum(depths[target] - depths[source] - 1 for source, target in downwards) <= _MOST_BENDS
        for way in downwards:
            self._add(way, range(depths[way[0]] + 1, depths[way[1]]) if has_bends else range(0))
        self._links = [pair for points in self.points.values() for pair in pairwise(points)]
        self._wish = _wishes(self.layer, self._links)
        self._inside: dict[Group, list[Point]] = {(): []}
        self._groups_in: dict[Group, list[Group]] = {(): []}
        self._gather()
        self.first: dict[Group, int] = {}
        self.last: dict[Group, int] = {}
        # How many frames stand in each other at the beginning and at the end of a group, itself counted.
        self.above: dict[Group, int] = {}
        self.below: dict[Group, int] = {}
        for group in sorted(self._inside, key=len, reverse=True):
            if group:
                self._measure(group)

    def _add(self, way: Way, between: range) -> None:
        bends = [Bend(way, layer) for layer in between]
        for bend in bends:
            self.layer[bend] = bend.layer
            self._group[bend] = _shared(self._group[way[0]], self._group[way[1]])
            # The label of a way stands above the first of it.
            self._width[bend] = max(_BEND, self._labels.get(way, 0)) if bend is bends[0] else _BEND
        self.points[way] = [way[0], *bends, way[1]]

    def _gather(self) -> None:
        for point, group in self._group.items():
            for length in range(1, len(group) + 1):
                if group[:length] not in self._inside:
                    self._inside[group[:length]], self._groups_in[group[:length]] = [], []
                    self._groups_in[group[: length - 1]].append(group[:length])
            self._inside[group].append(point)

    def _measure(self, group: Group) -> None:
        inner, own = self._groups_in[group], [self.layer[point] for point in self._inside[group]]
        self.first[group] = first = min([*own, *(self.first[each] for each in inner)])
        self.last[group] = last = max([*own, *(self.last[each] for each in inner)])
        self.above[group] = 1 + max((self.above[each] for each in inner if self.first[each] == first), default=0)
        self.below[group] = 1 + max((self.below[each] for each in inner if self.last[each] == last), default=0)

    def layers(self, middles: Mapping[Point, float]) -> list[Layer]:
        """Return where the layers stand: between two there is room for ways, labels, and the ends of frames."""
        count = max(self.layer.values(), default=-1) + 1
        above, below, labels, gaps = [0] * count, [0] * count, [False] * count, [_LAYER_GAP] * count
        for upper, lower in self._links:
            # A way that goes far to the side needs room, or it would look like a line below the boxes.
            wide = min(_LAYER_GAP + _SLOPE * abs(middles[upper] - middles[lower]), _WIDEST_GAP)
            gaps[self.layer[lower]] = max(gaps[self.layer[lower]], wide)
        for group, first in self.first.items():
            above[first] = max(above[first], self.above[group])
            below[self.last[group]] = max(below[self.last[group]], self.below[group])
        for way in self._labels:
            if way in self.points:
                labels[self.layer[self.points[way][1]]] = True
        found: list[Layer] = []
        for place in range(count):
            entry = found[-1].exit + gaps[place] if found else 0.0
            top = entry + _LABEL * labels[place] + _TITLE * above[place]
            found.append(Layer(entry, top, top + HEIGHT + _PAD * below[place]))
        return found

    def arranged(self, group: Group) -> _Thing:
        """Return a group as one thing: all that is in it side by side, and a frame around that."""
        things = [self._thing(point) for point in self._inside[group]]
        things += [self.arranged(inner) for inner in self._groups_in[group]]
        things.sort(key=lambda thing: thing.wish)
        self._put_near(things)
        _settle(things)
        pad = _PAD if group else 0.0
        left = min((thing.x for thing in things), default=0) - pad
        inner_width = max((thing.x + thing.width for thing in things), default=0) + pad - left
        width = max(inner_width, self._titles.get(group, 0) + 2 * pad)
        left -= (width - inner_width) / 2
        whole = _Thing(self.first.get(group, 0), self.last.get(group, 0), width, _mean([each.wish for each in things]))
        whole.frames = {group: (0, width)} if group else {}
        for thing in things:
            whole.middles |= {point: middle + thing.x - left for point, middle in thing.middles.items()}
            whole.frames |= {each: (edge + thing.x - left, wide) for each, (edge, wide) in thing.frames.items()}
        return whole

    def _thing(self, point: Point) -> _Thing:
        layer, width = self.layer[point], self._width[point]
        return _Thing(layer, layer, width, self._wish[point], {point: width / 2})

    def _put_near(self, things: list[_Thing]) -> None:
        """Tell each thing of those that ways lead to from it."""
        home = {point: thing for thing in things for point in thing.middles}
        for upper, lower in self._links:
            one, other = home.get(upper), home.get(lower)
            if one is not None and other is not None and one is not other:
                apart = other.middles[lower] - one.middles[upper]
                one.below.append((other, apart))
                other.above.append((one, -apart))


def _depths(picture: Picture) -> dict[str, int]:
    """Return the layer of each box: below all that lead to it, or near to what it leads to when there are none."""
    depths: dict[str, int] = {}
    for name in picture.boxes:
        depths[name] = max((depths[before] + 1 for before in picture.previous[name] if before in depths), default=0)
    for name, before in picture.previous.items():
        if not before and picture.next[name]:
            depths[name] = max(0, min(depths[after] for after in picture.next[name]) - 1)
    return depths


def _wishes(layer: Mapping[Point, int], links: list[tuple[Point, Point]]) -> dict[Point, float]:
    """Return where in its layer each point wants to stand, so that few ways cross: near to what it is linked with."""
    rows: list[list[Point]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    above: dict[Point, list[Point]] = {point: [] for point in layer}
    below: dict[Point, list[Point]] = {point: [] for point in layer}
    for point, place in layer.items():
        rows[place].append(point)
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    wish = {point: place - (len(row) - 1) / 2 for row in rows for place, point in enumerate(row)}
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=lambda point: _mean([wish[each] for each in near[point]], wish[point]))
            wish |= {point: place - (len(row) - 1) / 2 for place, point in enumerate(row)}
    return wish


def _settle(things: list[_Thing]) -> None:
    """Give each thing its place: in their order, none on another, and as near as it goes to what it is linked with.

    Layer by layer, down by what leads to it, up by what it leads to, at last by both.
    """
    _spread(things, [0.0] * len(things))
    rows: dict[int, list[_Thing]] = {}
    for thing in things:
        for row in range(thing.first, thing.last + 1):
            rows.setdefault(row, []).append(thing)
    is_flat = all(thing.first == thing.last for thing in things)
    covered = sum(map(len, rows.values()))
    cost = covered if is_flat else covered * len(rows)
    for sweep in range(min(_SWEEPS, _MOST_STEPS // max(cost, 1))):
        for row in sorted(rows, reverse=sweep % 2 == 1):
            beginning = [each for each in rows[row] if (each.last if sweep % 2 else each.first) == row]
            for thing in beginning:
                thing.x = thing.wished(sweep % 2 == 0 if sweep < _SWEEPS - 2 else None)
            moved = rows[row] if is_flat else things
            _spread(moved, [thing.x for thing in moved])


def _spread(things: list[_Thing], wishes: list[float]) -> None:
    """Put things where they wish, but none on another.

    Once all are pushed to the right of those before them, once to the left of those after: halfway between the two
    none is on another either, and what stood well stays where it was.
    """
    left = list(_pushed(things, wishes))
    mirrored = [-wish - thing.width for thing, wish in zip(things, wishes, strict=True)]
    right = list(_pushed(things[::-1], mirrored[::-1]))[::-1]
    for thing, one, other in zip(things, left, right, strict=True):
        thing.x = (one - other - thing.width) / 2


def _pushed(things: list[_Thing], wishes: list[float]) -> Iterator[float]:
    """Yield where each thing stands that is put where it wishes, or right of what stands there already."""
    edges: dict[int, float] = {}
    for thing, wish in zip(things, wishes, strict=True):
        rows = range(thing.first, thing.last + 1)
        x = max([wish, *(edges[row] + _GAP for row in rows if row in edges)])
        edges |= dict.fromkeys(rows, x + thing.width)
        yield x


def _mean(values: list[float], otherwise: float = 0.0) -> float:
    return sum(values) / len(values) if values else otherwise


def _shared(one: Group, other: Group) -> Group:
    """Return the innermost group that has both."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]
