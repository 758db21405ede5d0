"""Datasets where a query can read them: files of a folder as they are, all others as copies that go with the query."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq

from weft.catalog import dataset_rows
from weft.core.query_errors import QueryLimitReached
from weft.data.own_thread import in_own_thread
from weft.data.rows import Listed, grouped, page_size, to_batch
from weft.data.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.catalog.dataset_reading import DatasetState, File
    from weft.core.settings import Settings
    from weft.db.database import Database

_AT_ONCE = 8


@dataclass(slots=True)
class Copies:
    """What one query copies, of all datasets that it names together."""

    most: int
    bytes: int = 0

    def add(self, files: Sequence[File]) -> None:
        """Count what is about to be copied; raises `QueryLimitReached` for more than one query may have."""
        self.bytes += sum(file.bytes for file in files)
        if self.bytes > self.most:
            raise QueryLimitReached("fetch", self.most)


class Lent(NamedTuple):
    """Paths of files that a query may read; those of others must be ``within`` some folders when it opens them."""

    paths: tuple[str, ...]
    within: tuple[str, ...] | None = None


@asynccontextmanager
async def local_files(
    settings: Settings, root: str, state: DatasetState, files: Sequence[File], copies: Copies
) -> AsyncIterator[Lent]:
    """Lend the files of a state; copies are removed in the end."""
    storage, location = await in_own_thread(
        Storage.of, root, state.location, is_outside=state.is_outside, allowed=settings.data_outside
    )
    if not storage.is_local:
        copies.add(files)
    async with lent_files(storage, location, [file.path for file in files]) as lent:
        yield lent


@asynccontextmanager
async def lent_files(storage: Storage, location: str, names: Sequence[str]) -> AsyncIterator[Lent]:
    """Lend files beneath a location; of those in a bucket copies, which are removed in the end."""
    if storage.is_local:
        await asyncio.to_thread(storage.require_allowed, location, names)
        yield Lent(tuple(storage.path(location, name) for name in names), storage.within)
        return
    turns = asyncio.Semaphore(_AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="weft-query-") as folder:

        async def fetch(name: str) -> str:
            async with turns:
                return await in_own_thread(storage.fetch, location, name, Path(folder, name))

        yield Lent(tuple(await asyncio.gather(*(fetch(name) for name in names))))


@asynccontextmanager
async def copied_rows(
    copies: Copies, database: Database, org_id: int, state: DatasetState, schema: pa.Schema,
    files: Sequence[File], most: int | None = None,
) -> AsyncIterator[Lent]:  # fmt: skip
    """Lend a file with the rows of a state that are kept in the database, or as many of them as are wanted."""
    if most is None:
        copies.add(files)
    with tempfile.TemporaryDirectory(prefix="weft-query-") as folder:
        path = Path(folder, "rows.parquet")
        left = math.inf if most is None else most
        with pq.ParquetWriter(path, schema) as writer:
            for group in grouped(files):
                after, size, page = 0, page_size(group), None
                while left > 0 and (page is None or len(page) == size):
                    size = int(min(size, left))
                    page = await _page(database, org_id, state, group, schema.names, after, size)
                    if page:
                        after, left = page[-1][0], left - len(page)
                        batch = await asyncio.to_thread(to_batch, [texts for _, texts in page], schema)
                        await asyncio.to_thread(writer.write_batch, batch)
        yield Lent((str(path),))


async def _page(
    database: Database,
    org_id: int,
    state: DatasetState,
    group: Sequence[Listed],
    names: Sequence[str],
    after: int,
    most: int,
) -> list[tuple[int, list[str | None]]]:
    return await database.read(
        lambda conn: dataset_rows.read(
            conn, org_id, state.version_id, [file.path for file in group], names, after, most
        )
    )
