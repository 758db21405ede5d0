"""What stands before a server in tests, and spoils what passes."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from weft.core.errors import DatabaseUnavailable
from weft.core.server_errors import KeyBusy, ServerFull
from weft.server.problems import of_error

RESET, PROXY, AMID, BUSY, FULL, AWAY, BRIEF = "reset", "proxy", "amid", "busy", "full", "away", "brief"
_TOLD = {BUSY: KeyBusy("k"), FULL: ServerFull(1), AWAY: DatabaseUnavailable("here", "it is away", "wait")}


class Gate:
    """Stands before a server, and spoils some of the requests that pass."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.removeprefix("http://").partition(":")
        self.faults: list[str] = []
        # It takes no larger bodies.
        self.most: float = math.inf
        # Only requests with this in their first line are spoilt.
        self.spoils = ""
        # How many it would not take.
        self.refused = 0
        # Is told of each body that passes.
        self.on_body: Callable[[bytes], None] = lambda body: None
        self.requests: list[str] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one request on, and its answer back; after it the connection is closed."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._pass(reader, writer)
        finally:
            self._serving.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def close(self) -> None:
        """End what is still being passed on, and return when nothing of it is left."""
        left = list(self._serving)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0)
        body = await reader.readexactly(length)
        self.requests.append(head.split(b" HTTP")[0].decode())
        fault = self.faults.pop(0) if self.faults and self.spoils in self.requests[-1] else None
        self.on_body(body)
        if length > self.most:
            self.refused += 1
            writer.write(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 15\r\n\r\n<html>no</html>")
        elif fault == PROXY:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\noops")
        elif fault == BRIEF:
            writer.write(b'HTTP/1.1 429 Too Many\r\ncontent-length: 20\r\n\r\n{"message": "later"}')
        elif fault in _TOLD:
            told = of_error(_TOLD[fault])
            head = b"HTTP/1.1 %d Refused\r\ncontent-length: %d\r\n\r\n" % (told.status_code, len(told.body))
            writer.write(head + bytes(told.body))
        else:
            there, back = await asyncio.open_connection(self._host, int(self._port))
            with contextlib.closing(back):
                back.write(head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1) + body)
                answer = await there.read(-1 if fault != AMID else 1000)
                while fault == AMID and b'{"progress"' not in answer:
                    answer += await there.read(1000)
            if fault == RESET:
                # It was done, and the answer is lost.
                writer.transport.abort()
                return
            writer.write(answer)
            if fault == AMID:
                # Whoever is cut off has had this.
                await writer.drain()
        await writer.drain()
