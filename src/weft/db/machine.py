"""Leases a machine number from the database, so that no two processes make the same id."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg

from weft.core.errors import IdsExhausted, WeftError
from weft.core.ids import MACHINES, IdMaker
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import Database, type_Connection

SQL = Statements("weft.db", "sql/machine.sql")
LEASE = timedelta(minutes=10)
# Ids may run ahead of the clock within a lease, so a process stops using it well before it ends.
USABLE = timedelta(minutes=9)


class IdSource:
    """Makes ids for one process, leasing a machine number when the first is asked for."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._maker: IdMaker | None = None
        self._leasing = asyncio.Lock()
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    async def take(self, count: int) -> list[int]:
        """Return ``count`` new ids."""
        if self._maker is None or self._maker.has_lapsed:
            async with self._leasing:
                # Whoever waited finds that it was done.
                if self._maker is None or self._maker.has_lapsed:
                    async with self._database.transaction() as conn:
                        self._maker = await self._lease(conn)
        return self._maker.take(count)

    async def _lease(self, conn: type_Connection) -> IdMaker:
        # A lapsed number is not renewed but given up: another process may have it by now.
        row = await conn.fetchrow(SQL.lease, self._holder, LEASE)
        if row is None:
            raise IdsExhausted(MACHINES - 1)
        return IdMaker(row["number"], row["now"], USABLE)

    async def close(self) -> None:
        """Give the number back; when that cannot be, its lease lapses."""
        if self._maker is not None:
            maker, self._maker = self._maker, None
            with contextlib.suppress(WeftError, asyncpg.PostgresError, TimeoutError):
                async with self._database.transaction() as conn:
                    await conn.execute(SQL.release, maker.machine, self._holder)
