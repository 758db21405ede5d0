"""What is past of datasets and live DAGs, removed at once instead of by and by, or only looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.data.collecting import GRACE, DatasetCollector
from weft.data.collecting import SQL as DATASETS
from weft.live.acting import SQL
from weft.live.collecting import DagCollector

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from weft.db.database import Database, type_Connection


@dataclass(frozen=True, slots=True)
class CollectedData:
    """What nobody may see any more: ``versions`` of datasets as they were called, ``datasets`` that were deleted.

    ``files`` and ``bytes`` are those of these versions, and of states that versions had before; ``writes`` came to
    nothing; ``dags`` counts live DAGs of which versions and jobs are removed.
    """

    versions: tuple[str, ...]
    datasets: int
    files: int
    bytes: int
    writes: int
    dags: int


NOTHING = CollectedData((), 0, 0, 0, 0, 0)


async def look(database: Database, org_id: int, retention: timedelta) -> CollectedData:
    """Return what there is to remove of an org: it is closed as for being removed, and that is taken back."""
    return await database.run(lambda conn: _look(conn, org_id, retention))


async def _look(conn: type_Connection, org_id: int, retention: timedelta) -> CollectedData:
    # A part of the transaction alone: that is what can be taken back while all of it is run again after a deadlock.
    closing = conn.transaction()
    await closing.start()
    await conn.execute(DATASETS.keep_datasets, org_id)
    # Before the DAGs: whoever goes by states alone locks all versions of them in one order.
    await conn.execute(DATASETS.close_states, retention, org_id)
    dags = await conn.fetch(SQL.collectable, retention, None, org_id)
    for row in dags:
        await conn.fetchval(SQL.collect, row["id"], retention)
    for statement in (DATASETS.close_versions, DATASETS.close_deleted):
        await conn.execute(statement, retention, org_id)
    writes = await conn.fetch(DATASETS.abandoned, GRACE, None, org_id)
    past = await conn.fetchrow(DATASETS.past, org_id, retention)
    await closing.rollback()
    assert past is not None
    return CollectedData(
        tuple(past["versions"]), past["datasets"], past["files"], past["bytes"], len(writes), len(dags)
    )


async def collect(
    database: Database, org_id: int, retention: timedelta, on_progress: Callable[[int], None] | None = None
) -> CollectedData:
    """Remove what is past of an org, and return what that was; others may collect at the same time.

    ``on_progress`` is called with how much is gone so far.
    """
    found = await look(database, org_id, retention)
    gone = 0
    for each in (
        DagCollector(database, retention, org_id),
        DatasetCollector(database, database.settings, retention=retention, org_id=org_id),
    ):
        while done := await each.run_once():
            gone += done
            if on_progress is not None:
                on_progress(gone)
    return found
