"""Whatever holds a table, as a stream of Arrow's batches: Arrow, pandas, polars, DuckDB, or rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from weft.core.errors import InvalidInput

_ROWS_AT_ONCE = 65_536
# Kinds of values of which Arrow may keep a part without a word, and the microseconds in what is kept.
_ROUNDED = (float, datetime, time, timedelta, Mapping, list, tuple)
_PARTS = {"s": 1_000_000, "ms": 1000}
_TAKEN = "a table of Arrow, pandas, polars or DuckDB, or rows as mappings"


def reader_of(data: Any, known: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Return a stream of the batches of a table; rows are read by those columns that are ``known``.

    Raises `InvalidInput` for what is no table.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    try:
        found = _from_frame(data)
    except (pa.ArrowException, ValueError) as problem:
        raise InvalidInput("data", f"{type(data).__name__} cannot be read as a table: {problem}") from None
    if found is not None:
        return found
    if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
        raise InvalidInput("data", f"{type(data).__name__} is no table: give {_TAKEN}")
    return _from_rows(iter(data), known)


def _from_frame(data: Any) -> pa.RecordBatchReader | None:
    """Return a stream of what others have as a table; None for what is none of these."""
    library = type(data).__module__.split(".")[0]
    if library == "pandas" and hasattr(data, "index") and hasattr(data, "columns"):
        # An index that has a name is a column as any other; else it counts rows, or tells which were left.
        named = [name for name in data.index.names if name is not None]
        table = data.reset_index(level=named) if named else data
        return pa.Table.from_pandas(table, preserve_index=False).to_reader()
    if library == "polars" and hasattr(data, "collect"):
        data = data.collect()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    return data.scanner().to_reader() if hasattr(data, "scanner") else None


def _from_rows(rows: Iterator[Any], known: pa.Schema | None) -> pa.RecordBatchReader:
    first = list(itertools.islice(rows, _ROWS_AT_ONCE))
    if first and isinstance(first[0], pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(first[0].schema, itertools.chain(first, rows))
    if not first:
        if known is None:
            raise InvalidInput(
                "data", "has no rows, and the dataset has no columns yet: give a table of Arrow with both"
            )
        return pa.RecordBatchReader.from_batches(known, [])
    schema = _schema(first, known)
    return pa.RecordBatchReader.from_batches(schema, _batches(first, rows, schema))


def _batches(first: list[Any], rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    place = 0
    while first:
        yield _batch(first, schema, place)
        place += len(first)
        first = list(itertools.islice(rows, _ROWS_AT_ONCE))


def _schema(rows: list[Any], known: pa.Schema | None) -> pa.Schema:
    """Return the columns of rows: the types of those that are known, and of others what the values are."""
    names: dict[str, None] = {}
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidInput("data", f"row {place} is {type(row).__name__} and no mapping: give {_TAKEN}")
        names |= dict.fromkeys(row)
    fields = []
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput("data", f"a column is called {name!r}, which is no text")
        place = -1 if known is None else known.get_field_index(name)
        # A column that was empty so far has the type of what comes first.
        if known is not None and place >= 0 and not pa.types.is_null(known.field(place).type):
            fields.append(known.field(place))
            continue
        try:
            fields.append(pa.field(name, pa.array([row.get(name) for row in rows]).type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
            raise InvalidInput("data", f"column {name}: {problem}") from None
    return pa.schema(fields)


def _batch(rows: list[Any], schema: pa.Schema, place: int) -> pa.RecordBatch:
    names = set(schema.names)
    for row in rows:
        place += 1
        if not isinstance(row, Mapping):
            raise InvalidInput("data", f"row {place - 1} is {type(row).__name__} and no mapping: give {_TAKEN}")
        if not row.keys() <= names:
            more = min(str(key) for key in row.keys() - names)
            raise InvalidInput("data", f"row {place - 1} has a column {more} that none of the first rows had")
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
            raise InvalidInput("data", f"column {field.name}: {problem}") from None
        if any(issubclass(each, _ROUNDED) for each in {type(value) for value in values}):
            changed = next((value for value in values if _is_changed(value, field.type)), None)
            if changed is not None:
                what = "with which the column began: give what is written first the type that is meant"
                raise InvalidInput("data", f"column {field.name}: {changed!r} does not fit into {field.type}, {what}")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_changed(value: Any, kind: pa.DataType) -> bool:
    """Whether Arrow would keep only a part of a value: the whole of a fraction, the day of a time."""
    if isinstance(value, float):
        if kinds.is_integer(kind):
            return not value.is_integer()
        return kinds.is_floating(kind) and math.isfinite(value) and math.isinf(pa.scalar(value, kind).as_py())
    if isinstance(value, datetime) and kinds.is_date(kind):
        return value.time() != time.min
    if isinstance(value, (datetime, time, timedelta)):
        parts = value.microseconds if isinstance(value, timedelta) else value.microsecond
        return parts % _PARTS.get(getattr(kind, "unit", ""), 1) != 0
    if isinstance(value, Mapping):
        return kinds.is_struct(kind) and any(_is_changed(value.get(each.name), each.type) for each in kind)
    is_list = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
    return is_list and isinstance(value, (list, tuple)) and any(_is_changed(each, kind.value_type) for each in value)
