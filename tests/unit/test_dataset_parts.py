"""Rows by partition and by key, of every type and however many: parted as one would by hand, or refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from weft.core.errors import InvalidInput
from weft.data.parquet import split, without_known

NAN = float("nan")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_rows_are_parted_in_their_order_by_odd_keys() -> None:
    keys = ["..", "a/b", "x=1", "é", " ", "a", ".", "%2F", "\U0001f600", "'"]
    table = pa.table({"key": [keys[number % 10] for number in range(1000)], "number": range(1000)})
    found = split(table, "key")
    assert {key: part.column("number").to_pylist() for key, part in found.items()} == {
        key: list(range(place, 1000, 10)) for place, key in enumerate(keys)
    }
    # Of a part of a batch too.
    assert split(table.slice(995), "key").keys() == set(keys[5:])


def test_many_keys_take_no_longer_than_few() -> None:
    table = pa.table({"key": [str(number % 200_000) for number in range(400_000)]})
    began = datetime.now(UTC)
    assert {part.num_rows for part in split(table, "key").values()} == {2}
    assert datetime.now(UTC) - began < timedelta(seconds=30)


@pytest.mark.parametrize(
    ("values", "known", "kind", "left"),
    [
        ([NAN, NAN, 1.0, 2.0], [NAN, 1.0], pa.float64(), [2.0]),
        ([Decimal("1.0"), Decimal(2)], [Decimal("1.00")], pa.decimal128(10, 2), [Decimal(2)]),
        ([Decimal("1.0"), Decimal(2)], [Decimal("1.00")], pa.decimal256(50, 2), [Decimal(2)]),
        ([BEGIN, BEGIN], [BEGIN], pa.timestamp("us", "Asia/Tokyo"), []),
        (["a", "A", "a "], ["a"], pa.large_string(), ["A", "a "]),
    ],
)  # fmt: skip
def test_rows_are_told_apart_by_keys_of_many_types(
    values: list[Any], known: list[Any], kind: pa.DataType, left: list[Any]
) -> None:
    table = pa.table({"key": pa.array(values, kind)})
    assert without_known(table, pa.table({"key": pa.array(known, kind)}), ["key"]).column("key").to_pylist() == left


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int8())]
)
def test_what_rows_cannot_be_told_apart_or_parted_by_is_refused_by_its_name(kind: pa.DataType) -> None:
    values = [{"a": 1}] if pa.types.is_struct(kind) else [[("a", 1)]] if pa.types.is_map(kind) else [[1]]
    table = pa.table({"many": pa.array(values, kind)})
    with pytest.raises(InvalidInput, match=r"unique_key.*many"):
        without_known(table, table, ["many"])
    with pytest.raises(InvalidInput, match=r"partition_by.*many"):
        split(table, "many")
