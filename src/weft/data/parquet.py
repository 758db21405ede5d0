"""Tables as Parquet files: written batch by batch, by partition, and read as one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from weft.catalog.dataset_writing import LONGEST_KEY
from weft.core.checks import check_text
from weft.core.errors import InvalidInput
from weft.data.columns import fit

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from weft.data.storage import Storage

# Beyond so many rows another file begins: engines read files side by side, and leave out those they need not.
_ROWS_IN_FILE = 20_000_000
_ROWS_IN_GROUP = 1_048_576
_OPEN_AT_ONCE = 200
WHOLE = ""


class Written(NamedTuple):
    """One file, as the catalog is told of it; ``path`` is its name under the location of its version."""

    partition: str
    path: str
    rows: int
    bytes: int


@dataclass(slots=True)
class _Open:
    writer: pq.ParquetWriter
    sink: pa.NativeFile
    path: str
    rows: int = 0


class Writer(Protocol):
    """Takes batches of a write, each of one partition."""

    def write(self, partition: str, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows to a partition."""
        ...

    def end(self) -> list[Written]:
        """Return what was written."""
        ...

    def give_up(self) -> None:
        """Leave what was written so far."""
        ...


class PartitionedWriter:
    """Writes batches into new files of a version, each of one partition; ``name`` is what theirs begin with."""

    def __init__(self, storage: Storage, location: str, name: str, schema: pa.Schema) -> None:
        self._storage = storage
        self._location = location
        self._name = name
        self._schema = schema
        self._open: dict[str, _Open] = {}
        self._count = 0
        self.written: list[Written] = []

    def write(self, partition: str, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows to a partition."""
        if batch.num_rows == 0:
            return
        file = self._open.pop(partition, None) or self._begin()
        # The one that was written last comes last: the first is closed when there are too many.
        self._open[partition] = file
        if isinstance(batch, pa.RecordBatch):
            file.writer.write_batch(batch, row_group_size=_ROWS_IN_GROUP)
        else:
            file.writer.write_table(batch, row_group_size=_ROWS_IN_GROUP)
        file.rows += batch.num_rows
        if file.rows >= _ROWS_IN_FILE:
            self._close(partition)
        while len(self._open) > _OPEN_AT_ONCE:
            self._close(next(iter(self._open)))

    def end(self) -> list[Written]:
        """Close all files; return what was written when it will be there after a crash of the machine."""
        for partition in list(self._open):
            self._close(partition)
        self._storage.keep(self._location, {file.path: file.bytes for file in self.written})
        return self.written

    def give_up(self) -> None:
        """Close all files, in which nobody is interested: what closes itself, into a bucket, holds up all threads."""
        for file in self._open.values():
            for close in (file.writer.close, file.sink.close):
                with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                    close()
        self._open.clear()

    def _begin(self) -> _Open:
        self._count += 1
        path = f"{self._name}-{self._count}.parquet"
        sink = self._storage.create(self._location, path)
        return _Open(pq.ParquetWriter(sink, self._schema, compression="zstd", compression_level=1), sink, path)

    def _close(self, partition: str) -> None:
        file = self._open[partition]
        file.writer.close()
        size = file.sink.tell()
        file.sink.close()
        del self._open[partition]
        self.written.append(Written(partition, file.path, file.rows, size))


def write_batches(
    writer: Writer, batches: Iterable[pa.RecordBatch], schema: pa.Schema, partition: str | None,
    partition_by: str | None, on_batch: Callable[[], None] = lambda: None,
) -> tuple[list[Written], list[str]]:  # fmt: skip
    """Write batches, all into one partition or by the values of a column; return the files and the partitions."""
    keys: dict[str, None] = {} if partition_by is not None else {partition or WHOLE: None}
    try:
        for batch in batches:
            fitted = fit(batch, schema)
            for key, part in [(partition or WHOLE, fitted)] if partition_by is None else _split(fitted, partition_by):
                keys[key] = None
                writer.write(key, part)
            on_batch()
        return writer.end(), list(keys)
    except BaseException:
        writer.give_up()
        raise


def _split(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    values = batch.column(column)
    if values.null_count:
        raise InvalidInput("partition_by", f"{column} has nulls, and each row needs a partition")
    try:
        coded = _one_of_each(values).dictionary_encode()
    except pa.ArrowNotImplementedError:
        raise InvalidInput("partition_by", f"{column} is {values.type}, by which nothing is parted") from None
    # Once in order, and not once more for each of many keys; the order within each stays.
    ordered = batch.take(pc.sort_indices(coded.indices))
    begin = 0
    counts = {each["values"]: each["counts"] for each in coded.indices.value_counts().to_pylist()}
    for place, value in enumerate(coded.dictionary.to_pylist()):
        yield key_of(value), ordered.slice(begin, counts[place])
        begin += counts[place]


def split(table: pa.Table, column: str) -> dict[str, pa.Table]:
    """Return a table by partition, as the values of a column tell it."""
    parts: dict[str, list[pa.RecordBatch]] = {}
    for batch in table.to_batches():
        for key, part in _split(batch, column):
            parts.setdefault(key, []).append(part)
    return {key: pa.Table.from_batches(batches, table.schema) for key, batches in parts.items()}


def key_of(value: object) -> str:
    """Return the key of a partition; raises `InvalidInput` for one that is empty or too long."""
    text = check_text(value if isinstance(value, str) else str(value), "partition", LONGEST_KEY)
    if not text:
        raise InvalidInput("partition", "must not be empty")
    return text


def dataset_of(
    storage: Storage, paths: Sequence[str], schema: pa.Schema, partition_columns: Sequence[str] = ()
) -> ds.Dataset:
    """Return files as one table of Arrow's, of which nothing is read before it is asked for.

    Files from before a column was there have nulls in it. The values of ``partition_columns`` stand in the paths.
    """
    # Loads pandas where there is one, which takes longer than all the rest: only who reads has to wait for it.
    import pyarrow.dataset as ds

    if not paths:
        return ds.dataset(schema.empty_table())
    by = None
    if partition_columns:
        by = ds.partitioning(pa.schema([schema.field(name) for name in partition_columns]), flavor="hive")
    return ds.dataset(
        list(paths), schema=schema, format="parquet", filesystem=storage.files, partitioning=by,
        partition_base_dir=storage.root if partition_columns else None,
    )  # fmt: skip


def without_known(table: pa.Table, known: pa.Table, unique_key: Sequence[str]) -> pa.Table:
    """Return those rows whose key is not known, and of several with one key the first."""
    key = list(unique_key)
    for name in key:
        if table.column(name).null_count:
            raise InvalidInput("unique_key", f"{name} has nulls, by which rows cannot be told apart")
    place = "\0place"
    numbered = _keys(table, key).append_column(place, pa.array(range(table.num_rows), pa.int64()))
    try:
        first = numbered.group_by(key).aggregate([(place, "min")])
        if known.num_rows:
            first = first.join(_keys(known, key), keys=key, join_type="left anti")
    except pa.ArrowNotImplementedError as problem:
        raise InvalidInput("unique_key", f"rows cannot be told apart by {', '.join(key)}: {problem}") from None
    return table.take(first.column(f"{place}_min").combine_chunks().sort())


def _keys(table: pa.Table, key: Sequence[str]) -> pa.Table:
    return pa.table({name: _one_of_each(table.column(name)) for name in key})


def _one_of_each(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return values by which rows can be told apart: floats have two zeros and many NaNs, which Arrow takes for others.

    For PostgreSQL and DuckDB there is one of each.
    """
    if not kinds.is_floating(values.type):
        return values
    if kinds.is_float16(values.type):
        values = values.cast(pa.float32())
    values = pc.if_else(pc.equal(values, pa.scalar(0.0, values.type)), pa.scalar(0.0, values.type), values)
    return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)


def require_kept(schema: pa.Schema) -> None:
    """Raise `InvalidInput` naming a column whose type Parquet does not have."""
    for each in (schema, *(pa.schema([field]) for field in schema)):
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), each).close()
        except (pa.ArrowException, OSError) as problem:
            if len(each) == 1:
                field = each.field(0)
                raise InvalidInput(
                    "columns", f"{field.name} is {field.type}, which Parquet does not keep: {problem}"
                ) from None
        else:
            if each is schema:
                return


def require_key(schema: pa.Schema, unique_key: Sequence[str], field: str = "unique_key") -> None:
    """Raise `InvalidInput` unless all columns of a key are there."""
    missing: list[Any] = [name for name in unique_key if schema.get_field_index(name) < 0]
    if missing:
        raise InvalidInput(field, f"there is no column {missing[0]!r}; there are {', '.join(schema.names)}")
