"""The removal of what nobody needs any more: snapshots that can be made again, and blobs that nothing refers to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg

from weft.core.errors import InvalidInput
from weft.db.blobs import BlobStore
from weft.db.statements import Statements
from weft.history.model import Collected
from weft.queue.blobs import Collector

if TYPE_CHECKING:
    from weft.db.database import Database

SQL = Statements("weft.history", "sql/upkeep.sql")
# A blob is put before what refers to it is committed: nobody may take so long for that.
SHORTEST_GRACE = timedelta(hours=1)


_BATCH = 500
# So often in a row what is to be removed is looked for anew, because somebody has taken some of it into use.
_TRIES = 10


async def collect(
    database: Database, org_id: int, store: BlobStore, grace: timedelta, *, dry_run: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Collected:  # fmt: skip
    """Remove what was made longer ago than ``grace`` and is used by nobody; with ``dry_run`` only tell what that is.

    ``on_progress`` is called with how many things are gone, after each batch.
    """
    if grace < SHORTEST_GRACE:
        raise InvalidInput("grace", "must be one hour at least: what is being written now has nobody who uses it yet")
    if dry_run:
        found = await _unused(database, org_id, grace)
        return Collected(*_kinds(found.values()), *await _unused_blobs(database, grace, list(found)), is_dry_run=True)
    tell = on_progress or (lambda _: None)
    removed = await _remove(database, org_id, grace, tell)
    blobs, size = await _unused_blobs(database, grace)
    collector = Collector(database, store, grace)
    gone = len(removed)
    while (count := await collector.run_once()) or collector.has_more:
        gone += count
        tell(gone)
    blobs_left, size_left = await _unused_blobs(database, grace)
    return Collected(*_kinds(removed), blobs - blobs_left, size - size_left)


async def _remove(database: Database, org_id: int, grace: timedelta, tell: Callable[[int], None]) -> list[str]:
    """Remove all artifacts that nobody uses; return their kinds."""
    removed: list[str] = []
    for _ in range(_TRIES):
        found = list(await _unused(database, org_id, grace))
        try:
            # What was made last comes first: nothing is removed before all that was made of it.
            for place in range(0, len(found), _BATCH):
                batch = found[place : place + _BATCH]
                rows = await database.run_alone(lambda conn, ids=batch: conn.fetch(SQL.remove_unused, org_id, ids))  # type: ignore[misc]
                removed += [row["kind"] for row in rows]
                tell(len(removed))
        except asyncpg.ForeignKeyViolationError:
            continue
        break
    return removed


async def _unused(database: Database, org_id: int, grace: timedelta) -> dict[int, str]:
    """Return the artifacts that nobody uses, with their kinds; those that are made of others before these."""
    rows = await database.read(lambda conn: conn.fetch(SQL.unused, org_id, grace))
    return {row["id"]: row["kind"] for row in rows}


async def _unused_blobs(database: Database, grace: timedelta, without: Sequence[int] = ()) -> tuple[int, int]:
    """Return how many blobs nobody uses, and their bytes, as if the artifacts ``without`` were gone."""
    row = await database.read(lambda conn: conn.fetchrow(SQL.unused_blobs, grace, list(without)))
    assert row is not None
    return row["blobs"], row["bytes"]


def _kinds(found: Iterable[str]) -> tuple[int, int]:
    count = Counter(found)
    return count["snapshot"], count["patch"]
