"""Lends connections to Weft's database to handlers, apart from those that the worker itself needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from weft.db.database import Database

if TYPE_CHECKING:
    from weft.db.database import type_Connection


class ConnectionPool:
    """Connections to Weft's database for handlers, apart from those that the worker itself needs; made when used."""

    def __init__(self, database: Database) -> None:
        self._url = database.url
        self._settings = database.settings
        self._own: Database | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[type_Connection]:
        """Lend a connection of asyncpg."""
        if self._own is None:
            self._own = Database(self._url, self._settings)
        async with self._own.acquire() as conn:
            yield conn

    async def close(self) -> None:
        """End all connections."""
        if self._own is not None:
            own, self._own = self._own, None
            await own.close()
