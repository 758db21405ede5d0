"""The heartbeat: a thread of its own with a connection of its own, so that no task can hold it up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta

from weft.queue.workers import Pulse
from weft.worker.store import Pulses

logger = logging.getLogger("weft.worker")
EXIT_BLOCKED = 70
_LONG = 5.0


class Heart:
    """Extends the lease of a worker at a steady beat and tells the worker what came back.

    At each beat it asks the event loop for a turn. While the loop owes one, the tasks stay the worker's own, but it
    does not lead: the upkeep would stand still with the loop. When an attempt on such a loop is overdue, nothing in
    this process can end it any more: the process itself ends, and its tasks go to others.
    """

    def __init__(
        self, pulses: Pulses, *, interval: timedelta, lease: timedelta,
        on_pulse: Callable[[Pulse | None], None], counters: Callable[[], tuple[bool, int, int]],
        overdue: Callable[[float], str | None], sent: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        self._pulses = pulses
        self._interval = interval.total_seconds()
        self._lease = lease
        self._overdue = overdue
        self._on_pulse = on_pulse
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        self._asked_at: float | None = None
        # What of the counts is in the database already.
        self.sent = sent
        self._stopping = threading.Event()
        self._ended = asyncio.Event()
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._sleeper: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="weft-heart", daemon=True)
        self.failed_at: float | None = None

    def has_settled(self) -> bool:
        """Whether other workers have had time to come back after an outage that this one saw."""
        return self.failed_at is None or time.monotonic() - self.failed_at > 2 * self._interval

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    async def stop(self) -> None:
        """Stop beating."""
        self._stopping.set()
        if self._thread_loop is not None:
            with contextlib.suppress(RuntimeError):
                self._thread_loop.call_soon_threadsafe(self._wake)
        if self._thread.ident is not None:
            # Not by join in the loop's executor, which handlers may have filled.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._ended.wait()

    def _wake(self) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()

    def _run(self) -> None:
        # asyncio's own loop: it needs no thread-local set-up and is quick enough for one statement in seconds.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            self._thread_loop = runner.get_loop()
            try:
                runner.run(self._beat())
            finally:
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._ended.set)

    async def _beat(self) -> None:
        next_beat = time.monotonic()
        warned = is_failing = False
        while not self._stopping.is_set():
            self._sleeper = asyncio.create_task(asyncio.sleep(max(0.0, next_beat - time.monotonic())))
            with contextlib.suppress(asyncio.CancelledError):
                await self._sleeper
            if self._stopping.is_set():
                break
            next_beat = max(time.monotonic(), next_beat + self._interval)
            try:
                is_blocked = self._asked_at is not None
                warned = self._watch(warned)
                busy, completed, failed = self._counters()
                sent_completed, sent_failed = self.sent
                pulse = await asyncio.wait_for(
                    self._pulses.beat(
                        busy=busy, completed=completed - sent_completed, failed=failed - sent_failed,
                        is_blocked=is_blocked,
                    ),
                    self._lease.total_seconds() / 2,
                )  # fmt: skip
                self.sent = (completed, failed)
                is_failing = False
            except Exception as problem:  # noqa: BLE001  a service loop: a heart that dies in silence is the worst failure
                # Once: the worker tells how long the database is away.
                level = logging.WARNING if not is_failing else logging.DEBUG
                is_failing, self.failed_at = True, time.monotonic()
                logger.log(level, "heartbeat failed: %s: %s", type(problem).__name__, problem)
                self._pulses.drop()
                next_beat = time.monotonic() + min(0.5, self._interval)
                continue
            # What comes late is about a name that the worker has given up.
            if not self._stopping.is_set():
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._on_pulse, pulse)
        with contextlib.suppress(Exception):
            await self._pulses.close()

    def _watch(self, warned: bool) -> bool:
        """Ask the event loop for a turn; return whether it has owed one for long."""
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._turn)
            return False
        blocked = now - self._asked_at
        if blocked > _LONG and not warned:
            logger.warning("the event loop has been blocked for %.0f s, at:\n%s", blocked, self._where())
        if blocked > _LONG and (task := self._overdue(now - max(_LONG, 3 * self._interval))) is not None:
            logger.critical(
                "task %s blocks the event loop past its timeout; this process ends, at:\n%s", task, self._where()
            )
            logging.shutdown()
            os._exit(EXIT_BLOCKED)
        return blocked > _LONG

    def _turn(self) -> None:
        self._asked_at = None

    def _where(self) -> str:
        frame = sys._current_frames().get(self._main_thread)
        return "".join(traceback.format_stack(frame)[-6:]) if frame is not None else "unknown"
