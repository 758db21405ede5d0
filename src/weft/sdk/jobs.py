"""The part of the client that executes workflows: submit, look, wait, cancel."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import asyncpg
import orjson

from weft.core.checks import (
    LONGEST_PAGE,
    MAX_ID,
    check_id,
    check_number,
    check_page,
    check_span,
    check_text,
)
from weft.core.errors import BlobUnavailable, InvalidInput, NotFound, StateConflict
from weft.core.job_states import JobState
from weft.core.json import Json, check_size, encode, plain
from weft.core.states import TaskState
from weft.flow.inputs import check_inputs, told_of
from weft.flow.model import Input, WorkflowDefinition
from weft.flow.patches import Op, check_ops
from weft.history import snapshots
from weft.history.reading import Materials
from weft.jobs import events, sending
from weft.jobs.adding import SQL as GRAPH
from weft.jobs.labels import check_labels
from weft.jobs.library import Library, Planned
from weft.jobs.model import Approval, Job, JobHandle, JobNode, NewEvent, SentEvent
from weft.jobs.plan import Plan
from weft.jobs.posting import check_url
from weft.jobs.submit import SQL, NewJob, submit
from weft.queue import audit
from weft.queue.asking import asked_by
from weft.queue.audit import AuditVerb
from weft.sdk.authoring.workflow import Workflow as PythonWorkflow
from weft.sdk.job_lists import JobLists
from weft.sdk.job_looking import JobLooking
from weft.sdk.pausing import Pausing
from weft.sdk.reruns import Reruns
from weft.sdk.together import Together
from weft.sdk.values import value_of
from weft.sdk.workflows import document_of
from weft.worker.caching import REFRESH

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.sdk.bisecting import Bisected, BisectStep, Line
    from weft.worker.registry import Registry

Workflow = str | int | Path | Mapping[str, Json] | WorkflowDefinition | PythonWorkflow[..., Any]


def used_by(workflow: Workflow) -> builtins.list[PythonWorkflow[..., Any]]:
    """Return the workflows that a Python workflow calls, and those that they call, each once."""
    found: dict[str, PythonWorkflow[..., Any]] = {}
    open_ = builtins.list(workflow.uses.values()) if isinstance(workflow, PythonWorkflow) else []
    while open_:
        used = open_.pop()
        if used.workflow_id not in found:
            found[used.workflow_id] = used
            open_ += used.uses.values()
    return builtins.list(found.values())


def _checked_cache(said: object) -> bool | str:
    if not isinstance(said, bool) and said != REFRESH:
        raise InvalidInput("cache", f"{said!r} is neither True nor False nor {REFRESH!r}: say True to take what serves")
    return said


class Jobs(Reruns, JobLists, JobLooking, Pausing):
    """What is done with jobs; `Client.jobs`."""

    async def submit(
        self, workflow: Workflow, inputs: Mapping[str, Any] | None = None, *, priority: int = 0,
        idempotency_key: str | None = None, labels: Mapping[str, str] | None = None, patch: Sequence[Op] | None = None,
        callback_url: str | None = None, cache: bool | Literal["refresh"] = True, uses: Sequence[Workflow] = (),
    ) -> JobHandle:  # fmt: skip
        """Execute a workflow: by its tag, a version's id or hash, a file, a definition, or a `weft.workflow`.

        A known ``idempotency_key`` creates nothing and returns the existing job's id. ``patch`` (RFC 6902) changes the
        definition for this job only. When the job has ended, ``callback_url`` is told of it by HTTP. With
        ``cache=False`` the job leaves the cache alone; with ``cache="refresh"`` it takes no output from there, and
        renews those that it makes. ``uses`` are workflows that it calls, to be called as they are there and not as
        their tags are. Example::

            job = await client.jobs.submit("etl", {"day": "2026-11-14"})
            print((await client.jobs.wait(job.id)).result)
        """
        given = plain(dict(inputs or {}), "inputs")
        check_size("inputs", orjson.dumps(given).decode(), self._session.settings.value_limit)
        check_number(priority, "priority", -32767, 32767)
        if idempotency_key is not None:
            check_text(idempotency_key, "idempotency_key", 500)
        if callback_url is not None:
            check_url(callback_url, "callback_url")
        wish = NewJob(
            "", given, priority, idempotency_key, labels=check_labels(labels), actor=self._session.actor,
            patch=None if patch is None else check_ops(list(patch)), callback_url=callback_url,
            cache=_checked_cache(cache), is_act=True, request=None if (by := asked_by()) is None else by.digest,
        )  # fmt: skip
        library = await self._plans()
        return await library.anew_if_gone(lambda: self._submit_now(library, workflow, wish, uses))

    async def _submit_now(
        self, library: Library, workflow: Workflow, wish: NewJob, uses: Sequence[Workflow]
    ) -> JobHandle:
        found = await self._materials(library, workflow)
        known = await library.planned(found if wish.patch is None else await self._patched(found, wish.patch))
        values, problems = check_inputs(known.inputs, wish.inputs)
        if problems:
            raise InvalidInput("inputs", told_of(problems))
        new = replace(
            wish, workflow_id=known.workflow_id, inputs=values, snapshot_id=known.snapshot_id,
            version_hash=known.version_hash,
            pins=await library.pins(known, found, await self._own(library, workflow, uses)),
            base_kind="tag" if found.row["tag"] else found.row["kind"],
            base_ref=found.row["tag"] or str(found.row["id"]),
        )  # fmt: skip
        return await self._submit(new, known.plan, await library.queues(known, new.pins))

    async def _patched(self, found: Materials, ops: Sequence[Op]) -> Materials:
        """Return what a patch makes of a version, for one job; no tag moves."""
        reader = await self._reader()
        kept = await snapshots.take(reader, found, self._session.actor, ops)
        assert kept.snapshot_id is not None
        return await reader.of(kept.snapshot_id)

    async def _submit(self, new: NewJob, plan: Plan, queues: set[str]) -> JobHandle:
        session = self._session
        org_id = await session.org_id()
        lanes = await session._queue_ids(queues)
        patience = session.settings.job_default_timeout
        ids = await session.ids.take(1 + len(plan.steps))
        found = await session.database.run_alone(lambda conn: submit(conn, org_id, new, plan, ids, lanes, patience))
        if found != ids[0]:
            return JobHandle(found, await self._is_mine(org_id, new.idempotency_key))
        session._hints.send_ids(plan.first_queues(lanes))
        return JobHandle(ids[0], True)

    async def _is_mine(self, org_id: int, key: str | None) -> bool:
        """Say whether the job of a key was made by the request in hand, which was sent before."""
        request = asked_by()
        if request is None or key is None:
            return False
        return request.made(key, await self._read(lambda conn: conn.fetchval(SQL.asked_by, org_id, key)))

    async def _materials(self, library: Library, workflow: Workflow) -> Materials:
        if isinstance(workflow, (str, int)):
            return await self._found(workflow, None)
        return await library.kept(document_of(workflow))

    async def bisect(
        self, tag: str, *, good: str | int, bad: str | int | None = None, inputs: Mapping[str, Any] | None = None,
        timeout: float | timedelta | None = None, registry: Registry | None = None,
        on_step: Callable[[BisectStep], None] | None = None,
    ) -> Bisected:  # fmt: skip
        """Find the change that broke a workflow, between a version that works and one that fails.

        ``bad`` is what the tag is at, unless said otherwise. Versions between them are run by halves, each with the
        outputs of those before that nothing has changed; ``timeout`` is for each. Raises `InvalidInput` when ``good``
        does not lead to ``bad``, or fails as well, or ``bad`` does not fail. Example::

            found = await client.jobs.bisect("etl", good="etl/stable", inputs={"day": "2026-11-14"})
            print(found.bad.id, found.bad.actor, found.bad.message, sorted(found.diff.changed))
        """
        from weft.sdk.bisecting import bisect

        return await bisect(self, tag, good, bad, inputs, timeout, registry, on_step)

    async def _line(self, tag: str, good: str | int, bad: str | int) -> Line:
        """Return what `bisect` asks of the history."""
        from weft.sdk.bisecting import line_of

        return await line_of(self, tag, good, bad)

    async def _own(
        self, library: Library, workflow: Workflow, uses: Sequence[Workflow] = ()
    ) -> dict[str, tuple[Materials, Planned]]:
        """Return the workflows that a Python workflow calls, as they are in this process; no tag is moved to them."""
        own: dict[str, tuple[Materials, Planned]] = {}
        for used in (*uses, *used_by(workflow)):
            found = await self._materials(library, used)
            planned = await library.planned(found)
            own.setdefault(planned.workflow_id, (found, planned))
        return own

    @cached_property
    def _rows(self) -> Together[asyncpg.Record]:
        """The rows of jobs, asked for together by those who ask at the same time: many may wait for many."""

        async def ask(ids: Sequence[int]) -> dict[int, asyncpg.Record]:
            org_id = await self._session.org_id()
            return {row["id"]: row for row in await self._read(lambda conn: conn.fetch(SQL.show, org_id, ids))}

        return Together(ask)

    async def show(self, job_id: int) -> Job:
        """Return a job; raises `NotFound`.

        A result whose blob is missing or damaged is None, and ``unavailable`` says why. Example::

            print((await client.jobs.show(job.id)).state)
        """
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        row = await self._rows.get(job_id)
        if row is None:
            raise NotFound("job", job_id)
        told = dict(row)
        for name in ("inputs", "error", "labels", "patch", "tag_positions"):
            told[name] = None if told[name] is None else orjson.loads(told[name])
        try:
            told["result"] = None if row["result"] is None else await value_of(row["result"], self._session.blobs)
        except BlobUnavailable as problem:
            told |= {"result": None, "unavailable": {"result": problem}}
        more = {"labels": told["labels"] or {}, "tag_positions": told["tag_positions"] or {}}
        return Job(**{**told, "state": JobState(told["state"]), **more})

    async def queues(self, job_id: int) -> set[str]:
        """Return the queues in which tasks of a job, and of the jobs that its nodes wait for, may wait; by name.

        What is added to a job while it runs may wait in others. Example::

            async with weft.Worker(client=client, queues=sorted(await client.jobs.queues(job.id))):
                await client.jobs.wait(job.id)
        """
        return await self._queues_of_job(job_id, lambda _: True)

    async def _queues_of_job(self, job_id: int, knows: Callable[[str], bool]) -> set[str]:
        """Return the queues in which tasks of a job may wait, of handlers that somebody knows."""
        job, library = await self.show(job_id), await self._plans()
        rows = await self._read(lambda conn: conn.fetch(GRAPH.queues_of, job_id))
        found = {row["name"] for row in rows if knows(row["handler"])}
        own = [] if job.snapshot_id is None else [await library.by_snapshot(job.snapshot_id)]
        for planned in (*own, *[await library.pinned(position) for position in job.tag_positions.values()]):
            found |= planned.plan.queues_of(knows)
        return found

    async def _queues_of_version(self, workflow: Workflow, knows: Callable[[str], bool]) -> set[str]:
        """Return the queues in which tasks of a version may wait, of handlers that somebody knows."""
        library = await self._plans()
        return (await library.planned(await self._materials(library, workflow))).plan.queues_of(knows)

    async def nodes(self, job_id: int, *, after: int | None = None, limit: int | None = None) -> builtins.list[JobNode]:
        """Return the nodes of a job with their states, in the order of their ids; raises `NotFound`.

        All of them, or a ``limit`` of those after the last id of the page before. Example::

            for node in await client.jobs.nodes(job.id):
                print(node.node, node.state)
        """
        check_page(limit)
        above = 0 if after is None else check_number(after, "after", 0, MAX_ID)
        job = await self.show(job_id)
        org_id = await self._session.org_id()
        rows = await self._read(lambda conn: conn.fetch(SQL.nodes, org_id, job.id, above, limit))
        return [
            JobNode(
                **{
                    **row,
                    "state": TaskState(row["state"]),
                    "error": None if row["error"] is None else orjson.loads(row["error"]),
                    "items": {} if row["items"] is None else orjson.loads(row["items"]),
                }
            )
            for row in rows
        ]

    async def wait(self, job_id: int, timeout: float | timedelta | None = None) -> Job:
        """Return a job when it has ended; raises `WaitTimeout` after ``timeout`` seconds.

        A result that cannot be read is raised as `BlobUnavailable`. Example::

            print((await client.jobs.wait(job.id, timeout=60)).result)
        """
        if timeout is not None:
            timeout = check_span(timeout, "timeout", zero=True).total_seconds()
        job = await self.show(job_id)
        if not job.state.is_final:
            job = await self._session.waiter.until_ended(job.end_id, timeout, lambda _: self.show(job_id), is_open=True)
        if job.unavailable:
            raise job.unavailable["result"]
        return job

    async def cancel(self, job_id: int) -> None:
        """Cancel a job: nothing of it begins any more, and what runs is told to stop. Raises `StateConflict`.

        Example::

            await client.jobs.cancel(job.id)
        """
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        org_id = await self._session.org_id()

        async def cancel(conn: Any) -> bool:
            await conn.execute(SQL.hold_end, org_id, job_id)
            rank = await conn.fetchval(SQL.cancel, org_id, job_id)
            if rank is None:
                return False
            await events.note(conn, org_id, job_id, "job.cancelling", "cancelling", {"by": self._session.actor})
            await audit.record_many(conn, org_id, self._session.actor, AuditVerb.CANCEL, "job", [job_id])
            if await conn.fetchval(SQL.sweep, job_id, 1000):
                await conn.execute(SQL.sweep_later, org_id, job_id, rank)
            return True

        if not await self._session.database.run(cancel):
            job = await self.show(job_id)
            raise StateConflict("cancel", job_id, job.state, ["pending", "running", "paused"], "job")

    async def approvals(
        self, job_id: int | None = None, *, after: int | None = None, limit: int = 100
    ) -> builtins.list[Approval]:
        """Return what waits for a person, of one job or of all, oldest first.

        ``after`` is the last ``task_id`` of the page before. Example::

            for each in await client.jobs.approvals():
                print(each.job_id, each.node, each.form)
        """
        check_number(limit, "limit", 1, LONGEST_PAGE)
        above = 0 if after is None else check_number(after, "after", 0, MAX_ID)
        org_id = await self._session.org_id()
        if job_id is None:
            rows = await self._read(lambda conn: conn.fetch(SQL.approvals, org_id, above, limit))
        else:
            id = check_id(job_id, "job_id", shown_by="weft jobs list")
            rows = await self._read(lambda conn: conn.fetch(SQL.approvals_of, org_id, id, above, limit))
        return [Approval(**{**row, "form": orjson.loads(row["form"])}) for row in rows]

    async def approve(
        self, job_id: int, node: str | None = None, values: Mapping[str, Any] | None = None, *,
        reject: bool = False, message: str | None = None,
    ) -> None:  # fmt: skip
        """Answer what waits for a person: its node goes on with the ``values`` of its form, or fails when rejected.

        Example::

            await client.jobs.approve(job.id, "review", {"limit": 100})
        """
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        open_ = [each for each in await self.approvals(job_id, limit=1000) if node in (None, each.node)]
        if not open_:
            await self.show(job_id)
            raise NotFound("approval", f"that job {job_id} waits for" + (f" in its node {node}" if node else ""))
        if len(open_) > 1:
            raise InvalidInput("node", f"say which: {', '.join(sorted(each.node for each in open_))}")
        (chosen,) = open_
        form = {name: Input.model_validate(entry) for name, entry in chosen.form.items()}
        found, problems = ({}, []) if reject else check_inputs(form, plain(dict(values or {}), "values"))
        if problems:
            raise InvalidInput("values", told_of(problems))
        actor = self._session.actor
        if message is not None:
            check_text(message, "message", 10_000)
        output = encode({"approved": not reject, "by": actor, "message": message, "values": found}, "values")
        check_size("values", output, self._session.settings.inline_limit)
        error = encode({"type": "Rejected", "message": message or f"rejected by {actor}", "traceback": ""}, "message")
        ending = ("failed", None, error, "rejected") if reject else ("completed", output, None, None)
        org_id, verb = await self._session.org_id(), "rejected" if reject else "approved"

        async def answer(conn: type_Connection) -> bool:
            if not await conn.fetchval(SQL.answer, chosen.task_id, *ending):
                return False
            told = {"by": actor, "message": message}
            await events.note(conn, org_id, job_id, f"task.{verb}", ending[0], told, chosen.task_id, chosen.node)
            act = AuditVerb.REJECT if reject else AuditVerb.APPROVE
            why = {"node": chosen.node, "message": message}
            await audit.record_many(conn, org_id, actor, act, "job", [job_id], why, message)
            return True

        if not await self._session.database.run(answer):
            raise StateConflict("approve", chosen.task_id, "answered", ["waiting"])

    async def send_event(
        self, name: str, payload: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> SentEvent:
        """Tell jobs of an event; return it with how many nodes waited for it, and sources took it.

        Those that begin to wait later, in jobs that were submitted before, find it too. A known ``idempotency_key``
        sends nothing, and returns what the first has; raises `KeyReused` when that was another event. When it returns
        the event is kept: where a great many wait, the last of them are answered soon after. Example::

            await client.jobs.send_event("file.arrived", {"path": "in/orders.csv"}, idempotency_key="etag-3f2a")
        """
        return (await self._send([NewEvent(name, payload, idempotency_key)]))[0]

    async def send_events(self, events: Sequence[NewEvent]) -> list[SentEvent]:
        """Tell of up to 1,000 events in one transaction, all or none; return each as `send_event` does.

        Raises `SourceFull` when a live job that listens for one of them has no room: then nothing is sent. Example::

            await client.jobs.send_events([weft.NewEvent("order.created", {"order": n}) for n in range(100)])
        """
        return await self._send(events, are_many=True)

    async def _send(self, events: Sequence[NewEvent], *, are_many: bool = False) -> list[SentEvent]:
        # Each node that waits for one has it as its output.
        told = sending.checked(events, self._session.settings.inline_limit, are_many=are_many)
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: sending.send(conn, org_id, actor, told))
