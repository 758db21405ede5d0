"""The service by which live jobs go on: what came to them becomes units, and units become tasks."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from weft.db.statements import Statements
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.db.database import Database

SQL = Statements("weft.live", "sql/router.sql")
# So many jobs have their turn in one round, so many of them at once, with so many units each.
_IN_ROUND, _AT_ONCE, _UNITS = 500, 4, 1000
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
        turn = asyncio.Semaphore(_AT_ONCE)

        async def in_turn(job_id: int) -> int:
            async with turn:
                return await self._go_on(job_id, is_thorough)

        begun = await asyncio.gather(*(in_turn(job_id) for job_id in due), return_exceptions=True)
        if problems := [each for each in begun if isinstance(each, BaseException)]:
            # One that meets something unforeseen keeps no other from its turn.
            raise problems[0]
        async with self._database.acquire() as conn:
            left = await conn.fetchval(SQL.next_at)
        self._next = self.interval if left is None else max(_SOONEST, left.total_seconds())
        return sum(each for each in begun if isinstance(each, int))

    def pause_before_next(self, done: int) -> float:
        """Rest until the next unit may begin, as far as is known, or somebody says that there is one."""
        return 0.0 if done else min(self._next, self.interval)

    async def _go_on(self, job_id: int, is_thorough: bool) -> int:
        begun = 0
        for _ in range(_TURNS):
            row = await self._database.run(lambda conn: conn.fetchrow(SQL.turn, job_id, _UNITS, is_thorough))
            assert row is not None
            begun += row["begun"]
            if not row["is_more"]:
                break
        return begun
