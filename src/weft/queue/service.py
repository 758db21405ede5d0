"""The skeleton of a background service: a loop of bounded steps that can be kicked, started and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from abc import ABC, abstractmethod

logger = logging.getLogger("weft.service")
_LONGEST_TURN = 1.0


class Service(ABC):
    """A loop that does bounded batches of work.

    ``start()`` returns when the loop is ready, ``run_once()`` does one batch and returns how much it did (tests call
    it), ``stop()`` is idempotent and returns when the loop has ended.
    """

    name: str
    interval: float

    def __init__(self) -> None:
        self._kicked = asyncio.Event()
        self._has_looked = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> int:
        """Do one bounded batch of work and return how much was done."""

    def pause_before_next(self, done: int) -> float:
        """Return how long to rest after a batch in which ``done`` was done."""
        return 0.0 if done else self.interval * random.uniform(0.9, 1.1)

    async def start(self) -> None:
        """Begin the loop."""
        self._start_loop(None)

    async def start_after(self, other: Service) -> None:
        """Begin the loop; its first batch comes after that of another, unless that one takes long."""
        self._start_loop(other)

    def _start_loop(self, after: Service | None) -> None:
        if self._loop is None:
            self._has_looked.clear()
            self._loop = asyncio.create_task(self._run(after), name=f"weft-{self.name}")

    @property
    def is_running(self) -> bool:
        """Whether the loop was started and not stopped."""
        return self._loop is not None

    def kick(self) -> None:
        """Let the loop look at once instead of after its rest."""
        self._kicked.set()

    async def stop(self) -> None:
        """End the loop."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            # Again and again: what a batch was waiting for may have swallowed the first.
            while not loop.done():
                loop.cancel()
                await asyncio.wait([loop], timeout=1)

    async def _run(self, after: Service | None) -> None:
        if after is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_TURN):
                    await after._has_looked.wait()
        failures = 0
        while True:
            self._kicked.clear()
            try:
                rest = self.pause_before_next(await self.run_once())
                failures = 0
            except asyncio.CancelledError:
                raise
            except Exception as problem:  # noqa: BLE001  the service loop: recorded, and tried again after a while
                failures += 1
                rest = min(5.0, 0.1 * 2 ** min(failures, 6)) * random.uniform(0.5, 1.0)
                logger.warning(
                    "%s failed, next try in %.1f s: %s: %s", self.name, rest, type(problem).__name__, problem
                )
            self._has_looked.set()
            # Not wait_for: before Python 3.12 it swallows a cancellation that comes in the same turn as the kick.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(rest, 0.0)):
                    await self._kicked.wait()
