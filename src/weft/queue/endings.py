"""Waits for tasks to end: one look for all who wait, soon at first, later the longer it takes, deaf to outages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from weft.core.errors import InvalidInput
from weft.db.database import OUTAGE
from weft.queue import look

if TYPE_CHECKING:
    from weft.db.database import Database

logger = logging.getLogger("weft.queue")
SOONEST, LATEST = 0.002, 0.5


class _Wait:
    """One task that somebody waits for."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.waiters = 0


class Endings:
    """All waits of a process; the pause between two looks is a tenth of the shortest time that anyone has waited."""

    def __init__(self, database: Database, latest: float = LATEST) -> None:
        self._database = database
        self._latest = latest
        self._waits: dict[int, _Wait] = {}
        self._looking: asyncio.Task[None] | None = None

    async def until_ended(self, ids: Collection[int]) -> None:
        """Return when all of some tasks have ended; PostgreSQL may be away meanwhile."""
        waits = {id: self._waits.setdefault(id, _Wait()) for id in ids}
        for wait in waits.values():
            wait.waiters += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            # Not `gather`: whoever is cancelled here does not end the wait of others.
            await asyncio.wait([wait.ended for wait in waits.values()])
        finally:
            for id, wait in waits.items():
                wait.waiters -= 1
                if not wait.waiters and self._waits.get(id) is wait:
                    del self._waits[id]
        for wait in waits.values():
            wait.ended.result()

    async def _look(self) -> None:
        while self._waits:
            ended: set[int] = set()
            try:
                async with self._database.acquire() as conn:
                    ended = await look.ended_among(conn, list(self._waits))
            except OUTAGE as problem:
                logger.debug("waits on for %d tasks: %s", len(self._waits), problem)
            except Exception as problem:  # noqa: BLE001  handed to all who wait: the look itself has nobody to tell
                self._give_up(problem)
                return
            for task_id in ended:
                if (found := self._waits.pop(task_id, None)) is not None:
                    found.ended.set_result(None)
            if self._waits:
                youngest = max(wait.since for wait in self._waits.values())
                await asyncio.sleep(min(self._latest, max(SOONEST, (time.monotonic() - youngest) / 10)))

    def _give_up(self, problem: Exception) -> None:
        waits, self._waits = self._waits, {}
        for wait in waits.values():
            wait.ended.set_exception(problem)
            wait.ended.exception()  # looked at, should nobody wait any more

    async def close(self) -> None:
        """Look no more, and end every wait with an error."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self._give_up(InvalidInput("client", "was closed while it waited"))
