"""Messages of PostgreSQL's protocol, for what stands between a program and a server in tests."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

_SSL_REQUEST, _GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
PROTOCOL = 196608

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the kind and the body of the next message."""
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Return a message as it goes over the wire; the first of a connection has no kind."""
    return kind + struct.pack("!i", len(body) + 4) + body


async def read_first_message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, bytes]:
    """Refuse encryption and return the code and the rest of the first message: a start or the wish to cancel."""
    while True:
        length, code = struct.unpack("!ii", await reader.readexactly(8))
        if code not in (_SSL_REQUEST, _GSS_REQUEST):
            return code, await reader.readexactly(length - 8)
        writer.write(b"N")


async def open_stream(url: str) -> Stream:
    """Connect to the server of ``url``, whose socket is in a folder."""
    query = parse_qs(urlsplit(url).query)
    return await asyncio.open_unix_connection(f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")


def loopback_url(url: str, port: int) -> str:
    """Return the address of the same user and database behind a port of this machine."""
    parts = urlsplit(url)
    return f"postgresql://{parts.username or 'postgres'}@127.0.0.1:{port}{parts.path}?sslmode=disable"


class Listener:
    """Serves whoever connects to a port of this machine, each in a task of its own."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self._serve = serve
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """End every connection."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()
