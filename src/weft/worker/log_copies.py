"""Copies logs to the blob storage, for machines that share no folder: at the end, or earlier when they are followed."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from weft.queue import look
from weft.worker.log_keeping import LogKeeping

if TYPE_CHECKING:
    from weft.db.blobs import Blobs
    from weft.db.database import Database
    from weft.worker.attempt import Attempt

# A log that is followed is copied anew so often at most, and a long one so much less often that it comes to as many
# bytes a second.
_SHORTEST = 1.0
_RATE = 1 << 18


class LogCopies(LogKeeping):
    """The copies of one worker's logs."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        super().__init__(self._finish)
        self._database = database
        self._blobs = blobs
        # By attempt, how much was copied while it runs, and when it may be again.
        self._made: dict[Attempt, tuple[int, float]] = {}

    async def show(self, attempt: Attempt) -> None:
        """Copy what a running attempt has printed so far, unless that was done of late: somebody follows it."""
        size, due_at = self._made.get(attempt, (0, 0.0))
        if attempt.is_over or not attempt.has_log or time.monotonic() < due_at:
            return
        self._made[attempt] = size, math.inf
        try:
            size = await self._copy(attempt, beyond=size)
        finally:
            if not attempt.is_over:
                self._made[attempt] = size, time.monotonic() + max(_SHORTEST, size / _RATE)

    async def _finish(self, attempt: Attempt) -> None:
        self._made.pop(attempt, None)
        await self._copy(attempt)

    async def _copy(self, attempt: Attempt, *, beyond: int = -1) -> int:
        """Copy a log that is longer than so many bytes; return how long it is."""
        data, claim = await asyncio.to_thread(attempt.log.read), attempt.claim
        if len(data) > beyond:
            digest = await self._blobs.put(data)
            await self._database.run(lambda conn: look.add_log(conn, claim.id, claim.attempt, digest, len(data)))
        return len(data)
