"""What happened in a job, told in pages that skip nothing, whoever commits late."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.checks import MAX_ID, check_moment, check_number
from weft.core.errors import InvalidInput
from weft.db.statements import Statements

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.jobs", "sql/watching.sql")
CHANNEL = "weft_job_events"
# Between the moment that an event is given and the first write of its transaction, which gets its number only then.
_MARGIN = timedelta(seconds=1)
# A place in a stream names so many events at most that were told ahead.
_MOST_NAMED = 20
# How many events may be told while an older transaction is open, which may bring others before them.
_MOST_AHEAD = 5000
_FIRST = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job or a node of it; ``id`` is unique, ``type`` is such as ``task.completed``."""

    id: str
    job_id: int
    at: datetime
    type: str
    state: str | None
    node: str | None
    item: int | None
    task_id: int | None
    attempt: int | None
    data: Mapping[str, Any]
    checkpoint: str | None


@dataclass(frozen=True, slots=True)
class JobEvents:
    """A page of events; pass ``cursor`` as ``after`` for the next.

    ``is_last`` says that the job has ended, and that there are no more.
    """

    events: tuple[JobEvent, ...]
    cursor: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Up to where all is told.

    Everything before ``settled`` is, and after it ``told``. A transaction that was open at ``looked_at`` may still
    commit an event of an earlier time: its number is below ``next``. Once none of those is open, all before
    ``looked_at`` is settled.
    """

    job_id: int
    settled: datetime = _FIRST
    told: frozenset[str] = frozenset()
    looked_at: datetime | None = None
    next: int = field(default=0)

    @classmethod
    def read(cls, text: str | None, job_id: int) -> _Cursor:
        if text is None:
            return cls(job_id)
        try:
            of, settled, told, looked_at, following = orjson.loads(base64.urlsafe_b64decode(text.encode()))
            at = None if looked_at is None else check_moment(datetime.fromisoformat(looked_at), "after")
            since = check_moment(datetime.fromisoformat(settled), "after")
            found = cls(int(of), since, frozenset(map(str, told)), at, check_number(following, "after", 0, MAX_ID))
        except (binascii.Error, ValueError, TypeError, AttributeError, InvalidInput):
            raise InvalidInput("after", "is no cursor: give what came with the page before") from None
        if found.job_id != job_id:
            raise InvalidInput("after", f"is no cursor of job {job_id}: give what came with the page before")
        return found

    def __str__(self) -> str:
        at = None if self.looked_at is None else self.looked_at.isoformat()
        parts = [str(self.job_id), self.settled.isoformat(), sorted(self.told), at, self.next]
        return base64.urlsafe_b64encode(orjson.dumps(parts)).decode()


async def note(
    conn: type_Connection, org_id: int, job_id: int, type: str, state: str, data: Mapping[str, Any],
    task_id: int | None = None, node: str | None = None,
) -> None:  # fmt: skip
    """Note what somebody did to a job, in the transaction in which it is done."""
    await conn.execute(SQL.note_event, org_id, job_id, type, state, orjson.dumps(data).decode(), task_id, node)


async def page(conn: type_Connection, org_id: int, job_id: int, after: str | None, limit: int) -> JobEvents:
    """Return the events of a job after a cursor, in order of time.

    One that commits late, because its transaction was open, comes with a later page and is not skipped.
    """
    (found,) = await pages(conn, org_id, [(job_id, after)], limit)
    return found


async def pages(
    conn: type_Connection, org_id: int, asked: Sequence[tuple[int, str | None]], limit: int
) -> list[JobEvents]:
    """Return a page of each of several jobs, asked for by the job's id and a cursor, by one statement."""
    cursors = [_Cursor.read(after, job_id) for job_id, after in asked]
    rows = await conn.fetch(
        SQL.events, org_id, [cursor.job_id for cursor in cursors], [cursor.settled for cursor in cursors],
        [limit + len(cursor.told) + 1 for cursor in cursors],
    )  # fmt: skip
    by_place = groupby(rows, lambda row: row["place"])
    return [_page(cursor, list(of_it), limit) for cursor, (_, of_it) in zip(cursors, by_place, strict=True)]


async def mark_of_jobs(conn: type_Connection, org_id: int) -> str:
    """Return what is another when a job of the org was made, has changed or has ended.

    A change of one that has a thousand newer ones before it, none of which has ended, is not told.
    """
    return str(await conn.fetchval(SQL.mark_of_jobs, org_id))


def _page(cursor: _Cursor, rows: list[Record], limit: int) -> JobEvents:
    """Return what is told of the rows of a job, and where to go on."""
    look = rows[0]
    found = [_event(row, cursor.job_id) for row in rows if row["id"] is not None and row["id"] not in cursor.told]
    is_over = bool(look["is_over"])
    room = limit if is_over else max(0, min(limit, _MOST_AHEAD - len(cursor.told)))
    told = found[:room]
    following = _after(cursor, look, [row for row in rows if row["id"] is not None], told, len(found) > room)
    return JobEvents(tuple(told), str(following), is_over and len(found) <= room)


def place_at(job_id: int, moment: datetime) -> str:
    """Return a cursor for whoever wants to know what happens in a job from a moment on."""
    return str(_Cursor(job_id, moment))


def brief(cursor: str) -> str:
    """Return a cursor that is short whatever happens: where much happens at once, some of it is told again after it."""
    found = orjson.loads(base64.urlsafe_b64decode(cursor.encode()))
    if len(found[2]) <= _MOST_NAMED:
        return cursor
    found[2] = []
    return base64.urlsafe_b64encode(orjson.dumps(found)).decode()


def places(before: str | None, page: JobEvents, job_id: int) -> list[str | None]:
    """Return for each event of a page the cursor after it, or None where that would be long: then go on from another.

    ``before`` is the cursor by which the page was asked for. After the last there always is one.
    """
    start, told = _Cursor.read(before, job_id), [event.id for event in page.events]
    if len(start.told) + len(told) > _MOST_NAMED:
        found: list[str | None] = [None for _ in told]
    else:
        found = [str(replace(start, told=start.told | set(told[: n + 1]))) for n in range(len(told))]
    return [*found[:-1], brief(page.cursor)] if found else []


def _after(cursor: _Cursor, look: Record, rows: list[Record], told: list[JobEvent], has_more: bool) -> _Cursor:
    """Return the cursor of what comes after the events that are told now."""
    settled = cursor.settled
    if look["is_over"]:
        # The end of a job is written after all that it is made of.
        settled = look["now"]
    elif look["oldest"] >= look["next"]:
        settled = max(settled, look["now"] - _MARGIN)
    elif cursor.looked_at is not None and look["oldest"] >= cursor.next:
        settled = max(settled, cursor.looked_at - _MARGIN)
    keeps_look = cursor.looked_at is not None and look["oldest"] < cursor.next
    looked_at, number = (cursor.looked_at, cursor.next) if keeps_look else (look["now"], look["next"])
    known = cursor.told | {event.id for event in told}
    unseen: frozenset[str] = frozenset()
    if has_more:
        settled = min(settled, next(row["at"] for row in rows if row["id"] not in known))
        # Told before, and not among the rows of this look, which ended before them.
        unseen = cursor.told - {row["id"] for row in rows}
    kept = frozenset(row["id"] for row in rows if row["at"] >= settled and row["id"] in known)
    return _Cursor(cursor.job_id, settled, kept | unseen, looked_at, number)


def _event(row: Record, job_id: int) -> JobEvent:
    return JobEvent(
        row["id"], job_id, row["at"], row["type"], row["state"], row["node"], row["item"], row["task_id"],
        row["attempt"], {} if row["data"] is None else orjson.loads(row["data"]), row["checkpoint"],
    )  # fmt: skip
