"""Brings a worker and the database to one account again: settles outcomes apart, and asks what is held."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import asyncpg

from weft.core.data_errors import WriteConflict
from weft.core.errors import BlobUnavailable, InvalidInput, NotFound, WeftError
from weft.core.server_errors import OutcomeWaits, TooLarge
from weft.db.database import CONNECTION_ERRORS, lacks_partition
from weft.queue.work import Claim, Completed, Ended, Postponed
from weft.worker import unsuccessful
from weft.worker.attempt import Attempt, Outcome
from weft.worker.background import Background
from weft.worker.holdings import Holdings
from weft.worker.store import Line, Store

logger = logging.getLogger("weft.worker")
_PAUSE, _LONG_PAUSE, _LOCKED_PAUSE = 0.02, 0.5, 1.0
# One that is settled apart has waited before.
_PATIENCE = "20ms"
_PASSING = (*CONNECTION_ERRORS, TimeoutError, WeftError, asyncpg.PostgresError)
# What a server says of an outcome that it, or what stands before it, will not take however often it is sent.
_REFUSED_BY_SERVER = (InvalidInput, NotFound, TooLarge)
_REFUSALS = (*unsuccessful.REFUSALS, *_REFUSED_BY_SERVER)
# One of several waits for this, and the others need not.
_WAITED_FOR = (asyncpg.LockNotAvailableError, BlobUnavailable, OutcomeWaits)


def is_refusal(problem: BaseException) -> bool:
    """Whether a batch was refused for what is in it: then each outcome is settled apart."""
    if isinstance(problem, CONNECTION_ERRORS):
        return False
    of_one = (BlobUnavailable, OutcomeWaits, WriteConflict)
    return isinstance(problem, (asyncpg.PostgresError, *of_one, *_REFUSED_BY_SERVER))


class Recovery:
    """Sends outcomes of a batch that was refused one by one, and compares what both sides hold when ``is_due``.

    One outcome that is refused, or whose task or key somebody has locked, holds up no other.
    """

    def __init__(
        self, store: Store, line: Line, held: Holdings, background: Background,
        on_completed: Callable[[list[Completed], list[int]], None],
        on_unsuccessful: Callable[[Sequence[Postponed | Ended], set[int]], None],
        *, on_lost: Callable[[Attempt], None], on_room: Callable[[], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._line = line
        self._held = held
        self._background = background
        self._on_completed = on_completed
        self._on_unsuccessful = on_unsuccessful
        self._on_lost = on_lost
        self._on_room = on_room
        self.is_due = False
        # An outcome that is settled while the database tells what we hold would look like a claim not heard of.
        self._settling = asyncio.Lock()

    async def reconcile(self) -> list[Claim]:
        """Ask what we hold by the database's account: adopt what a lost answer gave us, drop what was taken away.

        Returns claims that must be handed back. What a handler has completed in a transaction of its own goes on: it
        has not returned yet.
        """
        async with self._settling:
            missing, adopted = self._held.compare(await self._line.held())
            finished = await self._line.finished([attempt.claim for attempt in missing]) if missing else set()
        for attempt in missing:
            if attempt.claim.id not in finished:
                self._on_lost(attempt)
        self.is_due = False
        if adopted:
            logger.info("adopting %d tasks whose claim was not heard of", len(adopted))
        return self._held.accept(adopted)

    async def recover(self, problem: Exception) -> None:
        """Make what was missing, or settle what is held; what a lock or the blob storage holds up is settled later.

        What goes wrong meanwhile is tried again: the line is dropped, and the worker opens it and asks what it holds.
        """
        logger.warning("%s: %s", type(problem).__name__, problem)
        outcomes: list[Outcome] = []
        try:
            if lacks_partition(problem):
                # No partition for a row: this worker woke before whoever should have made it.
                await self._store.make_partitions()
                return
            await asyncio.sleep(_PAUSE)
            outcomes = self._held.take_outcomes()
            waiting = await self._settle_all(outcomes)
        except BaseException as again:
            self._held.note_again(outcomes)
            if not isinstance(again, _PASSING):
                raise
            self._line.drop()
            await self._wait_after(again)
            return
        for outcome in waiting:
            logger.warning(
                "task %s waits for a lock, perhaps of its own handler's open transaction, for the blob storage, or for "
                "whoever can mend what the database says: settled later",
                outcome.id,
            )
        if waiting:
            self._background.spawn(self._settle_later(waiting))

    async def _settle_later(self, outcomes: list[Outcome]) -> None:
        """Settle outcomes that had to wait, when they need not any more."""
        while outcomes:
            await asyncio.sleep(_LOCKED_PAUSE)
            outcomes = self._held.still_ours(outcomes)
            try:
                outcomes = await self._settle_all(outcomes)
            except _PASSING as problem:
                await self._wait_after(problem)
            except BaseException:
                self._held.note_again(outcomes)
                raise

    async def _wait_after(self, problem: BaseException) -> None:
        logger.warning("cannot settle yet, trying again: %s: %s", type(problem).__name__, problem)
        await asyncio.sleep(_LONG_PAUSE)

    async def _settle_all(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Settle one by one; return those that must wait."""
        waiting = []
        for outcome in outcomes:
            try:
                async with self._settling:
                    await self._settle(outcome)
            except _WAITED_FOR:
                waiting.append(outcome)
            except asyncpg.PostgresError as problem:
                if isinstance(problem, CONNECTION_ERRORS) or lacks_partition(problem):
                    raise
                logger.error("task %s: %s: %s", outcome.id, type(problem).__name__, problem)
                waiting.append(outcome)
        return waiting

    async def _settle(self, outcome: Outcome) -> None:
        if isinstance(outcome, Completed):
            completed = [outcome]
            try:
                lost = await self._store.complete_one(outcome, patience=_PATIENCE)
            except WriteConflict as conflict:
                outcome = unsuccessful.conflicting(outcome, conflict)
            except _REFUSALS as refusal:
                outcome = unsuccessful.refused(outcome, refusal)
            else:
                self._on_completed(completed, lost)
                self._on_room()
                return
        failed = [outcome]
        try:
            landed = await self._store.settle(failed, patience=_PATIENCE)
        except _REFUSALS as refusal:
            if lacks_partition(refusal):
                raise
            logger.error("no outcome of task %s can be written, so it is set aside: %s", outcome.id, refusal)
            landed = await self._store.set_aside(outcome)
        self._on_unsuccessful(failed, landed)
