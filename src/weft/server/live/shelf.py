"""How much all feeds of a process keep: so many bytes, and who keeps most makes room first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.server.live.feed import Feed

# All feeds of a process keep so many bytes, but for the newest page of each.
MOST_OF_ALL = 64 << 20


class Shelf:
    """The pages of all feeds, counted: a feed keeps little where there are many, and never for the others to pay."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most
        self._feeds: set[Feed[Any]] = set()

    def put(self, feed: Feed[Any], size: int) -> None:
        """Count a page that a feed keeps from now on, and let others go when there are too many."""
        self.bytes += size
        self._feeds.add(feed)
        while self.bytes > self._most:
            most = max((each for each in self._feeds if each.can_drop), key=lambda each: each.bytes, default=None)
            if most is None:
                break
            most.drop()

    def drop(self, size: int) -> None:
        """Count a page no more."""
        self.bytes -= size

    def clear(self, feed: Feed[Any]) -> None:
        """Count nothing more of a feed."""
        if feed in self._feeds:
            self._feeds.discard(feed)
            self.bytes -= feed.bytes
