"""What another process sends as Arrow is no larger than it looks, whatever that process is."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from weft.core.query_errors import QueryLimitReached
from weft.data.query_model import QueryLimits
from weft.worker.operators.querying import checked

FEW = QueryLimits(rows=1000)


def sent(table: pa.Table, **options: Any) -> io.BytesIO:
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    stream.seek(0)
    return stream


def column(array: pa.Array) -> pa.Table:
    return pa.table({"a": array})


def test_what_is_plain_is_read_as_it_was_sent() -> None:
    table = pa.table({
        "n": [1, None, 3], "text": ["a", "b", None], "list": [[], [None], None], "nothing": pa.nulls(3),
        "record": [{"x": 1}, {"x": None}, None], "pairs": pa.array([[("k", 1)], [], None], pa.map_("string", "int8")),
        "raw": [b"", b"x", None], "fixed": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2)),
    })  # fmt: skip
    assert checked(sent(table), FEW).read_all().equals(table)
    assert checked(sent(table.slice(0, 0)), FEW).read_all().num_rows == 0


LONG = pa.array(["x" * 1000])
UNFOLDING = {
    "a code book": pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int8()), LONG),
    "a code book in a list": pa.ListArray.from_arrays([0, 1], LONG.dictionary_encode()),
    "a code book in a record": pa.StructArray.from_arrays([LONG.dictionary_encode()], ["x"]),
    "a code book of a map": pa.MapArray.from_arrays([0, 1], pa.array(["k"]), LONG.dictionary_encode()),
    "views of texts": LONG.cast(pa.string_view()),
    "views of bytes": pa.array([b"x" * 1000], pa.binary_view()),
    "views of lists": pa.ListViewArray.from_arrays([0] * 500, [1] * 500, LONG),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([500], pa.int32()), LONG),
}


@pytest.mark.parametrize("what", UNFOLDING)
def test_a_value_that_stands_for_several_is_refused(what: str) -> None:
    with pytest.raises(RuntimeError, match="values that stand for several"):
        checked(sent(column(UNFOLDING[what])), FEW)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_what_is_packed_is_refused(codec: str) -> None:
    reader = checked(sent(column(pa.array([b"\0" * 1_000_000])), compression=codec), FEW)
    with pytest.raises(RuntimeError, match="packed"):
        reader.read_all()


HOLLOW = {
    "nothing": pa.nulls(10_000),
    "nothing in a list": pa.ListArray.from_arrays(pa.array([0, 10_000], pa.int32()), pa.nulls(10_000)),
    "nothing in a list of one size": pa.FixedSizeListArray.from_arrays(pa.nulls(10_000), 10_000),
    "empty records in a list": pa.ListArray.from_arrays(
        pa.array([0, 10_000], pa.int32()), pa.array([{}] * 10_000, pa.struct([]))
    ),
    "rows": pa.array(range(10_000)),
}


@pytest.mark.parametrize("what", HOLLOW)
def test_there_are_no_more_rows_than_were_allowed_and_no_more_of_nothing(what: str) -> None:
    with pytest.raises(QueryLimitReached, match="rows"):
        checked(sent(column(HOLLOW[what])), FEW).read_all()


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 64, b"PAR1"])
def test_what_is_no_stream_is_refused(data: bytes) -> None:
    with pytest.raises(RuntimeError, match="no stream of Arrow"):
        checked(io.BytesIO(data), FEW)
