"""The client: everything a program may do with the queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from weft.core.checks import (
    MAX_ID,
    check_id,
    check_ids,
    check_name,
    check_number,
    check_span,
    check_text,
    check_word,
    check_words,
)
from weft.core.errors import InvalidInput, TaskFailed, UnknownQueue
from weft.core.settings import Settings
from weft.core.states import OutboxKind, OutboxState, TaskState, WorkerState
from weft.db.blobs import Blobs
from weft.db.database import Database
from weft.db.machine import IdSource
from weft.queue import audit, look, operate, outbox, queues, workers
from weft.queue.audit import AuditEntry, AuditVerb
from weft.queue.blobs import KeptBlobs
from weft.queue.enqueue import Draft, enqueue, enqueue_many
from weft.queue.model import NewTask, Page, Task, TaskHandle
from weft.queue.queues import QueueInfo
from weft.queue.retry import Retry
from weft.queue.workers import WorkerInfo
from weft.sdk.actor import default_actor
from weft.sdk.drafts import Drafting, draft_all, moved_to_blobs
from weft.sdk.hints import Hints
from weft.sdk.joined import add_effect, enqueue_on
from weft.sdk.values import with_values
from weft.sdk.waiting import Waiter
from weft.worker.logs import local_log, remove_logs
from weft.worker.registry import REGISTRY, AnyHandler, Handler


class Client:
    """A connection to Weft: on the embedded PostgreSQL without a URL, else on the database that it names.

    Example::

        async with weft.Client() as client:
            task = await client.enqueue("email:send", {"to": "ada@example.com"})
            print(await client.wait(task.id, timeout=10))
    """

    def __init__(self, url: str | None = None, *, settings: Settings | None = None, **overrides: Any) -> None:
        if settings is not None and (url is not None or overrides):
            raise InvalidInput("settings", "says everything: give either it, or a url and single settings")
        self.settings = settings if settings is not None else Settings.load(database_url=url, **overrides)
        self.actor = self.settings.actor or default_actor()
        self._database: Database | None = None
        self._blobs: Blobs | None = None
        self._org_id: int | None = None
        self._queues: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        """Reach the database; the embedded one is started when it does not run."""
        self._database = await Database.open(self.settings)
        self._ids = IdSource(self._database)
        self._hints = Hints(self._database)
        self._waiter = Waiter(self._database)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the last hints and close."""
        await self._waiter.close()
        await self._hints.close()
        try:
            await self._ids.close()
        finally:
            database, self._database = self.database, None
            await database.close()

    @property
    def database(self) -> Database:
        """The database; raises when the client is not entered."""
        if self._database is None:
            raise InvalidInput("client", "is not open: use `async with weft.Client() as client`")
        return self._database

    @property
    def blobs(self) -> Blobs:
        """The storage of large values."""
        if self._blobs is None:
            self._blobs = KeptBlobs.of(self.database)
        return self._blobs

    async def org_id(self) -> int:
        """Return the id of the org that calls belong to."""
        if self._org_id is None:
            async with self.database.acquire() as conn:
                self._org_id = await queues.org_id(conn, self.settings.org)
        return self._org_id

    # --- enqueue ---

    async def enqueue(
        self, handler: str | AnyHandler, params: Any = None, *, queue: str | None = None,
        priority: int = 0, idempotency_key: str | None = None, run_at: datetime | None = None,
        delay: float | timedelta | None = None, max_attempts: int | None = None, retry: Retry | int | None = None,
        timeout: float | timedelta | None = None, heartbeat_timeout: float | timedelta | None = None,
        concurrency_key: str | None = None, connection: Any = None,
    ) -> TaskHandle:  # fmt: skip
        """Put one task into the queue.

        ``params`` are the handler's arguments by name: a dict, or a model or dataclass that has them as fields.
        Without ``queue`` it is the handler's, else ``default``; without ``max_attempts`` and ``retry`` it is the
        handler's policy, else ``WEFT_WORKER_MAX_ATTEMPTS`` (3); ``max_attempts`` overrules that of a policy.
        ``connection`` enqueues inside the caller's own transaction (asyncpg, psycopg 3 or SQLAlchemy). A known
        ``idempotency_key`` creates nothing and returns the existing task's id. Example::

            await client.enqueue("report:make", {"month": "2026-11"}, delay=60, idempotency_key="report-2026-11")
        """
        new = NewTask(
            handler, params, queue, priority, idempotency_key, run_at, delay, max_attempts, retry, timeout,
            heartbeat_timeout, concurrency_key,
        )  # fmt: skip
        draft = Drafting(self.settings).draft(new)
        draft = await moved_to_blobs(draft, self.settings, lambda: self.blobs, for_sql=connection is not None)
        declared = draft.form.queue if isinstance(handler, Handler) and queue is None else None
        if connection is not None:
            return await enqueue_on(connection, draft, self.settings.org, self.actor)
        try:
            async with self.database.acquire() as conn:
                hint = self._hints.is_quiet()
                handle = await enqueue(conn, draft, self.settings.org, self.actor, hint=hint)
        except UnknownQueue:
            if declared is None:
                raise UnknownQueue(draft.form.queue, await self._queue_ids(fresh=True)) from None
            await self.create_queue(declared)
            return await self.enqueue(
                handler, params, queue=declared, priority=priority, idempotency_key=idempotency_key, run_at=run_at,
                delay=delay, max_attempts=max_attempts, retry=retry, timeout=timeout,
                heartbeat_timeout=heartbeat_timeout, concurrency_key=concurrency_key,
            )  # fmt: skip
        if handle.created and not hint:
            self._hint([draft])
        return handle

    async def enqueue_many(self, tasks: Iterable[NewTask]) -> list[TaskHandle]:
        """Put many tasks into the queue by COPY, all in one transaction or none; the handles are in the same order.

        Example::

            await client.enqueue_many([weft.NewTask("resize", {"path": path}) for path in paths])
        """
        drafts = draft_all(tasks, self.settings)
        for index, draft in enumerate(drafts):
            if len(draft.params) * 4 > min(self.settings.inline_limit, self.settings.value_limit):
                drafts[index] = await moved_to_blobs(draft, self.settings, lambda: self.blobs)
        if not drafts:
            return []
        org_id = await self.org_id()
        known = await self._queue_ids(names={draft.form.queue for draft in drafts})
        ids = await self._ids.take(len(drafts))

        async def write(conn: Any) -> list[TaskHandle]:
            return await enqueue_many(conn, drafts, ids, org_id, known, self.actor)

        handles = await self.database.run(write)
        self._hint([draft for draft, handle in zip(drafts, handles, strict=True) if handle.created])
        return handles

    def _hint(self, drafts: Sequence[Draft]) -> None:
        """Tell a worker of each queue; for a task with a time also whoever stages: only the database knows the time."""
        for name in {draft.form.queue for draft in drafts}:
            self._hints.send(name, self.settings.org)
        if any(draft.form.delay is not None or draft.form.run_at is not None for draft in drafts):
            self._hints.send_due()

    async def _queue_ids(self, *, names: set[str] | None = None, fresh: bool = False) -> dict[str, int]:
        if fresh or names is None or not names <= self._queues.keys():
            org_id = await self.org_id()
            async with self.database.acquire() as conn:
                self._queues = await queues.ids(conn, org_id)
        for name in names or ():
            if name not in self._queues:
                if any(handler.queue == name for handler in REGISTRY):
                    await self.create_queue(name)
                else:
                    raise UnknownQueue(name, self._queues)
        return self._queues

    async def _queue_id(self, name: str | None) -> int | None:
        return None if name is None else (await self._queue_ids(names={check_name(name, "queue")}))[name]

    # --- look ---

    async def get_task(self, task_id: int) -> Task:
        """Return one task with its attempts; raises `NotFound`.

        A value whose blob is missing or damaged is None, and ``unavailable`` says why.
        """
        task_id, org_id = check_id(task_id), await self.org_id()
        task, params, output = await self.database.read(lambda conn: look.show(conn, org_id, task_id))
        return await with_values(task, params, output, self.blobs)

    async def list_tasks(
        self, *, state: str | Iterable[str] | None = None, queue: str | None = None, handler: str | None = None,
        before: int | None = None, limit: int = 50,
    ) -> Page:  # fmt: skip
        """Return a page of tasks, newest first; pass ``page.next_before`` as ``before`` for the next one.

        ``state="failed"`` covers failed and dead.
        """
        check_number(limit, "limit", 1, 1000)
        states = _states(state)
        below = None if before is None else check_number(before, "before", 0, MAX_ID)
        name = None if handler is None else check_name(handler, "handler")
        org_id, queue_id = await self.org_id(), await self._queue_id(queue)
        return await self.database.read(
            lambda conn: look.list_tasks(
                conn, org_id, before=below, queue_id=queue_id, handler=name, states=states, limit=limit
            )
        )

    async def dead_letters(
        self, *, queue: str | None = None, handler: str | None = None, before: int | None = None, limit: int = 50
    ) -> Page:
        """Return a page of tasks that ended failed or dead, newest first."""
        return await self.list_tasks(state="failed", queue=queue, handler=handler, before=before, limit=limit)

    async def wait(self, task_id: int, timeout: float | None = None) -> Any:
        """Wait until a task has ended and return its output.

        Raises `WaitTimeout` after ``timeout`` seconds, `TaskFailed` when it ended without success. A restart of
        PostgreSQL does not end it. All waits of a client share one poll.
        """
        task_id = check_id(task_id)
        if timeout is not None:
            timeout = check_span(timeout, "timeout", zero=True).total_seconds()
        _ = self.database  # raises when the client is not open
        task = await self._waiter.until_ended(task_id, timeout, self.get_task)
        if task.state is not TaskState.COMPLETED:
            raise TaskFailed(task_id, task.state, task.error, task.reason)
        if "output" in task.unavailable:
            raise task.unavailable["output"]
        return task.output

    async def _require_exists(self, task_id: int) -> int:
        org_id = await self.org_id()
        async with self.database.acquire() as conn:
            await look.show(conn, org_id, task_id)
        return org_id

    # --- operate ---

    async def cancel(self, task_id: int, *, reason: str = "cancelled") -> None:
        """Cancel a task that has not ended; a running attempt is told, and whatever it writes is refused."""
        task_id = check_id(task_id)
        check_text(reason, "reason", 500)
        org_id = await self.org_id()

        async def write(conn: Any) -> None:
            if not await operate.cancel(conn, org_id, [task_id], reason, self.actor):
                raise await operate.explain_refusal(conn, org_id, "cancel", task_id)

        await self.database.run(write)

    async def replay(self, task_id: int) -> None:
        """Send a failed, dead or cancelled task round again, with its attempts kept and counted anew."""
        task_id, org_id = check_id(task_id), await self.org_id()

        async def write(conn: Any) -> int:
            landed = await operate.replay(conn, org_id, [task_id], self.actor)
            if not landed:
                raise await operate.explain_refusal(conn, org_id, "replay", task_id)
            return landed[task_id]

        self._hints.send_ids({await self.database.run(write)})

    async def replay_dead(self, *, queue: str | None = None, handler: str | None = None, dry_run: bool = False) -> int:
        """Send all dead letters round again, in batches; return how many. A ``dry_run`` only counts them."""
        org_id = await self.org_id()
        count = 0
        async for batch in self._pages(queue, handler):
            count += len(batch if dry_run else await self._replay_batch(org_id, batch))
        return count

    async def _replay_batch(self, org_id: int, batch: list[int]) -> dict[int, int]:
        landed = await self.database.run(lambda conn: operate.replay(conn, org_id, batch, self.actor))
        self._hints.send_ids(set(landed.values()))
        return landed

    async def _pages(self, queue: str | None, handler: str | None) -> AsyncIterator[list[int]]:
        before: int | None = None
        while True:
            page = await self.list_tasks(state="failed", queue=queue, handler=handler, before=before, limit=500)
            if page.tasks:
                yield [task.id for task in page.tasks]
            if page.next_before is None:
                return
            before = page.next_before

    async def purge(
        self, *, older_than: float | timedelta = 0, queue: str | None = None, ids: Sequence[int] | None = None
    ) -> int:
        """Remove dead letters for good, with their params, attempts and logs; return how many."""
        org_id = await self.org_id()
        age = check_span(older_than, "older_than", zero=True)
        queue_id = await self._queue_id(queue)
        chosen = None if ids is None else check_ids(ids)
        count = 0
        while True:
            gone = await self.database.run(
                lambda conn: operate.purge(conn, org_id, age, queue_id, chosen, 1000, self.actor)
            )
            await remove_logs(self.settings, gone)
            count += len(gone)
            if len(gone) < 1000:
                return count

    async def count_dead(self, *, older_than: float | timedelta = 0, queue: str | None = None) -> int:
        """Return how many dead letters `purge` would remove."""
        org_id = await self.org_id()
        age = check_span(older_than, "older_than", zero=True)
        queue_id = await self._queue_id(queue)
        async with self.database.acquire() as conn:
            return await operate.count_purgeable(conn, org_id, age, queue_id)

    async def read_log(self, task_id: int, offset: int = 0, *, attempt: int | None = None) -> bytes | None:
        """Return what a task has printed from ``offset`` on; None when there is no log.

        It is read from the folder of logs, or from the copies in the blob storage when there is no such file here. One
        ``attempt`` alone can be read when its log was copied.
        """
        task_id = check_id(task_id)
        check_number(offset, "offset", 0, MAX_ID)
        org_id = await self._require_exists(task_id)
        if attempt is not None:
            check_number(attempt, "attempt", 1, 2**31 - 1)
        elif (found := await local_log(self.settings, task_id, offset)) is not None:
            return found
        digests = await self.database.read(lambda conn: look.logs(conn, org_id, task_id, attempt))
        copies = [await self.blobs.get(digest) for digest in digests]
        return b"".join(copies)[offset:] if copies else None

    # --- queues and workers ---

    async def queues(self) -> list[QueueInfo]:
        """Return all queues with depth, age of the oldest task, rate and limits, also those of single keys."""
        org_id = await self.org_id()
        return await self.database.read(lambda conn: queues.list_queues(conn, org_id))

    async def create_queue(self, name: str) -> bool:
        """Make a queue; False when there is one of that name."""
        org_id = await self.org_id()
        created = await self.database.run(lambda conn: queues.create(conn, org_id, name, self.actor))
        self._queues = {}
        return created

    async def pause_queue(self, name: str) -> None:
        """Stop claims from a queue; what runs goes on."""
        org_id = await self.org_id()
        await self.database.run(lambda conn: queues.pause(conn, org_id, name, self.actor))

    async def resume_queue(self, name: str) -> None:
        """Let claims from a queue go on."""
        org_id = await self.org_id()
        self._hints.send_ids({await self.database.run(lambda conn: queues.resume(conn, org_id, name, self.actor))})

    async def limit_queue(
        self, name: str, max_running: int | None, *, per_key: bool = False, key: str | None = None
    ) -> None:
        """Set how many tasks of a queue run at once; None lifts the limit.

        It counts all tasks of the queue, with ``per_key`` those of each concurrency key, with ``key`` those of one.
        """
        org_id = await self.org_id()
        changed = await self.database.run(
            lambda conn: queues.limit(conn, org_id, name, max_running, per_key=per_key, key=key, actor=self.actor)
        )
        self._hints.send_ids({changed})

    async def workers(self, *, state: str | None = None) -> list[WorkerInfo]:
        """Return the workers, newest first."""
        states = None if state is None else [str(check_word(state, "state", WorkerState))]
        org_id = await self.org_id()
        return await self.database.read(lambda conn: workers.list_workers(conn, org_id, states))

    # --- audit and outbox ---

    async def audit(
        self, *, verb: str | None = None, task: int | None = None, queue: str | None = None, before: int | None = None,
        limit: int = 50,
    ) -> list[AuditEntry]:  # fmt: skip
        """Return what operators did, newest first; pass the last entry's id as ``before`` for the next page."""
        check_number(limit, "limit", 1, 1000)
        word = None if verb is None else str(check_word(verb, "verb", AuditVerb))
        task_id = None if task is None else check_id(task, "task")
        name = None if queue is None else check_name(queue, "queue")
        if task_id is not None and name is not None:
            raise InvalidInput("queue", "give either task or queue, not both")
        below = None if before is None else check_number(before, "before", 0, MAX_ID)
        org_id = await self.org_id()
        return await self.database.read(
            lambda conn: audit.list_entries(
                conn, org_id, verb=word, task_id=task_id, queue=name, before=below, limit=limit
            )
        )

    async def add_effect(
        self, kind: str, payload: Any, *, ordering_key: str | None = None, connection: Any = None
    ) -> int:
        """Add an effect to the outbox and return its id; it is carried out after the commit, at least once.

        ``connection`` adds it inside the caller's own transaction. The payload of ``enqueue_task``, the kind that
        workers carry out, holds ``handler`` and other arguments of `enqueue` but for ``run_at`` and ``retry``.
        """
        arguments = (kind, payload, ordering_key, self.settings.org, self.actor)
        if connection is not None:
            return await add_effect(connection, *arguments)
        return await self.database.run(lambda conn: add_effect(conn, *arguments))

    async def outbox(
        self, *, state: str | None = None, kind: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[outbox.OutboxRow]:
        """Return effects of the outbox, newest first."""
        check_number(limit, "limit", 1, 1000)
        word = None if state is None else str(check_word(state, "state", OutboxState))
        name = None if kind is None else str(check_word(kind, "kind", OutboxKind))
        below = None if before is None else check_number(before, "before", 0, MAX_ID)
        org_id = await self.org_id()
        return await self.database.read(
            lambda conn: outbox.list_rows(conn, org_id, state=word, kind=name, before=below, limit=limit)
        )

    async def replay_outbox(self, ids: Sequence[int] | None = None) -> int:
        """Send failed effects round again; return how many."""
        org_id = await self.org_id()
        chosen = None if ids is None else check_ids(ids)
        return await self.database.run(lambda conn: outbox.replay(conn, org_id, chosen, self.actor))


def _states(state: str | Iterable[str] | None) -> frozenset[TaskState]:
    if state is None:
        return frozenset()
    found = check_words(state, "state", TaskState)
    return found | {TaskState.DEAD} if TaskState.FAILED in found else found
