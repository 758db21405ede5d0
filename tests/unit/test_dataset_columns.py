"""The columns of a dataset: what may be written by them, and what readers would stumble over."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from weft.core.errors import InvalidInput
from weft.data.columns import fit, record, recorded, settle
from weft.data.parquet import require_kept

KNOWN = pa.schema([pa.field("id", pa.int32()), pa.field("name", pa.string()), pa.field("at", pa.timestamp("us"))])


def test_a_schema_comes_back_as_it_was_kept() -> None:
    import orjson

    types = [
        *(pa.int8(), pa.uint64(), pa.float16(), pa.decimal128(20, 4), pa.date32(), pa.timestamp("ns", "Europe/Berlin")),
        *(pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])), pa.map_(pa.string(), pa.int32()), pa.null()),
        *(pa.binary(), pa.large_string(), pa.bool_(), pa.duration("ms"), pa.time64("us")),
    ]
    schema = pa.schema([pa.field(f"c{place}", each, place % 2 == 0) for place, each in enumerate(types)])
    kept = record(schema.with_metadata({"pandas": "{}"}))
    assert recorded(orjson.dumps(kept).decode()) == schema
    assert [each["name"] for each in kept["columns"]] == schema.names
    assert recorded(None) is None


def test_new_columns_come_last_and_may_be_null() -> None:
    given = pa.schema([pa.field("more", pa.int64(), nullable=False), *KNOWN])
    assert settle(KNOWN, given) == pa.schema([*KNOWN, pa.field("more", pa.int64())])
    assert settle(None, given) == given


def test_a_code_book_is_how_words_are_stored_and_not_what_they_are() -> None:
    coded = pa.schema([pa.field("word", pa.dictionary(pa.int32(), pa.string()))])
    assert settle(None, coded) == pa.schema([pa.field("word", pa.string())])
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b", "a"]).dictionary_encode()], names=["word"])
    assert fit(batch, settle(None, coded)).column(0).to_pylist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("view", "kept"), [(pa.string_view(), pa.large_string()), (pa.binary_view(), pa.large_binary())]
)
def test_a_view_is_how_texts_are_stored_and_not_what_they_are(view: pa.DataType, kept: pa.DataType) -> None:
    values = ["a", "b", None] if view == pa.string_view() else [b"a", b"b", None]
    schema = settle(None, pa.schema([pa.field("word", view)]))
    assert schema == pa.schema([pa.field("word", kept)])
    assert settle(schema, pa.schema([pa.field("word", view), pa.field("more", view)])).field("more").type == kept
    batch = pa.RecordBatch.from_arrays([pa.array(values, view)], names=["word"])
    assert fit(batch, schema).column(0).to_pylist() == values


def test_all_columns_by_which_readers_would_stumble_are_named_at_once() -> None:
    given = pa.schema([pa.field("id", pa.string()), pa.field("at", pa.int64())])
    with pytest.raises(InvalidInput) as problem:
        settle(KNOWN, given)
    text = str(problem.value)
    assert "id is string and was int32" in text
    assert "name (string) is missing" in text
    assert "at is int64 and was timestamp[us]" in text
    assert "breaking=True" in text


@pytest.mark.parametrize(
    ("values", "type", "wanted", "expected"),
    [
        ([1, None], pa.int64(), pa.int32(), [1, None]),
        ([1, 2], pa.int8(), pa.float64(), [1.0, 2.0]),
        ([1.0, 2.0], pa.float64(), pa.int32(), [1, 2]),
        ([1], pa.int32(), pa.decimal128(10, 2), [Decimal("1.00")]),
        (["a"], pa.large_string(), pa.string(), ["a"]),
        ([date(2026, 11, 14)], pa.date32(), pa.timestamp("us"), [datetime(2026, 11, 14)]),
        ([None], pa.null(), pa.string(), [None]),
        ([datetime(2026, 11, 14), None], pa.timestamp("us"), pa.date32(), [date(2026, 11, 14), None]),
        ([0.25, None], pa.float64(), pa.decimal128(10, 2), [Decimal("0.25"), None]),
        ([0.1, None], pa.float32(), pa.float64(), [0.10000000149011612, None]),
        # What is approximate is so with as many digits as the column has.
        ([0.1, float("inf")], pa.float64(), pa.float32(), [0.10000000149011612, float("inf")]),
        ([Decimal("0.5")], pa.decimal128(30, 22), pa.float64(), [0.5]),
    ],
)
def test_values_are_cast_where_none_is_changed(
    values: list[object], type: pa.DataType, wanted: pa.DataType, expected: list[object]
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(values, type)], names=["c"])
    assert fit(batch, pa.schema([pa.field("c", wanted)])).column(0).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "type", "wanted"),
    [
        ([1 << 40], pa.int64(), pa.int32()),
        ([1.5], pa.float64(), pa.int32()),
        ([300], pa.int64(), pa.int8()),
        ([Decimal("1.005")], pa.decimal128(10, 3), pa.decimal128(10, 2)),
        ([1], pa.int64(), pa.string()),
        (["1"], pa.string(), pa.int64()),
        ([True], pa.bool_(), pa.int64()),
        ([datetime(2026, 11, 14), datetime(2026, 11, 14, 12)], pa.timestamp("us"), pa.date32()),
        ([datetime(2026, 11, 14, 23, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin"), pa.date64()),
        ([0.25, 0.126], pa.float64(), pa.decimal128(10, 2)),
        ([1.0, 1e300], pa.float64(), pa.float32()),
        ([Decimal("1e39")], pa.decimal256(60, 2), pa.float32()),
    ],
)
def test_a_value_that_would_be_changed_is_refused_with_its_column(
    values: list[object], type: pa.DataType, wanted: pa.DataType
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(values, type)], names=["price"])
    with pytest.raises(InvalidInput, match="price"):
        fit(batch, pa.schema([pa.field("price", wanted)]))


def test_a_column_that_had_no_nulls_gets_none() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, None])], names=["id"])
    with pytest.raises(InvalidInput, match="id has nulls"):
        fit(batch, pa.schema([pa.field("id", pa.int64(), nullable=False)]))


@pytest.mark.parametrize("names", [["a", "a"], [""], []])
def test_columns_need_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(InvalidInput, match="columns"):
        settle(None, pa.schema([pa.field(name, pa.int64()) for name in names]))


def test_columns_that_differ_by_capital_letters_alone_are_one_for_queries() -> None:
    with pytest.raises(InvalidInput, match="name and NAME are one name for queries"):
        settle(KNOWN, KNOWN.append(pa.field("NAME", pa.string())))
    assert settle(None, pa.schema([("ä", pa.int64()), ("Ä", pa.int64())])).names == ["ä", "Ä"]


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.decimal128(5, -2), pa.sparse_union([pa.field("x", pa.int64())])], ids=str
)
def test_a_column_that_parquet_does_not_keep_is_named(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInput, match=r"odd is .*, which Parquet does not keep"):
        require_kept(KNOWN.append(pa.field("odd", kind)))
    require_kept(KNOWN)


def test_a_column_that_was_empty_so_far_has_the_type_of_what_comes() -> None:
    known = settle(None, pa.schema([("id", pa.int64()), ("said", pa.null())]))
    assert settle(known, pa.schema([("id", pa.int64()), ("said", pa.string())])).field("said").type == pa.string()
