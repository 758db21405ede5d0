"""The operator `range_aggregator`: rows of a range of numbers become one, when no more of them are to come.

What is remembered is which ranges are open and which partitions of the input have rows of which ranges; the rows
themselves are read again when a range is complete. So what is written is what the input has, however often a unit is
tried, in whichever order units of several partitions come, and also when the input takes rows back.

Who writes a range reads other partitions as they are by then, which may be further than their own units have come. Of
these some never come: a unit of a partition is for all that was written until it begins. So whoever reads ahead notes
for the other partition of which ranges it has given rows, lest these stay when they are taken back.

| state | what it has |
|---|---|
| `ranges` | the highest number that was seen, and the ranges that are open |
| `in:PARTITION` | of which ranges a partition of the input has rows, as of which write and how many files |
| `at:NUMBER` | of 1,000 ranges: which partitions have rows of them, as of which write; as of which they were made |
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weft.core.errors import InvalidInput
from weft.data.own_thread import in_own_thread
from weft.data.parquet import dataset_of
from weft.flow.live.configs import RangeAggregator
from weft.worker.operators.changes import partitions_of
from weft.worker.operators.configured import configured
from weft.worker.operators.intervals import Intervals, between, common, intervals_of, joined, numbers_in, without
from weft.worker.operators.numbered import Numbered, quoted
from weft.worker.operators.origins import origins_in
from weft.worker.operators.querying import answered

if TYPE_CHECKING:
    from weft.worker.datasets import DatasetFiles, TaskDataset
    from weft.worker.live import LiveContext

_TOGETHER = 1000
# So many stretches of ranges are asked for in one query.
_STRETCHES = 2000
_LONGEST_KEY = 300
_FIELD, _COLUMN, _LATE = "config.aggregates", "config.column", "config.late"


@dataclass(slots=True)
class _Slot:
    """What is known of some ranges that stand together."""

    version: int
    at: int
    partitions: dict[str, int] = field(default_factory=dict)
    closed: Intervals = field(default_factory=list)

    @classmethod
    def told(cls, state: Any, version: int, write: int) -> _Slot:
        if state is None:
            return cls(version, write)
        if state["version"] != version:
            # Another version of the input: what of the one before was read is of no use here.
            return cls(version, write, {}, state["closed"])
        known = state["partitions"]
        # Once it was a list, which did not tell as of which write.
        partitions = dict.fromkeys(known, 0) if isinstance(known, list) else known
        return cls(version, max(state["at"], write), partitions, state["closed"])

    def to_state(self) -> dict[str, Any]:
        found = {"version": self.version, "at": self.at, "partitions": self.partitions, "closed": self.closed}
        return found


@dataclass(slots=True)
class _Note:
    """What is known of a partition: of which ranges it has rows, as of which write its units have looked.

    So many ``files`` stood there then; None where that was not noted, as once.
    """

    version: int
    write: int
    ranges: Intervals = field(default_factory=list)
    files: int | None = 0

    @classmethod
    def told(cls, state: Any, version: int) -> _Note:
        if state is None:
            return cls(version, 0)
        if "version" in state and state["version"] != version:
            return cls(state["version"], state["write"], state["ranges"])
        # Once there were but the ranges.
        return cls(state.get("version", 0), state.get("write", 0), state["ranges"], state.get("files"))

    def to_state(self) -> dict[str, Any]:
        return {"version": self.version, "write": self.write, "ranges": self.ranges, "files": self.files}


async def run(live: LiveContext) -> dict[str, Any]:
    """Note which ranges a unit touches, and write those that are complete."""
    return await _Unit(live, configured(live, RangeAggregator)).run()


class _Unit:
    def __init__(self, live: LiveContext, config: RangeAggregator) -> None:
        if config.late == "amend" and live.document.get("update_strategy") == "append":
            raise InvalidInput(_LATE, "amend takes the place of what was written: say update_strategy: replace")
        if config.late == "fail" and live.unit.kind == "partition":
            raise InvalidInput(_LATE, "fail needs execution_strategy: PerUpdate, by which late rows are told apart")
        self.live = live
        self.config = config
        self.dataset: str = live.unit.said["dataset"]
        self.version: int = live.unit.said["version"]
        self.write: int = live.unit.said["write"]
        self.states: dict[str, Any] = {}
        self.slots: dict[int, _Slot] = {}
        self.notes: dict[str, _Note] = {}
        self.touched: Intervals = []
        self.highest: int | None = None
        self.numbered: Numbered | None = None

    async def run(self) -> dict[str, Any]:
        # Before it is asked which version is read: a unit of another that has ended since has changed it.
        state = await self.live.state("ranges") or {"highest": None, "open": []}
        if await self.live.is_overtaken():
            return {"ranges": 0}
        for key in partitions_of(self.live, "write fewer at once"):
            await self._note(key)
        seen = [each for each in (state["highest"], self.highest) if each is not None]
        if not seen:
            return {"ranges": 0}
        highest = max(seen)
        waiting = joined(state["open"], self.touched)
        last = (highest - self.config.lateness) // self.config.size - 1
        complete = between(waiting, None, last)
        self.states["ranges"] = {"highest": highest, "open": between(waiting, last + 1, None)}
        written = await self._close(await self._due(complete))
        self.states |= {f"at:{number}": slot.to_state() for number, slot in self.slots.items()}
        self.states |= {_key(partition): note.to_state() for partition, note in self.notes.items()}
        await self.live.set_states(self.states)
        return {"ranges": written}

    async def _note(self, partition: str) -> None:
        """Note which ranges a partition of the input has rows of, and which it had."""
        changed: DatasetFiles = await self.live.changed_files(partition=partition)
        standing: DatasetFiles = await self.live.input(self.dataset).files(partition=partition)
        self.numbered = Numbered.of(changed.schema, self.config.column, self.config.size, _COLUMN)
        note, kept = await self._noted(partition), len(standing.names) - len(changed.names)
        # Where something else stands than what is new and all that stood there, all of it is looked at: some may be
        # gone, or be there that no unit has seen.
        is_more = kept > 0 and note.files in (None, kept)
        found, highest = await self._ranges(changed if is_more else standing)
        if highest is not None:
            self.highest = highest if self.highest is None else max(self.highest, highest)
        known = joined(note.ranges, found)
        touched, ranges = (found, known) if is_more else (known, found)
        self.notes[partition] = _Note(self.version, self.write, ranges, len(standing.names))
        self.touched = joined(self.touched, touched)
        for number in _slots(touched):
            (await self._slot(number)).partitions[partition] = self.write

    async def _noted(self, partition: str) -> _Note:
        if partition not in self.notes:
            self.notes[partition] = _Note.told(await self.live.state(_key(partition)), self.version)
        return self.notes[partition]

    async def _slot(self, number: int) -> _Slot:
        if number not in self.slots:
            state = await self.live.state(f"at:{number}")
            self.slots[number] = _Slot.told(state, self.version, self.write)
        return self.slots[number]

    async def _due(self, complete: Intervals) -> Intervals:
        """Return which ranges are to be written; those that were before are late."""
        late: Intervals = []
        for number in _slots(complete):
            late = joined(late, common(complete, (await self._slot(number)).closed))
        if not late or self.config.late == "amend" or self.live.unit.kind == "bootstrap":
            return complete
        if await self.live.stood() is not None:
            # What stands there when the job begins is no more late than what it stands beside.
            return complete
        starts = [number * self.config.size for number in numbers_in(late)]
        if self.config.late == "fail":
            raise InvalidInput(_LATE, f"rows came for {len(starts)} ranges that are closed, the first at {starts[0]}")
        self.live.task.logger.warning("late rows of %d ranges are left out, the first at %d", len(starts), starts[0])
        return without(complete, late)

    async def _close(self, due: Intervals) -> int:
        """Write ranges as the input has them now; one of which it has no rows any more is emptied."""
        if not due:
            return 0
        slots = [await self._slot(number) for number in _slots(due)]
        partitions = sorted({partition for slot in slots for partition in slot.partitions})
        at, source, ahead = await self._source(slots, partitions)
        found = set[int]()
        for stretch in _chunks(due):
            found |= await self._aggregate(source, stretch)
        emptied, full = 0, intervals_of(found)
        for number, slot in zip(_slots(due), slots, strict=True):
            ends = number * _TOGETHER, (number + 1) * _TOGETHER - 1
            here = between(due, *ends)
            emptied += await self._empty(without(common(here, slot.closed), between(full, *ends)))
            slot.at, slot.closed = at, joined(slot.closed, here)
        for partition in ahead:
            await self._note_ahead(partition, at, due)
        return len(found) + emptied

    async def _source(self, slots: Sequence[_Slot], partitions: list[str]) -> tuple[int, DatasetFiles, list[str]]:
        """Return of which state ranges are made, its files, and the partitions that are ahead of their units in it.

        Never a state before one that was read, where what another unit has added would be lost again; nor one before
        what the units of a partition have noted, where rows may stand that they have found to be gone.
        """
        later = max(slot.at for slot in slots)
        while True:
            at = later
            source: DatasetFiles = await self._state(at).files(partition=partitions)
            ahead = list[str]()
            for partition, write in source.newest.items():
                here = [slot for slot in slots if slot.partitions.get(partition, write) < write]
                if not here:
                    continue
                note = await self._noted(partition)
                if note.version != self.version or note.write < write:
                    ahead.append(partition)
                    continue
                later = max(later, note.write)
                for slot in here:
                    slot.partitions[partition] = note.write
            if later == at:
                return at, source, ahead

    async def _note_ahead(self, partition: str, at: int, due: Intervals) -> None:
        """Note of which ranges a partition has given rows that none of its units has seen, and perhaps none will."""
        note = await self._noted(partition)
        since = note.write if note.version == self.version else None
        try:
            found, _ = await self._ranges(await self._state(at).files(partition=partition, since=since))
        except InvalidInput:
            # What is wrong with its rows is for its own units to say; of which ranges they are, nobody can.
            found = due
        note.ranges = joined(note.ranges, common(found, due))

    async def _ranges(self, files: DatasetFiles) -> tuple[Intervals, int | None]:
        """Return the ranges of which files have rows, and the highest number in them."""
        assert self.numbered is not None
        values = _values(files, self.config.column, self.live.task.heartbeat)
        return await in_own_thread(self.numbered.ranges, values, _COLUMN)

    def _state(self, write: int) -> TaskDataset:
        return self.live.at(write)

    async def _aggregate(self, source: DatasetFiles, ranges: Intervals) -> set[int]:
        """Write what the rows of some ranges come to; return those that have rows."""
        assert self.numbered is not None
        async with answered(self.live, self._sql(ranges), {"rows": source}, _FIELD) as reader:
            table = await asyncio.to_thread(reader.read_all)
        if table.num_rows:
            # What columns are made of is the same for all ranges: it is asked for one, and known after that.
            origins = await origins_in(
                self.live, self._sql([[0, 0]]), {"rows": source}, {"rows": self.dataset}, table.schema.names
            )
            await self.live.write(table, partition_by="range_start", columns_from=origins)
        self._schema = table.schema
        return {start // self.config.size for start in table.column("range_start").unique().to_pylist()}

    async def _empty(self, ranges: Intervals) -> int:
        count = 0
        for number in numbers_in(ranges):
            await self.live.write(self._schema.empty_table(), partition=str(number * self.config.size))
            count += 1
        return count

    def _sql(self, ranges: Intervals) -> str:
        assert self.numbered is not None
        groups = [quoted(each) for each in self.config.by]
        made = [f"{self.numbered.expression(text)} as {quoted(name)}" for name, text in self.config.aggregates.items()]
        start = self.numbered.start
        columns = ", ".join([f"{start} as range_start", f"{start} + {self.config.size} as range_end", *groups, *made])
        order = ", ".join(str(place) for place in [1, *(3 + place for place in range(len(groups)))])
        return (
            f"select {columns}\nfrom rows where {self.numbered.within(ranges)}\n"
            f"group by {', '.join([start, *groups])} order by {order}"
        )

    _schema: pa.Schema


def _values(files: DatasetFiles, column: str, on_batch: Callable[[], None]) -> Iterator[pa.Array]:
    """Yield a column of some files, batch by batch."""
    if files.table is not None:
        yield from files.table.column(column).chunks
        return
    storage, location = files.place()
    paths = [storage.path(location, name) for name in files.names]
    with storage.telling():
        found = dataset_of(storage, paths, files.schema, files.partition_columns)
        for batch in found.to_batches(columns=[column], batch_readahead=1, fragment_readahead=1):
            yield batch.column(0)
            on_batch()


def _key(partition: str) -> str:
    short = partition if len(partition) <= _LONGEST_KEY else hashlib.sha256(partition.encode()).hexdigest()
    return f"in:{short}"


def _slots(ranges: Intervals) -> list[int]:
    """Return the numbers of the slots in which ranges are."""
    return list(numbers_in(joined([[first // _TOGETHER, last // _TOGETHER] for first, last in ranges])))


def _chunks(ranges: Intervals) -> Iterator[Intervals]:
    for begin in range(0, len(ranges), _STRETCHES):
        yield ranges[begin : begin + _STRETCHES]
