"""The part of the client that reads: tasks, queues, workers, the audit trail, the outbox."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from weft.catalog import explaining
from weft.catalog.explaining import Decision, Explanation
from weft.core.checks import (
    LONGEST_PAGE,
    MAX_ID,
    check_after,
    check_id,
    check_moment,
    check_name,
    check_number,
    check_page,
    check_span,
    check_stretch,
    check_text,
    check_word,
    check_words,
)
from weft.core.errors import InvalidInput, NotFound, TaskFailed
from weft.core.states import OutboxKind, OutboxState, TaskState, WorkerState
from weft.queue import audit, cache, look, outbox, queues, seals, workers
from weft.queue.audit import AuditEntry, AuditVerb
from weft.queue.cache import CachedOutputs
from weft.queue.model import Page, Task
from weft.queue.queues import QueueInfo
from weft.queue.seals import AuditSeals
from weft.queue.why import Why, why
from weft.queue.workers import WorkerInfo
from weft.sdk.log_reading import LogReading
from weft.sdk.values import with_values

_HEAD = re.compile(r"[0-9]{1,19}:[0-9a-f]{64}")


class Looking(LogReading):
    """What changes nothing."""

    async def get_task(self, task_id: int) -> Task:
        """Return one task with its attempts; raises `NotFound`.

        A value whose blob is missing or damaged is None, and ``unavailable`` says why. Example::

            task = await client.get_task(handle.id)
            print(task.state, task.output, [attempt.error for attempt in task.attempts])
        """
        task_id, org_id = check_id(task_id), await self.org_id()
        task, params, output = await self.database.read(lambda conn: look.show(conn, org_id, task_id))
        return await with_values(task, params, output, self.blobs)

    async def why(self, task_id: int) -> Why:
        """Return why a task does not run, and what to do about it: paused, no worker, a limit, others first, ….

        Example::

            found = await client.why(handle.id)
            print(found.text, found.advice)
        """
        task_id, org_id = check_id(task_id), await self.org_id()
        return await self.database.read(lambda conn: why(conn, org_id, task_id))

    async def explain(self, task_id: int) -> Explanation:
        """Return why a task ran, or had its output from the cache: by its code, its params, and its datasets.

        Example::

            print((await client.explain(handle.id)).text)
        """
        task, org_id, sees = await self.get_task(task_id), await self.org_id(), self.sees
        found = await self.database.read(lambda conn: explaining.explain(conn, org_id, task, sees))
        if found.cause is not Decision.PARAMS or found.other_id is None:
            return found
        try:
            return explaining.with_params(found, task, await self.get_task(found.other_id))
        except NotFound:
            return found

    async def list_tasks(
        self, *, state: str | Iterable[str] | None = None, queue: str | None = None, handler: str | None = None,
        sort: str = "newest", before: int | None = None, after: int | None = None, limit: int = 50,
    ) -> Page:  # fmt: skip
        """Return a page of tasks, newest first; pass ``page.next`` as ``before`` for the next page.

        A page may have fewer tasks than ``limit``, or none, and yet not be the last: it is answered in a short time,
        however few pass of however many. ``state="failed"`` covers failed and dead. With ``sort="oldest"`` the next
        page is asked for by ``after``. Example::

            page = await client.list_tasks(state="failed", queue="mail")
            print([task.id for task in page.tasks], page.next)
        """
        check_number(limit, "limit", 1, LONGEST_PAGE)
        states, part = _states(state), check_stretch(before, after, sort)
        name = None if handler is None else check_name(handler, "handler")
        org_id, queue_id = await self.org_id(), await self._queue_id(queue)
        return await self.database.read(
            lambda conn: look.list_tasks(
                conn, org_id, part, queue_id=queue_id, handler=name, states=states, limit=limit
            )
        )

    async def dead_letters(
        self, *, queue: str | None = None, handler: str | None = None, sort: str = "newest", before: int | None = None,
        after: int | None = None, limit: int = 50,
    ) -> Page:  # fmt: skip
        """Return a page of tasks that ended failed or dead, newest first, as `list_tasks` does.

        Example::

            letters = (await client.dead_letters(handler="email:send")).tasks
        """
        return await self.list_tasks(
            state="failed", queue=queue, handler=handler, sort=sort, before=before, after=after, limit=limit
        )

    async def wait(self, task_id: int, timeout: float | timedelta | None = None) -> Any:
        """Wait until a task has ended and return its output.

        Raises `WaitTimeout` after ``timeout`` seconds, `TaskFailed` when it ended without success. A restart of
        PostgreSQL does not end it. All waits of a client share one poll. Example::

            total = await client.wait(handle.id, timeout=30)
        """
        task_id = check_id(task_id)
        if timeout is not None:
            timeout = check_span(timeout, "timeout", zero=True).total_seconds()
        _ = self.database  # raises when the client is not open
        task = await self.waiter.until_ended(task_id, timeout, self.get_task)
        if task.state is not TaskState.COMPLETED:
            raise TaskFailed(task_id, task.state, task.error, task.reason)
        if "output" in task.unavailable:
            raise task.unavailable["output"]
        return task.output

    async def queues(self, *, after: str = "", limit: int | None = None) -> list[QueueInfo]:
        """Return queues by name with depth, age of the oldest task, rate and limits, also those of single keys.

        All of them, or a ``limit`` of those after the last name of the page before. Example::

            for queue in await client.queues():
                print(queue.name, queue.depth, queue.oldest_at, queue.rate, queue.paused)
        """
        check_page(limit)
        key, org_id = check_after(after), await self.org_id()
        return await self.database.read(lambda conn: queues.list_queues(conn, org_id, after=key, limit=limit))

    async def workers(
        self, *, state: str | Iterable[str] | None = None, before: int | None = None, limit: int | None = None
    ) -> list[WorkerInfo]:
        """Return the workers, newest first.

        All of them, or a ``limit`` of those below the last id of the page before. Example::

            alive = await client.workers(state=["active", "idle"])
        """
        check_page(limit)
        states = None if state is None else sorted(check_words(state, "state", WorkerState))
        below = MAX_ID if before is None else check_number(before, "before", 0, MAX_ID)
        org_id = await self.org_id()
        return await self.database.read(lambda conn: workers.list_workers(conn, org_id, states, below, limit))

    async def audit(
        self, *, verb: str | None = None, actor: str | None = None, task: int | None = None, job: int | None = None,
        queue: str | None = None, since: datetime | None = None, until: datetime | None = None, sort: str = "newest",
        before: int | None = None, after: int | None = None, limit: int = 50,
    ) -> list[AuditEntry]:  # fmt: skip
        """Return what was done by whom, newest first; pass the last entry's id as ``before`` for the next page.

        They are those from ``since`` on and before ``until``, by an ``actor``, and on a task, a job or a queue. With
        ``sort="oldest"`` the last id is passed as ``after``. Example::

            entries = await client.audit(actor="ada@example.com", queue="mail")
        """
        check_number(limit, "limit", 1, LONGEST_PAGE)
        word = None if verb is None else str(check_word(verb, "verb", AuditVerb))
        task_id = None if task is None else check_id(task, "task")
        name = None if queue is None else check_name(queue, "queue")
        job_id = None if job is None else check_id(job, "job", shown_by="weft jobs list")
        if sum(each is not None for each in (task_id, job_id, name)) > 1:
            raise InvalidInput("task" if name is None else "queue", "give one of task, job and queue, not several")
        who = None if actor is None else check_text(actor, "actor", 500)
        span = [None if at is None else check_moment(at, name) for name, at in (("since", since), ("until", until))]
        part, org_id = check_stretch(before, after, sort), await self.org_id()
        return await self.database.read(
            lambda conn: audit.list_entries(
                conn, org_id, part, verb=word, task_id=task_id, job_id=job_id, queue=name, actor=who, since=span[0],
                until=span[1], limit=limit,
            )
        )  # fmt: skip

    async def verify_audit(self, *, head: str | None = None) -> AuditSeals:
        """Compare what was done with how it was sealed; ``head`` is one that was noted before.

        Example::

            sealed = await client.verify_audit()
            assert sealed.is_sound, sealed.findings
        """
        if head is not None and not _HEAD.fullmatch(head):
            raise InvalidInput("head", "is not a head: write a number, a colon and 64 hex digits, as it was printed")
        org_id = await self.org_id()
        return await self.database.read(lambda conn: seals.verify(conn, org_id, self.settings.acts_kept, head))

    async def cached_outputs(self, *, after: str = "", limit: int | None = None) -> list[CachedOutputs]:
        """Return how many outputs would serve again, by handler.

        Of all handlers, or of a ``limit`` of those after the last of the page before. Example::

            print({each.handler: each.outputs for each in await client.cached_outputs()})
        """
        check_page(limit)
        key, org_id = check_after(after), await self.org_id()
        return await self.database.read(lambda conn: cache.list_handlers(conn, org_id, key, limit))

    async def outbox(
        self, *, state: str | None = None, kind: str | None = None, sort: str = "newest", before: int | None = None,
        after: int | None = None, limit: int = 50,
    ) -> list[outbox.OutboxRow]:  # fmt: skip
        """Return effects of the outbox, newest first; pass the last id as ``before`` for the next page.

        With ``sort="oldest"`` the last id is passed as ``after``. Example::

            stuck = await client.outbox(state="failed")
        """
        check_number(limit, "limit", 1, LONGEST_PAGE)
        word = None if state is None else str(check_word(state, "state", OutboxState))
        name = None if kind is None else str(check_word(kind, "kind", OutboxKind))
        part, org_id = check_stretch(before, after, sort), await self.org_id()
        return await self.database.read(
            lambda conn: outbox.list_rows(conn, org_id, part, state=word, kind=name, limit=limit)
        )


def _states(state: str | Iterable[str] | None) -> frozenset[TaskState]:
    if state is None:
        return frozenset()
    found = check_words(state, "state", TaskState)
    return found | {TaskState.DEAD} if TaskState.FAILED in found else found
