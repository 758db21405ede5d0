"""The log of a task, read piece by piece by as many as like to."""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import TYPE_CHECKING, BinaryIO

from weft.worker.log_parts import pieces
from weft.worker.logs import local_log, local_size

if TYPE_CHECKING:
    from weft.sdk.client import Client

# A character has so many bytes at most.
_CHARACTER = 4


class LogText:
    """Where the text of a log is: in the folder of this machine, or in a file made once of what was copied.

    ``copied`` is how many bytes of it are known to be in the blob storage.
    """

    def __init__(self, client: Client, task_id: int) -> None:
        self._client = client
        self._task_id = task_id
        self.copied = 0
        self._file: BinaryIO | None = None
        self._made_of: tuple[int, int | None] | None = None
        self._turn = asyncio.Lock()

    async def read(self, offset: int, most: int) -> bytes:
        """Return up to so many bytes from an offset on."""
        here = await local_size(self._client.settings, self._task_id)
        if here is not None and here >= self.copied:
            return await local_log(self._client.settings, self._task_id, offset, most) or b""
        async with self._turn:
            file = await self._put_together(here)
            return await asyncio.to_thread(os.pread, file.fileno(), most, offset)

    async def end(self) -> int:
        """Return how many bytes there are, up to the last whole character."""
        size = await local_size(self._client.settings, self._task_id)
        if size is None or size < self.copied:
            async with self._turn:
                size = os.fstat((await self._put_together(size)).fileno()).st_size
        start = max(0, size - _CHARACTER)
        tail = await self.read(start, size - start)
        return start + sum(len(piece) for piece in pieces(tail, _CHARACTER, is_all=False))

    async def _put_together(self, here: int | None) -> BinaryIO:
        """Return a file with all attempts, one after the other; made again when more of them was copied."""
        if self._file is None or self._made_of != (self.copied, here):
            made_of = self.copied, here
            text = await self._client.read_log(self._task_id) or b""
            self.close()
            self._file, self._made_of = await asyncio.to_thread(_filed, text), made_of
        return self._file

    def close(self) -> None:
        """Keep no file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _filed(text: bytes) -> BinaryIO:
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by whoever it is made for
    try:
        file.write(text)
    except BaseException:
        file.close()
        raise
    return file
