"""Waits for tasks to end: one poll for all who wait, quick at first, slower the longer it takes, deaf to outages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from weft.core.errors import DatabaseUnavailable, InvalidInput, WaitTimeout
from weft.queue import look

if TYPE_CHECKING:
    from weft.db.database import Database

logger = logging.getLogger("weft.client")
SHORTEST, LONGEST = 0.002, 0.5
ONE_LOOK = 1.0
# PostgreSQL is away or does not answer: the task goes on without it, and so does whoever waits.
_OUTAGE = (DatabaseUnavailable, TimeoutError)


class _Stateful(Protocol):
    """What has a state that may be final."""

    @property
    def is_final(self) -> bool: ...


class _Ending(Protocol):
    """What ends at some time."""

    @property
    def state(self) -> _Stateful: ...


E = TypeVar("E", bound=_Ending)


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

    async def until_ended(
        self, task_id: int, timeout: float | None, get: Callable[[int], Awaitable[E]], *, is_open: bool = False
    ) -> E:
        """Return the task, or what ends with it, as ``get`` finds it, when it has ended.

        Raises `WaitTimeout` after ``timeout`` seconds.

        PostgreSQL may be away meanwhile: it is asked again until the time is over. Whoever knows that it ``is_open``
        saves one question.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if is_open:
                await self._wait(task_id, deadline)
            task = await self._persist(lambda: get(task_id), deadline)
            # Again, should somebody replay it meanwhile.
            while not task.state.is_final:
                await self._wait(task_id, deadline)
                task = await self._persist(lambda: get(task_id), deadline)
        except TimeoutError as problem:
            raise WaitTimeout(task_id, timeout or 0.0) from problem.__cause__
        return task

    async def _wait(self, task_id: int, deadline: float | None) -> None:
        wait = self._waits.setdefault(task_id, _Wait())
        wait.waiters += 1
        if self._poll is None or self._poll.done():
            self._poll = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                await asyncio.shield(wait.ended)
        finally:
            wait.waiters -= 1
            if not wait.waiters and self._waits.get(task_id) is wait:
                del self._waits[task_id]

    async def _persist(self, ask: Callable[[], Awaitable[E]], deadline: float | None) -> E:
        """Ask until PostgreSQL answers, and once in any case; raises `TimeoutError` when it has not by ``deadline``."""
        pause = SHORTEST
        while True:
            try:
                async with asyncio.timeout(None if deadline is None else max(ONE_LOOK, deadline - time.monotonic())):
                    return await ask()
            except _OUTAGE as problem:
                pause = min(LONGEST, 2 * pause)
                if deadline is not None and time.monotonic() + pause > deadline:
                    raise TimeoutError from problem
                logger.debug("waits on: %s", problem)
                await asyncio.sleep(pause)

    async def _look(self) -> None:
        while self._waits:
            ended: set[int] = set()
            try:
                async with self._database.acquire() as conn:
                    ended = await look.ended_among(conn, list(self._waits))
            except _OUTAGE as problem:
                logger.debug("waits on for %d tasks: %s", len(self._waits), problem)
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
        """End the poll, and every wait."""
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
        for wait in self._waits.values():
            if not wait.ended.done():
                wait.ended.set_exception(InvalidInput("client", "was closed while it waited"))
