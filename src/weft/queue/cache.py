"""Outputs that serve again: found by what made them, kept with the completion of their task, dropped when old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.queue.work import Completed

SQL = Statements("weft.queue", "sql/cache.sql")


class Reuse(NamedTuple):
    """What is noted of a completed attempt: the ``key`` of its output and how long that serves, or its ``root``.

    ``lasts`` is None for as long as history is kept; ``root`` is the task whose output it has.
    """

    key: bytes | None
    lasts: timedelta | None = None
    root: int | None = None


class Found(NamedTuple):
    """An output that was found: itself, or a reference, and the task that made it."""

    task_id: int
    output: str


@dataclass(frozen=True, slots=True)
class CachedOutputs:
    """What the cache has of one handler; ``bytes`` are those in the database, ``blobs`` how many are kept beside it."""

    handler: str
    outputs: int
    bytes: int
    blobs: int
    oldest_at: datetime
    newest_at: datetime


async def find(conn: type_Connection, task_id: int, key: bytes, within: timedelta | None) -> Found | None:
    """Return the output that serves a task, made within that time."""
    row = await conn.fetchrow(SQL.find, task_id, key, within)
    return None if row is None else Found(*row)


async def drop(conn: type_Connection, task_id: int, key: bytes, found: Found) -> None:
    """Forget an output that cannot be read any more, unless there is another by now."""
    await conn.execute(SQL.drop, task_id, key, found.task_id)


async def note(conn: type_Connection, worker_id: int, completed: Sequence[Completed]) -> None:
    """Note what is to be noted of attempts that this very transaction has completed; of others nothing is."""
    noted = [(outcome.id, outcome.attempt, *outcome.reuse) for outcome in completed if outcome.reuse is not None]
    await conn.execute(SQL.note, worker_id, *map(list, zip(*noted, strict=True)))


async def list_handlers(conn: type_Connection, org_id: int, after: str, limit: int | None) -> list[CachedOutputs]:
    """Return what the cache has, by handler, after one; all without a limit."""
    return [CachedOutputs(**row) for row in await conn.fetch(SQL.list, org_id, after, limit)]


async def clear(conn: type_Connection, org_id: int, handler: str | None, actor: str | None) -> int:
    """Forget a page of the outputs of a handler, or of all; return how many."""
    gone = len(await conn.fetch(SQL.clear, org_id, handler))
    if gone:
        await audit.record_named(conn, org_id, actor, AuditVerb.CLEAR, "cache", handler, {"count": gone})
    return gone


async def prune(conn: type_Connection, retention: timedelta) -> int:
    """Forget outputs that are past their time; return how many."""
    return len(await conn.fetch(SQL.prune, retention))
