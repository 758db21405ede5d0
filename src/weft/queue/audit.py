"""The audit: who did what, from where and why, a row an act, written in the act's own transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.checks import WHOLE, Stretch, check_text
from weft.core.json import readable
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/audit.sql")
MAX_IDS = 1000
# From where somebody acts for whom a process acts, such as a server.
_origin: ContextVar[str | None] = ContextVar("origin", default=None)
# Why somebody does what he does now.
_reason: ContextVar[str | None] = ContextVar("reason", default=None)
LONGEST_REASON = 500


def where_from() -> str | None:
    """Return from where the act in hand has come to a server, if it has."""
    return _origin.get()


@contextmanager
def acting_from(origin: str | None) -> Iterator[None]:
    """Let all acts that are recorded inside be kept with where they came from."""
    before = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(before)


def why() -> str | None:
    """Return why what is done now is done, if anybody has said so."""
    return _reason.get()


@contextmanager
def acting_because(reason: str | None) -> Iterator[None]:
    """Let all acts that are recorded inside be kept with why they are done."""
    before = _reason.set(None if reason is None else check_text(reason, "reason", LONGEST_REASON))
    try:
        yield
    finally:
        _reason.reset(before)


def say_why(reason: str) -> None:
    """Let all acts of this process from now on be kept with why they are done."""
    _reason.set(check_text(reason, "reason", LONGEST_REASON))


class AuditVerb(StrEnum):
    """What is kept of those who act."""

    CANCEL = "cancel"
    REPLAY = "replay"
    PURGE = "purge"
    CREATE = "create"
    PAUSE = "pause"
    RESUME = "resume"
    LIMIT = "limit"
    CLEAR = "clear"
    CHANGE = "change"
    DEACTIVATE = "deactivate"
    ACTIVATE = "activate"
    GRANT = "grant"
    REVOKE = "revoke"
    DELETE = "delete"
    PROTECT = "protect"
    FREE = "free"
    APPROVE = "approve"
    REJECT = "reject"
    SUBMIT = "submit"
    ADD = "add"
    RERUN = "rerun"
    SEND = "send"
    PUSH = "push"
    PATCH = "patch"
    MOVE = "move"
    MERGE = "merge"
    REVERT = "revert"
    UNDO = "undo"
    REDO = "redo"
    COMPACT = "compact"
    UNDELETE = "undelete"
    SNAPSHOT = "snapshot"
    ROLLBACK = "rollback"
    REGISTER = "register"
    HAND_OVER = "hand-over"
    DEPLOY = "deploy"
    ABANDON = "abandon"
    DRAIN = "drain"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act: on tasks, jobs or effects by their ids, the first 1,000, or on what has a name.

    ``origin`` is from where it came to a server: the address, the id of the request, and ``token=`` with the id of the
    token. ``reason`` is why it was done, where whoever did it has said so.
    """

    id: int
    at: datetime
    actor: str
    verb: str
    subject_kind: str
    subject_ids: tuple[int, ...]
    subject_name: str | None
    detail: Mapping[str, Any]
    origin: str | None = None
    reason: str | None = None


async def record_many(
    conn: type_Connection, org_id: int, actor: str | None, verb: AuditVerb, kind: str, ids: Sequence[int],
    detail: Mapping[str, Any] | None = None, reason: str | None = None,
) -> None:  # fmt: skip
    """Record an act on tasks or effects in the caller's transaction; one on none of them is no act."""
    if ids:
        text = orjson.dumps({**(detail or {}), "count": len(ids)}).decode()
        whence = _origin.get(), _reason.get() or reason
        await conn.execute(SQL.record, org_id, actor, verb, kind, sorted(ids)[:MAX_IDS], None, text, *whence)


async def record_queue(
    conn: type_Connection, org_id: int, actor: str | None, verb: AuditVerb, name: str,
    detail: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Record an act on a queue in the caller's transaction."""
    await record_named(conn, org_id, actor, verb, "queue", name, detail)


async def record_named(
    conn: type_Connection, org_id: int, actor: str | None, verb: AuditVerb, kind: str, name: str | None,
    detail: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Record an act on what has a name, or on all of its kind, in the caller's transaction."""
    text = orjson.dumps(detail or {}).decode()
    await conn.execute(SQL.record, org_id, actor, verb, kind, [], name, text, _origin.get(), _reason.get())


async def list_entries(
    conn: type_Connection, org_id: int, part: Stretch = WHOLE, *, verb: str | None = None, task_id: int | None = None,
    job_id: int | None = None, queue: str | None = None, actor: str | None = None, since: datetime | None = None,
    until: datetime | None = None, limit: int = MAX_IDS,
) -> list[AuditEntry]:  # fmt: skip
    """Return acts, the newest first or the oldest."""
    statement = SQL.list_newest if part.is_newest else SQL.list_oldest
    rows = await conn.fetch(
        statement, org_id, verb, task_id, job_id, queue, actor, part.above, part.below, since, until, limit
    )
    return [
        AuditEntry(**{**dict(row), "subject_ids": tuple(row["subject_ids"]), "detail": readable(row["detail"])})
        for row in rows
    ]


async def prune(conn: type_Connection, older_than: timedelta) -> int:
    """Forget acts of long ago; return how many."""
    return len(await conn.fetch(SQL.prune, older_than))
