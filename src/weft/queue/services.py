"""The services that every worker runs for the whole queue while it leads: stage, rescue, drain, prune."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from weft.core.settings import Settings
from weft.queue import outbox, queues, upkeep
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.db.database import Database

LONGEST_REST = 3600.0


class Stager(Service):
    """Makes due tasks ready, sleeping until the next one is due."""

    name = "stager"
    interval = LONGEST_REST

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._next = self.interval

    async def run_once(self) -> int:
        """Stage one batch and note when the next task is due."""
        count, woken = await self._database.run(upkeep.stage)
        async with self._database.acquire() as conn:
            if woken:
                await queues.hint(conn, sorted(woken))
            due_in = await upkeep.next_due(conn)
        self._next = self.interval if due_in is None else max(0.0, due_in.total_seconds())
        return count

    def pause_before_next(self, done: int) -> float:
        """Rest until the next task is due."""
        return 0.0 if done >= upkeep.STAGE_BATCH else min(self._next, self.interval)


class Rescuer(Service):
    """Gives the tasks of lost workers to others."""

    name = "rescuer"
    interval = LONGEST_REST

    def __init__(self, database: Database, settings: Settings, has_settled: Callable[[], bool]) -> None:
        super().__init__()
        self._database = database
        self._crash_limit = settings.worker_crash_limit
        # After an outage everybody's lease has lapsed: those who come back must have time to say so.
        self._has_settled = has_settled

    async def run_once(self) -> int:
        """Mark lapsed workers and take a batch of tasks from each lost one."""
        if not self._has_settled():
            return 0
        await self._database.run(upkeep.mark_lost)
        async with self._database.acquire() as conn:
            lost = await upkeep.lost_workers(conn)
        count, woken = 0, set[int]()
        for worker_id in lost:
            taken, queues_woken = await self._database.run(
                lambda conn, worker_id=worker_id: upkeep.rescue(conn, worker_id, self._crash_limit)  # type: ignore[misc]
            )
            count += taken
            woken |= queues_woken
        count += await self._database.run(upkeep.expire)
        if woken:
            async with self._database.acquire() as conn:
                await queues.hint(conn, sorted(woken))
        if lost:
            await self._database.run(outbox.rescue)
        return count


class Drainer(Service):
    """Carries out the effects of the outbox."""

    name = "drainer"
    interval = LONGEST_REST

    def __init__(self, database: Database, worker_id: int, sinks: Mapping[str, outbox.Sink]) -> None:
        super().__init__()
        self._database = database
        self._worker_id = worker_id
        self._sinks = sinks

    async def run_once(self) -> int:
        """Carry out one batch."""
        return await outbox.drain(self._database, self._worker_id, self._sinks)


class Pruner(Service):
    """Makes partitions ahead of time, drops those past the retention, and forgets what nobody needs."""

    name = "pruner"
    interval = 60.0

    def __init__(self, database: Database, settings: Settings) -> None:
        super().__init__()
        self._database = database
        self._settings = settings
        self._keys_after = 0
        self._rounds = 0

    async def run_once(self) -> int:
        """Prune one page of everything; partitions every tenth time."""
        database, settings = self._database, self._settings
        await database.run(upkeep.refresh_handlers)
        gone, after = await database.run(
            lambda conn: upkeep.prune_keys(conn, settings.idempotency_ttl, self._keys_after)
        )
        self._keys_after = after or 0
        gone += await database.run(lambda conn: upkeep.prune_workers(conn, timedelta(hours=1)))
        gone += await database.run(upkeep.prune_idle_keys)
        gone += await database.run(lambda conn: outbox.prune(conn, settings.retention))
        woken = await database.run(upkeep.admit)
        if woken:
            async with database.acquire() as conn:
                await queues.hint(conn, sorted(woken))
        if self._rounds % 10 == 0:
            await database.run(upkeep.ensure_partitions)
            gone += len(await upkeep.drop_partitions(database, settings.retention))
        self._rounds += 1
        return gone

    def pause_before_next(self, done: int) -> float:
        """Go on at once only while there are further pages of keys."""
        return 0.0 if self._keys_after else self.interval * random.uniform(0.9, 1.1)
