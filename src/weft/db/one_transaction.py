"""A database as it is seen inside one transaction: all that is run on it lands together, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from weft.db.database import Database

if TYPE_CHECKING:
    from weft.db.database import type_Connection


class OneTransaction(Database):
    """Lends the one connection to everybody; what would be a transaction by itself is a part of the outer one."""

    def __init__(self, outer: Database, conn: type_Connection) -> None:
        vars(self).update(vars(outer))
        self._conn = conn

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[type_Connection]:
        """Lend the connection, in a part of the transaction that can fail without the rest."""
        async with self._conn.transaction():
            yield self._conn

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[type_Connection]:
        """Lend the connection, in a part of the transaction that can fail without the rest."""
        async with self.acquire() as conn:
            yield conn

    async def close(self) -> None:
        """Leave the connection to whoever lent it."""
