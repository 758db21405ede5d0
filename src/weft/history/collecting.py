"""The removal of what nobody needs any more: snapshots that can be made again, and blobs that nothing refers to."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from weft.core.errors import InvalidInput
from weft.db.blobs import BlobStore
from weft.db.statements import Statements
from weft.history.model import Collected
from weft.queue.blobs import Collector

if TYPE_CHECKING:
    from weft.db.database import Database, type_Connection

SQL = Statements("weft.history", "sql/upkeep.sql")
# A blob is put before what refers to it is committed: nobody may take so long for that.
SHORTEST_GRACE = timedelta(hours=1)


@dataclass(slots=True)
class _Count:
    kinds: dict[str, int] = field(default_factory=dict)

    async def remove(self, conn: type_Connection, org_id: int, grace: timedelta) -> bool:
        """Remove one batch of artifacts; return whether there was any."""
        rows = await conn.fetch(SQL.remove_unused, org_id, grace)
        for row in rows:
            self.kinds[row["kind"]] = self.kinds.get(row["kind"], 0) + 1
        return bool(rows)

    def collected(self, blobs: int, size: int, *, is_dry_run: bool) -> Collected:
        return Collected(self.kinds.get("snapshot", 0), self.kinds.get("patch", 0), blobs, size, is_dry_run)


async def collect(
    database: Database, org_id: int, store: BlobStore, grace: timedelta, *, dry_run: bool = False
) -> Collected:
    """Remove what was made longer ago than ``grace`` and is used by nobody; with ``dry_run`` only tell what that is."""
    if grace < SHORTEST_GRACE:
        raise InvalidInput("grace", "must be one hour at least: what is being written now has nobody who uses it yet")
    if dry_run:
        return await _tried(database, org_id, grace)
    count = _Count()
    while await database.run_alone(lambda conn: count.remove(conn, org_id, grace)):
        pass
    unused = await database.read(lambda conn: conn.fetchrow(SQL.unused_blobs, grace))
    collector = Collector(database, store, grace)
    while await collector.run_once() or collector.has_more:
        pass
    left = await database.read(lambda conn: conn.fetchrow(SQL.unused_blobs, grace))
    assert unused is not None
    assert left is not None
    return count.collected(unused["blobs"] - left["blobs"], unused["bytes"] - left["bytes"], is_dry_run=False)


async def _tried(database: Database, org_id: int, grace: timedelta) -> Collected:
    """Remove everything in a transaction that is taken back: nothing else tells as exactly what would be removed."""
    count = _Count()
    async with database.acquire() as conn:
        transaction = conn.transaction()
        await transaction.start()
        try:
            while await count.remove(conn, org_id, grace):
                pass
            unused = await conn.fetchrow(SQL.unused_blobs, grace)
        finally:
            await transaction.rollback()
    assert unused is not None
    return count.collected(unused["blobs"], unused["bytes"], is_dry_run=True)
