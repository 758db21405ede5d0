"""Slots of concurrency keys that running tasks give back while they wait for tasks that they made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.db.statements import Statements

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

SQL = Statements("weft.queue", "sql/loan.sql")


async def lend(conn: type_Connection, fence: Fence) -> bool:
    """Give back the slot of a task's key, for others to have meanwhile; False when it has none."""
    return bool(await conn.fetchval(SQL.lend_key, *fence))


async def take(conn: type_Connection, fence: Fence) -> bool | None:
    """Take a slot of a task's key again; False: there is none yet, and it is next in line; None: the lease is lost."""
    taken: bool | None = await conn.fetchval(SQL.take_key, *fence)
    return taken


async def end(conn: type_Connection, rows: Sequence[Record]) -> None:
    """Let those of the tasks that lent their keys have them again: they are left, and ask for a slot before they run.

    ``rows`` are what the statement has returned that moved them, in the same transaction. A statement of its own: the
    one that moved them may have waited for a task that was lending its key, and would not see that.
    """
    without = [row["id"] for row in rows if row["concurrency_key"] is None and row["job_id"] is not None]
    if without:
        await conn.execute(SQL.end_loans, without)


async def forget(conn: type_Connection) -> int:
    """Forget what tasks have lent that have ended; return how many."""
    return len(await conn.fetch(SQL.forget))
