"""Gives back the slots of concurrency keys of attempts that wait for tasks that they made, and takes them again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from weft.core.errors import LeaseLost
from weft.queue import loans

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

_SHORTEST, _LONGEST = 0.05, 1.0


class Persist(Protocol):
    """Whoever carries out a verb of the store, and waits while PostgreSQL is away."""

    async def __call__(
        self, fence: Fence, is_over: Callable[[], bool], verb: Callable[[type_Connection], Awaitable[Any]]
    ) -> Any:
        """Return what the verb does; raises `LeaseLost` when the attempt is over."""
        ...


class Lending:
    """The keys that attempts of one worker have lent."""

    def __init__(self, persist: Persist) -> None:
        self._persist = persist
        self._waking: dict[int, asyncio.Event] = {}

    async def lend(self, fence: Fence, is_over: Callable[[], bool]) -> bool:
        """Give back the slot of an attempt's key; False when it has none."""
        return bool(await self._persist(fence, is_over, lambda conn: loans.lend(conn, fence)))

    async def take(self, fence: Fence, is_over: Callable[[], bool]) -> None:
        """Return when the attempt has a slot of its key again, or is over. Raises `LeaseLost`."""
        waking = self._waking[fence.task_id] = asyncio.Event()
        pause = _SHORTEST
        try:
            while not is_over():
                waking.clear()
                taken = await self._persist(fence, is_over, lambda conn: loans.take(conn, fence))
                if taken is None:
                    raise LeaseLost(fence.task_id)
                if taken:
                    return
                # Whoever gives it the slot says so; the look is for what was not heard, and for a raised limit.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await waking.wait()
                pause = min(_LONGEST, pause * 2)
        finally:
            del self._waking[fence.task_id]

    def hear(self, task_id: int) -> None:
        """A task of this worker may have its key again."""
        if (waking := self._waking.get(task_id)) is not None:
            waking.set()
