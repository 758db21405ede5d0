"""The answer to a query that a server runs: it comes piece by piece."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from weft.core.checks import check_moment
from weft.core.query_errors import QueryCancelled

if TYPE_CHECKING:
    from weft.remote.transport import Transport


class RemoteAnswer:
    """What a server answers to a query; whoever stops reading ends it."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._is_cancelled = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the answer piece by piece."""
        async for piece in self._pieces:
            if self._is_cancelled:
                raise QueryCancelled
            yield piece

    async def read(self) -> bytes:
        """Return the whole answer; for small ones."""
        return b"".join([piece async for piece in self])

    async def records(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows of an answer in JSON, one by one."""
        rest = b""
        async for piece in self:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield json.loads(line, parse_float=Decimal)

    def cancel(self) -> None:
        """End the query at the next piece."""
        self._is_cancelled = True


@asynccontextmanager
async def answered(transport: Transport, sql: str, format: str, as_of: datetime | None) -> AsyncIterator[RemoteAnswer]:
    """Lend the answer of a server to a query."""
    asked = {"sql": sql, "format": format}
    if as_of is not None:
        asked["as_of"] = check_moment(as_of, "as_of").isoformat()
    async with transport.streamed("/query", asked) as pieces:
        yield RemoteAnswer(pieces)
