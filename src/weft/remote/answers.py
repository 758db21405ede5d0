"""The answer to a query that a server runs: it comes piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from weft.core.checks import check_moment
from weft.core.query_errors import QueryCancelled
from weft.data.pieces import Pieces

if TYPE_CHECKING:
    from weft.remote.transport import Transport


class RemoteAnswer(Pieces):
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
