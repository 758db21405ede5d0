"""The worker as programs start it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self

from weft.core.checks import MAX_RUNNING, check_names, check_number, check_queues, check_span
from weft.core.settings import Settings
from weft.jobs.callbacks import Callbacks
from weft.jobs.lineage_posting import LineagePosting
from weft.jobs.routing import Routing
from weft.queue.model import NewTask
from weft.queue.outbox import Effect, Sink
from weft.sdk.client import Client
from weft.sdk.drafts import Drafting
from weft.sdk.joined import enqueue_on
from weft.version import __version__
from weft.worker.database_store import DatabaseStore
from weft.worker.registry import REGISTRY, Registry
from weft.worker.store import Store
from weft.worker.surroundings import refuse_while_loading
from weft.worker.worker import Worker as WorkerProcess


class Worker:
    """Runs tasks in this process.

    ``queues`` are by default ``default`` and those that the handlers name; what does not exist is made. ``concurrency``
    is how many tasks it runs at once, by default ``WEFT_WORKER_CONCURRENCY``. Whoever cancels `run`, `run_until_idle`
    or the body of ``async with``, as Ctrl-C does, ends the worker at once: what ran is handed back. Example::

        async with weft.Client() as client:
            await weft.Worker(client=client, concurrency=20).run()
    """

    def __init__(
        self, *, client: Client, queues: Sequence[str] | None = None, concurrency: int | None = None,
        registry: Registry = REGISTRY, app_modules: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._client = client
        self._queues = None if queues is None else check_queues(queues)
        self._concurrency = (
            client.settings.worker_concurrency
            if concurrency is None
            else check_number(concurrency, "concurrency", 1, MAX_RUNNING)
        )
        self._registry = registry
        self._app_modules = check_names(app_modules, "app_modules")
        self._worker: WorkerProcess | None = None
        self._starting = asyncio.Lock()

    @property
    def queues(self) -> list[str]:
        """The names of the queues that it works."""
        if self._queues is None:
            return sorted({"default", *(handler.queue for handler in self._registry)})
        return list(self._queues)

    @property
    def _settings(self) -> Settings:
        return self._client.settings

    async def start(self) -> Self:
        """Begin to work; returns when the worker is registered and claims. One that works already goes on."""
        refuse_while_loading("worker")
        async with self._starting:
            if self._worker is None or self._worker.has_stopped:
                await self._start()
        return self

    async def _start(self) -> None:
        self._registry.admit(self._app_modules)
        worker = WorkerProcess(
            await self._store(), self._registry, queue_names=self.queues, concurrency=self._concurrency,
            version=__version__, app_modules=self._app_modules,
        )  # fmt: skip
        await worker.start()
        self._worker = worker

    async def _store(self) -> Store:
        return self._client._worker_store() or await self._database_store()

    async def _database_store(self) -> Store:
        org_id, database = await self._client.org_id(), self._client.database
        return DatabaseStore(database, self._settings, org_id, sinks_of(self._client))

    async def run(self) -> None:
        """Work until `stop` is called."""
        await self.start()
        async with self._ended_when_cancelled():
            await self.process.wait()

    async def run_until_idle(self) -> None:
        """Work until nothing is ready or running in these queues, then stop; what is scheduled for later stays."""
        await self.start()
        try:
            async with self._ended_when_cancelled():
                await self.process.wait_until_idle()
        finally:
            await self.stop()

    @asynccontextmanager
    async def _ended_when_cancelled(self) -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await self.stop(grace=0)
            raise

    async def stop(self, grace: float | timedelta | None = None) -> None:
        """Stop claiming, let running tasks end within ``grace`` (30 s by default), then give everything back."""
        async with self._starting:  # one that is about to start is stopped when it has
            pass
        if self._worker is not None:
            await self._worker.stop(None if grace is None else check_span(grace, "grace", zero=True))

    @property
    def process(self) -> WorkerProcess:
        """The running worker, with its counts."""
        if self._worker is None:
            raise RuntimeError("the worker is not started: await worker.start() or worker.run()")
        return self._worker

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; at once when the body was cancelled."""
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self.stop(grace=0 if is_cancelled else None)


def sinks_of(client: Client) -> dict[str, Sink]:
    """Return what carries out effects of each kind."""

    async def enqueue_task(effect: Effect) -> None:
        """Enqueue in the effect's org; its id is the idempotency key: a repeat creates nothing."""
        said = {name: value for name, value in effect.payload.items() if value is not None}
        draft = Drafting(client.settings).draft(NewTask(**{"idempotency_key": f"outbox-{effect.id}", **said}))
        await client.database.run(lambda conn: enqueue_on(conn, draft, effect.org, effect.actor))

    routing, url = Routing(client.database), client.settings.openlineage_url
    sinks: dict[str, Sink] = {
        "enqueue_task": enqueue_task, "callback": Callbacks(client.settings).send, "route_event": routing.route,
    }  # fmt: skip
    if url is not None:
        posting = LineagePosting(client.database, client.settings, url)

        async def route_event(effect: Effect) -> None:
            """Route an event; one that tells of a write is told to the receiver of OpenLineage, too."""
            await routing.route(effect)
            await posting.note(int(effect.payload["event_id"]))

        sinks |= {"route_event": route_event, "openlineage": posting.send}
    return sinks
