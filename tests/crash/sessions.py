"""Plain sessions that do by hand, statement by statement, what workers, rescuers and operators do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from crash.harness import until_waiting
from weft.queue import operate, upkeep, work, workers
from weft.queue.work import Claim, Completed, Lane

DEFAULT = 1


class Session:
    """One connection, which may act as a worker."""

    def __init__(self, conn: asyncpg.Connection[asyncpg.Record]) -> None:
        self.conn = conn
        self.pid: int = conn.get_server_pid()
        self.worker_id = 0

    async def register(self, queues: Sequence[int] = (DEFAULT,), *, lease: float = 60.0) -> int:
        """Become a worker."""
        self.worker_id = await workers.register(
            self.conn, 1, lease=timedelta(seconds=lease), concurrency=100, pid=os.getpid(), hostname="test",
            version="0", queues=list(queues), handlers=["work"],
        )  # fmt: skip
        return self.worker_id

    async def enqueue(self, **arguments: Any) -> int:
        """Enqueue a task by the public SQL function."""
        names = ", ".join(f"{name} => ${n}" for n, name in enumerate(arguments, 2))
        comma = ", " if names else ""
        statement = f"select id from weft.enqueue($1{comma}{names})"
        return int(await self.conn.fetchval(statement, "work", *arguments.values()))

    async def claim(self, wanted: int = 1, queues: Sequence[int] = (DEFAULT,)) -> list[Claim]:
        """Claim as this worker."""
        claims, _ = await work.finish_and_claim(
            self.conn, self.worker_id, [], [Lane(queue_id) for queue_id in queues], wanted
        )
        return claims

    async def complete(self, *claims: Claim) -> bool:
        """Complete attempts of this worker; False when one did not land."""
        done = [Completed(claim.id, claim.attempt, "null") for claim in claims]
        _, lost = await work.finish_and_claim(self.conn, self.worker_id, done, [], 0)
        return not lost

    async def lapse(self) -> None:
        """Let the lease of this worker be over, as if its heartbeats had not come."""
        lapsed = "update weft.worker set until = weft.now() - interval '1 ms' where id = $1"
        await self.conn.execute(lapsed, self.worker_id)

    async def rescue(self, worker_id: int, loss_limit: int = 3) -> int:
        """Mark lapsed workers, and take what one of them held."""
        await upkeep.mark_lost(self.conn)
        return (await upkeep.rescue(self.conn, worker_id, loss_limit))[0]

    async def cancel(self, task_id: int) -> bool:
        """Cancel as an operator; False when it did not land."""
        return task_id in await operate.cancel(self.conn, 1, [task_id], "cancelled", "test")

    async def state_of(self, task_id: int) -> str:
        """Return where a task is, as this session sees it."""
        return str(await self.conn.fetchval("select state from weft.tasks where id = $1", task_id))

    async def blocked(self, call: Any, watcher: Session) -> asyncio.Task[Any]:
        """Begin a call in this session, and return when it waits for a lock."""
        begun = asyncio.ensure_future(call)
        waits = asyncio.create_task(until_waiting(watcher.conn, self.pid))
        await asyncio.wait([begun, waits], return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            raise AssertionError(f"did not wait for a lock, but ended with {begun.result()!r}")
        await waits
        return begun


async def until_done_or_waiting(call: asyncio.Future[Any], session: Session, watcher: Session) -> None:
    """Return when a call has ended, or waits for a lock."""
    waits = asyncio.create_task(until_waiting(watcher.conn, session.pid))
    await asyncio.wait([call, waits], return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)


@asynccontextmanager
async def sessions(url: str, count: int) -> AsyncIterator[list[Session]]:
    """Lend some sessions on one database."""
    opened = [Session(await asyncpg.connect(url)) for _ in range(count)]
    try:
        yield opened
    finally:
        for session in opened:
            session.conn.terminate()
