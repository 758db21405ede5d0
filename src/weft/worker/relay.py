"""Passes hints on: a worker without room, or with more work than it can take, tells another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator

from weft.db.database import OUTAGE, Database
from weft.queue import queues, workers

logger = logging.getLogger("weft.worker")
_PAUSE = 0.05


@contextlib.contextmanager
def _only_a_hint() -> Iterator[None]:
    """Without it others find the work at their next look: no reason to stumble, or to alarm anybody."""
    try:
        yield
    except Exception as problem:  # noqa: BLE001  also asyncpg's own, when the pool ends a connection that is in use
        logger.debug("no hint sent: %s: %s", type(problem).__name__, problem)


class Relay:
    """The hints that one worker sends to others."""

    def __init__(self, database: Database, worker_id: int) -> None:
        self._database = database
        self._worker_id = worker_id
        self._is_full = False
        # What the worker's row says, None when that is not known; told in the order in which it became true.
        self._told: bool | None = False
        self._telling = asyncio.Lock()
        self._silent_before: int | None = None
        self._is_unheard = False
        self._look_pause = _PAUSE
        self._sent_at = 0.0
        self._due: set[int] = set()

    async def send(self, queue_ids: Iterable[int]) -> None:
        """Wake one other worker per queue."""
        with _only_a_hint():
            async with self._database.acquire() as conn:
                await queues.hint(conn, queue_ids, except_worker=self._worker_id)

    async def send_if_ready(self, queue_ids: Iterable[int]) -> None:
        """Wake one other worker per queue in which something waits: two who wake each other for nothing never rest."""
        with _only_a_hint():
            async with self._database.acquire() as conn:
                if found := await queues.with_ready(conn, queue_ids):
                    await queues.hint(conn, found, except_worker=self._worker_id)

    async def send_soon(self, queue_ids: Iterable[int]) -> None:
        """Wake one other worker per queue, soon: all that is asked for meanwhile goes with it."""
        is_first = not self._due
        self._due.update(queue_ids)
        if is_first:
            await asyncio.sleep(max(0.0, self._sent_at + _PAUSE - time.monotonic()))
            self._sent_at = time.monotonic()
            due, self._due = self._due, set()
            await self.send(due)

    async def pass_on(self, queue_ids: Iterable[int]) -> None:
        """A hint came although there is no room: let further ones go elsewhere, and this one first."""
        self._is_full = True
        with _only_a_hint():
            await self._tell()
        await self.send(queue_ids)

    async def has_room_again(self) -> bool:
        """Take hints again after a claim that left room; True when one must look once more.

        Whoever enqueued while all were full told nobody. Most have committed by now and are found by the next look; for
        those who have not one looks again, ever more rarely, until the transactions of that time are over. So does a
        worker that can tell nobody, because the server has no connection left but the one by which it claims.
        """
        try:
            found = await self._look_for_the_silent()
        except OUTAGE as problem:
            logger.debug("hints are not asked for again: %s", problem)
            self._look_pause = 2 * self._look_pause if self._is_unheard else _PAUSE
            self._is_unheard = True
            return False
        self._is_unheard = False
        return found

    async def _look_for_the_silent(self) -> bool:
        if self._is_full or self._told is not False or self._is_unheard:
            self._is_full = False
            await self._tell()
            _, self._silent_before = await self._transactions()
            self._look_pause = _PAUSE
            return True
        if self._silent_before is None:
            return False
        oldest, _ = await self._transactions()
        if oldest < self._silent_before:
            self._look_pause *= 2
            return False
        self._silent_before = None
        return True

    def look_again_in(self, longest: float) -> float:
        """Return after how many seconds, at most ``longest``, a worker that found nothing should look again."""
        if self._silent_before is None and not self._is_unheard:
            return longest
        return min(longest, self._look_pause)

    async def _tell(self) -> None:
        async with self._telling:
            if self._told is not self._is_full:
                is_full, self._told = self._is_full, None
                async with self._database.acquire() as conn:
                    await workers.set_saturated(conn, self._worker_id, is_full)
                self._told = is_full

    async def _transactions(self) -> tuple[int, int]:
        async with self._database.acquire() as conn:
            return await workers.open_transactions(conn)
