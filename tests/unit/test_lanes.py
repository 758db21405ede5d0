"""The drawing of a history: each change in its column, and a line from each to all that it was made from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.cli.lanes import draw_lanes

History = list[tuple[int, list[int]]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Changes, newest first, each made from none, one or two older ones, of which the oldest may not be shown."""
    count = draw(st.integers(1, 14))
    shown = [
        (change, draw(st.lists(st.integers(max(0, change - 5), change - 1), max_size=2, unique=True)))
        for change in range(count, 0, -1)
    ]
    return shown[: draw(st.integers(1, count))]


def _lines(history: History) -> list[str]:
    """The drawing with a letter for each change."""
    lines = []
    for (change, _), drawn in zip(history, draw_lanes(history), strict=True):
        lines += [drawn.lead.rstrip().replace("*", _letter(change)), *drawn.below]
    return lines


def _letter(change: int) -> str:
    return chr(ord("A") + change)


class Tracer:
    """Follows the lines of a drawing downwards, and remembers which signs it has passed."""

    def __init__(self, rows: list[str]) -> None:
        self.rows = [f"{row} ".ljust(80) for row in rows]
        self.passed: set[tuple[int, int]] = set()

    def follow(self, row: int, place: int, leaning: bool = False) -> str | None:
        """Return the change to which a line leads that leaves ``row`` at ``place``; None: it is not shown."""
        while (row := row + 1) < len(self.rows):
            signs = self.rows[row]
            if signs[place].isalpha():
                return signs[place]
            if leaning and place > 0 and signs[place - 1] == "/":
                place = self._left(row, place)
            elif signs[place] == "|":
                self.passed.add((row, place))
                leaning = False
            elif place > 0 and signs[place - 1] == "/":
                place, leaning = self._left(row, place), True
            else:
                assert signs[place + 1] == "\\", f"a line ends at {row}, {place}"
                self.passed.add((row, place + 1))
                place += 2
        return None

    def leave(self, row: int, place: int) -> Iterator[str | None]:
        """Yield the changes to which the lines lead that leave the change at ``place``."""
        if row + 1 == len(self.rows):
            return
        signs = self.rows[row + 1]
        if signs[place] == "|" or signs[place].isalpha():
            yield self.follow(row, place)
        if place > 0 and signs[place - 1] == "/":
            yield self.follow(row + 1, self._left(row + 1, place), leaning=True)
        if signs[place + 1] == "\\":
            self.passed.add((row + 1, place + 1))
            yield self.follow(row + 1, place + 2)

    def _left(self, row: int, place: int) -> int:
        self.passed.add((row, place - 1))
        place -= 2
        while place > 0 and self.rows[row][place - 1] == "_":
            self.passed.add((row, place - 1))
            place -= 2
        return place


@settings(max_examples=200, deadline=None)
@given(histories())
def test_each_change_has_a_column_and_a_line_to_each_that_it_was_made_from_and_there_is_no_other(
    history: History,
) -> None:
    rows = _lines(history)
    tracer = Tracer(rows)
    signs = [(sign, row, place) for row, line in enumerate(rows) for place, sign in enumerate(line)]
    letters = [(sign, row, place) for sign, row, place in signs if sign.isalpha()]
    shown = [_letter(change) for change, _ in history]
    assert [letter for letter, _, _ in letters] == shown
    for (_, row, place), (_, parents) in zip(letters, history, strict=True):
        assert place % 2 == 0
        if row < len(rows) - 1:
            wanted = [letter if (letter := _letter(parent)) in shown else None for parent in parents]
            assert sorted(map(str, tracer.leave(row, place))) == sorted(map(str, wanted)), rows
    assert {(row, place) for sign, row, place in signs if sign in "|/\\_"} == tracer.passed, rows


@pytest.mark.parametrize(
    ("history", "lines"),
    [
        ([(3, [2]), (2, [1]), (1, [])], ["D", "C", "B"]),
        ([(4, [3, 2]), (3, [1]), (2, [1]), (1, [])], ["E", "|\\", "D |", "| C", "|/", "B"]),
        ([(3, []), (2, [1])], ["D", "", "C"]),
        (
            [(9, [8, 7]), (8, [6, 5]), (7, [2]), (6, [2]), (5, [2, 1]), (2, [])],
            ["J", "|\\", "I |", "|\\ \\", "| | H", "G | |", "| |/", "|/|", "| F", "| |\\", "|/ /", "C |", " /"],
        ),
    ],
)
def test_lines_part_and_come_together(history: History, lines: list[str]) -> None:
    assert _lines(history) == lines
