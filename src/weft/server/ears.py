"""Hears the notifications for all workers that a server speaks for, on one connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.core.errors import WeftError
from weft.db.database import CONNECTION_ERRORS

if TYPE_CHECKING:
    import asyncpg

    from weft.db.database import Database

logger = logging.getLogger("weft.server")
ANEW = "anew"
_PAUSE = 0.5


class Ears:
    """One connection that is opened for the first worker, and again when it breaks; all are told ``anew`` then.

    Without a way to listen, as behind a transaction pooler, nothing is heard: whoever waits looks now and then anyway.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hearers: dict[int, Callable[[str], None]] = {}
        self._conn: asyncpg.Connection[asyncpg.Record] | None = None
        self._turn = asyncio.Lock()
        self._mending: asyncio.Task[None] | None = None
        self._is_closed = False

    async def follow(self, worker_id: int, on_message: Callable[[str], None]) -> None:
        """Tell ``on_message`` what is told to a worker from now on."""
        self._hearers[worker_id] = on_message
        async with self._turn:
            conn = await self._connection()
            if conn is not None:
                await conn.add_listener(_channel(worker_id), self._hear)

    async def leave(self, worker_id: int) -> None:
        """Hear nothing more for a worker."""
        self._hearers.pop(worker_id, None)
        with contextlib.suppress(*CONNECTION_ERRORS):
            async with self._turn:
                if self._conn is not None and not self._conn.is_closed():
                    await self._conn.remove_listener(_channel(worker_id), self._hear)

    async def close(self) -> None:
        """Hear nothing more."""
        self._is_closed = True
        self._hearers.clear()
        if self._mending is not None:
            self._mending.cancel()
        if self._conn is not None:
            with contextlib.suppress(Exception):
                await self._conn.close(timeout=1)

    async def _connection(self) -> asyncpg.Connection[asyncpg.Record] | None:
        if self._database.listen_url is None:
            return None
        if self._conn is None or self._conn.is_closed():
            self._conn = await self._database.connect(self._database.listen_url)
            self._conn.add_termination_listener(self._notice_end)
            for worker_id in self._hearers:
                await self._conn.add_listener(_channel(worker_id), self._hear)
        return self._conn

    def _notice_end(self, _ended: object) -> None:
        if not self._is_closed and (self._mending is None or self._mending.done()):
            self._mending = asyncio.get_running_loop().create_task(self._mend())

    async def _mend(self) -> None:
        while not self._is_closed:
            try:
                async with self._turn:
                    await self._connection()
                break
            except (*CONNECTION_ERRORS, WeftError) as problem:
                logger.debug("hears nothing for workers: %s", problem)
                await asyncio.sleep(_PAUSE)
        for on_message in list(self._hearers.values()):
            on_message(ANEW)

    def _hear(self, _conn: Any, _pid: int, channel: str, payload: object) -> None:
        hearer = self._hearers.get(int(channel.rpartition("_")[2]))
        if hearer is not None:
            hearer(str(payload))


def _channel(worker_id: int) -> str:
    return f"weft_worker_{worker_id}"
