"""The account of the blob storage: what was put there, which tasks refer to it, and what nobody needs any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, BinaryIO

from weft.core.json import BLOB_MARK
from weft.db.blobs import BlobStore, digest_of, digest_of_file, missing, open_blobs
from weft.db.statements import Statements
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.db.database import Database, type_Connection

logger = logging.getLogger("weft.service")
SQL = Statements("weft.queue", "sql/blob.sql")
# A blob is put before what refers to it is committed: so long may that take.
GRACE = timedelta(days=1)
BATCH = 100


class KeptBlobs:
    """A blob storage whose puts are noted in the database first, so that they can be collected one day."""

    def __init__(self, database: Database, store: BlobStore) -> None:
        self._database = database
        self._store = store
        self._is_marked = False

    @classmethod
    def of(cls, database: Database) -> KeptBlobs:
        """Return the storage that the database's settings name."""
        return cls(database, open_blobs(database.settings))

    async def put(self, data: bytes) -> str:
        """Keep ``data`` durably and return its digest."""
        digest = await asyncio.to_thread(digest_of, data)
        await self._note(digest, len(data))
        return await self._store.put(data)

    async def put_file(self, file: BinaryIO) -> tuple[str, int]:
        """Keep what a file has durably; return its digest and how many bytes it has."""
        digest, size = await asyncio.to_thread(digest_of_file, file), file.tell()
        await self._note(digest, size)
        await self._store.put_file(file, digest)
        return digest, size

    async def _note(self, digest: str, size: int) -> None:
        if not self._is_marked:
            await asyncio.to_thread(self._store.mark, await self._database.read(name_of))
            self._is_marked = True
        await self._database.run(lambda conn: conn.execute(SQL.put, digest, size))

    def put_now(self, data: bytes) -> str:
        """Like `put`, where nothing can be awaited; whoever writes the reference notes it."""
        return self._store.put_now(data)

    async def get(self, digest: str) -> bytes:
        """Return the bytes of ``digest``; raises `BlobUnavailable` when they are missing or damaged."""
        return await self._store.get(digest)

    async def open(self, digest: str) -> BinaryIO:
        """Return a file with the bytes of ``digest``; raises what `get` does."""
        return await self._store.open(digest)


class OwnBlobs:
    """The storage as one org may read it: whatever digest it is asked for, only what something of the org refers to.

    Values name blobs, and nobody outside may write such a name; this is the second wall, should one come in.
    """

    def __init__(self, kept: KeptBlobs, database: Database, org_id: int) -> None:
        self._kept = kept
        self._database = database
        self._org_id = org_id

    async def put(self, data: bytes) -> str:
        """Keep ``data`` durably and return its digest."""
        return await self._kept.put(data)

    def put_now(self, data: bytes) -> str:
        """Like `put`, where nothing can be awaited."""
        return self._kept.put_now(data)

    async def get(self, digest: str) -> bytes:
        """Return the bytes of ``digest``; raises `BlobUnavailable`, also when nothing of the org refers to it."""
        await self._require_use(digest)
        return await self._kept.get(digest)

    async def open(self, digest: str) -> BinaryIO:
        """Return a file with the bytes of ``digest``; raises what `get` does."""
        await self._require_use(digest)
        return await self._kept.open(digest)

    async def _require_use(self, digest: str) -> None:
        if not await self._database.read(lambda conn: conn.fetchval(SQL.is_used_by, self._org_id, digest)):
            raise missing(digest, f"org {self._org_id}'s part of it")


async def name_of(conn: type_Connection) -> str:
    """Return a name that tells this database from others that use the same storage."""
    return str(await conn.fetchval(SQL.database))


async def keep(conn: type_Connection, values: Iterable[tuple[int, str]]) -> None:
    """Note which of the tasks' values refer to blobs, before anybody can see that they do."""
    found = [(id, text) for id, text in values if text.startswith(BLOB_MARK)]
    if found:
        await conn.execute(SQL.keep, [id for id, _ in found], [text for _, text in found])


async def forget_references(conn: type_Connection, after: int) -> tuple[int, int | None]:
    """Forget a page of references of tasks that are gone; return how many, and where the next page begins."""
    row = await conn.fetchrow(SQL.forget_references, after)
    assert row is not None
    return row["gone"], row["last"] if row["seen"] == 1000 else None


async def has_unused(conn: type_Connection, grace: timedelta = GRACE) -> bool:
    """Whether there is anything to collect."""
    return await conn.fetchval(SQL.unused, grace) is not None


async def collect(conn: type_Connection, store: BlobStore, grace: timedelta = GRACE) -> int:
    """Remove at most `BATCH` blobs that nothing refers to, in a transaction; return how many there were.

    The rows stay locked until the blobs are gone: whoever puts one of them again waits, and writes it anew. Each row is
    forgotten at once: a server gives up a transaction that says nothing for long, and a bucket may be slow.
    """
    found = [row[0] for row in await conn.fetch(SQL.unused, grace)]
    unused = [row[0] for row in await conn.fetch(SQL.still_unused, found)] if found else []
    gone = 0
    for digest in unused:
        if await asyncio.to_thread(store.remove, digest, grace):
            await conn.execute(SQL.forget, digest)
            gone += 1
    return gone


class Collector(Service):
    """Removes blobs when the tasks and logs that referred to them are gone."""

    name = "collector"
    interval = 3600.0

    def __init__(self, database: Database, store: BlobStore, grace: timedelta = GRACE) -> None:
        super().__init__()
        self._database = database
        self._store = store
        self._grace = grace
        self._after = 0
        self._has_warned = False

    @property
    def has_more(self) -> bool:
        """Whether the last page of references was not the last there is."""
        return self._after > 0

    async def run_once(self) -> int:
        """Forget one page of references, and remove one batch of blobs; in the end sweep the storage."""
        gone, after = await self._database.run(lambda conn: forget_references(conn, self._after))
        self._after = after or 0
        if await self._database.read(lambda conn: has_unused(conn, self._grace)) and await self._is_ours_alone():
            gone += await self._database.run(lambda conn: collect(conn, self._store, self._grace))
        if not gone and not self.has_more:
            # All is read for that: once, when there is nothing else to do.
            gone = await asyncio.to_thread(self._store.sweep, self._grace)
        return gone

    async def _is_ours_alone(self) -> bool:
        """Say that this database uses the storage; what another one refers to in it, nobody here can know."""
        name = await self._database.read(name_of)
        await asyncio.to_thread(self._store.mark, name)
        others = await asyncio.to_thread(self._store.users) - {name}
        if others and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "no blob is removed: the storage is also used by %s. Give each database its own WEFT_BLOB_URL; "
                "if one is gone, remove its name under used-by there", ", ".join(sorted(others)),
            )  # fmt: skip
        return not others

    def pause_before_next(self, done: int) -> float:
        """Go on at once while there are further pages or full batches."""
        return 0.0 if self.has_more or done >= BATCH else super().pause_before_next(0)
