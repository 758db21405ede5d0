"""What one reader has found, kept for a while as it is sent, for all who look at the same thing.

Nobody has a queue of his own: a guest is a number, the page that he gets next. Who is slower than the pages that are
kept is told so and comes back; he holds no more memory than he is given at once, and nobody waits for him.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from weft.server.live.frames import farewell, heartbeat

if TYPE_CHECKING:
    from weft.server.live.guest import Guest
    from weft.server.live.round import Round

Found = TypeVar("Found")

# Of each feed so many bytes are kept at most; all of them together have less room, which `Shelf` shares out.
MOST_BYTES = 4 << 20
# So many bytes somebody is given at once, unless a page has more: whoever does not take them holds no more than that.
AT_ONCE = 1 << 15
HEARTBEAT = 15.0
# What writing a page to one guest takes: a reader leaves time for it.
_ONE_GUEST = 0.0001
# At most so much of the time is spent on reading.
_SHARE = 3.0
_SHORTEST = 0.02
# By so much of its rest a feed may be looked for earlier, together with others.
_EARLIER = 0.25
LAGGING = farewell("lagging", "you read more slowly than this goes on: connect again with Last-Event-ID")


class NothingMoreError(Exception):
    """Whoever comes again has had everything, and nothing will come any more."""


class Page(NamedTuple):
    """What was found at once, as it is sent; ``id`` is the place after it, ``parts`` are its frames by name.

    ``look`` is the number of the look by which it was found.
    """

    data: bytes
    id: str | None
    parts: tuple[tuple[Any, bytes], ...] = ()
    look: int = 0

    @property
    def size(self) -> int:
        """How many bytes it takes to keep it."""
        return len(self.data) + sum(len(data) for _, data in self.parts)


class Feed(ABC, Generic[Found]):
    """The pages of one thing, and who looks at them.

    A `Round` looks for all feeds of a kind at once: `glance` finds out which have news, and those are let `tell`.
    """

    name: str
    longest = 1.0
    # What is said when it may have news.
    topic = ""

    def __init__(self, round: Round) -> None:
        self.round = round
        self.guests: set[Guest] = set()
        self.is_over = False
        self.is_kicked = False
        self.due_at = 0.0
        self._pages: deque[Page] = deque()
        self.bytes = 0
        # The number of the oldest page that is kept, and where guests go on who have come so far before.
        self.first = 0
        self.places: dict[str | None, int] = {}
        self._pause = _SHORTEST
        self._told_at = time.monotonic()

    @classmethod
    @abstractmethod
    async def glance(cls, feeds: Sequence[Self]) -> Mapping[Self, Found]:
        """Return what is found of those that have news, or may have: by one statement, however many they are."""

    @abstractmethod
    async def tell(self, found: Found) -> None:
        """Put what is new."""

    async def start(self) -> None:
        """Be looked for from now on."""
        await self.round.take_up(self)

    async def stop(self) -> None:
        """Be looked for no more, and keep nothing."""
        self.round.shelf.clear(self)
        await self.round.leave_out(self)

    @property
    def is_running(self) -> bool:
        """Whether it is looked for."""
        return self.round.has(self)

    def kick(self) -> None:
        """Be looked for at once."""
        self.is_kicked = True
        self.round.kick()

    def is_due(self, now: float) -> bool:
        """Whether to look for it now, or soon enough to do so together with others."""
        return self.is_kicked or now >= self.due_at - _EARLIER * self._pause

    def rest(self, now: float, took: float, *, has_news: bool) -> None:
        """Rest for as long as the guests need, longer the longer nothing happens."""
        if self.is_over:
            self.due_at = now + 3600.0
            return
        if now - self._told_at >= HEARTBEAT:
            self.put(Page(heartbeat(self.id), self.id))
        self._pause = _SHORTEST if has_news else min(self.longest, 1.25 * self._pause)
        self.due_at = now + max(self._pause, _ONE_GUEST * len(self.guests), _SHARE * took)

    @property
    def next(self) -> int:
        """The number of the page that comes next."""
        return self.first + len(self._pages)

    @property
    @abstractmethod
    def id(self) -> str | None:
        """Where whoever has all pages goes on from."""

    @abstractmethod
    def welcome(self, guest: Guest, after: str | None) -> AsyncGenerator[bytes]:
        """Yield what a guest has missed who has come as far as ``after``, and give him his place.

        What is wrong with his wish is raised before anything is yielded; the first may be empty.
        """

    def put(self, page: Page) -> None:
        """Let all who look have a page."""
        if not self.guests:
            return
        self._pages.append(page)
        self.bytes += page.size
        if page.id is not None:
            self.places.setdefault(page.id, self.next)
        self.round.shelf.put(self, page.size)
        while self.bytes > MOST_BYTES and self.can_drop:
            self.drop()
        self._told_at = time.monotonic()
        for guest in self.guests:
            guest.wake()

    @property
    def can_drop(self) -> bool:
        """Whether a page is kept beside the newest, which nobody may have had yet."""
        return len(self._pages) > 1

    def drop(self) -> None:
        """Keep the oldest page no longer."""
        size = self._pages.popleft().size
        self.bytes -= size
        self.first += 1
        self.places = {id: place for id, place in self.places.items() if place >= self.first}
        self.round.shelf.drop(size)

    def end(self, page: Page) -> None:
        """Let all who look have the last page."""
        self.is_over = True
        self.put(page)

    def take(self, guest: Guest) -> bytes:
        """Return a piece of what is new for a guest; when there will be no more, let him leave."""
        if guest.place < self.first:
            guest.dismiss(LAGGING)
            return b""
        if guest.place == self.next:
            if self.is_over:
                guest.leave()
            return b""
        fresh, size = [], 0
        for page in islice(self._pages, guest.place - self.first, None):
            data = page.data if guest.fit is None else guest.fit(page)
            if size and size + len(data) > AT_ONCE:
                break
            fresh.append(data)
            size += len(data)
            guest.place += 1
        return b"".join(fresh)
