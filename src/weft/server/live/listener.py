"""The ears of a server process: one connection by which all of it hears what others do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.errors import DatabaseUnavailable
from weft.db.database import CONNECTION_ERRORS, SERVER
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.db.database import Database, type_Connection

_PATIENCE = 10.0


class Listener(Service):
    """Listens on channels, again when the connection breaks.

    ``missed`` is called when something may have been said that nobody heard. Where nothing can be listened to, behind
    a pooler without a direct way, it is called now and then.
    """

    name = "listener"
    interval = 15.0

    def __init__(
        self, database: Database, channels: Mapping[str, Callable[[str], None]], missed: Callable[[], None]
    ) -> None:
        super().__init__()
        self._database = database
        self._channels = channels
        self._missed = missed
        self._conn: type_Connection | None = None

    async def run_once(self) -> int:
        """Connect unless it is connected, and find out whether anybody is there."""
        url = self._database.listen_url
        if url is None:
            self._missed()
            return 0
        try:
            if self._conn is None or self._conn.is_closed():
                self._conn = await self._database.connect(url, command_timeout=_PATIENCE)
                self._conn.add_termination_listener(lambda _: self.kick())
                for channel in self._channels:
                    await self._conn.add_listener(channel, self._hear)
                self._missed()
            else:
                await self._conn.execute(SERVER.ping)
        except (DatabaseUnavailable, asyncpg.PostgresError, TimeoutError, *CONNECTION_ERRORS):
            self._drop()
            raise
        return 0

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
        self._channels[channel](str(payload))
