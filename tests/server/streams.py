"""What tests of streams share: a reader of Server-Sent Events, as a browser's is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx


class Told(NamedTuple):
    """An event as a browser has it."""

    name: str
    data: Any
    last_id: str | None


class Stream:
    """The events of an open stream, one after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = _lines(answer)
        self.last_id: str | None = None

    async def next(self) -> Told | None:
        """Return the next event; None when the stream has ended."""
        name, data = "message", None
        async with asyncio.timeout(25):
            async for line in self._lines:
                if not line:
                    if data is not None:
                        return Told(name, json.loads(data), self.last_id)
                    name = "message"
                elif not line.startswith(":"):
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data":
                        data = value
                    elif field == "id":
                        self.last_id = value
        return None

    async def until(self, name: str) -> list[Told]:
        """Return all events up to the first of that name, or of that type, inclusive."""
        found: list[Told] = []
        while (told := await self.next()) is not None:
            found.append(told)
            if told.name == name or (isinstance(told.data, dict) and told.data.get("type") == name):
                break
        return found


async def _lines(answer: httpx.Response) -> AsyncIterator[str]:
    # Not `aiter_lines`: JSON may have signs in it that text counts as the end of a line.
    rest = b""
    async for piece in answer.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode()


@asynccontextmanager
async def streamed(http: httpx.AsyncClient, path: str, after: str | None = None) -> AsyncIterator[Stream]:
    """Open a stream; it must be granted."""
    headers = {} if after is None else {"last-event-id": after}
    async with http.stream("GET", f"/api/v1{path}", headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)
