"""pgqueuer: a finished job's row is deleted and a row is added to a log table."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
from inbox import Inbox, tell
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from workload import Drained, Peer

BATCH = 500


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    """The factory that ``pgq run`` calls."""
    async with asyncpg.create_pool(os.environ["PEER_URL"], min_size=4, max_size=20) as pool:
        queuer = PgQueuer(AsyncpgPoolDriver(pool))

        @queuer.entrypoint("noop")
        async def noop(job: Job) -> None:
            pass

        @queuer.entrypoint("stamp")
        async def stamp(job: Job) -> None:
            tell(int(job.payload or b""))

        yield queuer


class Driver(Peer):
    distribution = "pgqueuer"
    setting = f"batch {BATCH}, asyncpg pool, uvloop"

    def install(self) -> None:
        self._loop = asyncio.Runner()
        self._store = self._loop.run(asyncpg.connect(self.url))
        self._queries = Queries(AsyncpgDriver(self._store))
        self._loop.run(self._queries.install())

    def worker_command(self) -> list[str]:
        pgq = str(Path(sys.executable).with_name("pgq"))
        return [pgq, "run", "pgqueuer_driver:worker", f"--batch-size={BATCH}", "--log-level=WARNING"]

    def enqueue(self, count: int) -> None:
        self._loop.run(self._queries.enqueue(["noop"] * count, [None] * count, [0] * count))

    def enqueue_stamp(self, sent_ns: int) -> None:
        self._loop.run(self._queries.enqueue("stamp", str(sent_ns).encode()))

    def analyze(self) -> None:
        self._loop.run(self._store.execute("analyze"))

    def is_drained(self, count: int) -> bool:
        return self._loop.run(self._store.fetchval("select 1 from pgqueuer limit 1")) is None

    def drained(self, inbox: Inbox) -> Drained:
        row = self._loop.run(
            self._store.fetchrow(
                """
                select count(*) filter (where status = 'successful'),
                       extract(epoch from max(created) filter (where status = 'successful')
                                          - min(created) filter (where status = 'picked'))
                from pgqueuer_log
                """
            )
        )
        assert row is not None
        return Drained(row[0], float(row[1]))
