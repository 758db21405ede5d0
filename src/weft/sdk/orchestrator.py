"""An orchestrator as a program starts it: it advances jobs where more than a task's end is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.orchestrator import Steps
from weft.jobs.requests import QUEUE
from weft.sdk.worker import Worker
from weft.worker.registry import Registry

if TYPE_CHECKING:
    from weft.sdk.client import Client

CONTROL = "@control"


class Orchestrator(Worker):
    """Chooses branches, expands fan-outs, ends jobs; any number of them share the work.

    Example::

        async with weft.Client() as client:
            await weft.Orchestrator(client=client).run()
    """

    def __init__(self, *, client: Client, concurrency: int = 200) -> None:
        super().__init__(client=client, concurrency=concurrency, registry=Registry())

    @property
    def queues(self) -> list[str]:
        """The queue of control steps, and that of messages that ask for jobs."""
        return [CONTROL, QUEUE]

    async def _start(self) -> None:
        self._registry = Steps(self._client.database, self._client.ids, lambda: self._client.blobs).registry
        await super()._start()
