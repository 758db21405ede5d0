"""The registry of workers, whose rows are the leases of all tasks they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from weft.core.checks import MAX_ID
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/worker.sql")


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process as the registry knows it."""

    id: int
    hostname: str
    pid: int
    version: str
    state: str
    concurrency: int
    queues: tuple[str, ...]
    handlers: tuple[str, ...]
    started_at: datetime
    last_heartbeat: datetime
    until: datetime
    tasks_completed: int
    tasks_failed: int
    is_leader: bool


class Pulse(NamedTuple):
    """What a heartbeat brings back: the worker's holdings, and for the leader what there is to do."""

    held: int | None
    leader: bool
    token: int | None
    next_due_at: datetime | None
    has_outbox: bool | None
    lapsed: bool | None
    limited: bool


async def register(
    conn: type_Connection, org_id: int, *, lease: timedelta, concurrency: int, pid: int, hostname: str, version: str,
    queues: list[int], handlers: list[str],
) -> int:  # fmt: skip
    """Register a worker and the handlers it knows; return its id."""
    worker_id = await conn.fetchval(
        SQL.register, org_id, lease, concurrency, pid, hostname, version, queues, sorted(handlers)
    )
    await conn.execute(SQL.know_handlers, org_id, sorted(handlers))
    return int(worker_id)


async def note_codes(conn: type_Connection, org_id: int, worker_id: int, codes: Mapping[str, str]) -> None:
    """Note which code a worker has for each handler; that stays for as long as what it ran is remembered."""
    if codes:
        await conn.execute(SQL.note_codes, org_id, worker_id, list(codes), list(codes.values()))


async def heartbeat(
    conn: type_Connection, worker_id: int, *, lease: timedelta, busy: bool, completed: int, failed: int,
    is_blocked: bool = False,
) -> Pulse | None:  # fmt: skip
    """Extend a worker's lease; None when the worker is lost and must start anew.

    The lead goes with it, unless the worker's event loop is blocked: then others may take that.
    """
    row = await conn.fetchrow(SQL.heartbeat, worker_id, lease, busy, completed, failed, lease, is_blocked)
    return None if row is None else Pulse._make(tuple(row))


async def set_saturated(conn: type_Connection, worker_id: int, saturated: bool) -> None:
    """Say whether hints should go to this worker."""
    await conn.execute(SQL.set_saturated, worker_id, saturated)


async def open_transactions(conn: type_Connection) -> tuple[int, int]:
    """Return the number of the oldest transaction that writes and is not over, and that of the next to begin."""
    row = await conn.fetchrow(SQL.open_transactions)
    assert row is not None
    return row["oldest"], row["next"]


async def abandon(conn: type_Connection, worker_id: int) -> None:
    """Let the lease lapse of a worker that something has ended unasked: what it ran is lost, as after any crash."""
    await conn.execute(SQL.abandon, worker_id)


async def deregister(conn: type_Connection, worker_id: int, *, completed: int = 0, failed: int = 0) -> bool:
    """Give up the lease, the lead and all slots; False when the worker was lost already."""
    await conn.execute(SQL.give_up_lead, worker_id)
    await conn.execute(SQL.give_up_slots, worker_id)
    return await conn.fetchval(SQL.deregister, worker_id, completed, failed) is not None


async def own_queue(conn: type_Connection, worker_id: int) -> int:
    """Make the queue in which the steps of the jobs wait that an orchestrator owns; return its id."""
    await conn.execute(SQL.own_queue, worker_id)
    return -worker_id


async def leave_jobs(conn: type_Connection, worker_id: int) -> None:
    """Let others own the jobs of an orchestrator that leaves."""
    await conn.execute(SQL.leave_jobs, worker_id)


async def adopt_jobs(conn: type_Connection, worker_id: int) -> int:
    """Own the jobs of orchestrators that are gone; return how many jobs and steps that were."""
    return int(await conn.fetchval(SQL.adopt_jobs, worker_id))


async def list_workers(
    conn: type_Connection,
    org_id: int,
    states: Sequence[str] | None = None,
    before: int = MAX_ID,
    limit: int | None = None,
) -> list[WorkerInfo]:
    """Return the workers of an org, newest first below a key; all without a limit."""
    return [
        WorkerInfo(
            id=row["id"], hostname=row["hostname"], pid=row["pid"], version=row["version"], state=row["state"],
            concurrency=row["concurrency"], queues=tuple(row["queues"] or ()), handlers=tuple(row["handlers"]),
            started_at=row["started_at"], last_heartbeat=row["last_heartbeat"], until=row["until"],
            tasks_completed=row["tasks_completed"], tasks_failed=row["tasks_failed"], is_leader=row["is_leader"],
        )
        for row in await conn.fetch(SQL.list, org_id, states, before, limit)
    ]  # fmt: skip


async def handler_is_missing(conn: type_Connection, org_id: int, handler: str, patience: timedelta) -> bool:
    """Whether no live worker has known the handler for as long as ``patience``."""
    return bool(await conn.fetchval(SQL.handler_is_missing, org_id, handler, patience))
