"""The round of one reader: it looks for all feeds of a kind and an org at once, each when it is due."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.core.errors import DatabaseUnavailable
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.server.live.feed import Feed
    from weft.server.live.shelf import Shelf

logger = logging.getLogger("weft.server")
# So many are looked for by one statement.
_MOST = 200
_OUTAGES = (DatabaseUnavailable, TimeoutError)
_OUTAGE = 0.5
_SHORTEST = 0.02


class Round(Service):
    """Asks one statement what is new of all feeds that are due, however many they are.

    ``asked`` counts, under its name, how often the database was asked; ``shelf`` what the feeds keep.
    """

    interval = 1.0

    def __init__(self, kind: type[Feed[Any]], turns: asyncio.Semaphore, asked: Counter[str], shelf: Shelf) -> None:
        super().__init__()
        self.shelf = shelf
        self.name = kind.name
        self._kind = kind
        self.turns = turns
        self.asked = asked
        self.feeds: set[Feed[Any]] = set()

    async def take_up(self, feed: Feed[Any]) -> None:
        """Look for a feed too."""
        self.feeds.add(feed)
        await self.start()
        self.kick()

    async def leave_out(self, feed: Feed[Any]) -> None:
        """Look for a feed no more, and rest when there is no other."""
        self.feeds.discard(feed)
        if not self.feeds:
            await self.stop()

    def has(self, feed: Feed[Any]) -> bool:
        """Whether a feed is looked for."""
        return feed in self.feeds

    async def run_once(self) -> int:
        """Look once for all that are due, and let each of them tell what it has found."""
        now = time.monotonic()
        due = [feed for feed in self.feeds if feed.is_due(now)][:_MOST]
        if not due:
            return 0
        before = [feed.next for feed in due]
        async with self.turns:
            began = time.monotonic()
            found = await self._glance(due)
            for feed in due:
                if feed in found:
                    await self._tell(feed, found[feed])
            now = time.monotonic()
            took = now - began if found is not _NOTHING else _OUTAGE
        for feed, place in zip(due, before, strict=True):
            feed.rest(now, took, has_news=feed.next > place)
        return len(due)

    async def _glance(self, due: list[Feed[Any]]) -> Mapping[Feed[Any], Any]:
        self.asked[self.name] += 1
        for feed in due:
            feed.is_kicked = False
        try:
            return await self._kind.glance(due)
        except _OUTAGES:
            # What is looked at goes on without us, and so do we when PostgreSQL is there again.
            return _NOTHING
        except Exception as problem:  # noqa: BLE001  recorded, and tried again when it is due
            if len(due) == 1:
                logger.warning("a %s cannot look: %s: %s", self.name, type(problem).__name__, problem)
                return {}
        # It is of no concern to the others what goes wrong with one: each by itself.
        found: dict[Feed[Any], Any] = {}
        for feed in due:
            found.update(await self._glance([feed]))
        return found

    async def _tell(self, feed: Feed[Any], found: Any) -> None:
        """Let one feed tell; what goes wrong with it is of no concern to the others."""
        try:
            await feed.tell(found)
        except Exception as problem:  # noqa: BLE001  recorded, and tried again when it is due
            if not isinstance(problem, _OUTAGES):
                logger.warning("a %s cannot tell what it found: %s: %s", self.name, type(problem).__name__, problem)

    def pause_before_next(self, done: int) -> float:
        """Rest until the first of them is due."""
        now = time.monotonic()
        return max(_SHORTEST, min((feed.due_at - now for feed in self.feeds), default=self.interval))


_NOTHING: dict[Feed[Any], Any] = {}
