"""Removes versions of live DAGs that nobody goes back to any more, and what their jobs have remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.live.acting import SQL
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.db.database import Database

_AT_ONCE = 100


class DagCollector(Service):
    """Removes old versions, then jobs that no version has; their datasets are collected when nothing points to them."""

    name = "dag-collector"
    interval = 3600.0

    def __init__(self, database: Database, settings: Settings) -> None:
        super().__init__()
        self._database = database
        self._retention = settings.dataset_retention

    async def run_once(self) -> int:
        """Remove what there is of some DAGs; return how many versions and jobs."""
        found = await self._database.read(lambda conn: conn.fetch(SQL.collectable, self._retention, _AT_ONCE))
        gone = 0
        for row in found:
            gone += await self._database.run(
                lambda conn, id=row["id"]: conn.fetchval(SQL.collect, id, self._retention)  # type: ignore[misc]
            )
        return gone
