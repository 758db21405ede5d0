"""Lets an attempt wait for tasks that it made: it takes no slot of its worker, and its time does not run."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.worker.attempt import Attempt

_BEATS_IN_TIMEOUT = 3


class Rest:
    """The rest of one attempt, which may wait for several things at once: it rests until the last of them is there."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._depth = 0
        self._ran = 0.0
        self._left: float | None = None
        self._beating: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Rest in the body."""
        with self._attempt.env.resting(self._attempt.claim.id):
            if self._depth == 0:
                self._begin()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._end()

    def _begin(self) -> None:
        attempt = self._attempt
        self._ran = time.monotonic() - attempt.started
        attempt.started = math.inf
        self._left = None
        if attempt.timer is not None and not attempt.timer.cancelled():
            self._left = attempt.timer.when() - asyncio.get_running_loop().time()
            attempt.timer.cancel()
        if attempt.claim.heartbeat_timeout is not None:
            pause = attempt.claim.heartbeat_timeout.total_seconds() / _BEATS_IN_TIMEOUT
            self._beating = asyncio.create_task(self._beat(pause))

    def _end(self) -> None:
        attempt = self._attempt
        attempt.started = time.monotonic() - self._ran
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        if self._left is not None and not attempt.is_over:
            attempt.timer = asyncio.get_running_loop().call_later(max(0.0, self._left), attempt.end, "timeout")

    async def _beat(self, pause: float) -> None:
        """Say that the attempt is alive, in its place."""
        while True:
            self._attempt.beat()
            await asyncio.sleep(pause)
