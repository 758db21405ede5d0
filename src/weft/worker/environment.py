"""What all attempts of a worker share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from weft.db.blobs import Blobs
from weft.db.database import Database
from weft.queue import look
from weft.queue.work import Claim
from weft.worker.answers import Answers
from weft.worker.connections import ConnectionPool
from weft.worker.output_cache import OutputCache
from weft.worker.processes import Processes
from weft.worker.shutdown import Shutdown

if TYPE_CHECKING:
    from weft.worker.attempt import Attempt, Outcome


class Environment:
    """What all attempts of a worker share."""

    def __init__(
        self, database: Database, worker_id: int, blobs: Blobs, processes: Processes, log_folder: Path,
        beat: Callable[[Claim], None], on_end: Callable[[Attempt, Outcome | None], None],
        resting: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
        go_on: Callable[[Claim, Callable[[], bool]], Awaitable[None]] = lambda _, __: asyncio.sleep(0),
    ) -> None:  # fmt: skip
        self._database = database
        self.settings = settings = database.settings
        self.answers = Answers(database, blobs, settings)
        self.cache = OutputCache(database, blobs)
        self.shutdown = Shutdown()
        self.pool = ConnectionPool(database)
        self.worker_id = worker_id
        self.blobs = blobs
        self.processes = processes
        self.log_folder = log_folder
        self.beat = beat
        self.on_end = on_end
        self.resting = resting
        self.go_on = go_on

    def request_shutdown(self) -> None:
        """Tell the handlers, here and in processes, that the worker is about to stop."""
        self.shutdown.request()
        self.processes.request_shutdown()

    async def upload_log(self, attempt: Attempt) -> None:
        """Copy the log of an attempt that has ended to the blob storage, for machines that do not share a folder."""
        data, claim = await asyncio.to_thread(attempt.log.read), attempt.claim
        digest = await self.blobs.put(data)
        await self._database.run(lambda conn: look.add_log(conn, claim.id, claim.attempt, digest, len(data)))

    async def close(self) -> None:
        """End what serves attempts: there are none any more."""
        self.answers.kin.close()
        await self.pool.close()
