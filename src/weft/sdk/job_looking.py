"""The part of the client that tells how a job goes: what happened, and what it waits for."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.checks import LONGEST_PAGE, MAX_ID, check_id, check_number, check_page, check_text
from weft.core.errors import DatabaseUnavailable, NotFound
from weft.db.database import CONNECTION_ERRORS
from weft.jobs import events
from weft.jobs import graph as graphs
from weft.jobs.events import SQL, JobEvent, JobEvents
from weft.jobs.graph import GraphItem, JobGraph
from weft.jobs.model import JobAttempt
from weft.jobs.why import NodeWhy, why_job
from weft.sdk.workflow_calls import WorkflowCalls

if TYPE_CHECKING:
    from weft.db.database import Database
    from weft.jobs.model import Job, JobNode

logger = logging.getLogger("weft.client")
_SHORTEST, _LONGEST = 0.02, 0.5
_PAGE = 10_000
_MOST_DRAWN = 50
MAX_ITEM = 2**31 - 1


class JobLooking(WorkflowCalls):
    """What changes nothing about a job."""

    @cached_property
    def _drawings(self) -> OrderedDict[int, graphs.Drawn]:
        return OrderedDict()

    if TYPE_CHECKING:

        async def nodes(self, job_id: int, *, after: int | None = None, limit: int | None = None) -> list[JobNode]:
            """Return the nodes of a job, as `Jobs` does."""

        async def show(self, job_id: int) -> Job:
            """Return a job, as `Jobs` does."""

    async def events(self, job_id: int, *, after: str | None = None, limit: int = 1000) -> JobEvents:
        """Return what happened in a job, oldest first; pass ``page.cursor`` as ``after`` for the next page.

        No event is skipped: one whose transaction commits late comes with a later page. Example::

            page = await client.jobs.events(job.id)
            print([(event.at, event.node, event.type) for event in page.events], page.is_last)
        """
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        check_number(limit, "limit", 1, _PAGE)
        await self.show(job_id)
        return await self._events_after(job_id, after, limit)

    async def _events_after(self, job_id: int, after: str | None, limit: int) -> JobEvents:
        org_id = await self._session.org_id()
        return await self._read(lambda conn: events.page(conn, org_id, job_id, after, limit))

    async def why(
        self, job_id: int, node: str | None = None, *, after: int | None = None, limit: int = 100
    ) -> list[NodeWhy]:
        """Return what a job waits for, node by node, or one node of it, and what to do about it.

        Of a job those nodes are told that do not merely wait for another. ``after`` is the last ``task_id`` of the
        page before. Example::

            for each in await client.jobs.why(job.id):
                print(each.node, each.text, each.advice)
        """
        check_number(limit, "limit", 1, LONGEST_PAGE)
        above = 0 if after is None else check_number(after, "after", 0, MAX_ID)
        job, org_id = await self._of_node(job_id, node), await self._session.org_id()
        return await self._read(lambda conn: why_job(conn, org_id, job, node, above, limit))

    async def attempts(
        self, job_id: int, node: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[JobAttempt]:
        """Return the attempts at a job's tasks, or at those of one node, in the order in which they began.

        All of them, or a ``limit`` of those after the ``cursor`` of the last of the page before. Example::

            for each in await client.jobs.attempts(job.id):
                print(each.node, await client.read_log(each.task_id, attempt=each.attempt))
        """
        check_page(limit)
        place = JobAttempt.place_of(after)
        job = await self._of_node(job_id, node)
        org_id = await self._session.org_id()
        rows = await self._read(lambda conn: conn.fetch(SQL.attempts, org_id, job.id, node, *place, limit))
        if not rows and node is not None and after is None:
            await self._read(lambda conn: why_job(conn, org_id, job, node))
        return [JobAttempt(**row) for row in rows]

    async def graph(
        self, job_id: int, *, expand: str | None = None, after: int | None = None, limit: int = 100
    ) -> JobGraph:
        """Return a job as it is drawn: its nodes with their states and places, and by which ways it went.

        A fan_out is one node, however many items it has; those of the node ``expand`` come in pages: pass
        ``graph.next_item`` as ``after`` for the next. Example::

            graph = await client.jobs.graph(job.id)
            print({node.node: node.state for node in graph.nodes}, [edge.state for edge in graph.edges])
        """
        check_number(limit, "limit", 1, 1000)
        job, last = (
            await self._of_node(job_id, expand),
            -1 if after is None else check_number(after, "after", 0, MAX_ITEM),
        )
        org_id, nodes = await self._session.org_id(), await self.nodes(job.id)
        drawn = await self._drawn(job)
        found: tuple[GraphItem, ...] = ()
        if expand is not None:
            tasks = {node.node: node.id for node in nodes}
            if expand not in tasks:
                raise NotFound("node", f"{expand!r} in job {job.id}", f"see `weft jobs graph {job.id}`")
            found = await self._read(lambda conn: graphs.items(conn, org_id, job.id, tasks[expand], last, limit))
        known = await self._read(lambda conn: graphs.facts(conn, org_id, job.id, nodes, drawn))
        next_item = found[-1].item if len(found) == limit else None
        return await asyncio.to_thread(graphs.graph_of, job, nodes, drawn, known, found, next_item)

    async def _drawn(self, job: Job) -> graphs.Drawn:
        """Return the drawing of a job's definition, which jobs of the same share; an empty one when there is none."""
        if job.snapshot_id is None:
            return graphs.Drawn.of({"nodes": {}})
        if (known := self._drawings.get(job.snapshot_id)) is None:
            reader = await self._reader()
            data = await reader.document(await reader.of(job.snapshot_id))
            known = self._drawings[job.snapshot_id] = await asyncio.to_thread(graphs.Drawn.of, data)
            if len(self._drawings) > _MOST_DRAWN:
                self._drawings.popitem(last=False)
        self._drawings.move_to_end(job.snapshot_id)
        return known

    async def _of_node(self, job_id: int, node: str | None) -> Job:
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        if node is not None:
            check_text(node, "node", 200)
        return await self.show(job_id)

    async def follow(self, job_id: int, *, after: str | None = None) -> AsyncIterator[JobEvent]:
        """Yield what happens in a job, from its beginning or a cursor on, until it has ended.

        A restart of PostgreSQL does not end it. Example::

            async for event in client.jobs.follow(job.id):
                print(event.at, event.node, event.type)
        """
        pause = _SHORTEST
        found = await self.events(job_id, after=after, limit=_PAGE)
        async with woken(self._session.database, job_id) as news:
            while True:
                for event in found.events:
                    yield event
                if found.is_last:
                    return
                if found.events:
                    pause = _SHORTEST
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await news.wait()
                    news.clear()
                    pause = min(_LONGEST, 1.5 * pause)
                try:
                    found = await self._events_after(job_id, found.cursor, _PAGE)
                except (DatabaseUnavailable, TimeoutError) as problem:
                    # It goes on without us, and so do we when PostgreSQL is there again.
                    logger.debug("follows job %s on: %s", job_id, problem)
                    found = JobEvents((), found.cursor, False)


@asynccontextmanager
async def woken(database: Database, job_id: int) -> AsyncIterator[asyncio.Event]:
    """Lend an event that is set when somebody does something to a job; never, where nothing can be listened to."""
    news = asyncio.Event()

    def hear(_conn: Any, _pid: int, _channel: str, payload: object) -> None:
        if payload == str(job_id):
            news.set()

    conn = None
    if database.listen_url is not None:
        with suppress(DatabaseUnavailable, asyncpg.PostgresError, *CONNECTION_ERRORS):
            conn = await database.connect(database.listen_url)
            await conn.add_listener(events.CHANNEL, hear)
    try:
        yield news
    finally:
        if conn is not None:
            with suppress(Exception):
                await conn.close(timeout=1)
