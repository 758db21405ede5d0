"""A tick whose turn it is, of a schedule or of a backfill: who takes it, and what moves on with its job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import orjson

from weft.flow.ticks import Due
from weft.live.schedules import SQL, inputs_at, timing_of

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection
    from weft.jobs.requests import Standing
    from weft.jobs.submit import NewJob


@dataclass(frozen=True, slots=True)
class Turn(ABC):
    """A tick as it was seen in a row; without one there is only to be moved on."""

    row: Record
    tick: datetime | None

    @property
    @abstractmethod
    def schedule_id(self) -> int:
        """The schedule that ticks."""

    @abstractmethod
    async def take(self, conn: type_Connection) -> bool | None:
        """Hold the tick until the transaction ends; return whether a job may begin, None when it is another's now."""

    @abstractmethod
    async def move_on(self, conn: type_Connection, job_id: int | None, error: str | None = None) -> None:
        """Go to the next tick, which had to be taken; without a job this one was left out."""

    def job(self, at: Standing) -> NewJob:
        """Return the job of the tick; its key is the same for whoever makes it, and why."""
        assert self.tick is not None
        row, moment = self.row, self.tick.isoformat()
        inputs = inputs_at(orjson.loads(row["inputs"]), timing_of(row), self.tick)
        told = {"schedule": row["name"], "tick": moment, **self._more_labels()}
        return at.job(inputs, row["priority"], f"schedule-{self.schedule_id}-{moment}", told, row["actor"])

    def _more_labels(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class ScheduleTurn(Turn):
    """What is due of a schedule."""

    seen_at: datetime
    due: Due

    @property
    def schedule_id(self) -> int:
        """The schedule itself."""
        return int(self.row["id"])

    async def take(self, conn: type_Connection) -> bool | None:
        """Hold it, unless it is paused, changed or moved on; no job may begin while that before goes on, if so said."""
        taken = await conn.fetchrow(SQL.take, self.row["id"], self.row["version"], self.seen_at)
        return None if taken is None else not taken["is_busy"]

    async def move_on(self, conn: type_Connection, job_id: int | None, error: str | None = None) -> None:
        """Go to the next tick, and count what was left out."""
        missed = self.due.missed + (self.tick is not None and job_id is None)
        at = None if job_id is None else self.tick
        await conn.execute(SQL.move_on, self.row["id"], self.due.next_at, missed, error, at, job_id)


@dataclass(frozen=True, slots=True)
class BackfillTurn(Turn):
    """The next tick of a backfill."""

    @property
    def schedule_id(self) -> int:
        """The schedule whose ticks are made up for."""
        return int(self.row["schedule_id"])

    async def take(self, conn: type_Connection) -> bool | None:
        """Hold it, unless it has ended or moved on, or the schedule was changed."""
        row = self.row
        return await conn.fetchval(SQL.take_backfill, row["id"], row["version"], row["next_at"]) or None

    async def move_on(self, conn: type_Connection, job_id: int | None, error: str | None = None) -> None:
        """Go to the next tick, or past the last."""
        row, then = self.row, timing_of(self.row).after(self.row["next_at"])
        running = [*row["live"], *([] if job_id is None else [job_id])]
        following = None if then > row["until"] else then
        await conn.execute(SQL.move_backfill_on, row["id"], following, int(job_id is None), error, running)

    def _more_labels(self) -> dict[str, str]:
        return {"backfill": str(self.row["id"])}
