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


class Keys(NamedTuple):
    """By what an output is known: the hash of handler, code and params; ``args`` is that without the code."""

    key: bytes
    args: bytes


class Reuse(NamedTuple):
    """What is noted of a completed attempt: the ``key`` of its output and how long that serves, or its ``root``.

    ``lasts`` is None for as long as history is kept; ``root`` is the task whose output it has. With an ``entry`` of the
    cache it completes only if what that was made of still stands. An output of more than ``most`` bytes is not kept.
    """

    key: bytes | None
    lasts: timedelta | None = None
    root: int | None = None
    entry: int | None = None
    most: int | None = None


class Found(NamedTuple):
    """An output that was found: itself, or a reference, and the task that made it.

    ``entry`` is its place in the cache when it serves only for as long as what it was made of stands.
    """

    id: int
    task_id: int
    output: str
    is_traced: bool

    @property
    def entry(self) -> int | None:
        """What is to be checked again when the task completes."""
        return self.id if self.is_traced else None


@dataclass(frozen=True, slots=True)
class CachedOutputs:
    """What the cache has of one handler; ``bytes`` are those of all outputs, of which ``blobs`` are kept beside it.

    ``used_at`` is when one of them served last, to the hour; before that, when it was made.
    """

    handler: str
    outputs: int
    bytes: int
    blobs: int
    oldest_at: datetime
    newest_at: datetime
    used_at: datetime


async def find(
    conn: type_Connection, task_id: int, attempt: int, keys: Keys, within: timedelta | None, *, takes: bool = True
) -> Found | None:
    """Return the output that serves a task, made within that time; note what is found, or why nothing is.

    Unless it ``takes`` one, that is all that is done.
    """
    row = await conn.fetchrow(SQL.find, task_id, attempt, *keys, within, takes)
    return None if row is None else Found(*row)


async def drop(conn: type_Connection, task_id: int, found: Found) -> None:
    """Forget an output that cannot be read any more, unless there is another by now."""
    await conn.execute(SQL.drop, task_id, found.id, found.task_id)


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
    """Forget outputs that are past their time, and what was found for tasks that are; return how many."""
    gone = len(await conn.fetch(SQL.prune, retention))
    return max(gone, len(await conn.fetch(SQL.prune_notes, retention)))


async def shrink(conn: type_Connection, most: int) -> int:
    """Forget a page of the outputs of orgs that have more bytes than that, those that served longest ago first."""
    return len(await conn.fetch(SQL.shrink, most))
