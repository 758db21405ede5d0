"""A job that was handed in: its result, its changes, its end; each call opens what it needs, and closes it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from weft.core.errors import DatabaseUnavailable, JobFailed
from weft.core.job_states import JobState
from weft.sdk.client import Client
from weft.sdk.job_looking import woken

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.jobs.model import Job, JobNode

logger = logging.getLogger("weft.client")
_SHORTEST, _LONGEST = 0.02, 0.5
# A look at a job of 100,000 items takes a while: at most a fifth of the time is spent on it.
_SHARE = 4


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

        A restart of PostgreSQL does not end it. Example::

            async for node in job.watch():
                print(node.node, node.state, dict(node.items))
        """
        async with Client(settings=self.settings) as client:
            async for node in changes(client, self.id):
                yield node


async def changes(client: Client, job_id: int) -> AsyncIterator[JobNode]:
    """Yield each node of a job as it is, and again whenever it has changed, until the job has ended.

    What somebody does to the job is heard of at once. That a task has ended is not told to anybody, it would hold up
    those who end them: it is looked for, and the longer a look takes, the fewer there are.
    """
    told: dict[int, JobNode] = {}
    quiet = _SHORTEST
    ended = asyncio.ensure_future(client.jobs.wait(job_id))
    try:
        async with woken(client.database, job_id) as news:
            while True:
                has_ended = ended.done()
                news.clear()
                began = time.monotonic()
                nodes = await _nodes(client, job_id)
                took = time.monotonic() - began
                changed = [node for node in nodes or () if told.get(node.id) != node]
                for node in changed:
                    told[node.id] = node
                    yield node
                if has_ended and nodes is not None:
                    ended.result()
                    return
                quiet = _SHORTEST if changed else min(_LONGEST, 2 * quiet)
                await _any_of(ended, news, max(quiet, _SHARE * took))
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


async def _nodes(client: Client, job_id: int) -> list[JobNode] | None:
    """Return the nodes of a job; after a pause None when PostgreSQL is away: the job goes on without us."""
    try:
        return await client.jobs.nodes(job_id)
    except (DatabaseUnavailable, TimeoutError) as problem:
        logger.debug("watches job %s on: %s", job_id, problem)
        await asyncio.sleep(_LONGEST)
        return None


async def _any_of(ended: asyncio.Future[Any], news: asyncio.Event, seconds: float) -> None:
    heard = asyncio.ensure_future(news.wait())
    try:
        await asyncio.wait([ended, heard], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        heard.cancel()


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
