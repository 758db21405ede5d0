"""Removes versions of live DAGs that nobody goes back to any more, and what their jobs have remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.live.acting import SQL
from weft.queue.service import Service

if TYPE_CHECKING:
    from datetime import timedelta

    from weft.db.database import Database

_AT_ONCE = 100


class DagCollector(Service):
    """Removes old versions, then jobs that no version has; their datasets are collected when nothing points to them.

    Those of all orgs, or of one.
    """

    name = "dag-collector"
    interval = 3600.0

    def __init__(self, database: Database, retention: timedelta, org_id: int | None = None) -> None:
        super().__init__()
        self._database = database
        self._retention = retention
        self._org_id = org_id

    async def run_once(self) -> int:
        """Remove what there is of some DAGs; return how many versions and jobs."""
        found = await self._database.read(
            lambda conn: conn.fetch(SQL.collectable, self._retention, _AT_ONCE, self._org_id)
        )
        gone = 0
        for row in found:
            gone += await self._database.run(
                lambda conn, id=row["id"]: conn.fetchval(SQL.collect, id, self._retention)  # type: ignore[misc]
            )
        return gone
