"""The ears of a server process: one connection by which all of it hears what others do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.errors import DatabaseUnavailable
from weft.db.database import CONNECTION_ERRORS, SERVER
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.db.database import Database, type_Connection


class Listener(Service):
    """Listens on channels, which may come and go, again when the connection breaks.

    ``missed`` is called with channels on which something may have been said that nobody heard. Where nothing can be
    listened to, behind a pooler without a direct way, it is called now and then.
    """

    name = "listener"
    interval = 15.0
    # So long the server may take to answer: a connection may be dead in the network without anybody saying so.
    patience = 10.0

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Callable[[str], None]],
        missed: Callable[[Collection[str]], None],
    ) -> None:
        super().__init__()
        self._database = database
        self._channels = channels
        self._missed = missed
        self._conn: type_Connection | None = None
        # The channels on which the connection listens.
        self._heard: set[str] = set()

    def hears(self, channel: str) -> bool:
        """Whether it listens on a channel now."""
        return channel in self._heard and self._conn is not None and not self._conn.is_closed()

    async def run_once(self) -> int:
        """Connect unless it is connected, listen where it is to, and find out whether anybody is there."""
        url = self._database.listen_url
        if url is None:
            self._missed(tuple(self._channels))
            return 0
        try:
            if self._conn is None or self._conn.is_closed():
                self._heard.clear()
                self._conn = await self._database.connect(url, command_timeout=self.patience)
                self._conn.add_termination_listener(lambda _: self.kick())
            else:
                await self._conn.execute(SERVER.ping)
            await self._listen(self._conn)
        except (DatabaseUnavailable, asyncpg.PostgresError, TimeoutError, *CONNECTION_ERRORS):
            self._drop()
            raise
        return 0

    async def _listen(self, conn: type_Connection) -> None:
        for channel in self._heard - self._channels.keys():
            await conn.remove_listener(channel, self._hear)
            self._heard.discard(channel)
        fresh = [channel for channel in self._channels if channel not in self._heard]
        for channel in fresh:
            await conn.add_listener(channel, self._hear)
            self._heard.add(channel)
        if fresh:
            self._missed(fresh)

    async def stop(self) -> None:
        """End the loop and the connection."""
        await super().stop()
        conn, self._conn = self._conn, None
        if conn is not None:
            with suppress(Exception):
                await conn.close(timeout=1)

    def _drop(self) -> None:
        if self._conn is not None:
            self._conn.terminate()
            self._conn = None

    def _hear(self, _conn: Any, _pid: int, channel: str, payload: object) -> None:
        hearer = self._channels.get(channel)
        if hearer is not None:
            hearer(str(payload))
