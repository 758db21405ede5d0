"""Files of datasets where a query can read them: as they are in a folder, and as copies when they are in a bucket."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from weft.data.storage import Storage

_AT_ONCE = 8


@asynccontextmanager
async def local_files(root: str, location: str, names: Sequence[str]) -> AsyncIterator[tuple[str, ...]]:
    """Lend the paths of files of a version; copies are removed in the end."""
    if not root.startswith("s3://"):
        yield tuple(f"{root}/{location}{name}" for name in names)
        return
    storage, turns = Storage.at(root), asyncio.Semaphore(_AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="weft-query-") as folder:

        async def fetch(name: str) -> str:
            async with turns:
                return await asyncio.to_thread(storage.fetch, location, name, Path(folder, name))

        yield tuple(await asyncio.gather(*(fetch(name) for name in names)))
