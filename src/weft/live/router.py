"""The service by which live jobs go on: what came to them becomes units, and units become tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import asyncpg

from weft.db.statements import Statements
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.db.database import Database

S = TypeVar("S")
T = TypeVar("T")
SQL = Statements("weft.live", "sql/router.sql")
# So many jobs have their turn in one round, so many transactions of them at once.
_IN_ROUND, _AT_ONCE = 500, 4
# Committing costs more than a small turn: several jobs have one together, of few units each; more are had alone.
_TOGETHER, _UNITS_TOGETHER, _UNITS = 50, 20, 1000
# A job that has more to do than fits into one turn leaves the others theirs after so many.
_TURNS = 20
# Tasks that fail say so to nobody here: they are looked for, which costs a look at each that runs.
_LOOK_EVERY = _THOROUGH_EVERY = 2.0
_SOONEST = 0.002


class Router(Service):
    """Gives live jobs their turns; any number of routers share the work, each job has one turn at a time."""

    name = "router"
    interval = _LOOK_EVERY

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._next = self.interval
        self._thorough_at = 0.0

    async def run_once(self) -> int:
        """Give each job that has something to do a turn; return how many tasks have begun."""
        now = time.monotonic()
        is_thorough = now >= self._thorough_at
        if is_thorough:
            self._thorough_at = now + _THOROUGH_EVERY
        async with self._database.acquire() as conn:
            due = [row["id"] for row in await conn.fetch(SQL.due, _IN_ROUND, is_thorough)]
        begun, left = await self._go_on_together(due, is_thorough) if len(due) > _AT_ONCE else (0, due)
        begun += sum(await _few_at_once(lambda job_id: self._go_on(job_id, is_thorough), left))
        async with self._database.acquire() as conn:
            rest = await conn.fetchval(SQL.next_at)
        self._next = self.interval if rest is None else max(_SOONEST, rest.total_seconds())
        return begun

    def pause_before_next(self, done: int) -> float:
        """Rest until the next unit may begin, as far as is known, or somebody says that there is one."""
        return 0.0 if done else min(self._next, self.interval)

    async def _go_on_together(self, jobs: list[int], is_thorough: bool) -> tuple[int, list[int]]:
        async def turns(part: list[int]) -> tuple[int, list[int]]:
            try:
                row = await self._database.run(
                    lambda conn: conn.fetchrow(SQL.turn_together, part, _UNITS_TOGETHER, is_thorough)
                )
            except asyncpg.PostgresError:
                # Nothing is done of any of them: each has its turn by itself, and whichever cannot have it says why.
                return 0, part
            assert row is not None
            return row["begun"], row["left"]

        parts = [jobs[first : first + _TOGETHER] for first in range(0, len(jobs), _TOGETHER)]
        outcomes = await _few_at_once(turns, parts)
        return sum(begun for begun, _ in outcomes), [job_id for _, left in outcomes for job_id in left]

    async def _go_on(self, job_id: int, is_thorough: bool) -> int:
        begun = 0
        for _ in range(_TURNS):
            row = await self._database.run(lambda conn: conn.fetchrow(SQL.turn, job_id, _UNITS, is_thorough))
            assert row is not None
            begun += row["begun"]
            if not row["is_more"]:
                break
        return begun


async def _few_at_once(turn: Callable[[S], Awaitable[T]], those: Iterable[S]) -> list[T]:
    room = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(each: S) -> T:
        async with room:
            return await turn(each)

    outcomes = await asyncio.gather(*map(in_turn, those), return_exceptions=True)
    for each in outcomes:
        # One that meets something unforeseen keeps no other from its turn.
        if isinstance(each, BaseException):
            raise each
    return [each for each in outcomes if not isinstance(each, BaseException)]
