"""Large values as they come and go: piece by piece by way of a file, never whole in memory."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

_PIECE = 1 << 18


class FileAnswer(StreamingResponse):
    """Answers with what a file has, and closes it; how long it is stands before it, so that a part is no whole."""

    def __init__(self, file: BinaryIO, media_type: str) -> None:
        self._file = file
        size = os.fstat(file.fileno()).st_size - file.tell()
        super().__init__(_read(file), media_type=media_type, headers={"content-length": str(size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; whoever goes before the end is not waited for."""
        with self._file:
            await super().__call__(scope, receive, send)


async def _read(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


@asynccontextmanager
async def received(request: Request) -> AsyncIterator[BinaryIO]:
    """Lend a file with the body of a request; a small one is not written to the disk."""
    with tempfile.SpooledTemporaryFile(max_size=_PIECE) as file:
        async for piece in request.stream():
            await asyncio.to_thread(file.write, piece)
        file.seek(0)
        yield file  # type: ignore[misc]
