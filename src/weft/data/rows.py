"""Tables of Arrow as rows of texts, for PostgreSQL to read, and back; and which types it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import MAXYEAR, MINYEAR, time
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from weft.catalog.dataset_rows import LONGEST_NAME, MOST_COLUMNS, MOST_FILES, MOST_ROWS
from weft.core.errors import InvalidInput

_PLAIN: dict[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint", pa.uint64(): "numeric(20,0)",
    pa.float32(): "real", pa.float64(): "double precision", pa.date32(): "date", pa.date64(): "date",
}  # fmt: skip
LARGEST_PAGE = 4 * 1024 * 1024
# Those of a table of ours, and those that every table of PostgreSQL has.
_TAKEN = frozenset({"_write", "_file", "_row", "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
_KEPT = (
    "booleans, integers, floats of 32 and 64 bits, decimals, texts, binaries, dates, times and timestamps are kept in "
    "tables of PostgreSQL"
)


class Listed(Protocol):
    """A file of rows as it is listed."""

    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def bytes(self) -> int: ...  # noqa: D102


def table_columns(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the columns with PostgreSQL's names of their types; raises `InvalidInput` naming one that is not kept."""
    if len(schema) > MOST_COLUMNS:
        raise InvalidInput("columns", f"are {len(schema)}, and a table has at most {MOST_COLUMNS}")
    return [(_name(field.name), _type(field)) for field in schema]


def to_texts(batch: pa.RecordBatch) -> list[list[str | None]]:
    """Return rows as the texts of their values; raises `InvalidInput` naming a column with one that has none."""
    found = [_texts(field, column).to_pylist() for field, column in zip(batch.schema, batch.columns, strict=True)]
    return [list(row) for row in zip(*found, strict=True)]


def to_batch(rows: Sequence[Sequence[str | None]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of texts as a batch of Arrow."""
    if not rows:
        return pa.RecordBatch.from_pylist([], schema)
    columns = list(zip(*rows, strict=True))
    arrays = [_values(field.type, list(texts)) for field, texts in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def grouped(files: Iterable[Listed]) -> Iterator[list[Listed]]:
    """Yield files in groups that are read at once: many that are small, or one that is large."""
    group: list[Listed] = []
    count = size = 0
    for file in files:
        if group and (count + file.rows > MOST_ROWS or size + file.bytes > LARGEST_PAGE or len(group) == MOST_FILES):
            yield group
            group, count, size = [], 0, 0
        group.append(file)
        count, size = count + file.rows, size + file.bytes
    if group:
        yield group


def page_size(group: Sequence[Listed]) -> int:
    """Return how many rows of a group are read at once, that they are not too much in bytes."""
    count, size = sum(file.rows for file in group), sum(file.bytes for file in group)
    return max(1, min(MOST_ROWS, count + 1, LARGEST_PAGE * count // max(size, 1) + 1))


def _name(name: str) -> str:
    if len(name.encode()) > LONGEST_NAME:
        raise InvalidInput("columns", f"{name} is longer than {LONGEST_NAME} bytes, as long as names of a table may be")
    if name in _TAKEN:
        raise InvalidInput("columns", f"{name} is a name that tables have for themselves: give the column another")
    return name


def _type(field: pa.Field) -> str:
    kind = field.type
    if (plain := _PLAIN.get(kind)) is not None:
        return plain
    if kinds.is_decimal(kind) and kind.scale >= 0:
        return f"numeric({kind.precision},{kind.scale})"
    if kinds.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if kinds.is_time(kind):
        return "time"
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return "text"
    if _is_binary(kind):
        return "bytea"
    raise InvalidInput("columns", f"{field.name} is {kind}, which is not: {_KEPT}")


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind)
        or kinds.is_binary_view(kind)
    )  # fmt: skip


def _texts(field: pa.Field, column: pa.Array) -> pa.Array:
    kind = field.type
    if _is_binary(kind):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    try:
        if kinds.is_timestamp(kind):
            # In UTC, of which PostgreSQL is told.
            column = column.cast(pa.timestamp("us", kind.tz), safe=True).cast(pa.timestamp("us"), safe=True)
        elif kinds.is_time64(kind):
            column = column.cast(pa.time64("us"), safe=True)
        elif kinds.is_date64(kind):
            column = column.cast(pa.date32())
    except pa.ArrowInvalid:
        raise InvalidInput("columns", f"{field.name} has nanoseconds, and tables keep microseconds") from None
    if (kinds.is_timestamp(kind) or kinds.is_date(kind)) and len(column) > column.null_count:
        years = pc.min_max(pc.year(column)).as_py()
        if years["min"] < MINYEAR or years["max"] > MAXYEAR:
            raise InvalidInput(
                "columns", f"{field.name} has a year outside of {MINYEAR} to {MAXYEAR}, which tables keep"
            )
    texts = column.cast(pa.string())
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise InvalidInput("columns", f"{field.name} has a text with a zero byte, which tables do not keep")
    return texts


def _values(kind: pa.DataType, texts: list[Any]) -> pa.Array:
    if _is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text) for text in texts], kind)
    given = pa.array(texts, pa.string())
    if kinds.is_timestamp(kind):
        moments = given.cast(pa.timestamp("us"))
        return moments.cast(pa.timestamp(kind.unit)) if kind.tz is None else moments.cast(kind)
    if kinds.is_time(kind):
        times = [None if text is None else time.fromisoformat(text) for text in texts]
        return pa.array(times, pa.time64("us")).cast(kind)
    if kinds.is_date64(kind):
        return given.cast(pa.date32()).cast(kind)
    return given.cast(kind)
