"""What a worker does when PostgreSQL refuses a whole batch of outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import asyncpg

from weft.db.database import Database, ensure_partitions, lacks_partition
from weft.queue.work import Completed
from weft.worker import unsuccessful
from weft.worker.holdings import Holdings
from weft.worker.line import Line

logger = logging.getLogger("weft.worker")
_PAUSE = 0.02


async def recover(
    problem: asyncpg.PostgresError, database: Database, line: Line, held: Holdings, worker_id: int,
    settled: Callable[[list[Completed], list[int]], None],
) -> None:  # fmt: skip
    """Make what was missing, or send the outcomes one by one, so that the one that is refused holds up no other."""
    logger.warning("%s: %s", type(problem).__name__, problem)
    if lacks_partition(problem):
        # No partition for a row: this worker woke before whoever should have made it.
        await database.run(ensure_partitions)
        return
    await asyncio.sleep(_PAUSE)
    for outcome in held.take_completed(len(held.completed)):
        try:
            async with line.statement() as conn:
                refusal, lost = await unsuccessful.finish_alone(conn, worker_id, outcome)
        except BaseException:
            held.put_back([outcome])
            raise
        if refusal is not None:
            held.note(refusal)
        else:
            settled([outcome], lost)
