"""The part of the client that tells how an installation does: metrics and health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.errors import DatabaseUnavailable
from weft.jobs.health import Health, check_health, without_database
from weft.jobs.metrics import Metric, measure
from weft.sdk.session import Session

if TYPE_CHECKING:
    from weft.db.database import type_Connection


class Measuring(Session):
    """What is measured."""

    async def metrics(self) -> list[Metric]:
        """Return numbers about jobs, tasks and workers; counters never fall, also when the history is pruned.

        Example::

            for metric in await client.metrics():
                print(metric.name, [(dict(sample.labels), sample.value) for sample in metric.samples])
        """
        # Not at the top: what it needs would be loaded by every client.
        from weft.live import metrics as schedules

        org_id = await self.org_id()

        async def look(conn: type_Connection) -> list[Metric]:
            return [*await measure(conn, org_id), *await schedules.measure(conn, org_id)]

        return await self.database.read(look)

    async def health(self) -> Health:
        """Return whether the database, workers, orchestrators and tasks are well, and what to do when not.

        Example::

            health = await client.health()
            print(health.ok, [(check.name, check.text) for check in health.checks])
        """
        try:
            org_id = await self.org_id()
            return await self.database.read(lambda conn: check_health(conn, org_id))
        except (DatabaseUnavailable, TimeoutError) as problem:
            return without_database(problem)
