"""The service by which an orchestrator takes over the jobs of those that are gone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from weft.db.database import Database
from weft.queue import workers
from weft.queue.service import Service


class Adopter(Service):
    """Owns the jobs of orchestrators whose lease has lapsed or who have left."""

    name = "adopter"

    def __init__(self, database: Database, worker_id: Callable[[], int], interval: timedelta) -> None:
        super().__init__()
        self._database = database
        self._worker_id = worker_id
        self.interval = interval.total_seconds()

    async def run_once(self) -> int:
        """Adopt one batch."""
        return await self._database.run(lambda conn: workers.adopt_jobs(conn, self._worker_id()))
