"""What a worker writes: it claims tasks and settles its attempts, each write guarded by worker and attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from asyncpg import PostgresError

from weft.core.data_errors import WriteConflict
from weft.db.database import in_transaction
from weft.db.statements import Statements
from weft.queue import blobs, cache, loans

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/task.sql")
HEAD = (-32768, 0, 0)
UNLIMITED = -1
# What PostgreSQL says of a write into a dataset, or an output of the cache, that goes by what is not so any more.
_WRITE_CONFLICT = "WF007"
# Stands for params that are gone; not JSON, so that no task can have them.
MISSING_PARAMS = "missing"
# The error of an attempt that did not say in time that it goes on.
NO_HEARTBEAT = '{"type":"HeartbeatTimeout","message":"no heartbeat in time","traceback":""}'


class Claim(NamedTuple):
    """One attempt that this worker holds: the fence is its worker's id with ``attempt``."""

    id: int
    attempt: int
    queue_id: int
    rank: int
    order_id: int
    handler: str
    params: str | None
    max_attempts: int | None
    failures: int
    crashes: int
    timeout: timedelta | None
    heartbeat_timeout: timedelta | None
    retry: str | None
    job_id: int | None
    node: str | None = None
    given: list[str | None] | None = None


class Completed(NamedTuple):
    """The outcome of an attempt whose handler returned, or whose output was there; ``reuse`` is noted with it."""

    id: int
    attempt: int
    output: str
    reuse: cache.Reuse | None = None


@dataclass(frozen=True, slots=True)
class Postponed:
    """The outcome of an attempt after which the task waits for a time: a retry or a snooze."""

    id: int
    attempt: int
    delay: timedelta
    outcome: str
    reason: str
    error: str | None
    counted: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of an attempt that was the last, without success: ``failed`` or ``dead``."""

    id: int
    attempt: int
    state: str
    outcome: str
    reason: str
    error: str | None


@dataclass(slots=True)
class Lane:
    """One queue as a worker sees it: how many more tasks it may take from there, and how far it has claimed."""

    queue_id: int
    room: int = UNLIMITED
    mark: tuple[int, int, int] = HEAD


async def finish_and_claim(
    conn: type_Connection, worker_id: int, completed: Sequence[Completed], lanes: Sequence[Lane], wanted: int,
    *, from_head: bool = True, timeout: float | None = None, patience: str = "1s",
) -> tuple[list[Claim], list[int]]:  # fmt: skip
    """Complete attempts and claim up to ``wanted`` tasks in one round trip; return the claims and what did not land.

    An outcome that did not land belongs to a task that was rescued or cancelled meanwhile: drop it. Raises
    `WriteConflict` when what one of the tasks has written, or has from the cache, goes by what others have changed
    meanwhile. No lock is waited for for longer than ``patience``: a handler that completes its task in a transaction of
    its own has it locked.
    """
    if any(outcome[3] is not None for outcome in completed):
        # Whoever sees that one has ended finds its output in the cache.
        async with in_transaction(conn):
            plain = [outcome._replace(reuse=None) for outcome in completed]
            answer = await finish_and_claim(
                conn, worker_id, plain, lanes, wanted, from_head=from_head, timeout=timeout, patience=patience
            )
            with _conflicts_told():
                await cache.note(conn, worker_id, completed)
            return answer
    completed = sorted(completed)
    await blobs.keep(conn, ((outcome[0], outcome[2]) for outcome in completed))
    said = (
        worker_id,
        [outcome[0] for outcome in completed],
        [outcome[1] for outcome in completed],
        [outcome[2] for outcome in completed],
        [lane.queue_id for lane in lanes],
        [lane.room for lane in lanes],
        [lane.mark[0] for lane in lanes],
        [lane.mark[1] for lane in lanes],
        [lane.mark[2] for lane in lanes],
        wanted,
        from_head,
        patience,
    )
    with _conflicts_told():
        rows: list[Record] = await conn.fetch(SQL.finish_and_claim, *said, timeout=timeout)
    claims, lost = [], []
    for row in rows:
        values = tuple(row)
        if values[0]:
            lost.append(values[1])
        else:
            claims.append(Claim._make(values[1:]))
    return claims, lost


@contextmanager
def _conflicts_told() -> Iterator[None]:
    """Raise `WriteConflict` where PostgreSQL says that an outcome goes by what is not so any more."""
    try:
        yield
    except PostgresError as problem:
        if problem.sqlstate == _WRITE_CONFLICT:
            raise WriteConflict(str(problem)) from None
        raise


async def with_params(conn: type_Connection, claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with the params that are kept beside their tasks' rows."""
    missing = [claim.id for claim in claims if claim.params is None]
    if not missing:
        return list(claims)
    found = {row[0]: row[1] for row in await conn.fetch(SQL.params_of, missing)}
    return [c if c.params is not None else c._replace(params=found.get(c.id, MISSING_PARAMS)) for c in claims]


async def held_by(conn: type_Connection, worker_id: int) -> list[Claim]:
    """Return what the worker holds by the database's account."""
    return [Claim._make(tuple(row)) for row in await conn.fetch(SQL.held_by, worker_id)]


async def finished_by(conn: type_Connection, worker_id: int, claims: Sequence[Claim]) -> set[int]:
    """Return those of the tasks whose attempts have completed, though this worker has not sent their outcomes."""
    rows = await conn.fetch(SQL.finished_by, worker_id, [c.id for c in claims], [c.attempt for c in claims])
    return {row[0] for row in rows}


async def postpone(conn: type_Connection, worker_id: int, outcomes: Sequence[Postponed]) -> set[int]:
    """Move attempts to ``scheduled``; return the tasks for which that landed."""
    outcomes = sorted(outcomes, key=lambda outcome: outcome.id)
    rows = await conn.fetch(
        SQL.postpone,
        worker_id,
        [o.id for o in outcomes],
        [o.attempt for o in outcomes],
        [o.delay for o in outcomes],
        [o.outcome for o in outcomes],
        [o.reason for o in outcomes],
        [o.error for o in outcomes],
        [o.counted for o in outcomes],
    )
    await loans.end(conn, rows)
    return await _free(conn, rows)


async def set_aside(conn: type_Connection, worker_id: int, task_id: int, attempt: int) -> set[int]:
    """Set an attempt aside whose outcome PostgreSQL refuses in every form; return the task if that landed."""
    rows = await conn.fetch(SQL.set_aside, worker_id, task_id, attempt)
    await loans.end(conn, rows)
    return await _free(conn, rows)


async def decline(
    conn: type_Connection, worker_id: int, claim: Claim, delay: timedelta, patience: timedelta
) -> timedelta | None:
    """Leave an attempt, uncounted, to a worker that knows its handler; return when it comes back if that landed.

    That is after ``delay``, sooner while somebody of its queue knows the handler, later the longer nobody does.
    """
    rows = await conn.fetch(SQL.decline, worker_id, claim.id, claim.attempt, delay, patience)
    await _free(conn, rows)
    return rows[0]["delay"] if rows else None


async def has_been_declined_for(conn: type_Connection, claim: Claim, patience: timedelta) -> bool:
    """Whether every worker that claimed the task before has declined it, for as long as ``patience``.

    A pause of that length between two declines starts the time anew: then nobody was there to claim it.
    """
    return bool(await conn.fetchval(SQL.has_been_declined_for, claim.id, claim.attempt, patience))


async def end_unsuccessfully(conn: type_Connection, worker_id: int, outcomes: Sequence[Ended]) -> set[int]:
    """Move attempts to ``failed`` or ``dead``; return the tasks for which that landed."""
    outcomes = sorted(outcomes, key=lambda outcome: outcome.id)
    rows = await conn.fetch(
        SQL.end_unsuccessfully,
        worker_id,
        [o.id for o in outcomes],
        [o.attempt for o in outcomes],
        [o.state for o in outcomes],
        [o.outcome for o in outcomes],
        [o.reason for o in outcomes],
        [o.error for o in outcomes],
    )
    await note_failed(conn, rows)
    return await _free(conn, rows)


async def note_failed(conn: type_Connection, rows: Sequence[Record]) -> None:
    """Tell the engine of those of the tasks, which ended without success, that belong to jobs."""
    of_jobs = sorted(row["id"] for row in rows if row["job_id"] is not None)
    if of_jobs:
        await conn.execute(SQL.note_failed, of_jobs)


async def wait_for_locks(conn: type_Connection, patience: str) -> None:
    """Let the rest of a transaction wait for no lock for longer than that."""
    await conn.execute(SQL.wait_for_locks, patience)


async def hand_back(conn: type_Connection, worker_id: int, claims: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Move attempts that have not begun back to ``ready``, uncounted; return those that landed, with their queues."""
    pairs = sorted(claims)
    rows = await conn.fetch(SQL.hand_back, worker_id, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    await loans.end(conn, rows)
    return {row["id"]: row["queue_id"] for row in rows}


async def hand_back_all(conn: type_Connection, worker_id: int) -> set[int]:
    """Move everything that a worker holds back to ``ready``, uncounted; return the queues that have work again."""
    rows = await conn.fetch(SQL.hand_back_all, worker_id)
    await loans.end(conn, rows)
    return {row["queue_id"] for row in rows}


async def extend_expiry(conn: type_Connection, worker_id: int, leases: Sequence[tuple[int, int]]) -> set[int]:
    """Extend the expiry of attempts that have a heartbeat timeout; return the tasks that the worker holds.

    One that its own handler has locked does not expire: nobody waits for it here.
    """
    ids, attempts = [lease[0] for lease in leases], [lease[1] for lease in leases]
    return {row[0] for row in await conn.fetch(SQL.extend_expiry, worker_id, ids, attempts)}


async def _free(conn: type_Connection, rows: Sequence[Record]) -> set[int]:
    """Give back the concurrency slots of tasks that left ``running``; return the tasks."""
    keyed = [row for row in rows if row["concurrency_key"] is not None]
    if keyed:
        await conn.execute(SQL.free_slots, [r["queue_id"] for r in keyed], [r["concurrency_key"] for r in keyed])
    return {row["id"] for row in rows}
