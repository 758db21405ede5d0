"""The services that keep the whole queue going, run by whichever worker leads: stage, rescue, drain, prune, …."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

from weft.core.errors import PermissionDenied
from weft.core.settings import Settings
from weft.core.states import OutboxKind
from weft.db.blobs import open_blobs
from weft.db.database import Database, ensure_partitions
from weft.queue import audit, cache, loans, outbox, queues, seals, upkeep
from weft.queue.blobs import Collector
from weft.queue.service import Service
from weft.queue.workers import Pulse

logger = logging.getLogger("weft.service")
LONGEST_REST = 3600.0
SHORT_DELAY = timedelta(seconds=5)
CALLBACKS_AT_ONCE = 64
_STAGING_STEP = 0.1


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
                await queues.hint(conn, woken)
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
        self._loss_limit = settings.worker_loss_limit
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
                lambda conn, worker_id=worker_id: upkeep.rescue(conn, worker_id, self._loss_limit)  # type: ignore[misc]
            )
            count += taken
            woken |= queues_woken
        count += await self._database.run(upkeep.expire)
        if woken:
            async with self._database.acquire() as conn:
                await queues.hint(conn, woken)
        count += await self._database.run(outbox.rescue)
        return count


class Drainer(Service):
    """Carries out the effects of the outbox; those of which somebody outside must answer ``at_once`` with others."""

    name = "drainer"
    interval = LONGEST_REST

    def __init__(self, database: Database, worker_id: int, sinks: Mapping[str, outbox.Sink], at_once: int = 1) -> None:
        super().__init__()
        self._at_once = at_once
        self._database = database
        self._worker_id = worker_id
        self._sinks = sinks

    async def run_once(self) -> int:
        """Carry out one batch."""
        most = 100 if self._at_once == 1 else self._at_once
        return await outbox.drain(self._database, self._worker_id, self._sinks, most, at_once=self._at_once)

    async def stop(self) -> None:
        """End the loop and give back what it had taken."""
        was_running = self.is_running
        await super().stop()
        if was_running and self._sinks:
            await self._database.run(lambda conn: outbox.give_back(conn, self._worker_id, sorted(self._sinks)))


class Admitter(Service):
    """Admits tasks that were parked while the limit of their key was being raised."""

    name = "admitter"
    interval = 5.0

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    async def run_once(self) -> int:
        """Admit what has room; somebody is woken for it."""
        return len(await self._database.run(queues.admit))


class JobTimer(Service):
    """Lets jobs and waits fail that have run out of time, resting until the next one does."""

    name = "job timer"
    interval = 5.0
    shortest = 0.2

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._next = self.interval

    async def run_once(self) -> int:
        """End one batch; what is left of them is swept away by an orchestrator."""
        count = await self._database.run(upkeep.end_late_jobs)
        async with self._database.acquire() as conn:
            late_in = await upkeep.next_late(conn)
        self._next = self.interval if late_in is None else late_in.total_seconds()
        return count

    def pause_before_next(self, done: int) -> float:
        """Rest until the next one is late, as far as is known."""
        return 0.0 if done else min(max(self._next, self.shortest), self.interval)


class Pruner(Service):
    """Makes partitions ahead of time, drops those past the retention, and forgets what nobody needs."""

    name = "pruner"
    interval = 60.0

    def __init__(self, database: Database, settings: Settings) -> None:
        super().__init__()
        self._database = database
        self._settings = settings
        self._keys_after = 0
        self._edges_after = 0
        self._has_more = False
        self._rounds = 0

    async def run_once(self) -> int:
        """Prune one page of everything; partitions every tenth time."""
        database, settings = self._database, self._settings
        await database.run(upkeep.refresh_handlers)
        await database.run(upkeep.add_up)
        gone, after = await database.run(
            lambda conn: upkeep.prune_keys(conn, settings.idempotency_ttl, self._keys_after)
        )
        self._keys_after = after or 0
        edges, next_edge = await database.run(
            lambda conn: upkeep.prune_edges(conn, settings.retention, self._edges_after)
        )
        gone, self._edges_after = gone + edges, next_edge or 0
        pages = [
            await database.run(prune)
            for prune in (
                lambda conn: upkeep.prune_workers(conn, timedelta(hours=1)),
                lambda conn: upkeep.prune_codes(conn, settings.retention),
                upkeep.prune_idle_keys,
                upkeep.forget_slots,
                loans.forget,
                lambda conn: outbox.prune(conn, settings.retention),
                lambda conn: audit.prune(conn, settings.acts_kept),
                lambda conn: seals.prune(conn, settings.acts_kept),
                lambda conn: upkeep.prune_logs(conn, settings.retention),
                lambda conn: upkeep.prune_inputs(conn, settings.retention),
                lambda conn: upkeep.prune_events(conn, settings.retention),
                lambda conn: cache.prune(conn, settings.retention),
                lambda conn: upkeep.prune_answers(conn, settings.idempotency_ttl),
            )
        ]
        gone += sum(pages)
        self._has_more = after is not None or next_edge is not None or max(pages) >= upkeep.PAGE
        if self._rounds % 10 == 0:
            gone += await self._renew_partitions() + await self._shrink_cache()
        self._rounds += 1
        return gone

    async def _renew_partitions(self) -> int:
        await self._database.run(ensure_partitions)
        try:
            return len(await upkeep.drop_partitions(self._database, self._settings.retention))
        except PermissionDenied as problem:
            logger.warning(
                "partitions past the retention are dropped by the owner of the schema weft only: %s", problem
            )
            return 0

    async def _shrink_cache(self) -> int:
        """Forget outputs where an org has more than it may; they are counted when partitions are."""
        most, gone = self._settings.cache_max_bytes, 0
        while most is not None and (page := await self._database.run(lambda conn: cache.shrink(conn, most))):
            gone += page
        return gone

    def pause_before_next(self, done: int) -> float:
        """Go on at once only while there are further pages."""
        return 0.0 if self._has_more else self.interval * random.uniform(0.9, 1.1)


def staging_times(delays: Iterable[timedelta]) -> list[timedelta]:
    """Return when to look for tasks that were postponed together: few looks, none of them early, none very late."""
    exact = {delay.total_seconds() for delay in delays}
    if len(exact) > 1:
        exact = {math.ceil(seconds / _STAGING_STEP) * _STAGING_STEP for seconds in exact}
    short = sorted(seconds for seconds in exact if seconds <= SHORT_DELAY.total_seconds())
    return [timedelta(seconds=seconds) for seconds in short or sorted(exact)[:1]]


class Sealer(Service):
    """Seals what was done, a batch at a time, behind those who do it."""

    name = "sealer"
    interval = 20.0

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    async def run_once(self) -> int:
        """Seal one batch of each org."""
        return await self._database.run(seals.seal)


class Upkeep:
    """The services of one worker: they run while it leads, and are kicked when a heartbeat tells of something to do."""

    def __init__(
        self, database: Database, settings: Settings, worker_id: int, sinks: Mapping[str, outbox.Sink],
        has_settled: Callable[[], bool], more: Sequence[Service] = (),
    ) -> None:  # fmt: skip
        self.stager = Stager(database)
        self._rescuer = Rescuer(database, settings, has_settled)
        # A receiver that does not answer holds up nothing but its like.
        outside = OutboxKind.CALLBACK, OutboxKind.OPENLINEAGE
        here = {kind: sink for kind, sink in sinks.items() if kind not in outside}
        apart = [{str(kind): sinks[kind]} for kind in outside if kind in sinks]
        self._drainers = (
            Drainer(database, worker_id, here),
            *(Drainer(database, worker_id, each, CALLBACKS_AT_ONCE) for each in apart),
        )
        self._services: tuple[Service, ...] = (
            self.stager, self._rescuer, Admitter(database), JobTimer(database), *self._drainers,
            Pruner(database, settings), Collector(database, open_blobs(settings)), Sealer(database),
            *more,
        )  # fmt: skip
        self.leads = False
        self._turning = asyncio.Lock()

    def look_at_due(self) -> None:
        """Stage what is due, and note when the next is."""
        self.stager.kick()

    async def follow(self, pulse: Pulse) -> None:
        """Start or stop with the lead, one after the other, and kick what has something to do."""
        async with self._turning:
            if pulse.leader != self.leads:
                self.leads = pulse.leader
                await (self._start() if pulse.leader else self.stop())
        if pulse.lapsed:
            self._rescuer.kick()
        if pulse.next_due_at is not None:
            self.stager.kick()
        if pulse.has_outbox:
            for drainer in self._drainers:
                drainer.kick()

    async def stage_in(self, delay: timedelta) -> bool:
        """See to it that what this worker postponed is staged when due; True when it was done here.

        The leader does so anyway; for a short delay nobody waits until the leader hears of it.
        """
        if self.leads or delay > SHORT_DELAY:
            self.stager.kick()
            return False
        await asyncio.sleep(delay.total_seconds())
        return await self.stager.run_once() > 0

    async def _start(self) -> None:
        # At once, each would open a connection of its own for its first look; in turn, they hand on a few.
        await self._services[0].start()
        for before, service in pairwise(self._services):
            await service.start_after(before)

    async def stop(self) -> None:
        """End all services; one that cannot say goodbye to the database does not keep the others."""
        await asyncio.gather(*(service.stop() for service in self._services), return_exceptions=True)
