"""The service by which schedules tick: whoever moves one on begins its job in the same transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Set
from typing import TYPE_CHECKING

import asyncpg

from weft.core.errors import CallerError
from weft.core.signals import NonRetryable
from weft.flow.budget import ExpressionError
from weft.flow.ticks import CatchUp, due_now
from weft.jobs.library import Libraries, Library, lanes_of
from weft.jobs.requests import Standing, standing_at
from weft.jobs.submit import submit
from weft.live.schedules import SQL, timing_of
from weft.live.turns import BackfillTurn, ScheduleTurn, Turn
from weft.queue import queues
from weft.queue.service import Service

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database, type_Connection
    from weft.db.machine import IdSource

logger = logging.getLogger("weft.live")
# So many schedules are looked at in one round, so many of them at once, and so many ticks of each; of all of them
# together no more than one of each and so many: meanwhile others become due.
_IN_ROUND, _AT_ONCE, _OF_EACH, _IN_ALL = 500, 4, 100, 500
_LOOK_EVERY = 5.0
_SOONEST = 0.01
# Jobs of a backfill end without telling anybody here.
_LOOK_AT_BACKFILLS_EVERY = 1.0
# What is wrong with a schedule itself: its tick is left out, and the schedule says why.
_OWN_FAULT = (NonRetryable, ExpressionError, CallerError)
_LONGEST = 2000


class _Known:
    """What is looked up once in a round for all that is due then: where tags stand, and which queues orgs have."""

    def __init__(self) -> None:
        self._standings: dict[tuple[int, str], Standing] = {}
        self._lanes: dict[int, dict[str, int]] = {}

    async def standing(self, library: Library, org_id: int, tag: str) -> Standing:
        """Return the version at which a tag stands; raises `NotFound`."""
        if (found := self._standings.get((org_id, tag))) is None:
            found = self._standings[org_id, tag] = await standing_at(library, tag)
        return found

    async def lanes(self, conn: type_Connection, org_id: int, needed: Set[str]) -> dict[str, int]:
        """Return the queues of an org by name; raises `NonRetryable` when one that is needed is missing."""
        found = self._lanes.get(org_id)
        if found is None or needed - found.keys():
            found = self._lanes[org_id] = await lanes_of(conn, org_id, needed)
        return found


class Ticker(Service):
    """Begins what is due of all schedules, resting until the next tick; any number of them share the work."""

    name = "ticker"
    interval = _LOOK_EVERY

    def __init__(self, database: Database, ids: IdSource, libraries: Libraries) -> None:
        super().__init__()
        self._database = database
        self._ids = ids
        self._libraries = libraries
        self._next = self.interval
        self._known = _Known()
        self._left = _IN_ALL

    async def run_once(self) -> int:
        """Begin what is due; return how many jobs."""
        self._known, self._left = _Known(), _IN_ALL
        async with self._database.acquire() as conn:
            due = await conn.fetch(SQL.due, _IN_ROUND)
            open_ = [row["id"] for row in await conn.fetch(SQL.open_backfills, _IN_ROUND)]
        turn = asyncio.Semaphore(_AT_ONCE)

        async def in_turn(begin: Awaitable[int]) -> int:
            async with turn:
                return await begin

        begun = await asyncio.gather(
            *(in_turn(self._tick(row)) for row in due), *(in_turn(self._fill(id)) for id in open_),
            return_exceptions=True,
        )  # fmt: skip
        problems = [each for each in begun if isinstance(each, BaseException)]
        if problems:
            # One that meets something unforeseen keeps no other from its tick.
            raise problems[0]
        async with self._database.acquire() as conn:
            left = await conn.fetchval(SQL.next_due)
        self._next = self.interval if left is None else max(_SOONEST, left.total_seconds())
        self._next = min(self._next, _LOOK_AT_BACKFILLS_EVERY) if open_ else self._next
        return sum(each for each in begun if isinstance(each, int))

    def pause_before_next(self, done: int) -> float:
        """Rest until the next tick, as far as is known."""
        return min(self._next, self.interval)

    async def _tick(self, row: Record) -> int:
        """Begin what is due of a schedule, one tick after the other."""
        next_at, begun = row["next_at"], 0
        for _ in range(_OF_EACH):
            due = due_now(timing_of(row), next_at, row["now"], CatchUp(row["catch_up"]))
            landed = await self._begin(ScheduleTurn(row, due.tick, next_at, due))
            if landed is None:
                return begun
            begun, next_at = begun + landed, due.next_at
            if next_at > row["now"] or self._is_enough():
                return begun
        return begun

    async def _fill(self, backfill_id: int) -> int:
        """Begin as many more jobs of a backfill as there is room for, or end it."""
        begun = 0
        for _ in range(_OF_EACH):
            async with self._database.acquire() as conn:
                row = await conn.fetchrow(SQL.look_at_backfill, backfill_id)
            if row is not None and row["next_at"] is None and not row["live"]:
                await self._database.run(lambda conn: conn.execute(SQL.end_backfill, backfill_id))
            if row is None or row["next_at"] is None or len(row["live"]) >= row["at_once"]:
                return begun
            landed = await self._begin(BackfillTurn(row, row["next_at"]))
            if landed is None:
                return begun
            begun += landed
            if self._is_enough():
                return begun
        return begun

    def _is_enough(self) -> bool:
        """Whether of what has several ticks due no more than the first is begun in this round."""
        self._left -= 1
        return self._left < 0

    async def _begin(self, turn: Turn) -> int | None:
        """Begin the job of a tick, and move on what ticked: both, or neither. Return how many jobs; None: another has.

        What cannot begin by its own fault is moved on without a job, and says why.
        """
        if turn.tick is None:
            return await self._database.run(lambda conn: _leave_out(conn, turn, None))
        row, library = turn.row, self._libraries.of(turn.row["org_id"], turn.row["actor"])
        try:
            try:
                return await self._begin_job(turn, library)
            except asyncpg.ForeignKeyViolationError:
                # What was remembered of the workflow has been collected as garbage.
                library.forget()
                self._known = _Known()
                return await self._begin_job(turn, library)
        except _OWN_FAULT as problem:
            error = str(problem)[:_LONGEST]
            if error != row["last_error"]:
                # Once: it is the same at each tick until somebody mends it.
                logger.warning("the schedule %s of org %s cannot begin: %s", row["name"], row["org_id"], error)
            return await self._database.run(lambda conn: _leave_out(conn, turn, error))

    async def _begin_job(self, turn: Turn, library: Library) -> int | None:
        org_id, known = turn.row["org_id"], self._known
        at = await known.standing(library, org_id, turn.row["tag"])
        job, plan = turn.job(at), at.planned.plan
        ids = await self._ids.take(1 + len(plan.steps))

        async def write(conn: type_Connection) -> int | None:
            may_begin = await turn.take(conn)
            if not may_begin:
                return None if may_begin is None else await _moved_on(conn, turn, None)
            lanes = await known.lanes(conn, org_id, at.queues)
            job_id = await submit(conn, org_id, job, plan, ids, lanes, self._database.settings.job_default_timeout)
            await turn.move_on(conn, job_id)
            await queues.hint(conn, plan.first_queues(lanes))
            return 1

        return await self._database.run(write)


async def _leave_out(conn: type_Connection, turn: Turn, error: str | None) -> int | None:
    return None if await turn.take(conn) is None else await _moved_on(conn, turn, error)


async def _moved_on(conn: type_Connection, turn: Turn, error: str | None) -> int:
    await turn.move_on(conn, None, error)
    return 0
