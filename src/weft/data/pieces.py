"""An answer that comes piece by piece, read whole or row by row."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any


class Pieces(ABC):
    """What somebody answers to a query, as bytes; nothing is asked for ahead."""

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the answer piece by piece."""

    async def read(self) -> bytes:
        """Return the whole answer; for small ones."""
        return b"".join([piece async for piece in self])

    async def records(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows of an answer in JSON, one by one; numbers are as exact as they were."""
        rest = b""
        async for piece in self:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield json.loads(line, parse_float=Decimal)
