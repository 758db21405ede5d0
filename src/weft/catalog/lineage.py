"""What is made of what: datasets, their columns and their states, from one of them as far as is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from weft.catalog import dataset_reading, datasets
from weft.catalog.dataset_reading import read_name
from weft.catalog.datasets import SQL as DATASETS
from weft.catalog.datasets import Producer, Sees, columns_of, roles_in
from weft.core.checks import check_text
from weft.core.errors import NotFound
from weft.db.statements import Statements

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/lineage.sql")
DEEPEST, MOST_PLACES = 100, 1000
_MOST_EDGES = 5000
# The states of inputs are those of the writes whose files are in a state: so many are looked at, the newest first.
_MOST_FILES = 500
_LONGEST = 1000
# A place: the id of a dataset, with one of its columns; or that of a version, with one of its writes.
_Key = tuple[int, Any]


class Direction(StrEnum):
    """Which way is looked: at what something is made of, at what is made of it, or at both."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class LineagePlace:
    """A dataset in a lineage, or a column or a state of one; ``depth`` counts from the one asked for, up below zero.

    What whoever asks may not see is left out: of its neighbours it is said that there is something, and not what.
    """

    name: str
    dataset: str
    column: str | None
    version: int | None
    write: int | None
    depth: int
    producer: Producer | None
    job_id: int | None
    written_at: datetime | None
    made_of_unseen: bool = False
    used_by_unseen: bool = False


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """That a place is made of another, ``source``; ``partitions`` of a state are those that were read, None for all.

    ``at`` is when a dataset was first made of the other, or a column last.
    """

    source: str
    target: str
    at: datetime | None
    partitions: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """What something is made of, and what is made of it; ``is_cut`` when there is more than was asked for."""

    root: str
    places: tuple[LineagePlace, ...]
    edges: tuple[LineageEdge, ...]
    is_cut: bool


@dataclass(slots=True)
class _Trace:
    """A walk from one place, a step in one direction at a time."""

    ask: Callable[[Sequence[_Key], bool], Any]
    limit: int
    places: dict[_Key, LineagePlace]
    edges: dict[tuple[_Key, _Key], Record] = field(default_factory=dict)
    is_cut: bool = False

    async def walk(self, start: _Key, depth: int, *, up: bool) -> None:
        reached, near = {start}, [start]
        for step in range(1, depth + 2):
            rows = await self.ask(near, up)
            if len(rows) >= _MOST_EDGES:
                self.is_cut = True
            near = []
            for row in rows:
                at = row["at_id"], _second(row, "at_")
                if row["id"] is None:
                    place = self.places[at]
                    self.places[at] = replace(place, made_of_unseen=True) if up else replace(place, used_by_unseen=True)
                    continue
                key = row["id"], _second(row, "")
                if key not in self.places:
                    if step > depth or len(self.places) >= self.limit:
                        self.is_cut = True
                        continue
                    self.places[key] = _place(row, -step if up else step)
                if key not in reached:
                    reached.add(key)
                    near.append(key)
                if len(self.edges) >= _MOST_EDGES:
                    self.is_cut = True
                    continue
                self.edges[(key, at) if up else (at, key)] = row
            if not near:
                return

    def lineage(self, start: _Key) -> Lineage:
        names = {key: place.name for key, place in self.places.items()}
        edges = [
            LineageEdge(names[source], names[target], row.get("at"), _several(row.get("partitions")))
            for (source, target), row in self.edges.items()
        ]
        return Lineage(
            names[start],
            tuple(sorted(self.places.values(), key=lambda place: (place.depth, place.name))),
            tuple(sorted(edges, key=lambda edge: (edge.source, edge.target))),
            self.is_cut,
        )


async def trace(
    conn: type_Connection, org_id: int, text: str, *, direction: Direction = Direction.BOTH, depth: int = 5,
    limit: int = 200, sees: Sees = None,
) -> Lineage:  # fmt: skip
    """Return the lineage of a dataset, of a column, ``orders.price``, or of a state, ``orders@3.12``."""
    start, place = await _found(conn, org_id, check_text(text, "dataset", _LONGEST), sees)
    roles = roles_in(sees)

    async def ask(near: Sequence[_Key], up: bool) -> list[Record]:
        ids, seconds = [first for first, _ in near], [second for _, second in near]
        if place.write is not None:
            if up and await conn.fetchval(SQL.has_more_files, org_id, ids, seconds, _MOST_FILES):
                found.is_cut = True
            if up:
                return await conn.fetch(SQL.state_inputs, org_id, ids, seconds, roles, _MOST_EDGES, _MOST_FILES)
            return await conn.fetch(SQL.state_outputs, org_id, ids, seconds, roles, _MOST_EDGES)
        if place.column is not None:
            statement = SQL.column_inputs if up else SQL.column_outputs
            return await conn.fetch(statement, org_id, ids, seconds, roles, _MOST_EDGES)
        return await conn.fetch(SQL.inputs if up else SQL.outputs, org_id, ids, roles, _MOST_EDGES)

    found = _Trace(ask, limit, {start: place})
    if direction is not Direction.DOWN:
        await found.walk(start, depth, up=True)
    if direction is not Direction.UP:
        await found.walk(start, depth, up=False)
    return found.lineage(start)


async def _found(conn: type_Connection, org_id: int, text: str, sees: Sees) -> tuple[_Key, LineagePlace]:
    """Return what a text names: a state if it has an @, else a dataset, else a column of one."""
    if "@" in text:
        state = await dataset_reading.state_of(conn, org_id, read_name(text), sees=sees)
        shown = await datasets.show(conn, org_id, state.name, sees)
        row = await conn.fetchrow(SQL.write, org_id, state.version_id, state.write)
        job_id, written_at = (None, None) if row is None else (row["job_id"], row["written_at"])
        return (state.version_id, state.write), LineagePlace(
            str(state), state.name, None, state.version, state.write, 0, shown.producer, job_id, written_at
        )
    ends = [len(text), *(place for place in range(len(text) - 1, 0, -1) if text[place] == ".")]
    for end in ends:
        row = await conn.fetchrow(DATASETS.show, org_id, text[:end], roles_in(sees))
        if row is None:
            continue
        column = text[end + 1 :] or None
        if column is not None:
            names = [each.name for each in columns_of(row["columns"])]
            is_known = column in names or await conn.fetchval(SQL.has_column_edges, org_id, row["id"], column)
            if not is_known:
                raise NotFound("column", text, f"the columns of {row['name']} are {', '.join(names) or 'none yet'}")
        return (row["id"], column), LineagePlace(
            _label(row["name"], column), row["name"], column, None, None, 0, _producer(row), None, row["written_at"]
        )
    raise NotFound("dataset", text)


def _place(row: Record, depth: int) -> LineagePlace:
    write, column = row.get("write"), row.get("column")
    name = _label(row["name"], column)
    if write is not None:
        # A version that has been collected is not told by its number any more.
        name = f"{row['name']}@{row['version'] or '?'}.{write}"
    return LineagePlace(
        name, row["name"], column, row.get("version"), write, depth, _producer(row), row.get("job_id"),
        row["written_at"],
    )  # fmt: skip


def _label(dataset: str, column: str | None) -> str:
    if column is None:
        return dataset
    return f'"{dataset}".{column}' if "." in dataset else f"{dataset}.{column}"


def _producer(row: Record) -> Producer | None:
    workflow = row["producer_dag"]
    return None if workflow is None else Producer(workflow, row["producer_node"], row["producer_output"])


def _second(row: Record, prefix: str) -> Any:
    """Return what tells a place from others of the same dataset or version."""
    return row.get(f"{prefix}column", row.get(f"{prefix}write"))


def _several(partitions: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if partitions is None else tuple(partitions)
