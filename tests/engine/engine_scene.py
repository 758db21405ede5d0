"""What tests of the engine share: the clock, and a way to await what the database says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import asyncpg

import weft
from weft.queue.services import Stager

T = TypeVar("T")
MakeClient = Callable[..., Awaitable[weft.Client]]


class Clock:
    """The one clock of a database, which a test moves on; what is due by then is staged."""

    def __init__(self, conn: asyncpg.Connection[asyncpg.Record], client: weft.Client) -> None:
        self._conn = conn
        self._client = client
        self._ahead = timedelta(0)

    async def advance(self, **span: float) -> None:
        self._ahead += timedelta(**span)
        await self._conn.execute(
            "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
            f"return clock_timestamp() + interval '{self._ahead.total_seconds()} seconds'"
        )
        await Stager(self._client.database).run_once()


async def until(look: Callable[[], Awaitable[T]], wanted: Callable[[T], bool] = bool, within: float = 60) -> T:
    """Ask the database again and again until the answer is the one wanted."""
    async with asyncio.timeout(within):
        while True:
            if wanted(found := await look()):
                return found
            await asyncio.sleep(0.01)


async def claimed_by_a_ghost(
    conn: asyncpg.Connection[asyncpg.Record], queue_id: int = 1, room: int = -1
) -> tuple[int, int]:
    """Claim the first task of a queue for a worker of which there is only the row; return the worker and the task."""
    ghost = await conn.fetchval(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 1, 1, 'gone', '0', array[$1::bigint], '{}') returning id""",
        queue_id,
    )
    task_id = await conn.fetchval(
        """select id from weft.finish_and_claim($1, '{}', '{}', '{}', array[$2::bigint], array[$3::int],
             '{-32768}', '{0}', '{0}', 1, true, null)""",
        ghost,
        queue_id,
        room,
    )
    return ghost, task_id


# Ends all connections of the database but the asker's own.
END_CONNECTIONS = """
  select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""
# How many backends wait for a lock in a statement like that.
WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like $1"
