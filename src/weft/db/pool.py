"""A pool of connections that costs nothing to borrow from.

asyncpg's own pool wraps each borrowing in three tasks and a reset of the session: 80 µs, a third of a commit. No
statement of ours changes a session, so there is nothing to reset, and a connection whose user was cancelled is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from weft.core.errors import InvalidInput

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

IDLE_SECONDS = 60.0
_PROBE_SECONDS = 1.0


class Pool:
    """At most ``size`` connections, opened when needed and closed when nobody needs them for a minute."""

    def __init__(self, connect: Callable[[], Awaitable[Conn]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[Conn] = set()
        self._opening = 0
        self._idle: list[Conn] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pruning: asyncio.TimerHandle | None = None
        self._fewest_idle = 0
        self._weeding: asyncio.Task[bool] | None = None
        self._is_closed = False

    @asynccontextmanager
    async def acquire(self, suits: Callable[[Conn], bool] | None = None) -> AsyncIterator[Conn]:
        """Lend a connection, of those that are idle one that suits if there is any; it comes back at the end."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise InvalidInput("client", "was opened in another event loop, which its connections belong to")
            self._loop = loop
        conn = await self._take(suits)
        try:
            yield conn
        except BaseException as problem:
            # The statement may still be under way: whoever came next would have to wait for its end.
            if isinstance(problem, TimeoutError) or not isinstance(problem, Exception):
                conn.terminate()
            raise
        finally:
            self._give_back(conn)

    async def _take(self, suits: Callable[[Conn], bool] | None) -> Conn:
        while True:
            while self._idle:
                best = next((n for n in reversed(range(len(self._idle))) if suits(self._idle[n])), -1) if suits else -1
                conn = self._idle.pop(best)
                self._fewest_idle = min(self._fewest_idle, len(self._idle))
                if not conn.is_closed():
                    return conn
                self._open.discard(conn)
            if len(self._open) + self._opening < self._size:
                return await self._new()
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                if waiting.done() and not waiting.cancelled():
                    self._wake_next()
                raise

    async def _new(self) -> Conn:
        self._opening += 1
        try:
            conn = await self._connect()
        except BaseException:
            self._opening -= 1
            self._wake_next()
            raise
        self._opening -= 1
        self._open.add(conn)
        return conn

    def _give_back(self, conn: Conn) -> None:
        if self._is_closed or conn.is_closed() or conn.is_in_transaction():
            if not conn.is_closed():
                conn.terminate()
            self._open.discard(conn)
        else:
            self._idle.append(conn)
            if self._pruning is None:
                self._fewest_idle = len(self._idle)
                self._pruning = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._prune)
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def _prune(self) -> None:
        """Close the connections that were idle all the time since the last look."""
        self._pruning = None
        unused, self._idle = self._idle[: self._fewest_idle], self._idle[self._fewest_idle :]
        for conn in unused:
            self._open.discard(conn)
            # A terminate message and the socket's end: the server needs no more to be told.
            conn.terminate()
        if self._idle:
            self._fewest_idle = len(self._idle)
            self._pruning = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._prune)

    def expire(self) -> None:
        """Close what is idle, because the server behind it is no longer the right one."""
        idle, self._idle = self._idle, []
        for conn in idle:
            self._open.discard(conn)
            conn.terminate()

    async def weed(self) -> bool:
        """Close what is idle and does not answer, and keep the rest; return whether there was any."""
        # All who ask meanwhile are told the same, and who is cancelled leaves nothing half done.
        if self._weeding is None or self._weeding.done():
            self._weeding = asyncio.get_running_loop().create_task(self._weed())
        return await asyncio.shield(self._weeding)

    async def _weed(self) -> bool:
        asked, self._idle = self._idle, []
        return not all(await asyncio.gather(*map(self._answers, asked)))

    async def _answers(self, conn: Conn) -> bool:
        try:
            await conn.execute("select", timeout=_PROBE_SECONDS)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            conn.terminate()
            return False
        finally:
            self._give_back(conn)
        return True

    async def close(self) -> None:
        """Close all connections; those in use are ended."""
        self._is_closed = True
        if self._pruning is not None:
            self._pruning.cancel()
        if self._weeding is not None:
            self._weeding.cancel()
        for conn in list(self._open):
            with contextlib.suppress(Exception):
                if conn in self._idle:
                    await conn.close(timeout=1)
                else:
                    conn.terminate()
        self._open.clear()
        self._idle.clear()
