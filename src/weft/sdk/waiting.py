"""Waits for a task, or for what ends with one, and returns it: as long as the caller has time, deaf to outages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from weft.core.errors import WaitTimeout
from weft.db.database import OUTAGE
from weft.queue.endings import LATEST, SOONEST, Endings

if TYPE_CHECKING:
    from weft.db.database import Database

logger = logging.getLogger("weft.client")
ONE_LOOK = 1.0


class _Stateful(Protocol):
    """What has a state that may be final."""

    @property
    def is_final(self) -> bool: ...


class _Ending(Protocol):
    """What ends at some time."""

    @property
    def state(self) -> _Stateful: ...


E = TypeVar("E", bound=_Ending)


class Waiter:
    """All waits of a client."""

    def __init__(self, database: Database) -> None:
        self._endings = Endings(database)

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
        async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
            await self._endings.until_ended([task_id])

    async def _persist(self, ask: Callable[[], Awaitable[E]], deadline: float | None) -> E:
        """Ask until PostgreSQL answers, and once in any case; raises `TimeoutError` when it has not by ``deadline``."""
        pause = SOONEST
        while True:
            try:
                async with asyncio.timeout(None if deadline is None else max(ONE_LOOK, deadline - time.monotonic())):
                    return await ask()
            except OUTAGE as problem:
                pause = min(LATEST, 2 * pause)
                if deadline is not None and time.monotonic() + pause > deadline:
                    raise TimeoutError from problem
                logger.debug("waits on: %s", problem)
                await asyncio.sleep(pause)

    async def close(self) -> None:
        """End every wait."""
        await self._endings.close()
