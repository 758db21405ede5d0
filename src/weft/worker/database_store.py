"""The store of a worker that has a database: its tasks are in the tables themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg

from weft.core.settings import Settings
from weft.data.collecting import DatasetCollector
from weft.db.database import Database, ensure_partitions
from weft.live.collecting import DagCollector
from weft.queue import outbox, work, workers
from weft.queue.blobs import KeptBlobs
from weft.queue.services import Upkeep
from weft.queue.work import Claim, Completed, Ended, Postponed
from weft.queue.workers import Pulse
from weft.worker import registration, unsuccessful
from weft.worker.answers import Answers
from weft.worker.connections import ConnectionPool
from weft.worker.line import Line
from weft.worker.log_copies import LogCopies
from weft.worker.log_keeping import LogKeeping
from weft.worker.output_cache import OutputCache
from weft.worker.relay import Relay
from weft.worker.slots import Slots

if TYPE_CHECKING:
    from weft.db.blobs import Blobs


class DatabaseStore:
    """The tasks of one worker of an org, in its database."""

    has_database = True

    def __init__(
        self, database: Database, settings: Settings | None = None, org_id: int = 1,
        sinks: Mapping[str, outbox.Sink] | None = None, blobs: Blobs | None = None, worker_id: int = 0,
    ) -> None:  # fmt: skip
        self._database = database
        self.settings = settings or database.settings
        self._org_id = org_id
        self._sinks = dict(sinks or {})
        self._blobs = blobs or KeptBlobs.of(database)
        self.worker_id = worker_id

    async def enter(
        self, queue_names: Sequence[str], handlers: list[str], concurrency: int, version: str, codes: Mapping[str, str]
    ) -> tuple[int, list[int]]:
        """Register the worker; return its id and the ids of its queues."""
        self.worker_id, queue_ids = await self._database.run(
            lambda conn: registration.enter(
                conn, self._org_id, queue_names, handlers, lease=self.settings.lease_time, concurrency=concurrency,
                version=version, codes=codes,
            )
        )  # fmt: skip
        return self.worker_id, queue_ids

    async def leave(self, completed: int, failed: int) -> set[int]:
        """Take the worker's name out and give back all it holds; return the queues that have work again."""
        return await self._database.run(lambda conn: registration.leave(conn, self.worker_id, completed, failed))

    async def abandon(self) -> None:
        """Let the lease lapse: what the worker runs is lost."""
        await self._database.run(lambda conn: workers.abandon(conn, self.worker_id))

    async def settle(self, outcomes: Sequence[Postponed | Ended], *, patience: str = "1s") -> set[int]:
        """Write outcomes that are no successes; return the tasks for which that landed."""
        return await self._database.run(
            lambda conn: unsuccessful.settle(conn, self.worker_id, outcomes, patience=patience)
        )

    async def complete_one(self, outcome: Completed, *, patience: str) -> list[int]:
        """Complete one attempt apart from others; return it when it was lost."""
        _, lost = await self._database.run(
            lambda conn: work.finish_and_claim(conn, self.worker_id, [outcome], [], 0, patience=patience)
        )
        return lost

    async def set_aside(self, outcome: Completed | Postponed | Ended) -> set[int]:
        """Set an attempt aside of which no outcome can be written."""
        return await self._database.run(lambda conn: work.set_aside(conn, self.worker_id, outcome.id, outcome.attempt))

    async def make_partitions(self) -> None:
        """Make the partitions that a write has missed."""
        await self._database.run(ensure_partitions)

    async def hand_back(self, leases: Sequence[tuple[int, int]]) -> set[int]:
        """Give back what has not begun; return the queues that have work again."""
        return set((await self._database.run(lambda conn: work.hand_back(conn, self.worker_id, leases))).values())

    async def extend_expiry(self, claim: Claim) -> bool:
        """Say that an attempt goes on; False when the lease is lost."""
        lease = (claim.id, claim.attempt)
        return bool(await self._database.run(lambda conn: work.extend_expiry(conn, self.worker_id, [lease])))

    async def decline(self, claim: Claim, advice: str) -> timedelta | None:
        """Leave a task to workers that know its handler, and return when it comes back; None when it has failed."""
        patience = self.settings.no_handler_timeout
        return await self._database.run(
            lambda conn: unsuccessful.decline(conn, self.worker_id, self._org_id, claim, patience, advice)
        )

    def blobs_of(self, claim: Claim) -> Blobs:
        """Return where large values are kept, of whichever task."""
        return self._blobs

    def line(self, on_message: Callable[[str], None]) -> Line:
        """Return a connection for the hot path."""
        return Line(self._database, self.worker_id, on_message)

    def pulses(self) -> DatabasePulses:
        """Return a connection for heartbeats."""
        return DatabasePulses(self._database, self.worker_id, self.settings)

    def slots(self, on_change: Callable[[], None]) -> Slots:
        """Return the worker's share of limited queues."""
        return Slots(self._database, self.worker_id, on_change)

    def relay(self) -> Relay:
        """Return what passes hints on to others."""
        return Relay(self._database, self.worker_id)

    def upkeep(self, has_settled: Callable[[], bool]) -> Upkeep:
        """Return the services that run while the worker leads."""
        retention = self.settings.dataset_retention
        more = [DatasetCollector(self._database, self.settings), DagCollector(self._database, retention)]
        return Upkeep(self._database, self.settings, self.worker_id, self._sinks, has_settled, more)

    def logs(self) -> LogKeeping:
        """Return what copies logs to the blob storage, for machines that do not share a folder, if that is wished."""
        return LogCopies(self._database, self._blobs) if self.settings.log_upload else LogKeeping(None)

    def answers(self) -> Answers:
        """Return what does what handlers ask for."""
        return Answers(self._database, self._blobs, self._database.settings)

    def cache(self) -> OutputCache:
        """Return what finds outputs."""
        return OutputCache(self._database, self._blobs)

    def pool(self) -> ConnectionPool:
        """Return the connections that handlers may use."""
        return ConnectionPool(self._database)

    def expire(self) -> None:
        """Give up idle connections."""
        self._database.expire()

    async def close(self) -> None:
        """Leave the database open: others use it."""


class DatabasePulses:
    """The heartbeats of one worker, on a connection of their own."""

    def __init__(self, database: Database, worker_id: int, settings: Settings) -> None:
        self._database = database
        self._worker_id = worker_id
        self._lease = settings.lease_time
        self._conn: asyncpg.Connection[asyncpg.Record] | None = None

    async def beat(self, *, busy: bool, completed: int, failed: int, is_blocked: bool) -> Pulse | None:
        """Extend the lease of the worker; None when it is lost."""
        if self._conn is None or self._conn.is_closed():
            self._conn = await self._database.connect(timeout=self._lease.total_seconds() / 2)
        conn = self._conn
        async with self._database.one_session(conn):
            return await workers.heartbeat(
                conn, self._worker_id, lease=self._lease, busy=busy, completed=completed, failed=failed,
                is_blocked=is_blocked,
            )  # fmt: skip

    def drop(self) -> None:
        """Give the connection up at once."""
        if self._conn is not None:
            self._conn.terminate()
            self._conn = None

    async def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            await self._conn.close(timeout=1)
