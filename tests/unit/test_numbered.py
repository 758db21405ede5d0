"""Ranges of a column, of however many rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from weft.worker.operators.numbered import Numbered


def test_ranges_of_a_great_many_rows_are_found_with_a_few_of_them_in_memory() -> None:
    held = list[int]()

    def batches() -> Iterator[pa.Array]:
        before = pa.total_allocated_bytes()
        for number in range(100):
            yield pa.array(range(number, number + 1_000_000, 10), pa.int64())
            held.append(pa.total_allocated_bytes() - before)

    numbered = Numbered("number", pa.int64(), 100)
    assert numbered.ranges(batches(), "config.column") == ([[0, 10_000]], 999_990 + 99)
    assert max(held) < 20_000_000, "all of them are 80"


def test_ranges_of_batches_are_those_of_all_rows() -> None:
    numbered, empty = Numbered("number", pa.int64(), 10), pa.array([], pa.int64())
    assert numbered.ranges([pa.array([-1, 25]), empty, pa.array([5, 9])], "f") == ([[-1, 0], [2, 2]], 25)
    assert numbered.ranges([empty], "f") == ([], None)
    assert numbered.ranges([], "f") == ([], None)
