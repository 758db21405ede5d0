"""Reads what became of a job that is to be run again, and by which code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from weft.core.errors import NotFound, StateConflict
from weft.core.job_states import JobState
from weft.core.json import Json
from weft.db.statements import Statements
from weft.jobs.rerun import Before
from weft.jobs.submit import SQL as JOB

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.jobs", "sql/rerun.sql")
_ENDED = [state for state in JobState if state in ("completed", "failed", "cancelled")]
# Who ran it, and for which handler.
Ran = set[tuple[str, int | None]]


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended, as another is made of it."""

    row: Record
    inputs: Mapping[str, Json]
    labels: Mapping[str, str]
    patch: list[dict[str, Json]] | None
    positions: Mapping[str, Mapping[str, Json]]


async def ended_job(conn: type_Connection, org_id: int, job_id: int) -> EndedJob:
    """Return a job that has ended; raises `NotFound`, or `StateConflict` when it goes on."""
    row = await conn.fetchrow(SQL.job, org_id, job_id)
    if row is None:
        live = await conn.fetchrow(JOB.show, org_id, [job_id])
        if live is None:
            raise NotFound("job", job_id)
        raise StateConflict("rerun", job_id, live["state"], _ENDED, "job")
    inputs, labels, patch, positions = (
        None if row[name] is None else orjson.loads(row[name])
        for name in ("inputs", "labels", "patch", "tag_positions")
    )
    return EndedJob(row, inputs or {}, labels or {}, patch, positions or {})


class Nodes(NamedTuple):
    """What became of the nodes of a job by their names, and of what was added to it from outside by ids."""

    known: dict[str, Before]
    added: dict[int, Before]


async def nodes_before(conn: type_Connection, org_id: int, job_id: int, names: Collection[str | None]) -> Nodes:
    """Return what became of the nodes of a job, and by which code; ``names`` are those that its definition has."""
    rows = await conn.fetch(SQL.tasks, org_id, job_id)
    parents = {row["id"]: _parents(row) for row in rows if row["handler"] == "@fan_out"}
    items = await _items(conn, parents)
    inside = await _ran_inside(conn, [row["root_id"] for row in rows if row["handler"] == "@workflow"])
    jobs = {row["root_job_id"] for row in rows if row["root_job_id"] is not None}
    made = await _made(conn, jobs)
    makers = additions_of(await conn.fetch(SQL.additions, sorted(jobs)))
    grown = await _grown(conn, makers)
    ran: dict[int, Ran] = {}
    for row in rows:
        if row["handler"] == "@workflow":
            ran[row["id"]] = inside.get(row["root_id"], set())
        elif row["handler"] == "@fan_out":
            ran[row["id"]] = items.get(row["id"], _NO_ITEMS).ran
        elif not row["handler"].startswith("@"):
            more = made.get((row["root_job_id"], row["node"]), _NOTHING_MADE)
            ran[row["id"]] = {(row["handler"], row["worker_id"])} | more.ran | grown.get(row["root_id"], more).ran
    codes = await _codes(conn, ran.values())
    found = Nodes({}, {})
    for row in rows:
        made_by = _by_handler(ran.get(row["id"], set()), codes)
        completed = items.get(row["id"], _NO_ITEMS).completed
        more = made.get((row["root_job_id"], row["node"]), _NOTHING_MADE)
        was = Before(
            row["id"], row["state"], row["reason"], row["branch"], made_by, parents.get(row["id"], ()), completed,
            row["count"], more.is_done and grown.get(row["root_id"], more).is_done,
        )  # fmt: skip
        if row["node"] in names and row["node"] not in found.known:
            found.known[row["node"]] = was
        elif not row["handler"].startswith("@") and row["id"] not in makers:
            found.added[row["id"]] = was
    return found


def additions_of(rows: Iterable[Record]) -> dict[int, int]:
    """Return which task was added by which, where one that runs has added to its own job: by the first of them."""
    makers: dict[int, int] = {}
    for row in rows:
        makers.update(dict.fromkeys((int(id) for id in orjson.loads(row["data"])["ids"]), row["maker_id"]))
    found: dict[int, int] = {}
    for id, maker in makers.items():
        first = maker
        while first in makers:
            first = makers[first]
        found[id] = first
    return found


class _Items(NamedTuple):
    """The items of a fan_out that have an output, and who made them."""

    completed: int
    ran: Ran


_NO_ITEMS = _Items(0, set())


class _Made(NamedTuple):
    """What a task made besides the items of a fan_out: whether it is done, and who ran it."""

    is_done: bool
    ran: Ran


_NOTHING_MADE = _Made(True, set())


async def _made(conn: type_Connection, jobs: Collection[int]) -> dict[tuple[int, str], _Made]:
    found: dict[tuple[int, str], _Made] = {}
    for row in await conn.fetch(SQL.made, sorted(jobs)):
        known = found.get((row["job_id"], row["node"]), _NOTHING_MADE)
        ran = {(row["handler"], worker) for worker in row["workers"]}
        found[row["job_id"], row["node"]] = _Made(known.is_done and row["is_done"], known.ran | ran)
    return found


async def _grown(conn: type_Connection, makers: Mapping[int, int]) -> dict[int, _Made]:
    """Return for each task that has added to its job how that ended, and who ran it."""
    found: dict[int, _Made] = {}
    for row in await conn.fetch(SQL.endings, sorted(makers)) if makers else ():
        known = found.get(makers[row["id"]], _NOTHING_MADE)
        ran = {(row["handler"], row["worker_id"])}
        found[makers[row["id"]]] = _Made(known.is_done and row["is_done"], known.ran | ran)
    return found


def _parents(row: Record) -> list[int]:
    """Return the fan_outs that have the items of one: those that it kept, and itself unless it only kept."""
    kept = [int(id) for id in orjson.loads(row["kept"] or "[]")]
    return kept if row["reason"] == "kept" else [*kept, row["id"]]


async def _items(conn: type_Connection, parents: Mapping[int, list[int]]) -> dict[int, _Items]:
    pairs = [(id, parent) for id, each in parents.items() for parent in each]
    rows = await conn.fetch(SQL.items, [id for id, _ in pairs], [parent for _, parent in pairs]) if pairs else []
    found: dict[int, _Items] = {}
    for row in rows:
        known = found.get(row["fan_out_id"], _NO_ITEMS)
        ran = {(row["handler"], worker) for worker in row["workers"]}
        found[row["fan_out_id"]] = _Items(known.completed + row["completed"], known.ran | ran)
    return found


async def _ran_inside(conn: type_Connection, roots: list[int]) -> dict[int, Ran]:
    found: dict[int, Ran] = {}
    for row in await conn.fetch(SQL.ran_inside, roots) if roots else []:
        found.setdefault(row["root_id"], set()).add((row["handler"], row["worker_id"]))
    return found


async def _codes(conn: type_Connection, ran: Iterable[Ran]) -> dict[tuple[str, int | None], str]:
    workers = sorted({worker for each in ran for _, worker in each if worker is not None})
    rows = await conn.fetch(SQL.codes, workers) if workers else []
    return {(row["handler"], row["worker_id"]): row["code"] for row in rows}


def _by_handler(ran: Ran, codes: Mapping[tuple[str, int | None], str]) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for handler, worker in ran:
        found.setdefault(handler, set()).add(codes.get((handler, worker)))
    return found


async def current_codes(conn: type_Connection, org_id: int, handlers: Collection[str]) -> dict[str, Any]:
    """Return which code handlers have now: that of the newest worker that knows them."""
    return {row["handler"]: row["code"] for row in await conn.fetch(SQL.current_codes, org_id, sorted(handlers))}
