"""What a unit is about, as tables that queries can read: files of a dataset, or the rows that came with an event."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from weft.core.errors import InvalidInput
from weft.core.suggestions import did_you_mean
from weft.worker.datasets import DatasetFiles

if TYPE_CHECKING:
    from weft.worker.live import LiveContext

CHANGES = "changes"


def partitions_of(live: LiveContext, advice: str) -> list[str]:
    """Return the partitions that a unit is about; raises `InvalidInput` where they are too many to be told."""
    if (found := live.unit.partitions) is None:
        raise InvalidInput("unit", f"more than 1,000 partitions were written at once: {advice}")
    return found


async def inputs_named(
    live: LiveContext, names: Sequence[str], aliases: Mapping[str, str], field: str, *, is_latest: bool = False
) -> dict[str, DatasetFiles]:
    """Return the inputs that a query names, in the versions that the job reads; of those nothing is read yet.

    The one that the unit is about is as it was after its write, or the ``latest``.
    """
    known = {name.lower(): name for name in live.inputs}
    known |= {alias.lower(): dataset for alias, dataset in aliases.items()}
    found = {}
    for name in names:
        if name == CHANGES:
            continue
        if (dataset := known.get(name.lower())) is None:
            hint = did_you_mean(name, [CHANGES, *live.inputs, *aliases])
            raise InvalidInput(
                field, f"there is no table {name!r}: there are `changes` and the inputs of the job.{hint}"
            )
        found[name] = await (live.latest if is_latest else live.input)(dataset).files()
    return found


def table_of(rows: Any, field: str) -> pa.Table:
    """Return rows as a table; raises `InvalidInput` for what is none."""
    rows = [rows] if isinstance(rows, Mapping) else rows
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidInput(field, "is no row: an object, or a list of objects")
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise InvalidInput(field, f"values of one column are of several types: {problem}") from None


@contextmanager
def file_of(table: pa.Table) -> Iterator[DatasetFiles]:
    """Lend a table as a file."""
    with tempfile.TemporaryDirectory(prefix="weft-unit-") as folder:
        pq.write_table(table, f"{folder}/rows.parquet")
        yield DatasetFiles(folder, "", ("/rows.parquet",), table.schema)


@contextmanager
def rows_said(live: LiveContext) -> Iterator[dict[str, DatasetFiles]]:
    """Lend what a source has said, an event or rows, as the table `changes`; nothing where it has said no rows."""
    said = live.unit.said
    rows = said.get("rows", live.unit.payload)
    if rows is None:
        yield {}
        return
    with file_of(table_of(rows, "unit.payload")) as files:
        yield {CHANGES: files}
