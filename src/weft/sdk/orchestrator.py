"""An orchestrator as a program starts it: it advances jobs where more than a task's end is needed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from weft.core.settings import Settings
from weft.core.tracing import tracer
from weft.engine.adoption import Adopter
from weft.engine.job_spans import JobSpans
from weft.engine.orchestrator import Steps
from weft.jobs.library import Libraries
from weft.jobs.messages import QUEUE
from weft.live.router import Router
from weft.live.source_ticks import SourceTicker
from weft.live.swapping import Swapper
from weft.live.ticker import Ticker
from weft.queue.queues import CONTROL
from weft.sdk.worker import Worker
from weft.worker.registry import Registry

if TYPE_CHECKING:
    from weft.sdk.client import Client
    from weft.worker.store import Store


class Orchestrator(Worker):
    """Chooses branches, expands fan-outs, ends jobs; any number of them share the work.

    Each owns the jobs whose first step it took, until they end or it is gone. Example::

        async with weft.Client() as client:
            await weft.Orchestrator(client=client).run()
    """

    def __init__(self, *, client: Client, concurrency: int = 200) -> None:
        super().__init__(client=client, concurrency=concurrency, registry=Registry())
        self._adopter = Adopter(client.database, lambda: self.process.id, client.settings.scan_interval)
        self._ticker: Ticker | None = None
        self._source_ticker: SourceTicker | None = None
        self._router: Router | None = None
        self._swapper: Swapper | None = None
        self._spans: JobSpans | None = None

    @property
    def queues(self) -> list[str]:
        """The queue of control steps, and that of messages that ask for jobs."""
        return [CONTROL, QUEUE]

    @property
    def _settings(self) -> Settings:
        return self._client.settings.for_orchestrator

    async def _store(self) -> Store:
        return await self._database_store()

    async def _start(self) -> None:
        self._registry = Steps(self._client.database, self._client.ids, lambda: self._client.blobs).registry
        client = self._client
        await super()._start()
        await self._adopter.start()
        self._ticker = Ticker(client.database, client.ids, Libraries(client.database, lambda: client.blobs))
        await self._ticker.start()
        self._source_ticker = SourceTicker(client.database)
        await self._source_ticker.start()
        self._router = Router(client.database)
        self.process.kicks["live"] = self._router.kick
        await self._router.start()
        self._swapper = Swapper(client.database)
        await self._swapper.start()
        if (spans := tracer()) is not None:
            self._spans = JobSpans(self._client.database, spans)
            await self._spans.start()

    async def stop(self, grace: float | timedelta | None = None) -> None:
        """Stop, as a worker does; others own its jobs from then on."""
        for service in (self._swapper, self._router, self._source_ticker, self._ticker):
            if service is not None:
                await service.stop()
        await self._adopter.stop()
        await super().stop(grace)
        if self._spans is not None:
            await self._spans.stop()
