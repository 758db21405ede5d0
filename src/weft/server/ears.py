"""Hears the notifications for all workers that a server speaks for, on one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from weft.server.live.listener import Listener

if TYPE_CHECKING:
    from weft.db.database import Database

ANEW = "anew"
# A worker waits so long until it is listened for: it is told ``anew`` when that takes longer.
_PATIENCE = 1.0


class Ears:
    """Tells workers what is said to them, and ``anew`` when something may have been said that nobody heard.

    The connection is opened for the first worker. Without a way to listen, as behind a transaction pooler, nothing is
    heard: whoever waits looks now and then anyway. Nobody waits long for a connection that is dead in the network.
    """

    def __init__(self, database: Database) -> None:
        self._can_hear = database.listen_url is not None
        self._hearers: dict[str, Callable[[str], None]] = {}
        self._listener = Listener(database, self._hearers, self._tell_anew)
        self._awaited: dict[str, asyncio.Event] = {}
        self._is_late = False

    async def follow(self, worker_id: int, on_message: Callable[[str], None]) -> None:
        """Tell ``on_message`` what is told to a worker from now on; it is told ``anew`` when it begins."""
        if not self._can_hear:
            return
        channel = _channel(worker_id)
        self._hearers[channel] = on_message
        await self._listener.start()
        self._listener.kick()
        if self._is_late or self._listener.hears(channel):
            return
        heard = self._awaited[channel] = asyncio.Event()
        try:
            async with asyncio.timeout(_PATIENCE):
                await heard.wait()
        except TimeoutError:
            # Nor does the next one wait.
            self._is_late = True
        finally:
            self._awaited.pop(channel, None)

    def leave(self, worker_id: int) -> None:
        """Hear nothing more for a worker."""
        if self._hearers.pop(_channel(worker_id), None) is not None:
            self._listener.kick()

    async def close(self) -> None:
        """Hear nothing more."""
        self._can_hear = False
        self._hearers.clear()
        await self._listener.stop()

    def _tell_anew(self, channels: Collection[str]) -> None:
        self._is_late = False
        for channel in channels:
            if (on_message := self._hearers.get(channel)) is not None:
                on_message(ANEW)
            if (heard := self._awaited.get(channel)) is not None:
                heard.set()


def _channel(worker_id: int) -> str:
    return f"weft_worker_{worker_id}"
