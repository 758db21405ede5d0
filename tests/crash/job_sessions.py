"""Plain sessions that do by hand, statement by statement, what workers and orchestrators do with jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import orjson

from crash.checker import check
from crash.sessions import Session
from weft.jobs.submit import SQL
from weft.queue import upkeep, work, workers
from weft.queue.work import Claim, Ended

CONTROL = 2
PATIENCE = timedelta(hours=1)


def flow(*, name: str = "drawn", on_failure: str = "fail_fast", **nodes: Any) -> dict[str, Any]:
    """A workflow of these nodes, which begins with the first; what is said to lead nowhere leads to the end."""
    written = {
        key: node if "next" in node or "branches" in node else {**node, "next": "END"} for key, node in nodes.items()
    }
    start = {"type": "start", "next": next(iter(nodes))}
    return {"workflow_id": name, "on_failure": on_failure, "nodes": {"START": start, **written, "END": {"type": "end"}}}


class JobSession(Session):
    """One connection, which may act as a worker, as an orchestrator, or as somebody at the command line."""

    async def orchestrate(self) -> int:
        """Become an orchestrator."""
        await self.register((CONTROL,))
        await workers.own_queue(self.conn, self.worker_id)
        return self.worker_id

    async def take(self, handler: str) -> Claim:
        """Claim one step of a job as this orchestrator; it must be the one that is expected."""
        (claim,) = await self.claim(1, (CONTROL, -self.worker_id))
        assert claim.handler == handler, claim
        return claim

    async def finish(self, claim: Claim, output: str = "null") -> bool:
        """Complete an attempt of this worker; False when that did not land."""
        done = [work.Completed(claim.id, claim.attempt, output)]
        _, lost = await work.finish_and_claim(self.conn, self.worker_id, done, [], 0)
        return not lost

    async def fail(self, claim: Claim, state: str = "failed") -> bool:
        """End an attempt of this worker without success; False when that did not land."""
        ended = Ended(
            claim.id, claim.attempt, state, "failed", "error", '{"type": "E", "message": "", "traceback": ""}'
        )
        return bool(await work.end_unsuccessfully(self.conn, self.worker_id, [ended]))

    async def carry_out(self, claim: Claim) -> None:
        """Do what a step says that the engine has put there, and complete it."""
        params = orjson.loads(claim.params or "{}")
        if claim.handler == "@skip":
            ids = [int(each) for each in params["ids"]]
            assert await self.skip(claim, ids, again=params.get("again", claim.attempt > 1)) == []
        elif claim.handler == "@sweep" or await self.note_failure(claim):
            while await self.conn.fetchval(SQL.sweep, claim.job_id, 1000):
                pass
        assert await self.finish(claim)

    async def skip(
        self, claim: Claim, ids: Sequence[int], *, again: bool = False, room: int = 1000
    ) -> list[int] | None:
        """Skip as a step says, once, without completing it."""
        why = orjson.loads(claim.params or "")["why"]
        said = self.worker_id, claim.id, claim.attempt, list(ids), why, again, room
        found: list[int] | None = await self.conn.fetchval(SQL.skip, *said)
        return found

    async def note_failure(self, claim: Claim) -> bool | None:
        """Do what a job does about a failure, without completing the step that says so."""
        failed = int(orjson.loads(claim.params or "")["id"])
        found: bool | None = await self.conn.fetchval(SQL.fail, self.worker_id, claim.id, claim.attempt, failed)
        return found

    async def cancel_job(self, job_id: int) -> bool:
        """Cancel as the client does, in the transaction of the caller or one of its own."""
        async with self.conn.transaction():
            await self.conn.fetch(SQL.hold_end, 1, job_id)
            rank = await self.conn.fetchval(SQL.cancel, 1, job_id)
            if rank is None:
                return False
            if await self.conn.fetchval(SQL.sweep, job_id, 1000):
                await self.conn.execute(SQL.sweep_later, 1, job_id, rank)
            return True

    async def answer(self, task_id: int, ending: str = "completed") -> bool:
        """Answer what waits."""
        return bool(await self.conn.fetchval(SQL.answer, task_id, ending, "null", "{}", None))

    async def wait_for_event(self, claim: Claim, event: str | None = None, patience: timedelta = PATIENCE) -> bool:
        """Park a step that this orchestrator holds, until a person or an event answers it."""
        kind = "approval" if event is None else "event"
        said = patience, kind, False, event, "{}", "{}"
        return bool(await self.conn.fetchval(SQL.begin_wait, self.worker_id, claim.id, claim.attempt, *said))

    async def expand(self, claim: Claim, ids: Sequence[int], start: int = 0, most: int | None = None) -> bool:
        """Make tasks for items of a fan_out that this orchestrator holds."""
        count, key = len(ids), None if most is None else f"@{claim.id}"
        return bool(
            await self.conn.fetchval(
                SQL.add_children, self.worker_id, claim.id, claim.attempt, ids, list(range(start, start + count)),
                ["{}"] * count, 1, "work", 0, 1, None, None, None, None, [key] * count, most, False,
            )
        )  # fmt: skip

    async def end_late(self) -> int:
        """End what has run out of time, as a leader does."""
        return await upkeep.end_late_jobs(self.conn)

    async def task_of(self, job_id: int, node: str) -> int:
        """Return the task of a node."""
        statement = """select id from (select id, job_id, node, parent_id from weft.task
            union all select id, job_id, node, parent_id from weft.task_done) t
            where job_id = $1 and node = $2 and parent_id is null"""
        return int(await self.conn.fetchval(statement, job_id, node))

    async def job_state(self, job_id: int) -> str:
        """Return where a job is, as this session sees it."""
        return str(await self.conn.fetchval("select state from weft.jobs where id = $1", job_id))

    async def states(self, job_id: int) -> dict[str, str]:
        """Return where the nodes of a job are, as this session sees it."""
        statement = """select node, state from (select job_id, node, parent_id, state::text from weft.task
            union all select job_id, node, parent_id, state::text from weft.task_done) t
            where job_id = $1 and parent_id is null and node is not null"""
        return dict(await self.conn.fetch(statement, job_id))


async def drained(session: JobSession) -> None:
    """Do all that is left to do, when all others are gone; nothing is left then."""
    await session.conn.execute("update weft.worker set until = weft.now() - interval '1 ms'")
    await session.orchestrate()
    await upkeep.mark_lost(session.conn)
    for lost in await upkeep.lost_workers(session.conn):
        await upkeep.rescue(session.conn, lost, 3)
    for _ in range(100):
        await workers.adopt_jobs(session.conn, session.worker_id)
        claims = await session.claim(1, (CONTROL, -session.worker_id, 1))
        if not claims:
            break
        (claim,) = claims
        if claim.handler in ("@fail", "@skip", "@sweep"):
            await session.carry_out(claim)
        else:
            assert await session.finish(claim)
        await check(session.conn)
    assert await session.conn.fetch("select id, handler, state::text, reason from weft.task") == []
    assert await session.conn.fetchval("select count(*) from weft.job") == 0


@asynccontextmanager
async def job_sessions(url: str, count: int) -> AsyncIterator[list[JobSession]]:
    """Lend some sessions on one database."""
    opened = [JobSession(await asyncpg.connect(url)) for _ in range(count)]
    try:
        yield opened
    finally:
        for session in opened:
            session.conn.terminate()
