"""Where a task finds the rows of a version, and puts new ones: in files, or in a table of the database."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import pyarrow as pa

from weft.catalog.dataset_rows import KIND
from weft.data import columns, parquet, rows
from weft.data.parquet import PartitionedWriter, Written
from weft.data.storage import Storage
from weft.worker import dataset_answers as asks

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from weft.worker.steps import Ask

# Of rows that are sent at once, in bytes.
_PIECE = 1 << 20
_ROWS = 1000


class Place(Protocol):
    """Where the rows of a version are."""

    def writer(self, name: str, schema: pa.Schema) -> parquet.Writer:
        """Return what takes the rows of a write, of that name."""
        ...

    def dataset(self, files: Sequence[Written], schema: pa.Schema) -> ds.Dataset:
        """Return files as one table of Arrow's."""
        ...

    def table(self, files: Sequence[Written], schema: pa.Schema, names: Sequence[str] | None) -> pa.Table:
        """Return the rows of files, or some columns of them."""
        ...

    def writing(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Remove what a write that fails has left, as far as that goes: the rest is collected later."""
        ...


def place_of(told: dict[str, Any], ask: Ask) -> Place:
    """Return where a version is of which an attempt was told."""
    if told["storage"] == KIND:
        return RowPlace(ask, told["version_id"])
    if told.get("is_outside"):
        storage = _opened(told["location"], tuple(told["allowed"]))
        return FilePlace(storage, "", columns.partition_columns(told["schema"]))
    return FilePlace(_opened(told["root"], None), told["location"])


@functools.cache
def _opened(address: str, allowed: tuple[str, ...] | None) -> Storage:
    return Storage.at(address, allowed)


class FilePlace:
    """A version in Parquet files."""

    def __init__(self, storage: Storage, location: str, partition_columns: Sequence[str] = ()) -> None:
        self._storage = storage
        self._location = location
        self._partition_columns = partition_columns

    def writer(self, name: str, schema: pa.Schema) -> PartitionedWriter:
        """Return what writes new files; raises `InvalidInput` for columns that these cannot have."""
        parquet.require_kept(schema)
        return PartitionedWriter(self._storage, self._location, name, schema)

    def dataset(self, files: Sequence[Written], schema: pa.Schema) -> ds.Dataset:
        """Return files as one table, of which nothing is read before it is asked for."""
        paths = [self._storage.path(self._location, file.path) for file in files]
        with self._storage.telling():
            return parquet.dataset_of(self._storage, paths, schema, self._partition_columns)

    def table(self, files: Sequence[Written], schema: pa.Schema, names: Sequence[str] | None) -> pa.Table:
        """Read files."""
        with self._storage.telling():
            return self.dataset(files, schema).to_table(columns=None if names is None else list(names))

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Remove files of a write that fails; in a bucket they are left to who collects."""
        try:
            with self._storage.telling():
                yield
        except BaseException:
            if self._storage.is_local:
                with contextlib.suppress(OSError):
                    left = self._storage.beginning_with(self._location, f"{name}-")
                    self._storage.remove(self._location, left)
            raise


class RowPlace:
    """A version in a table of the database, which is reached by asking: by a far worker through the server."""

    def __init__(self, ask: Ask, version_id: str) -> None:
        self._ask = ask
        self._version_id = version_id

    def writer(self, name: str, schema: pa.Schema) -> RowWriter:
        """Return what sends new rows."""
        return RowWriter(self._ask, name, schema)

    def dataset(self, files: Sequence[Written], schema: pa.Schema) -> ds.Dataset:
        """Return the rows as a table of Arrow's, which is in memory."""
        import pyarrow.dataset as ds

        return ds.dataset(self.table(files, schema, None))

    def table(self, files: Sequence[Written], schema: pa.Schema, names: Sequence[str] | None) -> pa.Table:
        """Ask for rows, page by page."""
        wanted = schema if names is None else pa.schema([schema.field(name) for name in names])
        return pa.Table.from_batches(
            (batch for group in rows.grouped(files) for batch in self._batches(group, wanted)), wanted
        )

    def _batches(self, group: Sequence[rows.Listed], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        after, most = 0, rows.page_size(group)
        asked = {"version_id": self._version_id, "paths": [file.path for file in group], "columns": schema.names}
        while True:
            page = self._ask(asks.READ_ROWS, {**asked, "after": after, "most": most}).result()
            yield rows.to_batch([texts for _, texts in page], schema)
            if len(page) < most:
                return
            after = page[-1][0]

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Leave the rows of a write that fails to who collects: nobody sees them."""
        yield


class RowWriter:
    """Sends batches of one write to the database; the rows of each partition are known as one file."""

    def __init__(self, ask: Ask, name: str, schema: pa.Schema) -> None:
        self._ask = ask
        self._name = name
        self._columns = [{"name": name, "type": type} for name, type in rows.table_columns(schema)]
        self._written: dict[str, Written] = {}
        self._sent = 0

    def write(self, partition: str, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows to a partition."""
        for part in [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches():
            for begin in range(0, part.num_rows, _ROWS):
                self._send(partition, rows.to_texts(part.slice(begin, _ROWS)))

    def end(self) -> list[Written]:
        """Return what was written; of a write without rows there are the columns, as of any other."""
        if not self._written:
            said = {"id": self._name, "number": 1, "columns": self._columns, "rows": [], "before": 0}
            self._ask(asks.ADD_ROWS, said).result()
        return list(self._written.values())

    def give_up(self) -> None:
        """Leave the rows to who collects."""

    def _send(self, partition: str, texts: list[list[str | None]]) -> None:
        size = len(orjson.dumps(texts))
        if size > _PIECE and len(texts) > 1:
            half = len(texts) // 2
            self._send(partition, texts[:half])
            self._send(partition, texts[half:])
            return
        before = self._written.get(partition)
        number = len(self._written) + 1 if before is None else int(before.path.split("-")[1].removesuffix(".rows"))
        said = {"id": self._name, "number": number, "columns": self._columns, "rows": texts, "before": self._sent}
        self._ask(asks.ADD_ROWS, said).result()
        self._sent += len(texts)
        total, bytes = (0, 0) if before is None else (before.rows, before.bytes)
        path = f"{self._name}-{number}.rows"
        self._written[partition] = Written(partition, path, total + len(texts), bytes + size)
