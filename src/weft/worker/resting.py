"""Lets an attempt wait for tasks that it made: it takes no slot of its worker or key, and its time does not run."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.worker.attempt import Attempt

_BEATS_IN_TIMEOUT = 3


class _Wait:
    """One thing that an attempt waits for."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self.task = task
        self.over = asyncio.Event()


class Rest:
    """The rest of one attempt, which may wait for several things at once: it rests until the last of them is there."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._waits: dict[int, _Wait] = {}
        self._ran = 0.0
        self._left: float | None = None
        self._beating: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._has_lent = False
        # Whether the task has a concurrency key; told when it makes a task, so that waiting costs the others nothing.
        self._has_key = False

    async def answer(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Do what the handler asks for about tasks that it makes."""
        attempt = self._attempt
        answer = attempt.env.answers.answer
        match verb:
            case "spawn":
                made = await answer(attempt.fence, verb, arguments, attempt.is_ending)
                self._has_key = made["has_key"]
                return made["id"]
            case "await_tasks":
                async with self._taken(arguments["wait"]):
                    return await answer(attempt.fence, verb, arguments, attempt.is_ending)
            case _:
                return await self._given_up(arguments["wait"])

    @asynccontextmanager
    async def _taken(self, wait: int) -> AsyncIterator[None]:
        """Rest in the body, which is the wait of that number."""
        with self._attempt.env.resting(self._attempt.claim.id):
            if not self._waits:
                self._begin()
            self._waits[wait] = _Wait(asyncio.current_task())
            try:
                await self._lend()
                yield
            finally:
                try:
                    await self._take_again()
                    if len(self._waits) == 1:
                        # The slot of its queue comes last: as for a task that has not begun.
                        await self._attempt.env.go_on(self._attempt.claim, self._attempt.is_ending)
                finally:
                    self._waits.pop(wait).over.set()
                    if not self._waits:
                        self._end()

    async def _given_up(self, wait: int) -> None:
        """Return when a wait that was given up is over: the attempt goes on with its key, or rests for another."""
        if (open_wait := self._waits.get(wait)) is not None:
            if open_wait.task is not None and not open_wait.task.cancelling():
                # It was given up in another process, of which nobody has heard here.
                open_wait.task.cancel()
            await open_wait.over.wait()

    async def _lend(self) -> None:
        if not self._has_key:
            return
        async with self._turn:
            if not self._has_lent:
                attempt = self._attempt
                # Who gives up while PostgreSQL is at it does not know, and asks for the key again.
                self._has_lent = True
                self._has_lent = await attempt.env.answers.lending.lend(attempt.fence, attempt.is_ending)

    async def _take_again(self) -> None:
        """Before the last wait is over: whoever rests for another needs no key yet."""
        if not self._has_lent:
            return
        async with self._turn:
            attempt = self._attempt
            if self._has_lent and len(self._waits) == 1 and not attempt.is_ending():
                await attempt.env.answers.lending.take(attempt.fence, attempt.is_ending)
                self._has_lent = False

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
