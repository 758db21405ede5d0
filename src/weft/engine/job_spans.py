"""The service by which an orchestrator tells of jobs that it has ended, each the root of its trace."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

from weft.core.tracing import Tracer, place_of_job
from weft.db.statements import Statements
from weft.queue.service import Service

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database

SQL = Statements("weft.jobs", "sql/watching.sql")
_AT_ONCE = 500
_TRIES = 20


class JobSpans(Service):
    """Looks how the jobs have ended whose last step was carried out here; without traces it does not run.

    One that ends while the orchestrator dies is not told of: its attempts are, in the same trace.
    """

    name = "job spans"
    interval = 0.25

    def __init__(self, database: Database, tracer: Tracer) -> None:
        super().__init__()
        self._database = database
        self._tracer = tracer
        self._tries: dict[int, int] = {}

    async def run_once(self) -> int:
        """Tell of one batch of jobs; those whose end is not committed yet are looked at again."""
        ended = self._tracer.ended_jobs
        jobs = list(dict.fromkeys(ended.popleft() for _ in range(min(len(ended), _AT_ONCE))))
        if not jobs:
            return 0
        rows = await self._database.read(lambda conn: conn.fetch(SQL.ended_jobs, jobs))
        for row in rows:
            self._tell(row)
        open_ones = set(jobs) - {row["id"] for row in rows}
        self._tries = {job: tries for job in open_ones if (tries := self._tries.get(job, 0) + 1) < _TRIES}
        ended.extend(self._tries)
        return len(rows)

    async def stop(self) -> None:
        """Tell of what has ended until now, and end."""
        was_running = self.is_running
        await super().stop()
        if was_running and self._tracer.ended_jobs:
            async with asyncio.timeout(5):
                await self.run_once()

    def _tell(self, row: Record) -> None:
        place = self._tracer.chosen(place_of_job(row["id"]))
        said = {"weft.job.id": str(row["id"]), "weft.org": row["org"], "weft.outcome": row["state"]}
        said |= {f"weft.{name}": row[name] for name in ("reason", "actor") if row[name] is not None}
        if row["workflow_id"] is not None:
            said["weft.workflow"] = row["workflow_id"]
        related = [row["parent_job_id"], row["rerun_of"]]
        begun: datetime | None = row["started_at"]
        self._tracer.tell(
            row["workflow_id"] or "job", place, start=_nanoseconds(row["created_at"]),
            end=_nanoseconds(row["ended_at"]), attributes=said,
            error=row["reason"] or "failed" if row["state"] == "failed" else None,
            events=[] if begun is None else [("begun", _nanoseconds(begun), {})],
            links=[place_of_job(job_id) for job_id in related if job_id is not None],
        )  # fmt: skip


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000
