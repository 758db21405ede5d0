"""The handlers of control steps: a worker of the control queue that runs them is an orchestrator."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.errors import LeaseLost
from weft.core.json import encode
from weft.core.signals import Parked, Snooze
from weft.db.database import OUTAGE
from weft.flow.templates import read_value
from weft.jobs import control
from weft.jobs.fan_out import FanOut
from weft.jobs.library import Libraries
from weft.jobs.messages import HANDLER, QUEUE
from weft.jobs.requests import Request, Requests
from weft.jobs.sub_workflow import SubWorkflows
from weft.jobs.submit import SQL
from weft.queue.retry import Retry
from weft.worker.context import Context
from weft.worker.registry import Handler, Registry

if TYPE_CHECKING:
    from weft.db.blobs import Blobs
    from weft.db.database import Database
    from weft.db.machine import IdSource

logger = logging.getLogger("weft.engine")
Values = dict[str, Any]
# So many tasks are skipped or swept away in one transaction.
_AT_ONCE = 1000
# What keeps a step from being carried out and passes: it is no fault of the job, and no attempt is counted for it.
_PASSING = (
    *OUTAGE, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError, asyncpg.InsufficientResourcesError,
)  # fmt: skip
_SOON = 1.0


class Steps:
    """The control steps of jobs; each may be carried out again, by whoever takes over: a repeat changes nothing."""

    def __init__(self, database: Database, ids: IdSource, blobs: Callable[[], Blobs]) -> None:
        self._database = database
        self._ids = ids
        self._blobs = blobs
        libraries = Libraries(database, blobs)
        self._sub_workflows = SubWorkflows(database, ids, libraries)
        self._requests = Requests(database, ids, libraries)

    @property
    def registry(self) -> Registry:
        """The steps by the names of their handlers."""
        steps: tuple[Callable[..., Awaitable[Any]], ...] = (
            self.conditional, self.fan_out, self.fan_in, self.wait, self.workflow, self.output, self.end, self.fail,
            self.skip, self.sweep, self.open, self.close,
        )  # fmt: skip
        registry = Registry()
        for step in steps:
            registry.add(Handler(name=f"@{step.__name__}", function=_whatever_passes(step), queue="@control"))
        submit = _whatever_passes(self.submit)
        registry.add(Handler(name=HANDLER, function=submit, queue=QUEUE, retry=Retry(max_attempts=10)))
        return registry

    async def submit(
        self, workflow_id: str, ctx: Context, inputs: Values | None = None, priority: int = 0,
        callback_url: str | None = None, idempotency_key: str | None = None, labels: dict[str, str] | None = None,
    ) -> Values:  # fmt: skip
        """Make a job of a message."""
        request = Request(workflow_id, inputs or {}, priority, callback_url, idempotency_key, labels)
        return await self._requests.accept(_fence(ctx), request)

    async def conditional(self, spec: Values, values: Values) -> Values:
        """Choose a branch."""
        return control.choose_branch(spec, values)

    async def fan_out(self, spec: Values, values: Values, ctx: Context) -> Values:
        """Make a task for each item."""
        expansion = FanOut(ctx.task_id, ctx.attempt, ctx.worker_id, spec, values)
        return {"count": await expansion.expand(self._database, self._ids, self._blobs)}

    async def fan_in(self, spec: Values, values: Values) -> Values:
        """Refer to what is gathered: the outputs are not copied."""
        return {"$results": spec["results"]}

    async def wait(self, spec: Values, values: Values, ctx: Context) -> None:
        """Wait for a person or an event, without holding anybody."""
        match = read_value(spec.get("match", {})).render(values)
        limit, skips = spec.get("timeout_seconds"), spec.get("on_timeout") == "skip"
        patience = None if limit is None else timedelta(seconds=limit)
        said = spec["for"], skips, spec.get("event"), encode(match, "match"), encode(spec.get("form", {}), "form")
        if not await self._database.run(lambda conn: conn.fetchval(SQL.begin_wait, *_fence(ctx), patience, *said)):
            raise LeaseLost(ctx.task_id)
        raise Parked

    async def workflow(self, spec: Values, values: Values, ctx: Context) -> None:
        """Execute another workflow, and wait for it without holding anybody."""
        assert ctx.job_id is not None
        await self._sub_workflows.begin(_fence(ctx), ctx.job_id, spec, values)
        raise Parked

    async def output(self, spec: Values, values: Values) -> Any:
        """Say what one of several ends gives."""
        return control.output_of(spec, values)

    async def end(self, spec: Values | None = None, values: Values | None = None) -> Any:
        """Give the result of the job, which ends with it."""
        return None if spec is None else control.result_of(spec, values or {})

    async def open(self) -> None:
        """Let what is in a group begin."""

    async def close(self, gate: str | None = None) -> None:
        """Let what waits for a group go on."""

    async def fail(self, id: str, ctx: Context, counted: bool = False) -> None:
        """Do what the job does when a task of it has failed; who does so after another finds it counted."""
        is_swept = await self._database.run(lambda conn: conn.fetchval(SQL.fail, *_fence(ctx), int(id)))
        if is_swept is None:
            raise LeaseLost(ctx.task_id)
        if is_swept:
            await self.sweep(ctx)

    async def skip(self, ids: list[str], why: str, ctx: Context, again: bool = False) -> None:
        """Skip tasks, and what nothing reaches after them; who does so after another looks what that one has left."""
        left, again = [int(id) for id in ids], again or ctx.attempt > 1
        while left:
            said = *_fence(ctx), left, why, again, _AT_ONCE
            found = await self._database.run(lambda conn, said=said: conn.fetchval(SQL.skip, *said))  # type: ignore[misc]
            if found is None:
                raise LeaseLost(ctx.task_id)
            left, again = found, False

    async def sweep(self, ctx: Context) -> None:
        """Sweep away what is left of a job that failed or was cancelled."""
        while await self._database.run(lambda conn: conn.fetchval(SQL.sweep, ctx.job_id, _AT_ONCE)):
            pass


def _whatever_passes(step: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a step that is carried out again soon, as often as need be, when PostgreSQL is away."""

    @wraps(step)
    async def carried_out(*args: Any, **kwargs: Any) -> Any:
        try:
            return await step(*args, **kwargs)
        except _PASSING as problem:
            logger.info("@%s is carried out again: %s: %s", step.__name__, type(problem).__name__, problem)
            raise Snooze(_SOON) from problem

    return carried_out


def _fence(ctx: Context) -> tuple[int, int, int]:
    return ctx.worker_id, ctx.task_id, ctx.attempt
