"""Writes what became of attempts for the workers that a server speaks for: one that must wait holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import asyncpg

from weft.core.server_errors import OutcomeWaits
from weft.db.database import CONNECTION_ERRORS, PASSING, Database, lacks_partition
from weft.queue import remote_workers, work
from weft.queue.work import Completed, Ended, Postponed
from weft.worker import unsuccessful

logger = logging.getLogger("weft.server")
# One of several waits so long for a lock, and by itself hardly: it has waited before, or is told again.
_PATIENCE, _LITTLE = "1s", "20ms"


async def complete_apart(database: Database, worker_id: int, completed: Sequence[Completed]) -> list[int]:
    """Complete one by one after a batch was refused, and return what was lost.

    What PostgreSQL takes in no form has failed. Raises `OutcomeWaits` when one must wait; all others have landed.
    """
    lost, waiting = list[int](), list[int]()
    for outcome in completed:
        one = [outcome]
        try:
            _, gone = await database.run(
                lambda conn, one=one: work.finish_and_claim(conn, worker_id, one, [], 0, patience=_LITTLE)  # type: ignore[misc]
            )
            lost += gone
        except asyncpg.PostgresError as problem:
            if not isinstance(problem, unsuccessful.REFUSALS) or lacks_partition(problem):
                waiting.append(_waiting(outcome.id, problem))
            elif not await settle(database, worker_id, [unsuccessful.refused(outcome, problem)]):
                lost.append(outcome.id)
    if waiting:
        raise OutcomeWaits(waiting[0])
    return lost


async def settle(database: Database, worker_id: int, outcomes: Sequence[Postponed | Ended]) -> set[int]:
    """Write outcomes that are no successes; return the tasks for which they landed, now or before.

    An attempt of which PostgreSQL takes none is set aside. Raises `OutcomeWaits` when one must wait; all others have
    landed.
    """
    patience = _PATIENCE if len(outcomes) > 1 else _LITTLE
    try:
        landed = await database.run(lambda conn: unsuccessful.settle(conn, worker_id, outcomes, patience=patience))
    except asyncpg.PostgresError as problem:
        if len(outcomes) > 1:
            return await _settle_each(database, worker_id, outcomes)
        (one,) = outcomes
        if not isinstance(problem, unsuccessful.REFUSALS) or lacks_partition(problem):
            raise OutcomeWaits(_waiting(one.id, problem)) from problem
        logger.error("no outcome of task %s can be written, so it is set aside: %s", one.id, problem)
        landed = await database.run(lambda conn: work.set_aside(conn, worker_id, one.id, one.attempt))
    if len(landed) < len(outcomes):
        rest = [(outcome.id, outcome.attempt) for outcome in outcomes if outcome.id not in landed]
        landed |= await database.read(lambda conn: remote_workers.settled_among(conn, worker_id, rest))
    return landed


async def _settle_each(database: Database, worker_id: int, outcomes: Sequence[Postponed | Ended]) -> set[int]:
    landed, waiting = set[int](), list[int]()
    for outcome in outcomes:
        try:
            landed |= await settle(database, worker_id, [outcome])
        except OutcomeWaits as told:
            waiting.append(told.task_id)
    if waiting:
        raise OutcomeWaits(waiting[0])
    return landed


def _waiting(task_id: int, problem: asyncpg.PostgresError) -> int:
    """Return a task whose outcome must wait for a lock, or for whoever can mend what the database says.

    Raises the problem when it is none of this outcome alone: all others would meet with it, too.
    """
    is_locked = isinstance(problem, asyncpg.LockNotAvailableError)
    if not is_locked and (lacks_partition(problem) or isinstance(problem, (*CONNECTION_ERRORS, *PASSING))):
        raise problem
    log = logger.info if is_locked else logger.error
    log("the outcome of task %s waits: %s: %s", task_id, type(problem).__name__, problem)
    return task_id
