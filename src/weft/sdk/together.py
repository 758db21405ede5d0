"""Looks that many ask for at the same time, made as a few."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
# What is asked for at once may be large, each of it; two at a time, so that nobody waits for all of another.
MOST = 25
_LOOKS = 2


class Together(Generic[T]):
    """What is found by id: whoever asks while others are being answered is asked for with all who do.

    Who asks alone waits for nobody.
    """

    def __init__(self, ask: Callable[[Sequence[int]], Awaitable[Mapping[int, T]]]) -> None:
        self._ask = ask
        self._asked: dict[int, asyncio.Future[T | None]] = {}
        self._looks: set[asyncio.Task[None]] = set()

    async def get(self, id: int) -> T | None:
        """Return what is found now, None when there is nothing; raises what the look for it raised."""
        found = self._asked.get(id)
        if found is None:
            found = self._asked[id] = asyncio.get_running_loop().create_future()
            # Whoever has asked may have gone: it was told to nobody then.
            found.add_done_callback(lambda told: told.cancelled() or told.exception())
        if len(self._looks) < _LOOKS:
            self._looks.add(asyncio.create_task(self._look()))
        return await asyncio.shield(found)

    async def _look(self) -> None:
        try:
            await self._answer()
        finally:
            # Here, and not once the task is seen to be over: whoever asks in between would be answered by nobody.
            self._looks.discard(asyncio.current_task())

    async def _answer(self) -> None:
        while self._asked:
            batch = {id: self._asked.pop(id) for id in list(self._asked)[:MOST]}
            try:
                rows = await self._ask(list(batch))
            except asyncio.CancelledError:
                for told in batch.values():
                    told.cancel()
                raise
            except Exception as problem:  # noqa: BLE001  handed to all who asked: the look itself has nobody to tell
                for told in batch.values():
                    told.set_exception(problem)
            else:
                for id, told in batch.items():
                    told.set_result(rows.get(id))
