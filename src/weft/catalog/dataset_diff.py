"""What differs between two states of datasets: columns, partitions, and how many rows there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.catalog import dataset_reading, datasets
from weft.catalog.dataset_reading import DatasetState, Named
from weft.catalog.datasets import Column, Sees, columns_of
from weft.core.errors import InvalidInput
from weft.db.statements import Statements

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/diff.sql")


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that is in one state only, or of another type in the other; None where it is not."""

    name: str
    old: Column | None
    new: Column | None


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition that is in one state only, or has other files in the other: ``added``, ``removed``, ``rewritten``."""

    key: str
    change: str
    rows_before: int
    rows_after: int


@dataclass(frozen=True, slots=True)
class DatasetDiff:
    """What differs between two states; of partitions as many as were asked for, and how many there are."""

    old: str
    new: str
    unique_key: tuple[str, ...] | None
    common: tuple[str, ...]
    columns: tuple[ColumnChange, ...]
    rows_before: int
    rows_after: int
    partitions_added: int
    partitions_removed: int
    partitions_rewritten: int
    partitions: tuple[PartitionChange, ...]


async def diff(
    conn: type_Connection, org_id: int, new: Named, old: Named | None, *, limit: int, sees: Sees = None
) -> DatasetDiff:
    """Return what differs between two states; with one alone, between it and the one before it."""
    after = await dataset_reading.state_of(conn, org_id, new, sees=sees)
    earlier = old or await _before(conn, org_id, after)
    before = await dataset_reading.state_of(conn, org_id, earlier, sees=sees)
    rows = await _partitions(conn, org_id, before, after, limit)
    added, removed, rewritten = (rows[0][name] if rows else 0 for name in ("added", "removed", "rewritten"))
    sides = [await _columns(conn, org_id, state) for state in (before, after)]
    return DatasetDiff(
        str(before), str(after),
        (await datasets.show(conn, org_id, after.name, sees)).unique_key,
        tuple(each.name for each in after.columns if each.name in {column.name for column in before.columns}),
        _changes(*sides),
        await conn.fetchval(SQL.rows, org_id, before.version_id, before.write),
        await conn.fetchval(SQL.rows, org_id, after.version_id, after.write),
        added, removed, rewritten,
        tuple(PartitionChange(row["key"], row["change"], row["rows_before"], row["rows_after"]) for row in rows),
    )  # fmt: skip


async def _before(conn: type_Connection, org_id: int, state: DatasetState) -> Named:
    """Return the state before one: that before its last write, of its first that of the version before, if any."""
    row = None
    if state.write <= 1:
        row = await conn.fetchrow(SQL.before, org_id, state.dataset_id, state.version)
    if row is not None:
        return Named(state.name, row["number"], row["last_write"])
    if state.write == 0:
        raise InvalidInput("dataset", f"{state} is what {state.name} was before its first write: name another state")
    return Named(state.name, state.version, state.write - 1)


async def _partitions(
    conn: type_Connection, org_id: int, old: DatasetState, new: DatasetState, limit: int
) -> Sequence[Mapping[str, Any]]:
    if old.version_id != new.version_id:
        said = old.version_id, old.write, new.version_id, new.write, limit
        return [dict(row) for row in await conn.fetch(SQL.compared_partitions, org_id, *said)]
    if old.write <= new.write:
        found = await conn.fetch(SQL.touched_partitions, org_id, old.version_id, old.write, new.write, limit)
        return [dict(row) for row in found]
    turned = await conn.fetch(SQL.touched_partitions, org_id, old.version_id, new.write, old.write, limit)
    return [_turned(row) for row in turned]


def _turned(row: Record) -> dict[str, Any]:
    """Return the same difference seen from the other side."""
    words = {"added": "removed", "removed": "added"}
    return dict(row) | {
        "change": words.get(row["change"], row["change"]), "added": row["removed"], "removed": row["added"],
        "rows_before": row["rows_after"], "rows_after": row["rows_before"],
    }  # fmt: skip


async def _columns(conn: type_Connection, org_id: int, state: DatasetState) -> tuple[Column, ...]:
    """Return the columns that a state had: its version may have more by now."""
    if state.write == 0:
        return ()
    told = await conn.fetchval(SQL.columns, org_id, state.version_id, state.write)
    return state.columns if told is None else columns_of(told)


def _changes(old: tuple[Column, ...], new: tuple[Column, ...]) -> tuple[ColumnChange, ...]:
    before, after = {each.name: each for each in old}, {each.name: each for each in new}
    return tuple(
        ColumnChange(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )
