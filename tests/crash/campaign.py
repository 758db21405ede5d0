"""A campaign: submitters enqueue and workers work while something ends them badly, and the invariants are watched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable

import asyncpg

from crash.checker import breaches, check_outcomes
from crash.harness import Crew, Process, until, until_settled
from crash.ledger import note_server_loss
from weft.core.settings import Settings
from weft.db import embedded
from weft.db.database import CONNECTION_ERRORS

QUEUES = ("default", "other")
# Another number gives another campaign.
SEED = int(os.environ.get("CRASH_SEED", "0"))
# What hangs fails where it hangs.
LIMITS = {"short": 105.0, "long": None}
# How many batches whoever submits keeps open: every day as many as are enough to have the workers at work.
WINDOWS = {"short": 8, "long": 30}
# A task is dead after some crashes; a campaign has more of them than any task would meet in its life.
PATIENT = {"worker_loss_limit": 1000}


class Nemesis:
    """Ends workers and sessions badly, as drawn from a seed, and puts new workers in the place of those killed."""

    def __init__(self, crew: Crew, workers: list[Process], seed: int) -> None:
        self._crew = crew
        self._workers = workers
        self._replacing: list[asyncio.Task[None]] = []
        self.random = random.Random(seed)
        self.counts = {"kills": 0, "pauses": 0, "terminated": 0, "restarts": 0}

    async def _victim(self) -> Process:
        async def has_workers() -> bool:
            return bool(self._workers)

        await until(has_workers, "there is a worker")
        return self.random.choice(self._workers)

    async def kill(self) -> None:
        """SIGKILL one, and start another without waiting for it."""
        victim = await self._victim()
        self._workers.remove(victim)
        assert victim.is_alive, self._crew.log()[-3000:]
        await victim.kill()
        self.counts["kills"] += 1
        self._replacing.append(asyncio.create_task(self._replace()))

    async def _replace(self) -> None:
        # One whose first session is ended does not start, and is started again, as any supervisor would.
        for tries in range(10):
            with contextlib.suppress(AssertionError) if tries < 9 else contextlib.nullcontext():
                self._workers.append(await self._crew.worker(queues=QUEUES, **PATIENT))
                return

    async def pause(self) -> None:
        """Stop one for longer than its lease, then let it go on."""
        victim = await self._victim()
        victim.pause()
        await asyncio.sleep(self.random.uniform(2.5, 4.0))
        if victim.is_alive:
            victim.resume()
        self.counts["pauses"] += 1

    async def terminate_backends(self, conn: asyncpg.Connection[asyncpg.Record]) -> None:
        """End some sessions in the middle of whatever they do."""
        self.counts["terminated"] += await conn.fetchval(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()"
            " and application_name = 'weft' and random() < 0.3"
        )

    async def restart(self, settings: Settings) -> None:
        """End PostgreSQL without a checkpoint, sometimes for longer than a lease, and start it again."""
        if self.counts["restarts"] % 2 == 1:
            os.kill((await embedded.ensure_running(settings)).pid, signal.SIGKILL)
        else:
            assert await embedded.stop(settings, mode="immediate")
        self.note_server_loss(time.monotonic_ns())
        await asyncio.sleep(self.random.choice((0.0, 0.0, 3.0)))
        await embedded.ensure_running(settings)
        self.counts["restarts"] += 1

    def note_server_loss(self, at: int) -> None:
        """Note that the server was gone, for the ledger."""
        note_server_loss(self._crew.folder, at)

    async def rest(self) -> None:
        """Wait until every victim has a successor; all of them must be alive."""
        await asyncio.gather(*self._replacing)
        assert all(worker.is_alive for worker in self._workers), self._crew.log()[-3000:]


async def under_load(
    crew: Crew, seed: int, trouble: Callable[[Nemesis], Awaitable[None]], campaign: str
) -> dict[str, int]:
    """Run ``trouble`` while submitters enqueue and workers work, with the invariants checked all the while.

    Returns what was counted, when all is settled and agrees with the ledger.
    """
    conn = await asyncpg.connect(crew.url)
    await conn.execute("insert into weft.queue (org_id, name, max_running_per_key) values (1, 'other', 2)")
    await conn.close()
    seed += SEED
    nemesis = Nemesis(crew, await crew.workers(3, queues=QUEUES, **PATIENT), seed)
    submitters = [await crew.submitter(seed + n, queues=QUEUES, window=WINDOWS[campaign]) for n in range(2)]
    watching = asyncio.create_task(watch(crew.url))
    try:
        await trouble(nemesis)
        await nemesis.rest()
        assert not watching.done(), watching.result()
        for submitter in submitters:
            assert await submitter.finish() == 0, crew.log()[-3000:]
        conn = await asyncpg.connect(crew.url)
        try:
            await until_settled(conn)
            return await _report(crew, conn, nemesis)
        finally:
            await conn.close()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def watch(url: str) -> dict[str, list[dict[str, object]]]:
    """Return the first breach of an invariant."""
    while True:
        with contextlib.suppress(*CONNECTION_ERRORS, TimeoutError):
            conn = await asyncpg.connect(url, timeout=5)
            try:
                while True:
                    if found := await breaches(conn):
                        return found
                    await asyncio.sleep(0.25)
            finally:
                await conn.close()
        await asyncio.sleep(0.1)


async def _report(crew: Crew, conn: asyncpg.Connection[asyncpg.Record], nemesis: Nemesis) -> dict[str, int]:
    ledger = crew.ledger()
    states = await check_outcomes(conn, ledger)
    accepted = {
        (row[0], row[1]) for row in await conn.fetch("select id, attempt from weft.task_done where state = 'completed'")
    }
    refused = [span for span in ledger.spans if span.ended and (span.task_id, span.attempt) not in accepted]
    counts = {
        **nemesis.counts,
        "acknowledged": len(ledger.acknowledged),
        "attempts": len(ledger.spans),
        "rescued": await conn.fetchval("select count(*) from weft.attempt where outcome = 'lost'"),
        "fenced": len(refused),
        "overlapping": len(ledger.overlapping()),
        **states,
    }
    print(f"campaign: {counts}")
    assert set(states) == {"completed"}, states
    return counts
