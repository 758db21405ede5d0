"""What all attempts of a worker share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from weft.core.tracing import tracer
from weft.queue.work import Claim
from weft.worker.processes import Processes
from weft.worker.shutdown import Shutdown
from weft.worker.spans import told_on_end
from weft.worker.store import Store
from weft.worker.workshop import Workshop

if TYPE_CHECKING:
    from weft.worker.attempt import Attempt, Outcome


class Environment:
    """What all attempts of a worker share."""

    def __init__(
        self, store: Store, worker_id: int, processes: Processes, log_folder: Path,
        beat: Callable[[Claim], None], on_end: Callable[[Attempt, Outcome | None], None],
        resting: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
        go_on: Callable[[Claim, Callable[[], bool]], Awaitable[None]] = lambda _, __: asyncio.sleep(0),
    ) -> None:  # fmt: skip
        self.settings = store.settings
        self.has_database = store.has_database
        self.answers = store.answers()
        self.cache = store.cache()
        self.shutdown = Shutdown()
        self.pool = store.pool()
        self.workshop = Workshop(store.settings)
        self.worker_id = worker_id
        self.blobs_of = store.blobs_of
        self.processes = processes
        self.log_folder = log_folder
        self.beat = beat
        self.tracer = tracer()
        self.on_end = told_on_end(on_end)
        # By their ids, as far as this worker works them.
        self.queue_names: dict[int, str] = {}
        self.resting = resting
        self.go_on = go_on

    def request_shutdown(self) -> None:
        """Tell the handlers, here and in processes, that the worker is about to stop."""
        self.shutdown.request()
        self.processes.request_shutdown()

    async def close(self) -> None:
        """End what serves attempts: there are none any more."""
        await self.answers.close()
        await self.pool.close()
        await self.workshop.close()
