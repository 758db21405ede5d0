"""Edges between tasks: ``next`` starts only after ``prev`` has completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.errors import StateConflict
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/task.sql")


async def hold(conn: type_Connection, task_id: int) -> bool:
    """Keep a task from being claimed while edges to it are added; False when it is taken already."""
    row = await conn.fetchrow(SQL.hold, task_id)
    if row is not None and row["concurrency_key"] is not None:
        await conn.execute(SQL.free_slots, [row["queue_id"]], [row["concurrency_key"]])
    return row is not None


async def add_edge(conn: type_Connection, prev: int, next: int) -> bool:
    """Let a held task, ``next``, wait for ``prev``; False when ``prev`` has ended already.

    The predecessor is locked before its state is read: it either finishes before, and there is no edge, or after,
    and its finish sees the edge.
    """
    if await conn.fetchval(SQL.add_edge_lock, prev) is None:
        return False
    if await conn.fetchval(SQL.has_edge, prev, next):
        return True
    if await conn.fetchval(SQL.add_edge, prev, next) is None:
        raise StateConflict("add an edge to", next, "not held", ["pending"])
    return True


async def release(conn: type_Connection, task_id: int) -> bool:
    """Let a held task go, when it waits for nothing; False when it still waits."""
    row = await conn.fetchrow(SQL.release, task_id)
    if row is not None and row["concurrency_key"] is not None:
        await conn.execute(SQL.take_slots, [task_id])
    return row is not None
