"""Settles outcomes apart: those of a batch that PostgreSQL refused, and those whose task or key somebody has locked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import asyncpg

from weft.core.errors import WeftError
from weft.db.database import CONNECTION_ERRORS, Database, ensure_partitions, lacks_partition
from weft.queue import work
from weft.queue.work import Completed, Ended, Postponed
from weft.worker import unsuccessful
from weft.worker.attempt import Outcome
from weft.worker.holdings import Holdings
from weft.worker.line import Line

logger = logging.getLogger("weft.worker")
_PAUSE, _LONG_PAUSE, _LOCKED_PAUSE = 0.02, 0.5, 1.0
# One that is settled apart has waited before.
_PATIENCE = "20ms"
_PASSING = (*CONNECTION_ERRORS, TimeoutError, WeftError, asyncpg.PostgresError)


class Recovery:
    """Sends outcomes one by one, so that one that is refused or has to wait holds up no other."""

    def __init__(
        self, database: Database, line: Line, held: Holdings, worker_id: int,
        on_completed: Callable[[list[Completed], list[int]], None],
        on_unsuccessful: Callable[[Sequence[Postponed | Ended], set[int]], None],
    ) -> None:  # fmt: skip
        self._database = database
        self._line = line
        self._held = held
        self._worker_id = worker_id
        self._on_completed = on_completed
        self._on_unsuccessful = on_unsuccessful

    async def recover(self, problem: asyncpg.PostgresError) -> list[Outcome]:
        """Make what was missing, or settle what is held; return the outcomes that somebody's lock holds up.

        What goes wrong meanwhile is tried again: the line is dropped, and the worker opens it and asks what it holds.
        """
        logger.warning("%s: %s", type(problem).__name__, problem)
        outcomes: list[Outcome] = []
        try:
            if lacks_partition(problem):
                # No partition for a row: this worker woke before whoever should have made it.
                await self._database.run(ensure_partitions)
                return []
            await asyncio.sleep(_PAUSE)
            outcomes = self._held.take_outcomes()
            locked = await self._settle_all(outcomes)
        except BaseException as again:
            self._held.note_again(outcomes)
            if not isinstance(again, _PASSING):
                raise
            self._line.drop()
            await self._wait_after(again)
            return []
        for outcome in locked:
            logger.warning(
                "task %s waits for a lock, perhaps of its own handler's open transaction: settled later", outcome.id
            )
        return locked

    async def settle_later(self, outcomes: list[Outcome]) -> None:
        """Settle outcomes that were locked, when they are not any more."""
        while outcomes:
            await asyncio.sleep(_LOCKED_PAUSE)
            outcomes = self._held.still_ours(outcomes)
            try:
                outcomes = await self._settle_all(outcomes)
            except _PASSING as problem:
                await self._wait_after(problem)

    async def _wait_after(self, problem: BaseException) -> None:
        logger.warning("cannot settle yet, trying again: %s: %s", type(problem).__name__, problem)
        await asyncio.sleep(_LONG_PAUSE)

    async def _settle_all(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Settle one by one; return those that are locked."""
        locked = []
        for outcome in outcomes:
            try:
                await self._settle(outcome)
            except asyncpg.LockNotAvailableError:
                locked.append(outcome)
        return locked

    async def _settle(self, outcome: Outcome) -> None:
        if isinstance(outcome, Completed):
            completed = [outcome]
            try:
                _, lost = await self._database.run(
                    lambda conn: work.finish_and_claim(conn, self._worker_id, completed, [], 0, patience=_PATIENCE)
                )
            except unsuccessful.REFUSALS as refusal:
                outcome = unsuccessful.refused(outcome, refusal)
            else:
                self._on_completed(completed, lost)
                return
        failed = [outcome]
        self._on_unsuccessful(
            failed,
            await self._database.run(
                lambda conn: unsuccessful.settle(conn, self._worker_id, failed, patience=_PATIENCE)
            ),
        )
