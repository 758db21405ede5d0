"""A stand-in for a transaction pooler: lends one of a few server sessions to a client for one transaction at a time.

It is as unkind as such poolers may be. Sessions go round, so a client's next transaction meets another one. Each is
lent after DISCARD ALL, so what a transaction prepared, set or listened to is gone. And like PgBouncer it refuses
settings that come with the login, unless it is told to ignore them.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from wire import (
    CANCEL_REQUEST,
    PROTOCOL,
    Listener,
    loopback_url,
    message,
    open_stream,
    read_first_message,
    read_message,
)

_ACCEPTED = {"user", "database", "client_encoding", "datestyle", "timezone", "application_name"}
_ENDS_BATCH = (b"Q", b"S", b"F")
_IN_BATCH = (b"P", b"B", b"D", b"E", b"C", b"H")
_IDLE = b"I"
PATIENCE = 60.0


@dataclass(eq=False)
class Session:
    """A session of the server, and what it said of itself at its start."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: bytes = b""
    key: bytes = b""

    @classmethod
    async def open(cls, url: str) -> Session:
        """Log in as the user of ``url``, whom the server trusts."""
        reader, writer = await open_stream(url)
        parts = urlsplit(url)
        words = ("user", parts.username or "postgres", "database", parts.path[1:])
        writer.write(message(b"", struct.pack("!i", PROTOCOL) + "\0".join([*words, "", ""]).encode()))
        session = cls(reader, writer)
        try:
            await session._begin()
        except BaseException:
            session.close()
            raise
        return session

    async def _begin(self) -> None:
        while True:
            kind, body = await read_message(self.reader)
            match kind:
                case b"S":
                    self.greeting += message(kind, body)
                case b"K":
                    self.key = body
                case b"Z":
                    return
                case b"E":
                    raise ConnectionError(body)

    async def forget(self) -> bool:
        """Discard whatever the last transaction has left; False when the server has ended the session meanwhile."""
        try:
            self.writer.write(message(b"Q", b"DISCARD ALL\0"))
            while (await read_message(self.reader))[0] != b"Z":
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.close()
            return False
        except BaseException:
            # Whoever would have borrowed it is gone.
            self.close()
            raise
        return True

    def close(self) -> None:
        self.writer.transport.abort()


@dataclass(eq=False)
class Client:
    """A client's connection, with the session that it has at the moment."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    session: Session | None = None
    unanswered: int = 0
    is_in_batch: bool = False
    answers: set[asyncio.Task[None]] = field(default_factory=set)


class Pooler:
    """Listens on the loopback address, on a thread of its own, and lends sessions of the server of ``url``."""

    def __init__(self, url: str, *, size: int, ignores_settings: bool) -> None:
        self._upstream = url
        self._size = size
        self._ignores_settings = ignores_settings
        self._idle: deque[Session] = deque()
        self._has_idle = asyncio.Condition()
        self._keys = itertools.count(1)
        self._clients: dict[bytes, Client] = {}
        self._listener = Listener(self._serve)
        self._statements: list[str] = []

    def saw(self, words: str) -> bool:
        """Whether a statement with these words in it has passed."""
        return any(words in text.lower() for text in self._statements)

    async def start(self) -> None:
        """Open the sessions and begin to listen."""
        self._idle.extend([await Session.open(self._upstream) for _ in range(self._size)])
        self._greeting = self._idle[0].greeting
        await self._listener.start()
        self.url = loopback_url(self._upstream, self._listener.port)

    async def stop(self) -> None:
        """End every connection."""
        await self._listener.stop()
        for session in self._idle:
            session.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        code, rest = await read_first_message(reader, writer)
        if code == CANCEL_REQUEST:
            await self._cancel(rest)
            return
        words = rest.decode().split("\0")
        unknown = {name.lower() for name in words[:-2:2]} - _ACCEPTED
        if unknown and not self._ignores_settings:
            refusal = f"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {min(unknown)}\0\0"
            writer.write(message(b"E", refusal.encode()))
            await writer.drain()
            return
        # Not a key of the server's: whoever asks to cancel must be led to the session that the client has then.
        key = struct.pack("!ii", next(self._keys), 0)
        client = self._clients[key] = Client(reader, writer)
        welcome = message(b"R", struct.pack("!i", 0)) + self._greeting
        writer.write(welcome + message(b"K", key) + message(b"Z", _IDLE))
        try:
            await self._carry_there(client)
        finally:
            del self._clients[key]
            await self._end(client)

    async def _borrow(self) -> Session:
        """Take the session that has been idle for longest: another one than before, unless all others are lent."""
        async with self._has_idle:
            await self._has_idle.wait_for(lambda: len(self._idle) > 0)
            session = self._idle.popleft()
        return session if await session.forget() else await Session.open(self._upstream)

    async def _give_back(self, session: Session) -> None:
        async with self._has_idle:
            self._idle.append(session)
            self._has_idle.notify()

    async def _carry_there(self, client: Client) -> None:
        while True:
            kind, body = await read_message(client.reader)
            if kind == b"X":
                return
            if client.session is None:
                client.session = await self._borrow()
                answers = asyncio.create_task(self._carry_back(client, client.session))
                client.answers.add(answers)
                answers.add_done_callback(client.answers.discard)
            self._note(client, kind, body)
            client.session.writer.write(message(kind, body))
            await client.session.writer.drain()

    def _note(self, client: Client, kind: bytes, body: bytes) -> None:
        if kind in _ENDS_BATCH:
            client.unanswered += 1
            client.is_in_batch = False
        elif kind in _IN_BATCH:
            client.is_in_batch = True
        if kind == b"Q":
            self._statements.append(body.partition(b"\0")[0].decode())
        elif kind == b"P":
            self._statements.append(body.split(b"\0")[1].decode())

    async def _carry_back(self, client: Client, session: Session) -> None:
        """Carry answers until the transaction has ended, then take the session back."""
        try:
            while True:
                kind, body = await read_message(session.reader)
                client.writer.write(message(kind, body))
                if kind == b"Z":
                    client.unanswered -= 1
                    if body == _IDLE and not client.unanswered and not client.is_in_batch:
                        break
        except (ConnectionError, asyncio.IncompleteReadError):
            # The session has ended, and the client's connection with it; whoever borrows it next gets a new one.
            client.writer.close()
        client.session = None
        await self._give_back(session)

    async def _end(self, client: Client) -> None:
        """Take the session back from a client that is gone; one in the middle of a transaction is ended."""
        if client.session is not None:
            client.session.close()
        await asyncio.gather(*client.answers, return_exceptions=True)

    async def _cancel(self, key: bytes) -> None:
        client = self._clients.get(key)
        if client is not None and client.session is not None:
            _, writer = await open_stream(self._upstream)
            writer.write(message(b"", struct.pack("!i", CANCEL_REQUEST) + client.session.key))
            try:
                await writer.drain()
            finally:
                writer.close()


@contextmanager
def pooler_to(url: str, *, size: int = 3, ignores_settings: bool = False) -> Iterator[Pooler]:
    """Lend a pooler to the server of ``url``; it has a thread of its own, so that a test may wait for a process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pooler")
    thread.start()
    pooler = Pooler(url, size=size, ignores_settings=ignores_settings)
    try:
        asyncio.run_coroutine_threadsafe(pooler.start(), loop).result(PATIENCE)
        try:
            yield pooler
        finally:
            asyncio.run_coroutine_threadsafe(pooler.stop(), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
