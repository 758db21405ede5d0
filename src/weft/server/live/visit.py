"""The way of a guest through a feed: what he has missed, then what comes, then a last word."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.server.live.feed import Feed
    from weft.server.live.guest import Guest
# How soon browsers come again: said at once, so that whatever is between passes something on.
COME_AGAIN = b"retry: 1000\n\n"


class Visit:
    """One guest at one feed; ``first`` is what he is told at once."""

    def __init__(
        self, feed: Feed[Any], guest: Guest, welcome: AsyncGenerator[bytes], leave: Callable[[], None]
    ) -> None:
        self.first = b""
        self.guest = guest
        self._feed = feed
        self._welcome = welcome
        self._leave = leave

    async def tell(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Tell him all, until it is over or he is not welcome any more, or has gone."""
        feed, guest, data = self._feed, self.guest, COME_AGAIN + self.first
        # Not held for as long as he stays.
        self.first = b""
        while True:
            if data:
                # No timer for each: a look now and then finds those who take nothing.
                guest.waits_since = time.monotonic()
                await send(data)
                guest.waits_since = None
            if guest.is_gone or guest.parting is not None:
                break
            try:
                data = await anext(self._welcome)
            except StopAsyncIteration:
                break
        while not guest.is_gone and guest.parting is None:
            if data := feed.take(guest):
                guest.waits_since = time.monotonic()
                await send(data)
                guest.waits_since = None
            else:
                await guest.wait()
        if guest.parting is not None:
            await send(guest.parting)

    async def close(self) -> None:
        """Let him go."""
        await self._welcome.aclose()
        self._leave()
