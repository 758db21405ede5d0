"""The part of the client that puts tasks into queues and effects into the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from weft.core.errors import UnknownQueue
from weft.jobs.messages import QUEUE as MESSAGES
from weft.queue.enqueue import Draft, enqueue, enqueue_many
from weft.queue.model import NewTask, TaskHandle
from weft.queue.retry import Retry
from weft.sdk.drafts import Drafting, Drafts, Unready, moved_to_blobs
from weft.sdk.joined import add_effect, enqueue_on
from weft.sdk.session import Session
from weft.worker.registry import AnyHandler, Handler


class Enqueuing(Session):
    """What creates work."""

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
            if draft.form.queue == MESSAGES:
                declared = MESSAGES
            if declared is None:
                raise UnknownQueue(draft.form.queue, await self._known_queues({draft.form.queue})) from None
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

        They must not be changed until it returns. Example::

            await client.enqueue_many([weft.NewTask("resize", {"path": path}) for path in paths])
        """
        drafts = Drafts(tasks, self.settings)
        if not drafts:
            return []
        org_id, names = await self.org_id(), drafts.queues()
        has_keys, has_times = drafts.has_keys, drafts.has_times
        if has_keys or not names <= (await self._known_queues(names)).keys():
            drafts.check()  # before a key is claimed or a queue made
        try:
            known = await self._queue_ids(names)
        except UnknownQueue as problem:
            index = next(place for place, draft in enumerate(drafts) if draft.form.queue == problem.name)
            raise UnknownQueue(problem.name, problem.known, f"tasks[{index}].queue") from None
        ids = await self.ids.take(len(drafts))

        async def write(conn: Any) -> list[TaskHandle]:
            return await enqueue_many(
                conn, drafts, ids, org_id, known, self.actor, has_keys=has_keys, has_times=has_times
            )

        try:
            handles = await self.database.run(write)
        except Unready:
            drafts.check()
            await drafts.move_large(lambda draft: moved_to_blobs(draft, self.settings, lambda: self.blobs))
            handles = await self.database.run(write)
        self._hint([draft for draft, handle in zip(drafts, handles, strict=True) if handle.created])
        return handles

    def _hint(self, drafts: Sequence[Draft]) -> None:
        """Tell a worker of each queue; for a task with a time also whoever stages: only the database knows the time."""
        for name in {draft.form.queue for draft in drafts}:
            self._hints.send(name, self.settings.org)
        if any(draft.form.delay is not None or draft.form.run_at is not None for draft in drafts):
            self._hints.send_due()

    async def add_effect(
        self, kind: str, payload: Any, *, ordering_key: str | None = None, connection: Any = None
    ) -> int:
        """Add an effect to the outbox and return its id; it is carried out after the commit, at least once.

        ``connection`` adds it inside the caller's own transaction. The payload of ``enqueue_task``, the kind that
        workers carry out, holds ``handler`` and other arguments of `enqueue` but for ``run_at`` and ``retry``.

        Example::

            await client.add_effect("enqueue_task", {"handler": "email:send", "params": {"to": "ada@example.com"}})
        """
        arguments = (kind, payload, ordering_key, self.settings.org, self.actor)
        if connection is not None:
            return await add_effect(connection, *arguments)
        return await self.database.run(lambda conn: add_effect(conn, *arguments))
