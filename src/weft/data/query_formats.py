"""What an answer is written as: Arrow's stream, lines of JSON, CSV or Parquet, batch by batch."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyarrow import types

ROWS_AT_ONCE = {"arrow": 8_192, "csv": 8_192, "json": 2_048, "parquet": 122_880}


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: Any, /) -> int: ...  # noqa: D102


class Writer(Protocol):
    """Writes batches of one schema, and what comes after the last."""

    def write(self, batch: pa.RecordBatch) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


def writer_for(format: str, sink: Sink, schema: pa.Schema) -> Writer:
    """Return what writes an answer of these columns."""
    makers: dict[str, Callable[[Sink, pa.Schema], Writer]] = {
        "arrow": pa.ipc.new_stream,
        "csv": _Csv,
        "json": _Json,
        "parquet": _Parquet,
    }
    return makers[format](sink, schema)


def distinct(names: list[str]) -> list[str]:
    """Return the names, each once: what has a name that is taken gets a number."""
    taken = set(names)
    found: list[str] = []
    used: dict[str, int] = {}
    for name in names:
        free, number = name, used.get(name, 0)
        while number and (free := f"{name}_{number}") in taken:
            number += 1
        used[name] = number + 1
        taken.add(free)
        found.append(free)
    return found


class _Parquet:
    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._writer = pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Json:
    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._sink = sink
        self._names = schema.names

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_plain(column).to_pylist() for column in batch.columns]
        lines = [_line(dict(zip(self._names, row, strict=True))) for row in zip(*columns, strict=True)]
        self._sink.write(b"".join(lines))

    def close(self) -> None:
        pass


def _line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, _told, orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


class _Csv:
    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._schema = pa.schema([pa.field(each.name, _flat_type(each.type)) for each in schema])
        self._writer = pyarrow.csv.CSVWriter(sink, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_flat(column, kind) for column, kind in zip(batch.columns, self._schema.types, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _flat_type(kind: pa.DataType) -> pa.DataType:
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_date(kind):
        return kind
    if types.is_decimal(kind):
        return kind
    return pa.string()


def _flat(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if types.is_timestamp(column.type) and column.type.tz is None:
        return column.cast(pa.string())
    values = _plain(column).to_pylist()
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    written = orjson.dumps(value, _told, orjson.OPT_NON_STR_KEYS).decode()
    return written[1:-1] if written.startswith('"') else written


def _plain(column: pa.Array) -> pa.Array:
    """Return a column whose values Python has: it knows no nanoseconds."""
    if types.is_timestamp(column.type) and column.type.unit == "ns":
        return column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if types.is_time64(column.type) and column.type.unit == "ns":
        return column.cast(pa.time64("us"), safe=False)
    return column


def _told(value: Any) -> Any:
    """Return in JSON what it has no form of: exact numbers as they are, bytes in base64, spans of time as ISO 8601."""
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f").encode())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, pa.MonthDayNano):
        months, days, nanoseconds = value
        return f"P{months}M{days}DT{Decimal(nanoseconds) / 1_000_000_000}S"
    if isinstance(value, tuple):
        return list(value)
    return str(value)
