"""Sets of whole numbers as what they mostly are: a few stretches without a gap, each a first and a last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Intervals = list[list[int]]


def intervals_of(numbers: Iterable[int]) -> Intervals:
    """Return the stretches that numbers make up, in order."""
    found: Intervals = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], number)
        else:
            found.append([number, number])
    return found


def joined(*sets: Iterable[Iterable[int]]) -> Intervals:
    """Return what is in any of several sets."""
    found: Intervals = []
    for first, last in sorted(tuple(each) for one in sets for each in one):
        if found and first <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    return found


def between(intervals: Iterable[Iterable[int]], low: int | None, high: int | None) -> Intervals:
    """Return what lies between two numbers, both included; None is without an end."""
    found: Intervals = []
    for first, last in intervals:
        first = first if low is None else max(first, low)
        last = last if high is None else min(last, high)
        if first <= last:
            found.append([first, last])
    return found


def without(intervals: Iterable[Iterable[int]], others: Iterable[Iterable[int]]) -> Intervals:
    """Return what is in one set and not in another."""
    left = [list(each) for each in intervals]
    for low, high in others:
        left = [*between(left, None, low - 1), *between(left, high + 1, None)]
    return joined(left)


def common(intervals: Intervals, others: Intervals) -> Intervals:
    """Return what is in both of two sets."""
    return without(intervals, without(intervals, others))


def numbers_in(intervals: Iterable[Iterable[int]]) -> Iterator[int]:
    """Yield each number, in order."""
    for first, last in intervals:
        yield from range(first, last + 1)
