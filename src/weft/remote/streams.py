"""Follows a stream of a server: from where it was when the connection breaks, until it has ended."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple

import httpx
import orjson

from weft.core.server_errors import ServerUnavailable
from weft.remote.addresses import PREFIX, said_of
from weft.remote.transport import TRANSIENT, Transport, lines_of

# Three heartbeats that do not come: nobody is there any more.
_PATIENCE = httpx.Timeout(45.0, connect=10.0)
# A server that was there is waited for so long: it may be started anew.
_FIRST, _AGAIN = 3.0, 60.0
_SHORTEST, _LONGEST = 0.1, 2.0
_REMEMBERED = 10_000


class Message(NamedTuple):
    """An event of a stream; ``name`` is ``message`` for one without a name."""

    name: str
    data: Any
    id: str | None


async def messages(transport: Transport, path: str, after: str | None = None) -> AsyncGenerator[Message]:
    """Yield the events of a stream; after a break those that came after the last, some of them maybe again.

    Raises what the server refuses it with, and `ServerUnavailable` when it is away for long.
    """
    deadline, pause = time.monotonic() + _FIRST, _SHORTEST
    while True:
        try:
            async with transport.http.stream(
                "GET", PREFIX + path, headers=_headers(after), timeout=_PATIENCE
            ) as answer:
                if answer.status_code == httpx.codes.NO_CONTENT:
                    return
                if not answer.is_success:
                    await answer.aread()
                    if answer.status_code not in TRANSIENT or time.monotonic() > deadline:
                        raise transport.error_of(answer)
                else:
                    try:
                        async for message in _read(answer):
                            after, pause = message.id or after, _SHORTEST
                            if message.name == "closed":
                                break
                            yield message
                            if message.name == "end":
                                return
                    finally:
                        # However long nothing was told: up to now it was there.
                        deadline = time.monotonic() + _AGAIN
        except httpx.HTTPError as problem:
            if time.monotonic() > deadline:
                raise ServerUnavailable(transport.server, said_of(problem)) from problem
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(_LONGEST, 2 * pause)


def _headers(after: str | None) -> dict[str, str]:
    return {"accept": "text/event-stream"} | ({} if after is None else {"last-event-id": after})


async def _read(answer: httpx.Response) -> AsyncIterator[Message]:
    """Yield the events of one connection; what is cut off amid one is left out."""
    name, data, id = "message", b"", None
    async for line in lines_of(answer):
        field, _, value = line.partition(b": ")
        if not line and data:
            yield Message(name, orjson.loads(data), id)
        if not line:
            name, data = "message", b""
        elif field == b"event":
            name = value.decode()
        elif field == b"data":
            data = value
        elif field == b"id":
            id = value.decode()


class Once:
    """Tells of each event whether it was there before, as far back as it matters after a break."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()

    def is_new(self, id: str) -> bool:
        """Note an event; False when it was noted before."""
        if id in self._known:
            return False
        self._known[id] = None
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return True
