"""Schedules: workflows that begin by themselves; made, changed, paused, resumed, and made up for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import asyncpg
import orjson

from weft.core.checks import MAX_ID, check_after, check_moment, check_name, check_number, check_priority, check_word
from weft.core.errors import InvalidInput, NotFound, StateConflict
from weft.core.json import Json
from weft.db.statements import Statements
from weft.flow.budget import ExpressionError
from weft.flow.inputs import check_inputs, told_of
from weft.flow.model import Input
from weft.flow.templates import read_value
from weft.flow.ticks import CatchUp, Timing, check_timing
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.live", "sql/schedule.sql")
Declared = Mapping[str, Input]
# What an expression in the inputs of a schedule may speak of.
NAMES = ("tick",)
# So many ticks a backfill may have, and so far ahead somebody may look.
MOST_TICKS = 10_000
_END = datetime(9000, 1, 1, tzinfo=UTC)


class Overlap(StrEnum):
    """What becomes of a tick while the job of the one before has not ended."""

    ALLOW = "allow"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A workflow that begins by itself; ``missed`` is how many of its ticks were left out."""

    id: int
    name: str
    tag: str
    inputs: Mapping[str, Json]
    cron: str | None
    every: timedelta | None
    timezone: str
    catch_up: CatchUp
    overlap: Overlap
    priority: int
    next_at: datetime
    paused_at: datetime | None
    last_at: datetime | None
    last_job_id: int | None
    last_error: str | None
    missed: int
    created_at: datetime
    actor: str


@dataclass(frozen=True, slots=True)
class Backfill:
    """Ticks of a time that is over: of so many ``ticks``, ``made`` have their job, ``missed`` could not begin."""

    id: int
    since: datetime
    until: datetime
    at_once: int
    ticks: int
    made: int
    missed: int
    running: int
    last_error: str | None
    created_at: datetime
    ended_at: datetime | None
    cancelled_at: datetime | None
    actor: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a schedule is to be; None is what is not said."""

    cron: str | None = None
    every: timedelta | float | str | None = None
    timezone: str | None = None
    inputs: Mapping[str, Any] | None = None
    catch_up: str | None = None
    overlap: str | None = None
    priority: int | None = None


async def add(
    conn: type_Connection, org_id: int, name: str, tag: str, declared: Declared, wanted: Wanted, actor: str, *,
    replace: bool = False,
) -> Schedule:  # fmt: skip
    """Make a schedule of a workflow that takes the inputs ``declared``; its first tick is the next after now.

    With ``replace`` one of that name becomes as this one would be; what is due of it stays so unless its times change.
    """
    check_name(name, "name")
    now = await conn.fetchval(SQL.now)
    timing = check_timing(wanted.cron, wanted.every, "UTC" if wanted.timezone is None else wanted.timezone, now)
    usual = {"inputs": {}, "catch_up": CatchUp.LATEST, "overlap": Overlap.ALLOW, "priority": 0}
    said, first = _said(tag, wanted, timing, usual), timing.after(now)
    _require_inputs(declared, wanted.inputs or {}, timing, first)
    made = await conn.fetchrow(SQL.add, org_id, name, *said, now, first, actor, replace)
    if made is None:
        raise InvalidInput("name", f"there is a schedule {name!r} already: replace or change it, or give another name")
    verb = AuditVerb.CHANGE if made["is_replaced"] else AuditVerb.CREATE
    await audit.record_named(conn, org_id, actor, verb, "schedule", name, {"tag": tag, **_told(timing)})
    return _schedule(made)


async def show(conn: type_Connection, org_id: int, name: str) -> Schedule:
    """Return a schedule; raises `NotFound`."""
    return _schedule(_found(await conn.fetchrow(SQL.show, org_id, check_name(name, "name")), name))


async def standing(conn: type_Connection, org_id: int, name: str) -> tuple[Schedule, Timing, datetime]:
    """Return a schedule, when it ticks, and what time it is; raises `NotFound`."""
    row = _found(await conn.fetchrow(SQL.show, org_id, check_name(name, "name")), name)
    return _schedule(row), timing_of(row), await conn.fetchval(SQL.now)


async def list_schedules(
    conn: type_Connection, org_id: int, *, tag: str | None, after: str, limit: int
) -> list[Schedule]:
    """Return the schedules of an org by name."""
    wanted = None if tag is None else check_name(tag, "tag")
    return [_schedule(row) for row in await conn.fetch(SQL.list, org_id, check_after(after), wanted, limit)]


async def change(
    conn: type_Connection, org_id: int, name: str, tag: str | None, declared: Declared | None, wanted: Wanted,
    actor: str,
) -> Schedule:  # fmt: skip
    """Change a schedule; when its times change, its next tick is the first of these after now.

    ``declared`` are the inputs that the workflow takes, when these or the workflow change.
    """
    given = {key: value for key in Wanted.__slots__ if (value := getattr(wanted, key)) is not None}
    if tag is None and not given:
        raise InvalidInput("cron", "give it, or something else that is to change")
    row = _found(await conn.fetchrow(SQL.lock, org_id, check_name(name, "name")), name)
    timing, next_at, told = timing_of(row), row["next_at"], {}
    if given.keys() & {"cron", "every", "timezone"}:
        is_same = wanted.cron is None and wanted.every is None
        cron, every = (timing.cron, timing.every) if is_same else (wanted.cron, wanted.every)
        zone = timing.timezone if wanted.timezone is None else wanted.timezone
        timing = check_timing(cron, every, zone, row["anchor"])
        told = _told(timing)
        if timing != timing_of(row):
            next_at = timing.after(await conn.fetchval(SQL.now))
    before = {key: row[key] for key in ("catch_up", "overlap", "priority")}
    before["inputs"] = orjson.loads(row["inputs"])
    said = _said(row["tag"] if tag is None else tag, wanted, timing, before)
    if declared is not None:
        _require_inputs(declared, before["inputs"] if wanted.inputs is None else wanted.inputs, timing, next_at)
    made = await conn.fetchrow(SQL.change, org_id, row["id"], *said, next_at)
    assert made is not None
    changed: dict[str, Any] = {} if tag is None else {"tag": tag}
    changed |= {key: given[key] for key in ("catch_up", "overlap", "priority") if key in given}
    await audit.record_named(conn, org_id, actor, AuditVerb.CHANGE, "schedule", name, {**changed, **told})
    return _schedule(made)


async def pause(conn: type_Connection, org_id: int, name: str, actor: str) -> None:
    """Let nothing more begin by a schedule."""
    await _turn(conn, org_id, name, actor, AuditVerb.PAUSE, ("paused", "active"))


async def resume(conn: type_Connection, org_id: int, name: str, actor: str) -> None:
    """Let a schedule go on; what it missed is made up for as it says."""
    await _turn(conn, org_id, name, actor, AuditVerb.RESUME, ("active", "paused"))


async def delete(conn: type_Connection, org_id: int, name: str, actor: str) -> None:
    """Remove a schedule, and what is left of its backfills; jobs that have begun go on."""
    _found(await conn.fetchval(SQL.delete, org_id, check_name(name, "name")), name)
    await audit.record_named(conn, org_id, actor, AuditVerb.DELETE, "schedule", name, {})


async def ticks(conn: type_Connection, org_id: int, name: str, count: int) -> list[datetime]:
    """Return the next ticks of a schedule."""
    row = _found(await conn.fetchrow(SQL.show, org_id, check_name(name, "name")), name)
    return _first(timing_of(row), row["next_at"], count)


async def preview(conn: type_Connection, wanted: Wanted, count: int) -> list[datetime]:
    """Return the ticks that a schedule would have which were made now."""
    now = await conn.fetchval(SQL.now)
    timing = check_timing(wanted.cron, wanted.every, "UTC" if wanted.timezone is None else wanted.timezone, now)
    return _first(timing, timing.after(now), count)


async def backfill(
    conn: type_Connection, org_id: int, name: str, since: datetime, until: datetime | None, at_once: int, actor: str, *,
    dry_run: bool = False,
) -> Backfill:  # fmt: skip
    """Make up for the ticks of a time that is over; a tick for which there is a job already gets no other."""
    row = _found(await conn.fetchrow(SQL.show, org_id, check_name(name, "name")), name)
    now = await conn.fetchval(SQL.now)
    first = check_moment(since, "since")
    last = now if until is None else check_moment(until, "until")
    if last > now or first > last:
        raise InvalidInput("until", "must not be after now" if last > now else "must not be before since")
    check_number(at_once, "at_once", 1, 1000)
    # By so many others would wait.
    found = await asyncio.to_thread(lambda: list(islice(timing_of(row).between(first, last), MOST_TICKS + 1)))
    if not found or len(found) > MOST_TICKS:
        wrong = f"has no tick of {name}" if not found else f"has more than {MOST_TICKS:,} ticks"
        raise InvalidInput("since", f"the time from there {wrong}: give another")
    if dry_run:
        return Backfill(0, first, last, at_once, len(found), 0, 0, 0, None, now, None, None, actor)
    timing = (row["cron"], row["every"], row["timezone"], row["anchor"])
    try:
        made = await conn.fetchrow(
            SQL.add_backfill, org_id, row["id"], *timing, first, last, at_once, len(found), found[0], actor
        )
    except asyncpg.ForeignKeyViolationError:
        # The schedule has been removed since.
        raise NotFound("schedule", name) from None
    assert made is not None
    told = {"backfill": str(made["id"]), "ticks": len(found)}
    await audit.record_named(conn, org_id, actor, AuditVerb.REPLAY, "schedule", name, told)
    return _backfill(made, 0)


async def list_backfills(
    conn: type_Connection, org_id: int, name: str, *, before: int | None, limit: int
) -> list[Backfill]:
    """Return the backfills of a schedule, the newest first."""
    await show(conn, org_id, name)
    highest = MAX_ID if before is None else check_number(before, "before", 0, MAX_ID)
    rows = await conn.fetch(SQL.backfills, org_id, name, highest, limit)
    return [_backfill(row, len(row["live"])) for row in rows]


async def cancel_backfill(conn: type_Connection, org_id: int, backfill_id: int, actor: str) -> None:
    """Let nothing more begin by a backfill; jobs that have begun go on."""
    if await conn.fetchval(SQL.cancel_backfill, org_id, backfill_id) is None:
        raise NotFound("backfill", backfill_id, "it has ended, or never was; see `weft schedules backfills NAME`")
    await audit.record_many(conn, org_id, actor, AuditVerb.CANCEL, "backfill", [backfill_id])


def timing_of(row: Record) -> Timing:
    """Return when a schedule ticks."""
    return Timing(row["cron"], row["every"], row["timezone"], row["anchor"])


def inputs_at(inputs: Mapping[str, Json], timing: Timing, tick: datetime) -> Mapping[str, Any]:
    """Return the inputs of the job of a tick, which may speak of it; raises `ExpressionError`."""
    zone = ZoneInfo(timing.timezone)
    local, before = tick.astimezone(zone), timing.before(tick).astimezone(zone)
    told = {"at": local.isoformat(), "date": local.date().isoformat(), "previous": before.isoformat()}
    rendered = read_value(dict(inputs), names=NAMES).render({"tick": told})
    assert isinstance(rendered, dict)
    return rendered


def _first(timing: Timing, moment: datetime, count: int) -> list[datetime]:
    return list(islice(timing.between(moment, _END), check_number(count, "count", 1, 1000)))


def _said(tag: str, wanted: Wanted, timing: Timing, before: Mapping[str, Any]) -> Sequence[Any]:
    said = {key: before[key] if (given := getattr(wanted, key)) is None else given for key in before}
    return (
        check_name(tag, "tag"), orjson.dumps(said["inputs"]).decode(), timing.cron, timing.every, timing.timezone,
        check_word(said["catch_up"], "catch_up", CatchUp), check_word(said["overlap"], "overlap", Overlap),
        check_priority(said["priority"]),
    )  # fmt: skip


def _require_inputs(declared: Declared, inputs: Mapping[str, Any], timing: Timing, tick: datetime) -> None:
    """Refuse inputs that a job of the next tick would not take."""
    try:
        _, problems = check_inputs(declared, inputs_at(inputs, timing, tick))
    except ExpressionError as problem:
        raise InvalidInput(
            "inputs", f"{problem}: what is told of a tick is tick.at, tick.date, tick.previous"
        ) from None
    if problems:
        raise InvalidInput("inputs", told_of(problems))


def _told(timing: Timing) -> dict[str, Any]:
    every = {} if timing.every is None else {"every": timing.every.total_seconds()}
    return {**({} if timing.cron is None else {"cron": timing.cron}), **every, "timezone": timing.timezone}


async def _turn(
    conn: type_Connection, org_id: int, name: str, actor: str, verb: AuditVerb, states: tuple[str, str]
) -> None:
    await show(conn, org_id, name)
    statement = SQL.pause if verb is AuditVerb.PAUSE else SQL.resume
    if await conn.fetchval(statement, org_id, name) is None:
        raise StateConflict(verb, name, states[0], [states[1]], kind="schedule")
    await audit.record_named(conn, org_id, actor, verb, "schedule", name, {})


def _found(row: Any, name: str) -> Any:
    if row is None:
        raise NotFound("schedule", name, "see `weft schedules list`")
    return row


def _schedule(row: Record) -> Schedule:
    found = {field: row[field] for field in Schedule.__slots__}
    found |= {"inputs": orjson.loads(row["inputs"])}
    return Schedule(**found | {"catch_up": CatchUp(row["catch_up"]), "overlap": Overlap(row["overlap"])})


def _backfill(row: Record, running: int) -> Backfill:
    return Backfill(**{field: row[field] for field in Backfill.__slots__} | {"running": running})
