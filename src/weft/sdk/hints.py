"""Sends hints that there is work, after the commit and at most one per queue in a millisecond."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import asyncpg

from weft.core.errors import WeftError
from weft.db.database import CONNECTION_ERRORS
from weft.queue import queues

if TYPE_CHECKING:
    from weft.db.database import Database

logger = logging.getLogger("weft.client")
PAUSE = 0.001
# Those who are full look again when they have room, and whoever starts looks at once: nobody waits for these.
NOBODY_PAUSE = 0.02
QUIET = 0.01


class Hints:
    """The first hint goes at once; what comes within a millisecond, or later while nobody listens, goes with the next.

    A hint that is lost costs time, never work: workers look by themselves now and then.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._names: set[tuple[str, str]] = set()
        self.ids: set[int] = set()
        self._delayed = False
        self._sender: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self._ready_at = 0.0

    def is_quiet(self) -> bool:
        """Whether the last task was a while ago: then the hint may go with the commit, a round trip earlier.

        NOTIFY inside a commit takes a lock that all commits share, so in a flood hints go after it.
        """
        asked_at, self._asked_at = self._asked_at, time.monotonic()
        return self._asked_at - asked_at > QUIET

    def send(self, queue: str, org: str) -> None:
        """Tell a worker of the queue."""
        self._names.add((org, queue))
        self._start()

    def send_due(self) -> None:
        """Tell whoever stages that a task has a time."""
        self._delayed = True
        self._start()

    def send_ids(self, queue_ids: set[int]) -> None:
        """Tell a worker of each queue."""
        self.ids |= queue_ids
        self._start()

    def _start(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._names or self.ids or self._delayed:
            await asyncio.sleep(max(0.0, self._ready_at - time.monotonic()))
            told = 0
            names, ids, delayed = self._names, self.ids, self._delayed
            self._names, self.ids, self._delayed = set(), set(), False
            try:
                async with self._database.acquire() as conn:
                    told = await queues.hint_by_name(conn, names, ids, delayed)
            except (*CONNECTION_ERRORS, asyncpg.PostgresError, WeftError) as problem:
                logger.debug("a hint was lost: %s", problem)
            self._ready_at = time.monotonic() + (PAUSE if told or delayed else NOBODY_PAUSE)

    async def close(self) -> None:
        """Wait until the last hint is out."""
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)


class HeldHints(Hints):
    """Hints about work that is not committed yet; they are sent when it is."""

    def is_quiet(self) -> bool:
        """Say no: a hint goes after the commit."""
        return False

    def release(self, hints: Hints) -> None:
        """Send what was held."""
        for org, queue in self._names:
            hints.send(queue, org)
        if self.ids:
            hints.send_ids(self.ids)
        if self._delayed:
            hints.send_due()

    def _start(self) -> None:
        """Wait to be released."""
