"""A job that was handed in: its result, its changes, its end; each call opens what it needs, and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from weft.core.errors import JobFailed
from weft.core.job_states import JobState
from weft.sdk.client import Client

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.jobs.model import Job, JobNode

_SHORTEST, _LONGEST = 0.02, 0.5


@dataclass(frozen=True)
class SubmittedJob:
    """What `weft.submit` returns: a job by its id, wherever it runs.

    Example::

        job = await weft.submit(pipeline, url="https://example.com/rows")
        async for node in job.watch():
            print(node.node, node.state)
        print(await job.result())
    """

    id: int
    created: bool = True
    settings: Settings | None = field(default=None, repr=False)

    async def result(self, timeout: float | timedelta | None = None) -> Any:
        """Return the result when the job has ended; raises `JobFailed`, or `WaitTimeout` after ``timeout`` seconds.

        Example::

            print(await job.result(timeout=60))
        """
        async with Client(settings=self.settings) as client:
            return await result_of(client, await client.jobs.wait(self.id, timeout))

    async def show(self) -> Job:
        """Return the job as it is now.

        Example::

            print((await job.show()).state)
        """
        async with Client(settings=self.settings) as client:
            return await client.jobs.show(self.id)

    async def cancel(self) -> None:
        """Cancel the job; raises `StateConflict` when it has ended.

        Example::

            await job.cancel()
        """
        async with Client(settings=self.settings) as client:
            await client.jobs.cancel(self.id)

    async def watch(self) -> AsyncIterator[JobNode]:
        """Yield each node as it is, and again whenever it has changed, until the job has ended.

        Example::

            async for node in job.watch():
                print(node.node, node.state, dict(node.items))
        """
        async with Client(settings=self.settings) as client:
            async for node in changes(client, self.id):
                yield node


async def changes(client: Client, job_id: int) -> AsyncIterator[JobNode]:
    """Yield each node of a job as it is, and again whenever it has changed, until the job has ended."""
    told: dict[int, JobNode] = {}
    ended = asyncio.ensure_future(client.jobs.wait(job_id))
    pause = _SHORTEST
    try:
        while True:
            has_ended = ended.done()
            changed = [node for node in await client.jobs.nodes(job_id) if told.get(node.id) != node]
            for node in changed:
                told[node.id] = node
                yield node
            if has_ended:
                ended.result()
                return
            pause = _SHORTEST if changed else min(_LONGEST, 2 * pause)
            await asyncio.wait([ended], timeout=pause)
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


async def result_of(client: Client, job: Job) -> Any:
    """Return the result of a job that has ended; raises `JobFailed` with the node that failed."""
    if job.state is JobState.COMPLETED:
        return job.result
    node = None if job.failed_id is None else await _failed_node(client, job)
    raise JobFailed(job.id, job.workflow_id, job.state, node=node, error=job.error, reason=job.reason)


async def _failed_node(client: Client, job: Job) -> str | None:
    """Return the node that failed; of a fan_out it was one of the items."""
    nodes = await client.jobs.nodes(job.id)
    exact = [node.node for node in nodes if node.id == job.failed_id]
    by_item = [node.node for node in nodes if {"failed", "dead"} & node.items.keys()]
    return next(iter(exact + by_item), None)
