"""A dataset as a running task has it: read in one state, written so that it is visible when the task completes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.catalog.column_origins import pairs_of
from weft.catalog.dataset_reading import Partition
from weft.catalog.dataset_writing import Mode
from weft.core.checks import check_word
from weft.core.errors import InvalidInput
from weft.data.extra import needs
from weft.data.own_thread import in_own_thread
from weft.worker import dataset_answers as asks
from weft.worker.steps import Ask, is_in_loop, require_no_step

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

    from weft.data.parquet import Written
    from weft.data.storage import Storage
    from weft.worker.dataset_places import Place


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write has brought, as `TaskDataset.write` returns it; it is visible when the task completes."""

    rows: int
    bytes: int
    files: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DatasetFiles:
    """Where a state of a dataset is, for whoever reads it by other means than Arrow's: names beneath a location."""

    root: str
    location: str
    names: tuple[str, ...]
    schema: pa.Schema
    is_outside: bool = False
    # The rows themselves, where they are kept in a table of the database.
    table: pa.Table | None = None
    # Of files that others write: where they may lie, and which columns stand in their paths.
    allowed: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    # The last write that brought files which are in it still, by partition.
    newest: Mapping[str, int] = field(default_factory=dict)

    def place(self) -> tuple[Storage, str]:
        """Return how the files are opened, and beneath which location: those of others where that is allowed only."""
        from weft.data.storage import Storage

        return Storage.of(self.root, self.location, is_outside=self.is_outside, allowed=self.allowed)


class _Listed(NamedTuple):
    """A file that stands in a version, and the write that brought it."""

    file: Written
    write: int


@dataclass(slots=True)
class _Own:
    """What an attempt has written into a version so far: beside what stands there, or in its place."""

    files: dict[str, list[Written]] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    is_whole: bool = False
    schema: pa.Schema | None = None
    digest: str | None = None

    def covers(self, partition: str) -> bool:
        """Whether nothing counts any more of what stands in a partition."""
        return self.is_whole or partition in self.replaced

    def add(self, files: Sequence[Written], partitions: Sequence[str], mode: Mode, *, is_whole: bool) -> None:
        """Note a write."""
        if is_whole:
            self.files.clear()
            self.is_whole = True
        elif mode is Mode.REPLACE:
            self.replaced.update(partitions)
            for key in partitions:
                self.files.pop(key, None)
        for file in files:
            self.files.setdefault(file.partition, []).append(file)


class TaskDataset:
    """A dataset of a running task; `Context.dataset`. Its verbs are awaited in an async handler, and block in others.

    All reads of an attempt see the same state of it, whatever others write meanwhile. Example::

        table = await ctx.dataset("orders").read(partition="2026-11-14", columns=["id", "price"])
    """

    def __init__(self, name: str, ask: Ask, beat: Callable[[], None]) -> None:
        self.name = name
        self._ask = ask
        self._beat = beat
        self._state: dict[str, Any] | None = None
        # By version.
        self._own: dict[str, _Own] = {}

    def write(
        self, data: Any, *, partition: str | None = None, partition_by: str | None = None, mode: str = "replace",
        unique_key: Sequence[str] | str | None = None, breaking: bool = False,
        columns_from: Mapping[str, Sequence[str | tuple[str, str]]] | None = None,
    ) -> Any:  # fmt: skip
        """Write a table: of Arrow, pandas, polars or DuckDB, or rows as mappings; return a `WriteResult`.

        ``replace`` takes the place of what is there: of the ``partition``, of those that occur in the column
        ``partition_by``, or of everything. ``append`` adds rows, and leaves out those whose ``unique_key`` is there
        already in their partition, so that the same rows may come twice; ``unique_key=[]`` adds all. The columns stay
        as they are, and new ones may come; with ``breaking=True`` all is replaced, whatever its columns are.
        ``columns_from`` says what columns are made of, such as ``{"total": ["orders.price", "orders.quantity"]}``: of
        datasets that this attempt has read before.
        """
        require_no_step("dataset", self.name)
        how = check_word(mode, "mode", Mode)
        if partition is not None and partition_by is not None:
            raise InvalidInput("partition", "a write has a partition or partition_by, and not both")
        if breaking and (how is not Mode.REPLACE or partition is not None):
            raise InvalidInput(
                "breaking", "only a write that replaces everything may change columns: leave the rest out"
            )
        if how is Mode.REPLACE and unique_key:
            raise InvalidInput("unique_key", "is for mode='append': what is replaced need not be told apart")
        if how is Mode.APPEND and unique_key is None:
            raise InvalidInput(
                "unique_key", "name the columns by which rows are told apart, lest a task that is run again adds them "
                "twice; [] adds all",
            )  # fmt: skip
        key = [unique_key] if isinstance(unique_key, str) else list(unique_key or ())
        pairs = [] if columns_from is None else pairs_of(columns_from)
        return self._do(self._write, data, partition, partition_by, how, key, breaking, pairs)

    def read(
        self, *, partition: str | Sequence[str] | None = None, columns: Sequence[str] | None = None,
        since: int | None = None,
    ) -> Any:  # fmt: skip
        """Return the dataset, some of its partitions, or what came ``since`` a write, as a table of Arrow."""
        return self._do(self._read, _several(partition), columns, since)

    def scan(self, *, partition: str | Sequence[str] | None = None, since: int | None = None) -> Any:
        """Return the dataset as a ``pyarrow.dataset.Dataset``, of which nothing is read yet.

        Example::

            orders = await ctx.dataset("orders").scan()
            duckdb.sql("select day, sum(price) from orders group by day")
        """
        return self._do(self._scan, _several(partition), since)

    def files(self, *, partition: str | Sequence[str] | None = None, since: int | None = None) -> Any:
        """Return the files of what `scan` would return, as `DatasetFiles`."""
        return self._do(self._located, _several(partition), since)

    def partitions(self) -> Any:
        """Return the partitions, by key, each a `Partition`; rows that are in none have the key ``""``."""
        return self._do(self._partitions)

    def _do(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function: in a thread, to be awaited, where a loop runs that must not be held up."""
        needs("pyarrow")
        call = functools.partial(function, *args)
        return in_own_thread(call) if is_in_loop() else call()

    def _write(
        self, data: Any, partition: str | None, partition_by: str | None, mode: Mode, key: list[str], breaking: bool,
        pairs: list[tuple[str, Any]],
    ) -> WriteResult:  # fmt: skip
        from weft.catalog.dataset_writing import schema_digest
        from weft.data import columns, parquet
        from weft.data.batches import reader_of
        from weft.worker.dataset_places import place_of

        if partition is not None:
            parquet.key_of(partition)
        asked = {"dataset": self.name, "mode": mode, "unique_key": key, "breaking": breaking}
        begun = self._ask(asks.BEGIN, asked).result()
        place = place_of(begun, self._ask)
        own = self._own.setdefault(begun["version_id"], _Own())
        # The columns are those that this attempt has left, if it has written already.
        known, digest = own.schema, own.digest
        if known is None and not breaking:
            known, digest = columns.recorded(begun["schema"]), begun["schema_hash"]
        reader = reader_of(data, known)
        schema = columns.settle(known, reader.schema)
        parquet.require_key(schema, key)
        if partition_by is not None:
            parquet.require_key(schema, [partition_by], "partition_by")
        parquet.require_key(schema, [column for column, _ in pairs], "columns_from")
        batches: Iterator[pa.RecordBatch] = iter(reader)
        compared: list[str] = []
        if key:
            batches = self._new_rows(place, begun, batches, schema, key, partition, partition_by, compared)
        writer = place.writer(begun["id"], schema)
        is_whole = mode is Mode.REPLACE and partition is None and partition_by is None
        told = columns.record(schema)
        with place.writing(begun["id"]):
            files, partitions = parquet.write_batches(writer, batches, schema, partition, partition_by, self._beat)
            # Those too of which nothing is new: were another to change them meanwhile, that would be another matter.
            partitions = list(dict.fromkeys([*partitions, *compared]))
            staged = {
                "id": begun["id"], "partitions": partitions, "files": [file._asdict() for file in files],
                "is_whole": is_whole, "seen": begun["write"] if key else None, "seen_schema": digest, "schema": told,
                "columns_from": pairs,
            }  # fmt: skip
            self._ask(asks.STAGE, staged).result()
        own.add(files, partitions, mode, is_whole=is_whole)
        own.schema, own.digest = schema, schema_digest(told)
        return WriteResult(
            sum(file.rows for file in files), sum(file.bytes for file in files), len(files), tuple(partitions)
        )

    def _new_rows(
        self, place: Place, begun: dict[str, Any], batches: Iterator[pa.RecordBatch], schema: pa.Schema,
        key: list[str], partition: str | None, partition_by: str | None, compared: list[str],
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Return the rows whose key is not there already in their partition; ``compared`` is told the partitions."""
        import pyarrow as pa

        from weft.data import columns, parquet

        table = pa.Table.from_batches((columns.fit(batch, schema) for batch in batches), schema)
        parts = {partition or parquet.WHOLE: table}
        if partition_by is not None:
            parts = parquet.split(table, partition_by)
        own = self._own[begun["version_id"]]
        for name, part in parts.items():
            compared.append(name)
            found: list[Written] = []
            if not own.covers(name):
                listed = self._listed(begun["version_id"], begun["write"], [name], for_write=True)
                found = [each.file for each in listed]
            known = place.table([*found, *own.files.get(name, [])], schema, key)
            yield from parquet.without_known(part, known, key).to_batches()

    def _read(self, partitions: list[str] | None, columns: Sequence[str] | None, since: int | None) -> pa.Table:
        place, listed, schema = self._found(partitions, since)
        if columns is not None:
            from weft.data.parquet import require_key

            require_key(schema, list(columns), "columns")
        return place.table([each.file for each in listed], schema, columns)

    def _scan(self, partitions: list[str] | None, since: int | None) -> ds.Dataset:
        place, listed, schema = self._found(partitions, since)
        return place.dataset([each.file for each in listed], schema)

    def _found(self, partitions: list[str] | None, since: int | None) -> tuple[Place, list[_Listed], pa.Schema]:
        """Return where the rows are that an attempt reads, in which files, and with which columns."""
        from weft.data.columns import recorded
        from weft.worker.dataset_places import place_of

        state = self._seen()
        how = {"pinned": state["pinned"], "seen": state["seen"], "since": -1 if since is None else since}
        found = self._listed(state["version_id"], state["write"], partitions, **how)
        if (schema := recorded(state["schema"])) is None:
            raise InvalidInput("dataset", f"nothing has been written into {self.name} yet")
        return place_of(state, self._ask), found, schema

    def _located(self, partitions: list[str] | None, since: int | None) -> DatasetFiles:
        from weft.catalog.dataset_rows import KIND
        from weft.data.columns import partition_columns

        state = self._seen()
        place, listed, schema = self._found(partitions, since)
        files, newest = [each.file for each in listed], dict[str, int]()
        for each in listed:
            newest[each.file.partition] = max(each.write, newest.get(each.file.partition, 0))
        names = tuple(file.path for file in files)
        if state["storage"] == KIND:
            rows = place.table(files, schema, None)
            return DatasetFiles(state["root"], state["location"], names, schema, table=rows, newest=newest)
        found = DatasetFiles(
            state["root"], state["location"], names, schema, bool(state["is_outside"]),
            allowed=tuple(state["allowed"]), partition_columns=partition_columns(state["schema"]), newest=newest,
        )  # fmt: skip
        storage, location = found.place()
        storage.require_allowed(location, names)
        return found

    def _partitions(self) -> list[Partition]:
        state, found = self._seen(), list[Partition]()
        while True:
            after = found[-1].key if found else None
            page = self._ask(asks.PARTITIONS, {"version_id": state["version_id"], "after": after}).result()
            found += [Partition(**each | {"written_at": datetime.fromisoformat(each["written_at"])}) for each in page]
            if len(page) < asks.PAGE:
                return found

    def _seen(self) -> dict[str, Any]:
        """Return the state that this attempt reads: that of its first look."""
        if self._state is None:
            self._state = self._ask(asks.READ, {"dataset": self.name}).result()
        return self._state

    def _listed(self, version_id: str, write: int, partitions: list[str] | None, **how: Any) -> list[_Listed]:
        from weft.data.parquet import Written

        found = list[_Listed]()
        asked: dict[str, Any] = {"version_id": version_id, "write": write, "partitions": partitions, **how}
        after: dict[str, Any] = {"after_partition": "", "after_id": None}
        while True:
            page = self._ask(asks.FILES, asked | after).result()
            found += [_Listed(Written(partition, *file), write) for partition, _, *file, write in page]
            if len(page) < asks.PAGE:
                return found
            after = {"after_partition": page[-1][0], "after_id": page[-1][1]}


def _several(partition: str | Sequence[str] | None) -> list[str] | None:
    return partition if partition is None else [partition] if isinstance(partition, str) else list(partition)
