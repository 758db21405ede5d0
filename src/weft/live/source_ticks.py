"""The service by which sources tick that go by the clock: whoever moves one on makes its units in one statement."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfoNotFoundError

from cronsim import CronSimError

from weft.db.statements import Statements
from weft.flow.ticks import CatchUp, due_now
from weft.live.schedules import timing_of
from weft.queue.service import Service

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database

logger = logging.getLogger("weft.live")
SQL = Statements("weft.live", "sql/source_ticks.sql")
# So many sources are moved on at once, and so many ticks of each.
_IN_ROUND, _OF_EACH = 500, 100
_LOOK_EVERY = 5.0
_SOONEST = 0.01
# What is due, and nobody may take: its job has no room, or another is at it.
_AGAIN = 0.5
# The next tick of a source whose times have changed, until somebody has found it.
_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SourceTurn:
    """What is due of a source as it was seen: the ticks that become units, what is left out, and when the next is."""

    live_job_id: int
    seen_at: datetime
    ticks: Sequence[datetime]
    missed: int
    next_at: datetime


class SourceTicker(Service):
    """Makes units of what is due of all sources, resting until the next tick; any number of them share the work."""

    name = "source_ticker"
    interval = _LOOK_EVERY

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._next = self.interval

    async def run_once(self) -> int:
        """Make units of what is due; return how many."""
        async with self._database.acquire() as conn:
            due = await conn.fetch(SQL.due, _IN_ROUND)
        turns, problem = [], None
        for row in due:
            try:
                turns.append(turn_of(row))
            except (ZoneInfoNotFoundError, CronSimError, StopIteration) as found:
                # One whose times this machine cannot tell keeps no other from its tick.
                problem = found
                logger.warning("the source of live job %s cannot tick: %s", row["live_job_id"], found)
        made = await self.take(turns)
        if problem is not None:
            raise problem
        async with self._database.acquire() as conn:
            left = await conn.fetchval(SQL.next_due)
        seconds = self.interval if left is None else left.total_seconds()
        self._next = max(_SOONEST if made or seconds > 0 else _AGAIN, seconds)
        return made

    async def take(self, turns: Sequence[SourceTurn]) -> int:
        """Move sources on, each if it is still as it was seen; return how many units that made."""
        if not turns:
            return 0
        moved = [[getattr(turn, each) for turn in turns] for each in ("live_job_id", "seen_at", "next_at", "missed")]
        ticks = [(turn.live_job_id, tick.isoformat()) for turn in turns for tick in turn.ticks]
        units = [job_id for job_id, _ in ticks], [at for _, at in ticks]
        made: int = await self._database.run(lambda conn: conn.fetchval(SQL.move_on, *moved, *units))
        return made

    def pause_before_next(self, done: int) -> float:
        """Rest until the next tick, as far as is known."""
        return min(self._next, self.interval)


def turn_of(row: Record) -> SourceTurn:
    """Return what is due of a source, as far as its job has room for it."""
    timing, next_at, ticks, missed = timing_of(row), row["next_at"], list[datetime](), 0
    if next_at == _UNKNOWN:
        return SourceTurn(row["live_job_id"], next_at, (), 0, timing.after(row["now"]))
    for _ in range(min(row["room"], _OF_EACH)):
        due = due_now(timing, next_at, row["now"], CatchUp(row["catch_up"]))
        ticks += [] if due.tick is None else [due.tick]
        missed, next_at = missed + due.missed, due.next_at
        if next_at > row["now"]:
            break
    return SourceTurn(row["live_job_id"], row["next_at"], ticks, missed, next_at)
