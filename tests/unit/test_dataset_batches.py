"""Whatever holds a table becomes batches of Arrow; what is no table is refused with what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from weft.core.errors import InvalidInput
from weft.data.batches import reader_of

ROWS = [{"id": 1, "word": "a"}, {"id": 2, "word": None}]
TABLE = pa.table({"id": [1, 2], "word": ["a", None]})


class Stream:
    """What polars, pandas and others offer: a stream of Arrow by its own protocol."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        TABLE, TABLE.to_batches()[0], TABLE.to_reader(), TABLE.to_batches(), iter(TABLE.to_batches()),
        ds.dataset(TABLE), Stream(), ROWS, iter(ROWS), (row for row in ROWS),
    ],
    ids=lambda data: type(data).__name__,
)  # fmt: skip
def test_every_kind_of_table_is_read(data: Any) -> None:
    assert reader_of(data).read_all().to_pylist() == ROWS


def test_what_duckdb_computes_is_read() -> None:
    with duckdb.connect() as connection:
        found = connection.sql("select 1::bigint as id, 'a' as word union all select 2, null order by id")
        assert reader_of(found).read_all().to_pylist() == ROWS


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("text", "str is no table"),
        ({"id": 1}, "dict is no table"),
        (7, "int is no table"),
        ([1, 2], "row 0 is int and no mapping"),
        ([{"id": 1}, 2], "row 1 is int and no mapping"),
        ([{1: 2}], "a column is called 1, which is no text"),
        ([], "has no rows, and the dataset has no columns yet"),
        ([{"id": 1}, {"id": "x"}], "column id"),
        ([{"id": 2**70}], "column id"),
    ],
)
def test_what_is_no_table_is_refused(data: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        reader_of(data).read_all()


def test_rows_are_read_by_the_columns_that_are_known() -> None:
    known = pa.schema([pa.field("id", pa.int16()), pa.field("word", pa.string())])
    assert reader_of([{"id": 1, "word": "a", "more": 1.5}], known).schema == pa.schema([*known, ("more", pa.float64())])
    assert reader_of([], known).read_all().schema == known
    with pytest.raises(InvalidInput, match="column id"):
        reader_of([{"id": 1 << 40}], known).read_all()


def test_many_rows_are_read_as_they_come() -> None:
    asked: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        for number in range(200_000):
            asked.append(number)
            yield {"id": number}

    reader = reader_of(rows())
    assert next(reader).num_rows == 65_536
    assert len(asked) < 200_000
    assert sum(batch.num_rows for batch in reader) == 200_000 - 65_536


def test_a_column_that_the_first_rows_did_not_have_is_told_with_its_row() -> None:
    rows = [{"id": number} for number in range(65_536)] + [{"id": 1, "late": 2}]
    with pytest.raises(InvalidInput, match="row 65536 has a column late that none of the first rows had"):
        reader_of(rows).read_all()


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        (1.5, pa.int64(), 1.0),
        (float("nan"), pa.int64(), 2.0),
        (1e300, pa.float32(), float("inf")),
        (datetime(2026, 11, 14, 12), pa.date32(), datetime(2026, 11, 14)),
        (datetime(2026, 11, 14, 0, 0, 0, 7), pa.timestamp("ms"), datetime(2026, 11, 14, 0, 0, 0, 7000)),
        (time(1, 2, 3, 7), pa.time32("s"), time(1, 2, 3)),
        (timedelta(microseconds=7), pa.duration("s"), timedelta(seconds=7)),
        ([1, 1.5], pa.list_(pa.int64()), [1, 1.0]),
        ({"a": [1.5]}, pa.struct([("a", pa.list_(pa.int8()))]), {"a": [1.0]}),
    ],
)
def test_of_a_value_not_only_a_part_is_kept(value: Any, kind: pa.DataType, fits: Any) -> None:
    known = pa.schema([("c", kind)])
    assert reader_of([{"c": None}, {"c": fits}], known).read_all().num_rows == 2
    with pytest.raises(InvalidInput, match="column c"):
        reader_of([{"c": fits}, {"c": value}], known).read_all()


def test_a_time_among_days_is_not_taken_for_one() -> None:
    with pytest.raises(InvalidInput, match=r"column day: .* does not fit into date32"):
        reader_of([{"day": date(2026, 11, 14)}, {"day": datetime(2026, 11, 14, 12)}]).read_all()
