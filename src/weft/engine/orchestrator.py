"""The handlers of control steps: a worker of the control queue that runs them is an orchestrator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from weft.jobs import control
from weft.jobs.fan_out import FanOut
from weft.jobs.submit import SQL
from weft.worker.context import Context
from weft.worker.registry import Handler, Registry

if TYPE_CHECKING:
    from weft.db.database import Database
    from weft.db.machine import IdSource

Values = dict[str, Any]


class Steps:
    """The control steps of jobs; each may be carried out again, by whoever takes over: a repeat changes nothing."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids

    @property
    def registry(self) -> Registry:
        """The steps by the names of their handlers."""
        steps: tuple[Callable[..., Awaitable[Any]], ...] = (
            self.conditional, self.fan_out, self.fan_in, self.output, self.end, self.fail, self.skip, self.sweep,
        )  # fmt: skip
        registry = Registry()
        for step in steps:
            registry.add(Handler(name=f"@{step.__name__}", function=step, queue="@control"))
        return registry

    async def conditional(self, spec: Values, values: Values) -> Values:
        """Choose a branch."""
        return control.choose_branch(spec, values)

    async def fan_out(self, spec: Values, values: Values, ctx: Context) -> Values:
        """Make a task for each item."""
        expansion = FanOut(ctx.task_id, ctx.attempt, ctx.worker_id, spec, values)
        return {"count": await expansion.expand(self._database, self._ids)}

    async def fan_in(self, spec: Values, values: Values) -> Values:
        """Refer to what is gathered: the outputs are not copied."""
        return {"$results": spec["results"]}

    async def output(self, spec: Values, values: Values) -> Any:
        """Say what one of several ends gives."""
        return control.output_of(spec, values)

    async def end(self, spec: Values | None = None, values: Values | None = None) -> Any:
        """Give the result of the job, which ends with it."""
        return None if spec is None else control.result_of(spec, values or {})

    async def fail(self, id: str, ctx: Context) -> None:
        """Do what the job does when a task of it has failed."""
        if await self._database.run(lambda conn: conn.fetchval(SQL.fail, int(id))):
            await self.sweep(ctx)

    async def skip(self, ids: list[str], why: str) -> None:
        """Skip tasks, and what nothing reaches after them."""
        left = [int(id) for id in ids]
        while left:
            left = await self._database.run(lambda conn, left=left: conn.fetchval(SQL.skip, left, why))  # type: ignore[misc]

    async def sweep(self, ctx: Context) -> None:
        """Sweep away what is left of a job that failed or was cancelled."""
        while await self._database.run(lambda conn: conn.fetchval(SQL.sweep, ctx.job_id, 1000)):
            pass
