"""What a worker does when PostgreSQL refuses a whole batch of outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import asyncpg

from weft.core.errors import WeftError
from weft.db.database import CONNECTION_ERRORS, Database, ensure_partitions, lacks_partition
from weft.queue import work
from weft.queue.work import Completed
from weft.worker import unsuccessful
from weft.worker.attempt import Outcome
from weft.worker.holdings import Holdings
from weft.worker.line import Line

logger = logging.getLogger("weft.worker")
_PAUSE, _LONG_PAUSE = 0.02, 0.5


async def recover(
    problem: asyncpg.PostgresError, database: Database, line: Line, held: Holdings, worker_id: int,
    settled: Callable[[list[Completed], list[int]], None],
) -> list[Outcome]:  # fmt: skip
    """Make what was missing, or send the outcomes one by one, so that the one that is refused holds up no other.

    Returns outcomes whose tasks somebody has locked: they are to be settled later. What goes wrong meanwhile is tried
    again: the line is dropped, and the worker opens it and asks what it holds.
    """
    logger.warning("%s: %s", type(problem).__name__, problem)
    try:
        if isinstance(problem, asyncpg.LockNotAvailableError):
            return await _take_locked(database, held)
        if lacks_partition(problem):
            # No partition for a row: this worker woke before whoever should have made it.
            await database.run(ensure_partitions)
            return []
        await asyncio.sleep(_PAUSE)
        await _settle_one_by_one(line, held, worker_id, settled)
    except (*CONNECTION_ERRORS, TimeoutError, WeftError, asyncpg.PostgresError) as again:
        logger.warning("cannot settle yet, trying again: %s: %s", type(again).__name__, again)
        line.drop()
        await asyncio.sleep(_LONG_PAUSE)
    return []


async def _take_locked(database: Database, held: Holdings) -> list[Outcome]:
    unlocked = await database.run(lambda conn: work.unlocked(conn, held.settling()))
    locked = held.take_all_but(unlocked)
    for outcome in locked:
        logger.warning("task %s is locked, perhaps by its own handler's open transaction: settled later", outcome.id)
    return locked


async def _settle_one_by_one(
    line: Line, held: Holdings, worker_id: int, settled: Callable[[list[Completed], list[int]], None]
) -> None:
    outcomes = held.take_completed(len(held.completed))
    for place, outcome in enumerate(outcomes):
        try:
            async with line.statement() as conn:
                refusal, lost = await unsuccessful.finish_alone(conn, worker_id, outcome)
        except BaseException:
            held.put_back(outcomes[place:])
            raise
        if refusal is not None:
            held.note(refusal)
        else:
            settled([outcome], lost)
