"""awa: segments of jobs and of completion receipts, truncated once a segment is finished."""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from awa import AsyncClient
from inbox import Inbox, tell
from workload import Drained, Peer

QUEUE = "bench"
WORKERS = 1000
POLL_MS = 50
COPY_SIZE = 10_000


@dataclass
class Noop:
    number: int


@dataclass
class Stamp:
    sent_ns: int


def connect(url: str) -> AsyncClient:
    # Its URL parser wants a host even where ?host= names a socket directory.
    if not urlsplit(url).hostname:
        scheme, rest = url.split("://", 1)
        authority, slash, tail = rest.partition("/")
        url = f"{scheme}://{authority}localhost{slash}{tail}"
    return AsyncClient(url)


async def work() -> None:
    """The worker process: the Python package has no command of its own for it."""
    client = connect(os.environ["PEER_URL"])

    @client.task(Noop, queue=QUEUE)
    async def noop(job: Any) -> None:
        pass

    @client.task(Stamp, queue=QUEUE)
    async def stamp(job: Any) -> None:
        tell(job.args.sent_ns)

    await client.start([(QUEUE, WORKERS)], poll_interval_ms=POLL_MS)
    await asyncio.Event().wait()


class Driver(Peer):
    distribution = "awa-pg"
    setting = f"{WORKERS} workers, poll {POLL_MS} ms, queue storage"

    def install(self) -> None:
        self._loop = asyncio.Runner()
        self._loop.run(self._install())
        self._first_start = float("inf")
        self._last_completion = 0.0

    async def _install(self) -> None:
        self._client = connect(self.url)
        await self._client.migrate()
        await self._client.install_queue_storage()

    def worker_command(self) -> list[str]:
        return [sys.executable, "-c", "import asyncio, awa_pg_driver; asyncio.run(awa_pg_driver.work())"]

    def enqueue(self, count: int) -> None:
        for start in range(0, count, COPY_SIZE):
            jobs = [Noop(number) for number in range(start, min(count, start + COPY_SIZE))]
            self._loop.run(self._enqueue_copy(jobs))

    async def _enqueue_copy(self, jobs: list[Noop]) -> None:
        await self._client.enqueue_many_copy(jobs, queue=QUEUE)

    def enqueue_stamp(self, sent_ns: int) -> None:
        self._loop.run(self._insert(Stamp(sent_ns)))

    async def _insert(self, job: Stamp) -> None:
        await self._client.insert(job, queue=QUEUE)

    def analyze(self) -> None:
        self._loop.run(self._fetch("analyze"))

    def is_drained(self, count: int) -> bool:
        return self._read_receipts() >= count

    def drained(self, inbox: Inbox) -> Drained:
        return Drained(self._read_receipts(), self._last_completion - self._first_start)

    def _read_receipts(self) -> int:
        """Count completions. The times are kept here: a finished segment is truncated while others still run.

        Not by the view ``awa.jobs``, which takes seconds to answer while the tables have no statistics.
        """
        row = self._loop.run(
            self._fetch(
                """
                select extract(epoch from min(attempted_ats[1]))::float8 as first_start,
                       extract(epoch from max(finalized_at))::float8 as last_completion,
                       coalesce(sum(completed_count), 0)::bigint as kept,
                       (select coalesce(sum(pruned_completed_count), 0)::bigint
                        from awa.queue_terminal_rollups) as pruned
                from awa.receipt_completion_batches
                """
            )
        )
        if row["first_start"] is not None:
            self._first_start = min(self._first_start, row["first_start"])
            self._last_completion = max(self._last_completion, row["last_completion"])
        return int(row["kept"]) + int(row["pruned"])

    async def _fetch(self, sql: str) -> dict[str, Any]:
        async with await self._client.transaction() as transaction:
            return (await transaction.fetch_optional(sql)) or {}
