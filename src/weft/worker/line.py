"""The worker's own line to the database: one connection for the hot path, which also hears notifications."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from weft.core.errors import DatabaseUnavailable, InvalidSetting
from weft.db.database import CONNECTION_ERRORS, Database
from weft.db.pooler import undeclared_pooler
from weft.queue import work
from weft.queue.work import Claim, Completed, Lane

if TYPE_CHECKING:
    import asyncpg

logger = logging.getLogger("weft.worker")
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 1.0
_ECHO = "echo"


class Line:
    """A connection that is opened again for as long as it takes.

    Notifications arrive on the same connection: what comes during a statement is delivered when that ends.
    """

    def __init__(self, database: Database, worker_id: int, on_message: Callable[[str], None]) -> None:
        self._database = database
        self._worker_id = worker_id
        self._channel = f"weft_worker_{worker_id}"
        self._on_message = on_message
        self._conn: asyncpg.Connection[asyncpg.Record] | None = None
        self._ears: asyncpg.Connection[asyncpg.Record] | None = None
        self._has_echo = False

    @property
    def is_open(self) -> bool:
        """Whether the connection is thought to work."""
        if self._conn is None or self._conn.is_closed():
            return False
        return self._ears is None or not self._ears.is_closed()

    async def open(self) -> None:
        """Connect, trying again with growing pauses until it works; wakes the worker when it had been broken."""
        wait, told = _FIRST_WAIT, ""
        while True:
            await self.close()
            try:
                await self._connect()
                if told:
                    logger.warning("online again")
                return
            except (DatabaseUnavailable, *CONNECTION_ERRORS) as problem:
                self.drop()
                # Told once, and again when there is another cause: an outage may take hours.
                logger.log(logging.DEBUG if str(problem) == told else logging.WARNING, "offline: %s", problem)
                told = str(problem)
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(_LONGEST_WAIT, wait * 2)
            except InvalidSetting:
                self.drop()
                raise

    async def _connect(self) -> None:
        database = self._database
        # No statement waits for ever: the heart would beat on, and nobody would take the tasks of a worker that hangs.
        limit = max(5.0, database.settings.lease_time.total_seconds())
        self._conn = await database.connect(command_timeout=limit)
        if database.listen_url is None:
            return
        if database.through_pooler or database.listen_url != database.url:
            self._ears = await database.connect(database.listen_url, command_timeout=limit)
        ears = self._ears or self._conn
        await ears.add_listener(self._channel, self._hear)
        await self._require_echo(ears)
        ears.add_termination_listener(lambda ended: self._notice_end(ended, ears))

    def _notice_end(self, _ended: object, ears: asyncpg.Connection[asyncpg.Record]) -> None:
        """Wake the worker, so that it opens another; what we close ourselves is no news."""
        if ears in (self._conn, self._ears):
            self._on_message("work")

    async def _require_echo(self, ears: asyncpg.Connection[asyncpg.Record]) -> None:
        """Notify ourselves: a session that listens is told before its statement ends, so silence means a pooler."""
        self._has_echo = False
        await ears.execute(f"notify {self._channel}, '{_ECHO}'")
        if not self._has_echo:
            raise undeclared_pooler("no notification arrives", on_listen_url=ears is self._ears)

    def _hear(self, _conn: Any, _pid: int, _channel: str, payload: object) -> None:
        if payload == _ECHO:
            self._has_echo = True
        else:
            self._on_message(str(payload))

    def statement(self) -> AbstractAsyncContextManager[asyncpg.Connection[asyncpg.Record]]:
        """Lend the connection; behind a transaction pooler inside a transaction."""
        assert self._conn is not None
        return self._database.one_session(self._conn)

    async def finish_and_claim(
        self, completed: Sequence[Completed], lanes: Sequence[Lane], wanted: int, *, from_head: bool
    ) -> tuple[list[Claim], list[int]]:
        """Complete attempts and claim up to ``wanted`` tasks in one round trip; return the claims and what was lost."""
        limit = max(5.0, self._database.settings.lease_time.total_seconds())
        async with self.statement() as conn:
            claims, lost = await work.finish_and_claim(
                conn, self._worker_id, completed, lanes, wanted, from_head=from_head, timeout=limit
            )
        if any(claim.params is None for claim in claims):
            async with self.statement() as conn:
                claims = await work.with_params(conn, claims)
        return claims, lost

    async def held(self) -> list[Claim]:
        """Return what the worker holds by the database's account."""
        async with self.statement() as conn:
            return await work.with_params(conn, await work.held_by(conn, self._worker_id))

    async def finished(self, claims: Sequence[Claim]) -> set[int]:
        """Return those of the tasks whose attempts have completed inside transactions of their handlers."""
        async with self.statement() as conn:
            return await work.finished_by(conn, self._worker_id, claims)

    def drop(self) -> None:
        """Give the connection up at once, without a word to the server."""
        for conn in (self._conn, self._ears):
            if conn is not None:
                conn.terminate()
        self._conn = self._ears = None

    async def close(self) -> None:
        """Close the connection."""
        conns, self._conn, self._ears = (self._conn, self._ears), None, None
        for conn in conns:
            if conn is not None:
                with contextlib.suppress(Exception):
                    await conn.close(timeout=1)
