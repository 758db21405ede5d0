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


class Waiter:
    """All waits of a client; the pause between two looks is a tenth of the shortest time that anyone has waited."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[int, tuple[asyncio.Future[None], float]] = {}
        self._poll: asyncio.Task[None] | None = None

    async def wait(self, task_id: int, timeout: float | None) -> None:
        """Return when the task has ended; raises `WaitTimeout` when that takes longer than ``timeout`` seconds."""
        if task_id not in self._waiting:
            self._waiting[task_id] = (asyncio.get_running_loop().create_future(), time.monotonic())
        ended = self._waiting[task_id][0]
        if self._poll is None or self._poll.done():
            self._poll = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(ended)
        except TimeoutError:
            raise WaitTimeout(task_id, timeout or 0.0) from None

    async def _look(self) -> None:
        while self._waiting:
            try:
                async with self._database.acquire() as conn:
                    ended = await look.ended_among(conn, list(self._waiting))
            except Exception as problem:  # noqa: BLE001  handed to all who wait: the poll itself has nobody to tell
                waiting, self._waiting = self._waiting, {}
                for future, _ in waiting.values():
                    if not future.done():
                        future.set_exception(problem)
                return
            for task_id in ended:
                future, _ = self._waiting.pop(task_id)
                if not future.done():
                    future.set_result(None)
            if self._waiting:
                youngest = max(since for _, since in self._waiting.values())
                await asyncio.sleep(min(LONGEST, max(SHORTEST, (time.monotonic() - youngest) / 10)))

    async def close(self) -> None:
        """End the poll."""
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
