"""Queues themselves: made, listed, paused, limited."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import asyncpg

from weft.core.checks import MAX_RUNNING, check_key, check_name, check_number, check_queue
from weft.core.errors import InvalidInput, NotFound, UnknownQueue
from weft.core.states import TaskState
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/queue.sql")
PATIENCE = "1s"
# The name of the queue of control steps, which every installation has.
CONTROL = "@control"


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """A concurrency key with a limit of its own; ``held`` is how many of its tasks are ready or running."""

    key: str
    max_running: int
    held: int


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue with what waits in it; ``rate`` is tasks ended per second over the last minute.

    ``key_limits`` are those of single keys; other keys have ``max_running_per_key``.
    """

    name: str
    paused: bool
    max_running: int | None
    max_running_per_key: int | None
    tasks: dict[str, int]
    depth: int
    oldest_at: datetime | None
    rate: float
    key_limits: tuple[KeyLimit, ...] = ()


async def org_id(conn: type_Connection, slug: str) -> int:
    """Return the id of an org."""
    found = await conn.fetchval(SQL.org, slug)
    if found is None:
        raise NotFound("org", slug)
    return int(found)


async def ids(conn: type_Connection, org_id: int) -> dict[str, int]:
    """Return the ids of an org's queues by name."""
    return {row[0]: row[1] for row in await conn.fetch(SQL.ids, org_id)}


async def create(conn: type_Connection, org_id: int, name: str, actor: str | None) -> bool:
    """Make a queue; False when there is one of that name."""
    check_queue(name)
    created = await conn.fetchval(SQL.create, org_id, name, actor) is not None
    if created:
        await audit.record_queue(conn, org_id, actor, AuditVerb.CREATE, name)
    return created


async def pause(conn: type_Connection, org_id: int, name: str, actor: str | None = None) -> int:
    """Stop claims from a queue; what runs goes on. Returns the queue's id."""
    queue_id = await _change(conn, SQL.pause, org_id, name)
    await audit.record_queue(conn, org_id, actor, AuditVerb.PAUSE, name)
    return queue_id


async def resume(conn: type_Connection, org_id: int, name: str, actor: str | None = None) -> int:
    """Let claims from a queue go on. Returns the queue's id."""
    queue_id = await _change(conn, SQL.resume, org_id, name)
    await audit.record_queue(conn, org_id, actor, AuditVerb.RESUME, name)
    return queue_id


async def limit(
    conn: type_Connection, org_id: int, name: str, most: int | None, *, per_key: bool = False, key: str | None = None,
    actor: str | None = None,
) -> int:  # fmt: skip
    """Set how many tasks run at once in a queue, per concurrency key, or for one key; None lifts it."""
    if per_key and key is not None:
        raise InvalidInput("key", "give either per_key or key, not both")
    if most is not None:
        check_number(most, "max_running", 1, MAX_RUNNING)
    detail: dict[str, object] = {"max_running_per_key" if per_key else "max_running": most}
    if key is not None:
        detail["key"] = key
        queue_id = await _change(conn, SQL.set_limit_of_key, org_id, name, check_key(key, "key"), most)
    elif per_key:
        queue_id = await _change(conn, SQL.set_limit_per_key, org_id, name, most)
    else:
        queue_id = await _change(conn, SQL.set_limit, org_id, name, most)
    await audit.record_queue(conn, org_id, actor, AuditVerb.LIMIT, name, detail)
    if per_key or key is not None:
        await _park_surplus(conn, queue_id, key)
    await admit(conn, queue_id)
    return queue_id


async def _park_surplus(conn: type_Connection, queue_id: int, key: str | None) -> None:
    """Let tasks wait again that are ready and beyond the limit of their key.

    Whoever is putting tasks of it in is waited for, but not for long: a transaction may stay open for hours, and what
    it puts in was admitted under the limit that it found.
    """
    with suppress(asyncpg.LockNotAvailableError):
        async with conn.transaction():
            await conn.execute(SQL.wait_for_locks, PATIENCE)
            await conn.execute(SQL.lock_keys, queue_id, key)
    crowded = [row[0] for row in await conn.fetch(SQL.crowded_keys, queue_id)]
    if crowded:
        await conn.execute(SQL.park_surplus, queue_id, crowded)


async def admit(conn: type_Connection, queue_id: int | None = None) -> set[int]:
    """Admit tasks whose concurrency key has room; return their queues."""
    waiting = await conn.fetch(SQL.waiting_keys, queue_id)
    if not waiting:
        return set()
    woken = await conn.fetchval(SQL.admit, [row[0] for row in waiting], [row[1] for row in waiting])
    return set(woken)


async def lease_slots(conn: type_Connection, queue_id: int, worker_id: int, wanted: int, running: int) -> int | None:
    """Lease up to ``wanted`` of a limited queue's slots to a worker, never fewer than it uses; None: no limit."""
    if await conn.fetchval(SQL.lock_worker, worker_id) is None:
        return 0
    most = await conn.fetchval(SQL.lock_queue, queue_id)
    if most is None:
        return None
    return int(await conn.fetchval(SQL.acquire_slots, queue_id, worker_id, wanted, most, running))


async def limits(conn: type_Connection, queue_ids: list[int]) -> dict[int, int | None]:
    """Return the limits of queues."""
    return {row[0]: row[1] for row in await conn.fetch(SQL.limits, queue_ids)}


async def with_ready(conn: type_Connection, queue_ids: Iterable[int]) -> list[int]:
    """Return those of the queues in which a task could be claimed."""
    return [row[0] for row in await conn.fetch(SQL.with_ready, sorted(queue_ids))]


async def hint(conn: type_Connection, queue_ids: Iterable[int], *, except_worker: int = 0) -> None:
    """Wake one worker per queue that is not saturated."""
    await conn.execute(SQL.hint, sorted(queue_ids), except_worker)


async def list_queues(
    conn: type_Connection, org_id: int, name: str | None = None, *, after: str = "", limit: int | None = None
) -> list[QueueInfo]:
    """Return the queues with their depths, by name after one, all without a limit; counts all that has not ended."""
    depths = await conn.fetch(SQL.depths, org_id, name, after, limit)
    if not depths:
        return []
    rates = {row["name"]: row["ended"] / 60 for row in await conn.fetch(SQL.rates, org_id)}
    key_limits: dict[str, list[KeyLimit]] = {}
    for queue, *fields in await conn.fetch(SQL.key_limits, org_id, depths[0]["name"], depths[-1]["name"]):
        key_limits.setdefault(queue, []).append(KeyLimit(*fields))
    found: list[QueueInfo] = []
    for queue, group in groupby(depths, key=itemgetter("name")):
        rows = list(group)
        states = {row["state"]: row for row in rows if row["state"] is not None}
        ready = states.get(TaskState.READY)
        found.append(
            QueueInfo(
                name=queue, paused=rows[0]["paused_at"] is not None, max_running=rows[0]["max_running"],
                max_running_per_key=rows[0]["max_running_per_key"],
                tasks={state: row["tasks"] for state, row in states.items()},
                depth=ready["tasks"] if ready else 0, oldest_at=ready["oldest_at"] if ready else None,
                rate=rates.get(queue, 0.0), key_limits=tuple(key_limits.get(queue, ())),
            )
        )  # fmt: skip
    return found


async def _change(conn: type_Connection, statement: str, org_id: int, name: str, *values: object) -> int:
    changed = await conn.fetchval(statement, org_id, check_name(name, "queue"), *values)
    if changed is None:
        raise UnknownQueue(name, await ids(conn, org_id))
    return int(changed)


async def hint_by_name(conn: type_Connection, names: set[tuple[str, str]], queue_ids: set[int], delayed: bool) -> int:
    """Wake one worker per queue, given by org and name or by id; return how many there were to wake.

    With ``delayed`` whoever stages is woken too.
    """
    pairs = sorted(names)
    orgs, queues = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return int(await conn.fetchval(SQL.hint_by_name, orgs, queues, sorted(queue_ids), delayed))
