"""Draws beside a list of changes how their lines part and come together, as ``git log --graph`` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Drawn(NamedTuple):
    """What stands before a change, and the lines below it that lead to the changes it was made from."""

    lead: str
    below: list[str]


def draw_lanes(changes: Sequence[tuple[int, Sequence[int]]]) -> Iterator[Drawn]:
    """Yield the drawing of each change, given by its id and the ids it was made from, newest first.

    Each lane is a column of two signs, and stands for the change that it leads to. No two lead to the same.
    """
    lanes: list[int] = []
    following = [change for change, _ in changes[1:]]
    for place, (change, parents) in enumerate(changes):
        if change not in lanes:
            lanes.append(change)
        column = lanes.index(change)
        lead = "".join("* " if lane == change else "| " for lane in lanes)
        below = list(_led_on(lanes, column, list(dict.fromkeys(parents))))
        if not parents and column == len(lanes) and not set(following[place : place + 1]).issubset(lanes):
            # What follows begins in the column of what has ended, and must not seem to lead to it.
            below.append(_row(len(lanes)))
        yield Drawn(lead, [line.rstrip() for line in below])


def _led_on(lanes: list[int], column: int, parents: list[int]) -> Iterator[str]:
    """Make ``lanes`` lead on from the change in ``column``, and yield the lines that show it."""
    if not parents:
        del lanes[column]
        if column < len(lanes):
            # What stands to the right moves up.
            yield _row(len(lanes) + 1, blank=column, leaning=range(column + 1, len(lanes) + 1))
        return
    lanes[column] = parents[0]
    for parent in parents[1:]:
        yield from _parted(lanes, column, parent)
    if lanes.count(parents[0]) > 1:
        first, second = (place for place, lane in enumerate(lanes) if lane == parents[0])
        yield from _joined(lanes, first, second)


def _parted(lanes: list[int], column: int, parent: int) -> Iterator[str]:
    """Lead a second line from ``column``: to the lane that leads to ``parent``, or to a new one."""
    if parent not in lanes:
        lanes.insert(column + 1, parent)
        yield _row(len(lanes) - 1, rightwards=range(column, len(lanes) - 1), staying=column)
    elif lanes[column + 1 : column + 2] == [parent]:
        yield _row(len(lanes), rightwards=[column], staying=column)
    elif (place := lanes.index(parent)) < column:
        yield from _leftwards(len(lanes), place, column, staying=column)
    else:
        # The lane that stands further off comes to a new one beside this.
        lanes.insert(column + 1, parent)
        yield _row(len(lanes) - 1, rightwards=range(column, len(lanes) - 1), staying=column)
        yield from _joined(lanes, column + 1, place + 1)


def _joined(lanes: list[int], to: int, lane: int) -> Iterator[str]:
    """Let a lane end in another to its left; those to its right move up."""
    count = len(lanes)
    del lanes[lane]
    yield from _leftwards(count, to, lane)


def _leftwards(count: int, to: int, lane: int, staying: int | None = None) -> Iterator[str]:
    """Yield the lines that lead from a lane to another on its left, below those that stand between them."""
    moving = range(lane, lane + 1 if staying is not None else count)
    yield _row(count, leaning=moving, staying=staying, below=range(to + 2, lane))
    if to < lane - 1:
        yield _row(count if staying is not None else count - 1, leaning=[to + 1], staying=to + 1)


def _row(
    count: int,
    *,
    leaning: Iterable[int] = (),
    rightwards: Iterable[int] = (),
    staying: int | None = None,
    below: Iterable[int] = (),
    blank: int | None = None,
) -> str:
    """Return a line of ``count`` lanes.

    Those ``leaning`` end one to the left, those ``rightwards`` one to the right, of which one may be ``staying`` as
    well; ``below`` are those under which a line passes.
    """
    signs = ["|", " "] * count + [" "]
    for lane in (*leaning, *rightwards):
        if lane != staying:
            signs[2 * lane] = " "
    if blank is not None:
        signs[2 * blank] = " "
    for lane in leaning:
        signs[2 * lane - 1] = "/"
    for lane in rightwards:
        signs[2 * lane + 1] = "\\"
    for lane in below:
        signs[2 * lane - 1] = "_"
    return "".join(signs)
