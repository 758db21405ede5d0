"""Sends events: what was told from outside is kept, and told to those who wait or listen for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncpg import PostgresError

from weft.core.checks import check_text
from weft.core.errors import InvalidInput
from weft.core.json import check_size, encode_unordered
from weft.core.server_errors import KeyReused, SourceFull
from weft.jobs.model import NewEvent, SentEvent
from weft.jobs.routing import AT_ONCE
from weft.jobs.submit import SQL
from weft.queue import audit

if TYPE_CHECKING:
    from weft.db.database import type_Connection

MOST = 1000
_LONGEST_NAME, _LONGEST_KEY = 200, 500
# What PostgreSQL says when a source has no room for an event.
_FULL = "WF008"


class Told(NamedTuple):
    """An event that may be sent: its payload is JSON."""

    name: str
    payload: str
    key: str | None


def checked(events: Sequence[NewEvent], limit: int, *, are_many: bool) -> list[Told]:
    """Return events as they are sent; a payload may have ``limit`` bytes. Raises `InvalidInput`."""
    if not 0 < len(events) <= MOST:
        raise InvalidInput("events", f"are {len(events)}: send 1 to {MOST} at a time")
    return [_told(each, limit, f"events.{place}." if are_many else "") for place, each in enumerate(events)]


async def send(conn: type_Connection, org_id: int, actor: str, events: Sequence[Told]) -> list[SentEvent]:
    """Accept events, all or none; raises `KeyReused`, `SourceFull`."""
    beside = audit.where_from(), audit.why()
    try:
        if len(events) == 1:
            rows = await conn.fetch(SQL.send_event, org_id, *events[0][:2], actor, events[0].key, AT_ONCE, *beside)
        else:
            names, payloads, keys = ([each[place] for each in events] for place in range(3))
            rows = await conn.fetch(SQL.send_events, org_id, names, payloads, actor, keys, AT_ONCE, *beside)
    except PostgresError as problem:
        if problem.sqlstate == _FULL:
            raise SourceFull(problem.message or "") from None
        raise
    for row, each in zip(rows, events, strict=True):
        if not row["is_new"] and not row["is_same"]:
            raise KeyReused(each.key or "")
    return [SentEvent(row["id"], row["answered"], row["is_new"], row["sources"]) for row in rows]


def _told(event: NewEvent, limit: int, within: str) -> Told:
    name, payload, key = event
    check_text(name, f"{within}name", _LONGEST_NAME)
    if payload is not None and not isinstance(payload, Mapping):
        raise InvalidInput(f"{within}payload", f"must be a mapping, not {type(payload).__name__}")
    if key is not None:
        check_text(key, f"{within}idempotency_key", _LONGEST_KEY)
    text = encode_unordered(dict(payload or {}), f"{within}payload")
    check_size(f"{within}payload", text, limit)
    return Told(name, text, key)
