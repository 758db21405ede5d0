"""What one reader has found, kept for a while as it is sent, for all who look at the same thing.

Nobody has a queue of his own: a guest is a number, the page that he gets next. Who is slower than the pages that are
kept is told so and comes back; he never holds memory, and nobody waits for him.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator
from itertools import islice
from typing import Any, NamedTuple

from weft.core.errors import DatabaseUnavailable
from weft.queue.service import Service
from weft.server.live.frames import farewell, heartbeat
from weft.server.live.guest import Guest

# Of each feed so many bytes are kept at most.
MOST_BYTES = 4 << 20
HEARTBEAT = 15.0
# What writing a page to one guest takes: a reader leaves time for it.
_ONE_GUEST = 0.0001
# At most so much of the time is spent on reading.
_SHARE = 3.0
_SHORTEST, _OUTAGE = 0.02, 0.5
LAGGING = farewell("lagging", "you read more slowly than this goes on: connect again with Last-Event-ID")


class NothingMoreError(Exception):
    """Whoever comes again has had everything, and nothing will come any more."""


class Page(NamedTuple):
    """What was found at once, as it is sent; ``id`` is the place after it, ``parts`` are its frames by name."""

    data: bytes
    id: str | None
    parts: tuple[tuple[Any, bytes], ...] = ()


class Feed(Service):
    """The pages of one thing, and who looks at them."""

    name = "feed"
    interval = 0.2
    longest = 1.0

    def __init__(self, turns: asyncio.Semaphore) -> None:
        super().__init__()
        self.turns = turns
        self.guests: set[Guest] = set()
        self.is_over = False
        self._pages: deque[Page] = deque()
        self._bytes = 0
        # The number of the oldest page that is kept, and where guests go on who have come so far before.
        self.first = 0
        self.places: dict[str | None, int] = {}
        self._pause = _SHORTEST
        self._took = 0.0
        self._told_at = time.monotonic()

    @property
    def next(self) -> int:
        """The number of the page that comes next."""
        return self.first + len(self._pages)

    @property
    @abstractmethod
    def id(self) -> str | None:
        """Where whoever has all pages goes on from."""

    @abstractmethod
    async def look(self) -> int:
        """Find what is new, put it, and return how much it was."""

    @abstractmethod
    def welcome(self, guest: Guest, after: str | None) -> AsyncGenerator[bytes]:
        """Yield what a guest has missed who has come as far as ``after``, and give him his place.

        What is wrong with his wish is raised before anything is yielded; the first may be empty.
        """

    def put(self, page: Page) -> None:
        """Let all who look have a page."""
        self._pages.append(page)
        self._bytes += len(page.data)
        if page.id is not None:
            self.places.setdefault(page.id, self.next)
        while self._bytes > MOST_BYTES and len(self._pages) > 1:
            self._bytes -= len(self._pages.popleft().data)
            self.first += 1
            self.places = {id: place for id, place in self.places.items() if place >= self.first}
        self._told_at = time.monotonic()
        for guest in self.guests:
            guest.wake()

    def end(self, page: Page) -> None:
        """Let all who look have the last page."""
        self.is_over = True
        self.put(page)

    async def run_once(self) -> int:
        """Look once, when it is this feed's turn."""
        if self.is_over:
            return 0
        try:
            async with self.turns:
                began = time.monotonic()
                found = await self.look()
                self._took = time.monotonic() - began
        except (DatabaseUnavailable, TimeoutError):
            # What is looked at goes on without us, and so do we when PostgreSQL is there again.
            found, self._took = 0, _OUTAGE
        if time.monotonic() - self._told_at >= HEARTBEAT and not self.is_over:
            self.put(Page(heartbeat(self.id), self.id))
        return found

    def pause_before_next(self, done: int) -> float:
        """Rest for as long as the guests need, longer the longer nothing happens."""
        if self.is_over:
            return 3600.0
        self._pause = _SHORTEST if done else min(self.longest, 1.25 * self._pause)
        return max(self._pause, _ONE_GUEST * len(self.guests), _SHARE * self._took)

    def take(self, guest: Guest) -> bytes:
        """Return what is new for a guest, and let it be the last that he gets when there will be no more."""
        if guest.place < self.first:
            guest.dismiss(LAGGING)
            return b""
        if guest.place == self.next:
            if self.is_over:
                guest.leave()
            return b""
        fresh = islice(self._pages, guest.place - self.first, None)
        guest.place = self.next
        return b"".join(page.data if guest.fit is None else guest.fit(page) for page in fresh)
