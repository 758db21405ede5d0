"""Workers, orchestrators and servers that are ended badly while something goes on that must not suffer from it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

import weft
from crash.campaign import PATIENT, SEED, watch
from crash.harness import Crew, Process, crew_at, until
from crash.ledger import note_server_loss
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded, migrate
from weft.db.database import CONNECTION_ERRORS

T = TypeVar("T")
# What whoever asks may be told while others are ended, and asks again.
TROUBLES = (*CONNECTION_ERRORS, asyncpg.PostgresError, TimeoutError, weft.WeftError)


class Troupe:
    """Workers and orchestrators that are ended badly, as drawn from a seed, and replaced."""

    def __init__(self, crew: Crew, seed: int, modules: tuple[str, ...]) -> None:
        self.crew = crew
        self.random = random.Random(seed + SEED)
        self.workers: list[Process] = []
        self.orchestrators: list[Process] = []
        self._modules = modules

    async def gather(self) -> None:
        """Start all."""
        self.workers = [await self._worker() for _ in range(2)]
        self.orchestrators = [await self._orchestrator() for _ in range(2)]

    async def _worker(self) -> Process:
        return await self.crew.worker(modules=self._modules, **PATIENT)

    async def _orchestrator(self) -> Process:
        return await self.crew.orchestrator(**PATIENT)

    async def kill(self) -> None:
        """SIGKILL one, and start another in its place."""
        crowd = self.random.choice((self.workers, self.orchestrators))
        await crowd.pop(self.random.randrange(len(crowd))).kill()
        # One whose first session is ended does not start, and is started again, as any supervisor would.
        while True:
            with contextlib.suppress(AssertionError):
                crowd.append(await (self._worker() if crowd is self.workers else self._orchestrator()))
                return

    async def pause(self, crowd: list[Process]) -> None:
        """Stop one for longer than its lease, whatever it holds, then let it go on."""
        victim = self.random.choice(crowd)
        victim.pause()
        try:
            await asyncio.sleep(self.random.uniform(2.5, 4.0))
        finally:
            if victim.is_alive:
                victim.resume()

    async def pause_and_end_sessions(self, conn: asyncpg.Connection[asyncpg.Record]) -> None:
        """Stop a worker and an orchestrator for longer than their leases, and end sessions all the while."""
        async with asyncio.TaskGroup() as pauses:
            paused = [pauses.create_task(self.pause(crowd)) for crowd in (self.orchestrators, self.workers)]
            while not all(each.done() for each in paused):
                await asyncio.sleep(self.random.uniform(0.2, 0.6))
                await conn.execute(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()"
                    " and application_name = 'weft' and random() < 0.2"
                )

    async def restart(self, settings: Settings) -> None:
        """End PostgreSQL at once, sometimes for longer than a lease, and start it again."""
        await asyncio.sleep(self.random.uniform(0.5, 2.0))
        assert await embedded.stop(settings, mode="immediate")
        note_server_loss(self.crew.folder, time.monotonic_ns())
        await asyncio.sleep(self.random.choice((0.0, 0.0, 3.0)))
        await embedded.ensure_running(settings)


Trouble = Callable[[Troupe], Awaitable[None]]


@asynccontextmanager
async def in_trouble(
    troupe: Troupe, trouble: Trouble, *, at_least: int = 0, at_most: int | None = None
) -> AsyncIterator[weft.Client]:
    """Lend a client while there is trouble, so often at least and at most; the invariants are watched all the while."""
    await troupe.gather()
    crew = troupe.crew
    watching = asyncio.create_task(watch(crew.url))
    rounds = 0

    async def troubled() -> None:
        nonlocal rounds
        while True:
            await trouble(troupe)
            rounds += 1
            if rounds == at_most:
                await asyncio.Event().wait()

    async def is_enough() -> bool:
        return rounds >= at_least or causing.done()

    async with weft.Client(
        settings=Settings.load(environ={}, database_url=crew.url, home=crew.folder / "home")
    ) as client:
        causing = asyncio.create_task(troubled())
        try:
            yield client
            await until(is_enough, "there was trouble enough", 300)
        finally:
            causing.cancel()
            (problem,) = await asyncio.gather(causing, return_exceptions=True)
        assert isinstance(problem, asyncio.CancelledError), problem
        assert not watching.done(), watching.result()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def insisted(ask: Callable[..., Awaitable[T]], *said: Any, **named: Any) -> T:
    """Ask again and again until there is an answer, and return it."""
    deadline = time.monotonic() + 300
    while True:
        try:
            return await ask(*said, **named)
        except TROUBLES:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)


@asynccontextmanager
async def mortal_server(folder: Path) -> AsyncIterator[tuple[Crew, Settings]]:
    """Lend a crew on a server of its own, which may be ended."""
    home = make_home("crash")
    settings = Settings(home=home)
    try:
        server = await embedded.ensure_running(settings)
        await migrate.upgrade(server.url)
        async with crew_at(server.url, folder) as crew:
            yield crew, settings
    finally:
        await embedded.stop(settings, mode="immediate")
        shutil.rmtree(home, ignore_errors=True)
