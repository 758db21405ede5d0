"""Small things that a worker lets run beside its loop."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import asyncpg

from weft.core.errors import WeftError
from weft.db.database import CONNECTION_ERRORS

T = TypeVar("T")
logger = logging.getLogger("weft.worker")
_EXPECTED = (*CONNECTION_ERRORS, WeftError, asyncpg.PostgresError, TimeoutError)
_LONGEST_PAUSE = 1.0


async def begun_with(call: Coroutine[Any, Any, T], begin: Callable[[], None]) -> T:
    """Send a call, begin something when it is on its way, and return what the call brings."""
    task = asyncio.create_task(call)
    try:
        # One turn of the loop sends it.
        await asyncio.sleep(0)
        begin()
        return await task
    except asyncio.CancelledError:
        task.cancel()
        raise


async def pause_after_error(seconds: float) -> float:
    """Rest; return how long to rest after the next error that follows at once."""
    await asyncio.sleep(seconds * random.uniform(0.5, 1.0))
    return min(_LONGEST_PAUSE, seconds * 2)


class Background:
    """Coroutines that nobody awaits at once; what they raise is recorded, and their end is told."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._tasks: set[asyncio.Task[Any]] = set()
        self._needed: set[asyncio.Task[Any]] = set()

    @property
    def is_needed(self) -> bool:
        """Whether something is under way that must not be dropped."""
        return bool(self._needed)

    def spawn(self, job: Coroutine[Any, Any, Any], *, must_end: bool = False) -> None:
        """Let a coroutine run; when the worker stops it is awaited if it ``must_end``, else dropped."""
        task = asyncio.ensure_future(job)
        self._tasks.add(task)
        if must_end:
            self._needed.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._needed.discard(task)
        self._on_end()
        if not task.cancelled() and (problem := task.exception()) is not None:
            # With a traceback what nobody expected.
            trace = None if isinstance(problem, _EXPECTED) else problem
            logger.warning("%s: %s", type(problem).__name__, problem, exc_info=trace)

    async def stop(self, others: list[asyncio.Task[None]], limit: float) -> None:
        """Wait for what must end, and for ``others``, at most ``limit`` seconds; cancel the rest."""
        deadline = asyncio.get_running_loop().time() + limit
        # Again and again: with the end of one something else may begin that must end.
        while waiting := [task for task in (*others, *self._needed) if not task.done()]:
            within = max(0.0, deadline - asyncio.get_running_loop().time())
            if not (await asyncio.wait(waiting, timeout=within))[0]:
                break
        left, self._tasks, self._needed = self._tasks, set(), set()
        for task in left:
            # What is broken off may say that its connection is gone: that is no news.
            task.remove_done_callback(self._ended)
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            task.cancel()
