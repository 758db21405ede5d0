"""What the columns of an answer are made of, as far as the text of its query tells: nothing fails where it does not."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from weft.catalog.column_origins import MOST
from weft.data.sql_lineage import Untold, columns_of_query
from weft.worker.operators.changes import CHANGES

if TYPE_CHECKING:
    from weft.worker.datasets import DatasetFiles
    from weft.worker.live import LiveContext

Origins = dict[str, list[tuple[str, str]]]


async def origins_in(
    live: LiveContext, sql: str, tables: Mapping[str, DatasetFiles], aliases: Mapping[str, str], columns: Sequence[str]
) -> Origins | None:
    """Return for the columns of an answer which of datasets they are made of; None where that cannot be told.

    ``tables`` are those that the query names: inputs of the job, others by ``aliases``, and what the unit is about.
    """
    schemas = {name: files.schema.names for name, files in tables.items()}
    try:
        told = await asyncio.to_thread(_told, sql, schemas)
    except (OSError, ValueError) as problem:
        told = Untold(str(problem))
    if isinstance(told, Untold):
        live.task.logger.info("what the columns are made of cannot be told: %s", told.why)
        return None
    datasets = {name.lower(): name for name in live.inputs}
    datasets |= {alias.lower(): dataset for alias, dataset in aliases.items()}
    # Rows that came with an event are of no dataset.
    datasets |= {CHANGES: live.unit.said["dataset"]} if "dataset" in live.unit.said else {}
    shown = {name.lower(): name for name in columns}
    found: Origins = {}
    for column, sources in told.items():
        known = [(datasets[table.lower()], name) for table, name in sources if table.lower() in datasets]
        if known and column.lower() in shown:
            found[shown[column.lower()]] = known
    return bounded(found)


def bounded(found: Origins) -> Origins | None:
    """Return what may be said with a write; None for more than is kept."""
    return found if sum(map(len, found.values())) <= MOST else None


def _told(sql: str, schemas: Mapping[str, Sequence[str]]) -> dict[str, list[tuple[str, str]]] | Untold:
    with _turn(sql):
        return columns_of_query(sql, schemas)


@functools.lru_cache(maxsize=100)
def _turn(sql: str) -> threading.Lock:
    """Return by what units of one query ask one after the other: all but the first are told at once."""
    return threading.Lock()
