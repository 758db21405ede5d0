"""Gives back the slots of concurrency keys of attempts that wait for tasks that they made, and takes them again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from weft.core.errors import LeaseLost

if TYPE_CHECKING:
    from weft.queue.steps import Fence

_SHORTEST, _LONGEST = 0.05, 1.0


class Verb(Protocol):
    """Whoever gives back or takes the slot of an attempt's key, and waits while that cannot be done."""

    async def __call__(self, fence: Fence, is_over: Callable[[], bool]) -> bool | None:
        """Return what became of it; raises `LeaseLost` when the attempt is over."""
        ...


class Lending:
    """The keys that attempts of one worker have lent."""

    def __init__(self, lend: Verb, take: Verb) -> None:
        self._lend = lend
        self._take = take
        self._waking: dict[int, asyncio.Event] = {}

    async def lend(self, fence: Fence, is_over: Callable[[], bool]) -> bool:
        """Give back the slot of an attempt's key; False when it has none."""
        return bool(await self._lend(fence, is_over))

    async def take(self, fence: Fence, is_over: Callable[[], bool]) -> None:
        """Return when the attempt has a slot of its key again, or is over. Raises `LeaseLost`."""
        waking = self._waking[fence.task_id] = asyncio.Event()
        pause = _SHORTEST
        try:
            while not is_over():
                waking.clear()
                taken = await self._take(fence, is_over)
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
