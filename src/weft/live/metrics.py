"""Numbers about what begins by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.jobs.metrics import Metric, Sample
from weft.live.schedules import SQL

if TYPE_CHECKING:
    from weft.db.database import type_Connection

_STATES = ("active", "failing", "paused")


async def measure(conn: type_Connection, org_id: int) -> list[Metric]:
    """Return the metrics of an org's schedules."""
    row = await conn.fetchrow(SQL.measure, org_id)
    assert row is not None
    counts = tuple(Sample(row[state], {"state": state}) for state in _STATES)
    lag = "For how long the tick has been due that is due first; 0 when none is."
    return [
        Metric("schedules", "gauge", "Schedules, by whether their last tick could begin, or they are paused.", counts),
        Metric("schedule_lag_seconds", "gauge", lag, (Sample(row["lag"]),)),
    ]
