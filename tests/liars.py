"""A server that answers whatever it is told to, byte by byte, true or not."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

Answer = bytes | Callable[[str, bytes], bytes]


def answer(body: bytes, *headers: str, status: int = 200) -> bytes:
    """A whole answer with a body, and what else its head says."""
    head = "".join(f"{each}\r\n" for each in (f"content-length: {len(body)}", *headers))
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


def answer_json(value: Any) -> bytes:
    return answer(json.dumps(value).encode())


class Liar:
    """Answers each request with the next of ``answers``, and the last of them for ever; `asked` has what came."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, bytes]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Liar]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                headers: dict[str, str] = {}
                while (head := (await reader.readline()).decode().strip()) != "":
                    name, _, value = head.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                target = line.decode().split(" ")[1]
                self.asked.append((target, body))
                said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                writer.write(said(target, body) if callable(said) else said)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
