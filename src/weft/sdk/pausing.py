"""The part of the client that lets jobs rest and go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.checks import check_id
from weft.core.errors import StateConflict
from weft.jobs import events
from weft.jobs.submit import SQL
from weft.queue import audit
from weft.queue.audit import AuditVerb
from weft.sdk.workflow_calls import WorkflowCalls

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.jobs.model import Job


class Pausing(WorkflowCalls):
    """What holds jobs back for a while."""

    if TYPE_CHECKING:

        async def show(self, job_id: int) -> Job:
            """Return a job, as `Jobs` does."""

    async def pause(self, job_id: int) -> None:
        """Let nothing of a job begin until it is resumed; what runs goes on. Raises `StateConflict`.

        When it returns, nothing begins any more. Jobs that its nodes wait for are paused by themselves. Example::

            await client.jobs.pause(job.id)
        """
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        org_id = await self._session.org_id()
        if not await self._noted(SQL.pause, org_id, job_id, "paused"):
            raise StateConflict("pause", job_id, (await self.show(job_id)).state, ["pending", "running"], "job")
        await self._session.database.run_alone(lambda conn: conn.fetchval(SQL.wait_for_claims, job_id))

    async def resume(self, job_id: int) -> None:
        """Let a paused job go on. Raises `StateConflict`.

        Example::

            await client.jobs.resume(job.id)
        """
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        org_id = await self._session.org_id()
        if not await self._noted(SQL.resume, org_id, job_id, "resumed"):
            raise StateConflict("resume", job_id, (await self.show(job_id)).state, ["paused"], "job")

    async def _noted(self, statement: str, org_id: int, job_id: int, verb: str) -> bool:
        """Do what was asked for, and note who did it; False when the job is not in a state for it."""

        async def do(conn: type_Connection) -> bool:
            if not await conn.fetchval(statement, org_id, job_id):
                return False
            state = "paused" if verb == "paused" else "running"
            await events.note(conn, org_id, job_id, f"job.{verb}", state, {"by": self._session.actor})
            act = AuditVerb.PAUSE if verb == "paused" else AuditVerb.RESUME
            await audit.record_many(conn, org_id, self._session.actor, act, "job", [job_id])
            return True

        return await self._session.database.run(do)
