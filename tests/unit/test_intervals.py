"""Sets of numbers as stretches are what sets of numbers are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from weft.worker.operators import intervals

numbers = some.sets(some.integers(-40, 40))


@given(numbers, numbers, some.integers(-40, 40), some.integers(-40, 40))
def test_stretches_are_sets(one: set[int], other: set[int], low: int, high: int) -> None:
    first, second = intervals.intervals_of(one), intervals.intervals_of(other)
    assert set(intervals.numbers_in(first)) == one
    assert all(a[1] + 1 < b[0] for a, b in zip(first, first[1:], strict=False))
    assert intervals.joined(first, second) == intervals.intervals_of(one | other)
    assert intervals.without(first, second) == intervals.intervals_of(one - other)
    assert intervals.common(first, second) == intervals.intervals_of(one & other)
    assert set(intervals.numbers_in(intervals.between(first, low, high))) == {n for n in one if low <= n <= high}
