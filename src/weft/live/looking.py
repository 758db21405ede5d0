"""What live DAGs are at: which version is in effect, what has come to their jobs, and what is held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson

from weft.catalog.live_readers import ADVICE, WITHHELD, untold
from weft.core.checks import MAX_ID, check_after, check_name, check_number, check_word
from weft.core.errors import InvalidInput, NotFound
from weft.core.suggestions import did_you_mean
from weft.db.statements import Statements

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.catalog.datasets import Sees
    from weft.db.database import type_Connection

SQL = Statements("weft.live", "sql/looking.sql")


class UnitState(StrEnum):
    """What becomes of a unit of work until it is done."""

    NEW = "new"
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class LiveDag:
    """A live DAG: the number of the version in effect and of the one being built, and how far its jobs are.

    ``units`` are open, ``held`` of them failed and hold up what comes after them; ``writes`` are those of inputs that
    are no units yet; ``oldest_at`` is since when the oldest of all has been there, which is how far it lags behind.
    """

    id: int
    name: str
    version: int | None
    building: int | None
    paused_at: datetime | None
    artifact_id: int | None
    live_at: datetime | None
    jobs: int
    units: int
    held: int
    writes: int
    oldest_at: datetime | None
    created_at: datetime
    actor: str


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A deployed job of a live DAG, in the version in effect (``is_live``), in the one being built, or draining.

    ``is_behind`` says that it still takes up what stood there when it began; ``is_full`` that as many units are open as
    may be (``max_backlog``): a source of events refuses more. ``outputs`` name the versions that it writes. ``state``
    is ``lost`` when its task is held by a worker that gives no sign of life. ``last_error`` is told to those who see
    all of its datasets; others that it failed.
    """

    id: int
    name: str
    state: str
    activation: str
    operator: str
    runtime: str
    strategy: str | None
    is_live: bool
    is_building: bool
    paused_at: datetime | None
    units: int
    held: int
    writes: int
    oldest_at: datetime | None
    is_behind: bool
    completed: int
    failed: int
    last_error: str | None
    last_active_at: datetime | None
    next_at: datetime | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    config_hash: str
    created_at: datetime
    actor: str
    is_full: bool

    @property
    def cursor(self) -> str:
        """What the next page is asked for by."""
        return f"{self.name}/{self.id}"


@dataclass(frozen=True, slots=True)
class OpenUnit:
    """A unit of work that is not done; ``said`` is what it is about, ``error`` why it is held.

    Whoever does not see all datasets of its job is told neither what it is about nor its lane, and of a failure only
    that there was one.
    """

    id: int
    kind: str
    lane: str | None
    state: str
    since: datetime
    run_at: datetime | None
    task_id: int | None
    said: Mapping[str, Any]
    error: str | None


@dataclass(frozen=True, slots=True)
class OperatorState:
    """What an operator remembers from unit to unit under a key; ``version`` counts its changes."""

    key: str
    version: int
    state: Any
    updated_at: datetime


async def list_dags(conn: type_Connection, org_id: int, *, after: str, limit: int) -> list[LiveDag]:
    """Return the live DAGs of an org by name."""
    return [LiveDag(**row) for row in await conn.fetch(SQL.list, org_id, check_after(after), None, limit)]


async def show(conn: type_Connection, org_id: int, name: str) -> LiveDag:
    """Return a live DAG; raises `NotFound`."""
    row = await conn.fetchrow(SQL.list, org_id, "", check_name(name, "dag"), 1)
    if row is None:
        await require_dag(conn, org_id, name)
        raise AssertionError
    return LiveDag(**row)


async def list_jobs(
    conn: type_Connection, org_id: int, name: str, *, after: str, limit: int, sees: Sees
) -> list[LiveJob]:
    """Return the jobs of a live DAG by name, those that drain too; their datasets as far as these may be seen.

    Why one failed last is told to those who see all of them.
    """
    await require_dag(conn, org_id, name)
    place, _, key = after.rpartition("/")
    last = int(key) if place and key.isascii() and key.isdecimal() and len(key) < 19 else MAX_ID
    roles = None if sees is None else sorted(sees)
    rows = await conn.fetch(SQL.jobs, org_id, name, check_after(place or after), last if after else 0, roles, limit)
    hidden = await untold(conn, org_id, {row["id"] for row in rows}, sees)
    return [_job(row, row["id"] in hidden) for row in rows]


def _job(row: Record, is_hidden: bool) -> LiveJob:
    error = _error(row["last_error"], is_hidden)
    told = {"inputs": tuple(row["inputs"]), "outputs": tuple(row["outputs"]), "last_error": error}
    return LiveJob(**{**row, **told})


def _error(error: str | None, is_hidden: bool) -> str | None:
    return WITHHELD if is_hidden and error is not None else error


async def find_job(conn: type_Connection, org_id: int, dag: str, job: str) -> Record:
    """Return a job of a live DAG, that in effect if there is one; ``candles@4`` is that of version 4.

    Raises `NotFound`.
    """
    name, at, number = check_name(job, "job").partition("@")
    if at and not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise InvalidInput("job", f"{job!r} is no name: write it like candles, or candles@4 for that of version 4")
    version = int(number) if at else None
    row = await conn.fetchrow(SQL.job, org_id, check_name(dag, "dag"), name, version)
    if row is None:
        await require_dag(conn, org_id, dag)
        known = [each["name"] for each in await conn.fetch(SQL.job_names, org_id, dag)]
        hint = did_you_mean(name, known).strip() if name not in known else ""
        raise NotFound("job", f"{job!r} in {dag}", hint or f"see `weft live jobs {dag}`")
    return row


async def list_units(
    conn: type_Connection, org_id: int, dag: str, job: str, *, state: str | None, after: int | None, limit: int,
    sees: Sees,
) -> list[OpenUnit]:  # fmt: skip
    """Return the units of a job that are not done, in their order."""
    found = await find_job(conn, org_id, dag, job)
    wanted = None if state is None else check_word(state, "state", UnitState)
    last = 0 if after is None else check_number(after, "after", 0, MAX_ID)
    rows = await conn.fetch(SQL.units, org_id, found["id"], last, wanted, limit)
    is_hidden = await _hides(conn, org_id, found, sees)
    hidden: dict[str, Any] = {"said": {}, "lane": None} if is_hidden else {}
    return [
        OpenUnit(**{**row, "said": orjson.loads(row["said"]), **hidden, "error": _error(row["error"], is_hidden)})
        for row in rows
    ]


async def list_states(
    conn: type_Connection, org_id: int, dag: str, job: str, *, after: str, limit: int, sees: Sees
) -> list[OperatorState]:
    """Return what an operator remembers, by key; raises `NotFound` also where that is not for whoever asks."""
    found = await find_job(conn, org_id, dag, job)
    if await _hides(conn, org_id, found, sees):
        raise NotFound("state", f"of {job} in {dag}", f"it is for {ADVICE}")
    rows = await conn.fetch(SQL.states, org_id, found["id"], check_after(after), limit)
    return [OperatorState(**{**row, "state": orjson.loads(row["state"])}) for row in rows]


async def _hides(conn: type_Connection, org_id: int, job: Record, sees: Sees) -> bool:
    """Whether what comes to a job, what it remembers of that and why it fails is not for whoever asks."""
    return bool(await untold(conn, org_id, {job["id"]}, sees))


async def require_dag(conn: type_Connection, org_id: int, name: str) -> None:
    """Raise `NotFound` for a live DAG that is not there, with the one that may be meant."""
    known = [row["name"] for row in await conn.fetch(SQL.names, org_id, check_name(name, "dag"))]
    if name not in known:
        raise NotFound("live DAG", name, did_you_mean(name, known).strip() or "see `weft live list`")
