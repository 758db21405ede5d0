"""What an operator does to tasks: cancel, replay, purge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from weft.core.errors import NotFound, StateConflict
from weft.core.states import HELD, LIVE, sources_of
from weft.db.statements import Statements
from weft.queue import audit, work
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/task.sql")
REPLAYABLE = frozenset(sources_of("replay"))
# What tasks say of themselves that were cancelled without a reason.
CANCELLED = "cancelled"


async def cancel(
    conn: type_Connection, org_id: int, task_ids: Sequence[int], reason: str, actor: str | None
) -> set[int]:
    """Cancel the tasks that have not ended and tell the workers that run them; return those for which it landed."""
    await conn.fetch(SQL.lock_live, list(task_ids))
    rows = await conn.fetch(SQL.cancel, org_id, list(task_ids), reason)
    # Whoever was admitted by its key, running or still ready, gives its slot back.
    keyed = [row for row in rows if row["concurrency_key"] is not None and row["state"] in ("ready", *HELD)]
    if keyed:
        await conn.execute(SQL.free_slots, [r["queue_id"] for r in keyed], [r["concurrency_key"] for r in keyed])
    for row in rows:
        if row["worker_id"] is not None:
            await conn.execute(SQL.tell_cancelled, row["worker_id"], row["id"], row["attempt"])
    await work.note_failed(conn, rows)
    landed = {row["id"] for row in rows}
    told = None if reason == CANCELLED else reason
    await audit.record_many(conn, org_id, actor, AuditVerb.CANCEL, "task", list(landed), {"reason": reason}, told)
    return landed


async def replay(
    conn: type_Connection, org_id: int, task_ids: Sequence[int], actor: str | None, states: Iterable[str] = REPLAYABLE
) -> dict[int, int]:
    """Send tasks round again in a new generation; return those for which it landed, each with its queue."""
    await conn.fetch(SQL.lock_predecessors, list(task_ids))
    await conn.fetch(SQL.lock_ended_predecessors, list(task_ids))
    await conn.fetch(SQL.lock_done, list(task_ids))
    rows = await conn.fetch(SQL.replay, org_id, list(task_ids), sorted(REPLAYABLE.intersection(states)))
    keyed = [row["id"] for row in rows if row["concurrency_key"] is not None]
    if keyed:
        await conn.execute(SQL.take_slots, sorted(keyed))
    await audit.record_many(conn, org_id, actor, AuditVerb.REPLAY, "task", [row["id"] for row in rows])
    return {row["id"]: row["queue_id"] for row in rows}


async def explain_refusal(
    conn: type_Connection, org_id: int, verb: str, task_id: int, allowed: Iterable[str] | None = None
) -> Exception:
    """Return the error that says why ``verb`` did not land on a task."""
    for _, state, job_id in await conn.fetch(SQL.states_of, org_id, [task_id]):
        if verb == "replay" and job_id is not None:
            again = f"; `weft jobs rerun {job_id} --failed` runs what failed again"
            return StateConflict(verb, task_id, f"a part of job {job_id}", [f"a task of its own{again}"])
        if verb == "cancel" and job_id is not None and state in LIVE:
            whole = f"; `weft jobs cancel {job_id}` cancels all of it"
            return StateConflict(verb, task_id, f"the end of job {job_id}, or a step of its engine", [f"a node{whole}"])
        return StateConflict(verb, task_id, state, allowed or sources_of(verb))
    return NotFound("task", task_id)


async def count_purgeable(conn: type_Connection, org_id: int, older_than: timedelta, queue_id: int | None) -> int:
    """Return how many dead letters `purge` would remove."""
    return int(await conn.fetchval(SQL.count_purgeable, org_id, older_than, queue_id))


async def purge(
    conn: type_Connection, org_id: int, older_than: timedelta, queue_id: int | None, task_ids: Sequence[int] | None,
    limit: int, actor: str | None = None,
) -> list[int]:  # fmt: skip
    """Remove at most ``limit`` dead letters with all that the database keeps of them; return their ids."""
    if task_ids is None:
        rows = await conn.fetch(SQL.purge, org_id, older_than, queue_id, limit)
    else:
        rows = await conn.fetch(SQL.purge_ids, org_id, older_than, queue_id, list(task_ids), limit)
    gone = [row["id"] for row in rows]
    if gone:
        await conn.execute(SQL.purge_rest, gone, [row["ended_at"] for row in rows])
        await conn.execute(SQL.count_purged, org_id, gone)
    await audit.record_many(conn, org_id, actor, AuditVerb.PURGE, "task", gone)
    return gone
