"""Numbers about what begins by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.jobs.metrics import Metric, Sample
from weft.live.looking import SQL as LIVE_SQL
from weft.live.schedules import SQL

if TYPE_CHECKING:
    from weft.db.database import type_Connection

_STATES = ("active", "failing", "paused")
_LIVE_STATES = ("pending", "running", "idle", "draining")


async def measure(conn: type_Connection, org_id: int) -> list[Metric]:
    """Return the metrics of an org's schedules and live DAGs."""
    row, live = await conn.fetchrow(SQL.measure, org_id), await conn.fetchrow(LIVE_SQL.measure, org_id)
    assert row is not None
    assert live is not None
    counts = tuple(Sample(row[state], {"state": state}) for state in _STATES)
    jobs = tuple(Sample(live[state], {"state": state}) for state in _LIVE_STATES)
    waiting = "For how long the unit of a live job has waited that has waited longest, of those that could begin."
    lag = "For how long the tick has been due that is due first; 0 when none is."
    return [
        Metric("schedules", "gauge", "Schedules, by whether their last tick could begin, or they are paused.", counts),
        Metric("schedule_lag_seconds", "gauge", lag, (Sample(row["lag"]),)),
        Metric("live_jobs", "gauge", "Jobs of live DAGs, by their state.", jobs),
        Metric(
            "live_units_held", "gauge", "Units of live jobs that have failed and are held.", (Sample(live["held"]),)
        ),
        Metric("live_lag_seconds", "gauge", waiting, (Sample(live["lag"]),)),
    ]
