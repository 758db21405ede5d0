"""Waits for tasks to end: one poll for all who wait, quick at first and slower the longer it takes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from weft.core.errors import WaitTimeout
from weft.queue import look

if TYPE_CHECKING:
    from weft.db.database import Database

SHORTEST, LONGEST = 0.002, 0.5


class _Wait:
    """One task that somebody waits for."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.waiters = 0


class Waiter:
    """All waits of a client; the pause between two looks is a tenth of the shortest time that anyone has waited."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waits: dict[int, _Wait] = {}
        self._poll: asyncio.Task[None] | None = None

    async def wait(self, task_id: int, timeout: float | None) -> None:
        """Return when the task has ended; raises `WaitTimeout` when that takes longer than ``timeout`` seconds."""
        wait = self._waits.setdefault(task_id, _Wait())
        wait.waiters += 1
        if self._poll is None or self._poll.done():
            self._poll = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(wait.ended)
        except TimeoutError:
            raise WaitTimeout(task_id, timeout or 0.0) from None
        finally:
            wait.waiters -= 1
            if not wait.waiters and self._waits.get(task_id) is wait:
                del self._waits[task_id]

    async def _look(self) -> None:
        while self._waits:
            try:
                async with self._database.acquire() as conn:
                    ended = await look.ended_among(conn, list(self._waits))
            except Exception as problem:  # noqa: BLE001  handed to all who wait: the poll itself has nobody to tell
                waits, self._waits = self._waits, {}
                for wait in waits.values():
                    if not wait.ended.done():
                        wait.ended.set_exception(problem)
                return
            for task_id in ended:
                if (found := self._waits.pop(task_id, None)) is not None and not found.ended.done():
                    found.ended.set_result(None)
            if self._waits:
                youngest = max(wait.since for wait in self._waits.values())
                await asyncio.sleep(min(LONGEST, max(SHORTEST, (time.monotonic() - youngest) / 10)))

    async def close(self) -> None:
        """End the poll."""
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
