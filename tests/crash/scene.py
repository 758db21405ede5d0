"""Workers inside the test's own process, each with its own client, whose handlers the test can hold and let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import weft
from crash.harness import LIVENESS
from weft.core.settings import Settings
from weft.worker.registry import Registry

# So rare that only a notification, never a poll, can be what woke a worker.
NEVER = 600


@dataclass
class Scene:
    """One database with handlers that tell when they start and wait for leave to end.

    ``step`` ends at once, ``held`` ends when the test says so.
    """

    url: str
    home: Path
    registry: Registry = field(default_factory=Registry)
    started: list[tuple[int, int]] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    most_running: int = 0
    _leaves: dict[int, asyncio.Event] = field(default_factory=dict)
    _is_over: bool = False
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        @self.registry.task(name="step")
        async def step(ctx: weft.Context) -> int:
            await self._begin(ctx)
            return await self._end(ctx)

        self.registry.task(name="held")(self.held)

    async def held(self, ctx: weft.Context) -> int:
        """Begin, and end when the test says so."""
        await self._begin(ctx)
        try:
            await self._leave_of(ctx.task_id).wait()
        except BaseException:
            self.running.discard(ctx.task_id)
            raise
        return await self._end(ctx)

    async def _begin(self, ctx: weft.Context) -> None:
        async with self._changed:
            self.started.append((ctx.task_id, ctx.attempt))
            self.running.add(ctx.task_id)
            self.most_running = max(self.most_running, len(self.running))
            self._changed.notify_all()

    async def _end(self, ctx: weft.Context) -> int:
        self.running.discard(ctx.task_id)
        return ctx.attempt

    def _leave_of(self, task_id: int) -> asyncio.Event:
        leave = self._leaves.setdefault(task_id, asyncio.Event())
        if self._is_over:
            leave.set()
        return leave

    def let_go(self, *task_ids: int) -> None:
        """Let held tasks end."""
        for task_id in task_ids:
            self._leave_of(task_id).set()

    def let_all_go(self) -> None:
        """Let all held tasks end, also those that have not begun."""
        self._is_over = True
        self.let_go(*self._leaves)

    async def until_started(self, *task_ids: int, attempt: int = 1, seconds: float = LIVENESS) -> None:
        """Return when an attempt of each task has begun."""
        wanted = {(task_id, attempt) for task_id in task_ids}
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: wanted <= set(self.started))

    def settings(self, url: str | None = None, **changed: Any) -> Settings:
        """Return the settings of a client or a worker, in the fast profile."""
        return Settings.load(
            environ={}, **{"database_url": url or self.url, "home": self.home, "profile": "fast", **changed}
        )

    @asynccontextmanager
    async def worker(
        self, url: str | None = None, *, concurrency: int = 4, queues: tuple[str, ...] = ("default",), **changed: Any
    ) -> AsyncIterator[weft.Worker]:
        """Run a worker, which is stopped at the end."""
        async with weft.Client(settings=self.settings(url, **changed)) as client:
            worker = weft.Worker(client=client, queues=queues, concurrency=concurrency, registry=self.registry)
            await worker.start()
            try:
                yield worker
            finally:
                self.let_all_go()
                await worker.stop(grace=5)
