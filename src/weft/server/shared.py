"""Answers that cost something: looked for once for all who ask meanwhile, and kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
_MOST = 1000


class _Kept(NamedTuple):
    answer: Any
    until: float


class Shared:
    """Answers by what was asked, each kept for ``least`` seconds, or for as many as ``lasts`` says of it.

    What lasts for no time is looked for by everybody for himself: whoever has changed something sees it.
    """

    def __init__(self, least: float = 0.0, lasts: Callable[[Any], float] = lambda _: 0.0) -> None:
        self._least = least
        self._lasts = lasts
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._open: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, asked: Hashable, find: Callable[[], Awaitable[T]]) -> T:
        """Return the answer that is kept, or that somebody looks for already, or else look for it."""
        kept = self._kept.get(asked)
        if kept is None and not self._least:
            return await self._look(asked, find)
        if kept is not None and time.monotonic() < kept.until:
            return kept.answer  # type: ignore[no-any-return]
        looking = self._open.get(asked)
        if looking is None:
            looking = self._open[asked] = asyncio.create_task(self._look(asked, find))
            looking.add_done_callback(lambda done: self._close(asked, done))
        # Whoever goes before it is there does not take it from the others.
        return await asyncio.shield(looking)

    def _close(self, asked: Hashable, done: asyncio.Task[Any]) -> None:
        del self._open[asked]
        if not done.cancelled():
            # Nobody may be left to be told.
            done.exception()

    async def _look(self, asked: Hashable, find: Callable[[], Awaitable[T]]) -> T:
        found = await find()
        if lasts := max(self._least, self._lasts(found)):
            self._kept[asked] = _Kept(found, time.monotonic() + lasts)
            self._kept.move_to_end(asked)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        else:
            self._kept.pop(asked, None)
        return found
