"""The part of `Client.jobs` that takes graphs as they are put together in Python, also while a job runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import asyncpg

from weft.core.checks import check_id, check_name, check_number, check_text
from weft.core.errors import InvalidInput
from weft.core.garbage import uncollected
from weft.core.json import blob_reference, check_size, size_of
from weft.jobs import adding, adhoc
from weft.jobs.adding import Addition, Call
from weft.jobs.items import Item, Task, items_of
from weft.jobs.labels import check_labels
from weft.jobs.library import Library
from weft.jobs.model import JobHandle
from weft.jobs.submit import NewJob
from weft.queue.steps import Fence
from weft.sdk.workflow_calls import WorkflowCalls
from weft.sdk.workflows import document_of
from weft.worker.context import RUNNING

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.jobs.layout import Layout
    from weft.sdk.session import Session

ON_FAILURE = ("fail_fast", "finish_independent")


def own_call(job_id: int) -> Call | None:
    """Return the call by which a running task adds to its own job, once in all of its attempts; else None.

    To be asked for before anything is awaited: calls are told apart by their order.
    """
    running = RUNNING.get()
    if running is None or running.context.job_id != check_id(job_id, "job_id", shown_by="weft jobs list"):
        return None
    ctx = running.context
    return Call(Fence(ctx.worker_id, ctx.task_id, ctx.attempt), ctx._own_children.next_addition())


def require_job(addition: Addition, job_id: int) -> None:
    """Raise `InvalidInput` when something is to come before or after what is part of another job."""
    if any(item.job_id not in (None, job_id) for pair in addition.pairs for item in pair):
        raise InvalidInput("items", f"some of them are part of another job than {job_id}")


def require_new(items: Item | Sequence[Item], addition: Addition) -> None:
    """Raise `InvalidInput` when one of the ``items``, or what comes along with them, is part of a job already."""
    groups = (item.group for item in addition.items if item.group is not None)
    for item in chain(items_of(items, "items"), chain.from_iterable(addition.pairs), groups):
        if item.id is not None:
            raise InvalidInput("items", f"{item.called} is part of job {item.job_id} already: make another for this")


class GraphCalls(WorkflowCalls):
    """What is done with graphs of tasks and groups."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._library: Library | None = None

    async def submit_graph(
        self, name: str, items: Item | Sequence[Item], *, priority: int = 0, idempotency_key: str | None = None,
        labels: Mapping[str, str] | None = None, on_failure: str = "fail_fast",
    ) -> JobHandle:  # fmt: skip
        """Execute tasks and groups, with all that they wait for; ``name`` is what the workflow is called.

        A graph of up to 5,000 tasks and 8 MiB of params is kept as a definition, to be run again. Example::

            extract, load = Task("etl.extract"), Task("etl.load")
            extract >> load
            job = await client.jobs.submit_graph("etl", load)
        """
        check_number(priority, "priority", -32767, 32767)
        if idempotency_key is not None:
            check_text(idempotency_key, "idempotency_key", 500)
        if on_failure not in ON_FAILURE:
            raise InvalidInput("on_failure", f"must be one of {', '.join(ON_FAILURE)}, not {on_failure!r}")
        with uncollected():
            try:
                return await self._submit_graph(name, items, priority, idempotency_key, labels, on_failure)
            except asyncpg.ForeignKeyViolationError:
                # What was remembered has been collected as garbage, or the database is another one by now.
                assert self._library is not None
                self._library.forget()
                return await self._submit_graph(name, items, priority, idempotency_key, labels, on_failure)

    async def _submit_graph(
        self, name: str, items: Item | Sequence[Item], priority: int, idempotency_key: str | None,
        labels: Mapping[str, str] | None, on_failure: str,
    ) -> JobHandle:  # fmt: skip
        addition = await self._addition(items, 2)
        require_new(items, addition)
        job_id, end_id = addition.ids.pop(), addition.ids.pop()
        layout = adhoc.laid_out(addition, end_id)
        kept = await self._kept(check_name(name, "name"), addition, on_failure)
        new = NewJob(
            name, {}, priority, idempotency_key, kept.base_kind, kept.base_ref, kept.snapshot_id, kept.version_hash,
            check_labels(labels), self._session.actor, is_act=True,
        )  # fmt: skip
        org_id, patience = await self._session.org_id(), self._session.settings.job_default_timeout
        found = await self._session.database.run(
            lambda conn: adhoc.begin(
                conn, org_id, new, addition, layout, job_id, end_id, patience, is_patient=on_failure != ON_FAILURE[0]
            )
        )
        if found != job_id:
            return JobHandle(found, False)
        addition.landed(layout, job_id)
        self._session._hints.send_ids(addition.woken)
        return JobHandle(job_id, True)

    async def add(self, job_id: int, items: Item | Sequence[Item]) -> None:
        """Add tasks and groups to a job that goes on, with all that they wait for; they have ids then.

        What waits for a group waits for what is added to it too. Raises `StateConflict` when the job, the group or
        something that a task is to come before has ended or begun. A running task adds to its own job once: a later
        attempt that makes the same calls in order gets the tasks that an earlier one has added. Example::

            await client.jobs.add(job.id, Task("etl.report").depends_on(load))
        """
        await self._add(job_id, items, own_call(job_id))

    async def _add(self, job_id: int, items: Item | Sequence[Item], call: Call | None) -> None:
        """Add to a job; by a ``call`` of a task of it only once, whichever attempt makes it."""
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        addition = await self._addition(items, 0)
        require_job(addition, job_id)
        org_id, actor = await self._session.org_id(), self._session.actor if call is None else None

        async def add(conn: type_Connection) -> Layout:
            return await adding.add(conn, org_id, job_id, addition, call, actor)

        addition.landed(await self._session.database.run(add), job_id)
        self._session._hints.send_ids(addition.woken)

    async def _addition(self, items: Item | Sequence[Item], more: int) -> Addition:
        session = self._session
        addition = Addition.of(items_of(items, "items"))
        await self._move_large(addition)
        addition.lanes = await session._queue_ids(addition.queues)
        addition.ids = await session.ids.take(addition.room + more)
        return addition

    async def _move_large(self, addition: Addition) -> None:
        settings = self._session.settings
        for item in addition.items:
            if isinstance(item, Task) and len(item.params) > settings.inline_limit // 4:
                check_size("params", item.params, settings.value_limit)
                if (size := size_of(item.params)) > settings.inline_limit:
                    addition.large[item] = blob_reference(await self._session.blobs.put(item.params.encode()), size)

    async def _kept(self, name: str, addition: Addition, on_failure: str) -> NewJob:
        """Return a job by the definition that is kept of a graph, if there is one."""
        document = adhoc.document_of_graph(name, addition)
        if document is None:
            return NewJob(name, {}, base_kind="graph")
        document["on_failure"] = on_failure
        if self._library is None:
            self._library = Library(await self._reader(), lambda: self._session.actor)
        found = await self._library.kept(document_of(document))
        known = await self._library.planned(found)
        return NewJob(
            name, {}, base_kind="version", base_ref=str(found.row["id"]), snapshot_id=known.snapshot_id,
            version_hash=known.version_hash,
        )  # fmt: skip
