"""Writes the outcomes that are not successes, and what becomes of a task whose handler is unknown."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import orjson

from weft.core.data_errors import WriteConflict
from weft.db.database import lacks_partition
from weft.queue import work, workers
from weft.queue.work import Claim, Completed, Ended, Postponed
from weft.worker.context import describe_error

if TYPE_CHECKING:
    from weft.db.database import type_Connection

DECLINE_DELAY = timedelta(seconds=2)
_CONFLICT_DELAY = 0.5
REFUSALS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)


async def settle(
    conn: type_Connection, worker_id: int, outcomes: Sequence[Postponed | Ended], *, patience: str = "1s"
) -> set[int]:
    """Write outcomes in one transaction; return the tasks for which that landed.

    What PostgreSQL refuses becomes a failure that says so, and holds up no other. No lock is waited for for longer than
    ``patience``: a handler may have its task locked.
    """
    await work.wait_for_locks(conn, patience)
    try:
        async with conn.transaction():
            return await _write(conn, worker_id, outcomes)
    except REFUSALS as refusal:
        if lacks_partition(refusal):
            raise
        if len(outcomes) == 1:
            return await _write(conn, worker_id, [refused(outcomes[0], refusal)])
    landed = set[int]()
    for outcome in outcomes:
        landed |= await settle(conn, worker_id, [outcome], patience=patience)
    return landed


async def _write(conn: type_Connection, worker_id: int, outcomes: Sequence[Postponed | Ended]) -> set[int]:
    postponed = [outcome for outcome in outcomes if isinstance(outcome, Postponed)]
    ended = [outcome for outcome in outcomes if isinstance(outcome, Ended)]
    landed = await work.postpone(conn, worker_id, postponed) if postponed else set[int]()
    return landed | (await work.end_unsuccessfully(conn, worker_id, ended) if ended else set[int]())


async def decline(
    conn: type_Connection, worker_id: int, org_id: int, claim: Claim, patience: timedelta, advice: str
) -> timedelta | None:
    """Leave a task to workers that know its handler, and return when it comes back; None when it is failed instead.

    It fails when nobody alive has known the handler for long, and the task itself was declined for as long: after a
    time without workers the first that comes back must not fail what the others know.
    """
    is_missing = await workers.handler_is_missing(conn, org_id, claim.handler, patience)
    if not (is_missing and await work.has_been_declined_for(conn, claim, patience)):
        return await work.decline(conn, worker_id, claim, DECLINE_DELAY, patience) or DECLINE_DELAY
    message = f"no live worker has known the handler {claim.handler!r} for {patience.total_seconds():g} s.{advice}"
    error = orjson.dumps({"type": "NoHandler", "message": message, "traceback": ""}).decode()
    ended = Ended(claim.id, claim.attempt, "failed", "failed", "no_handler", error)
    await work.end_unsuccessfully(conn, worker_id, [ended])
    return None


def conflicting(outcome: Completed, conflict: WriteConflict) -> Postponed:
    """Return what an outcome becomes that goes by what others have changed: tried again, soon and not all at once."""
    delay = timedelta(seconds=random.uniform(0, _CONFLICT_DELAY))
    return Postponed(outcome.id, outcome.attempt, delay, "snoozed", "write_conflict", describe_error(conflict), False)


def refused(outcome: Completed | Postponed | Ended, refusal: Exception) -> Ended:
    """Return the failure that an outcome becomes when PostgreSQL refuses it."""
    return Ended(outcome.id, outcome.attempt, "failed", "failed", "output_refused", describe_error(refusal))
