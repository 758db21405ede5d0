"""Executes workflows in tests, on a clock that the test moves: a day of retries takes milliseconds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from weft.core.errors import InvalidInput, StateConflict, WaitTimeout
from weft.core.suggestions import did_you_mean
from weft.jobs.model import Job, JobNode
from weft.queue.services import JobTimer, Rescuer, Stager
from weft.sdk.client import Client
from weft.sdk.jobs import Workflow
from weft.sdk.running import as_workflow, at_work, submit_here
from weft.sdk.submitted import result_of
from weft.sdk.worker import Worker
from weft.testing.database import SQL, ScratchDatabase
from weft.testing.loop import MovableLoop
from weft.worker.registry import REGISTRY, Handler, Registry

T = TypeVar("T")
_LOOK_EVERY = 0.002
# So many looks in a row must have found the same handlers running before time moves on over them.
_STILL = 40
_LONGEST = timedelta(days=366)


class Runner:
    """A worker and an orchestrator of a test's own, in a thread of their own, and the clock by which they go.

    ``handlers`` stand in for those of the program, by name. The clock is that of the database, and of what sleeps or
    runs out of time in async handlers; ``datetime.now()`` and ``time.sleep`` are not moved. Example::

        async with Runner(weft_db) as runner:
            job_id = await runner.submit(nightly, {"day": "2026-11-16"})
            await runner.advance(hours=24)
            assert (await runner.job(job_id)).state == "completed"
    """

    def __init__(
        self, database: ScratchDatabase, *, handlers: Mapping[str, Callable[..., Any]] | None = None,
        registry: Registry = REGISTRY, **settings: Any,
    ) -> None:  # fmt: skip
        self._database = database
        self._registry = with_stand_ins(registry, handlers or {})
        self._settings = settings
        self._loop = MovableLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="weft-test-runner", daemon=True)
        self._stack = AsyncExitStack()
        self._queues: list[str] = []
        self._moved = timedelta(0)

    # From the test's own thread, whether a loop runs there or not.

    def start(self) -> Self:
        """Start the worker and the orchestrator."""
        self._thread.start()
        try:
            self.call(self._start())
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End both."""
        try:
            self.call(self._stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes out of ``work`` on the runner's loop; for tests that are not async."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def __aenter__(self) -> Self:
        return await asyncio.get_running_loop().run_in_executor(None, self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    def _elsewhere(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Return what comes out of ``work`` on the runner's loop, for this one to await."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # From the test's own loop.

    async def submit(self, workflow: Workflow, inputs: Mapping[str, Any] | None = None) -> int:
        """Submit a workflow, and return its job's id.

        Example::

            job_id = await runner.submit(nightly, {"day": "2026-11-16"})
        """
        return await self._elsewhere(self._submit(workflow, inputs))

    async def run(
        self, workflow: Workflow, inputs: Mapping[str, Any] | None = None, *, within: timedelta = _LONGEST
    ) -> Job:
        """Execute a workflow to its end, however it ends, and return its job.

        Whenever all wait for the time, it moves on to when the next of them is due. Example::

            job = await runner.run(nightly, {"day": "2026-11-16"})
            assert job.state == "completed"
        """
        return await self._elsewhere(self.run_now(workflow, inputs, within=within))

    async def advance(self, **span: float) -> None:
        """Let time pass: what is due meanwhile runs, each at its moment. Takes the arguments of ``timedelta``.

        Example::

            await runner.advance(hours=24)
        """
        await self._elsewhere(self._advance(timedelta(**span)))

    async def settle(self) -> None:
        """Return when all that is due has run.

        Example::

            await runner.settle()
        """
        await self._elsewhere(self._settle(_STILL))

    async def job(self, job_id: int) -> Job:
        """Return a job as it is now.

        Example::

            assert (await runner.job(job_id)).state == "running"
        """
        return await self._elsewhere(self._client.jobs.show(job_id))

    async def result(self, job_id: int) -> Any:
        """Return the result of a job that has ended; raises `JobFailed`.

        Example::

            assert await runner.result(job_id) == 42
        """

        async def found() -> Any:
            job = await self._client.jobs.show(job_id)
            if not job.state.is_final:
                raise StateConflict("take the result of", job_id, job.state, ["completed"], "job")
            return await result_of(self._client, job)

        return await self._elsewhere(found())

    async def nodes(self, job_id: int) -> dict[str, JobNode]:
        """Return the nodes of a job by their names.

        Example::

            assert (await runner.nodes(job_id))["fetch"].attempt == 3
        """
        found = await self._elsewhere(self._client.jobs.nodes(job_id))
        return {node.node: node for node in found}

    async def approve(
        self, job_id: int, node: str | None = None, values: Mapping[str, Any] | None = None, *, reject: bool = False
    ) -> None:
        """Answer what waits for a person, and let run what comes of it.

        Example::

            await runner.approve(job_id, "review", {"limit": 100})
        """

        async def approve() -> None:
            await self._settle(_STILL)
            await self._client.jobs.approve(job_id, node, values, reject=reject)
            await self._settle(_STILL)

        await self._elsewhere(approve())

    async def send_event(self, name: str, payload: Mapping[str, Any] | None = None) -> int:
        """Tell jobs of an event, and let run what comes of it; return how many nodes were waiting for it.

        Example::

            await runner.send_event("file.arrived", {"path": "in/orders.csv"})
        """

        async def send() -> int:
            await self._settle(_STILL)
            count = (await self._client.jobs.send_event(name, payload)).answered
            await self._settle(_STILL)
            return count

        return await self._elsewhere(send())

    async def now(self) -> datetime:
        """Return the time by the clock that the test moves.

        Example::

            assert (await runner.now()).date() == date(2026, 11, 17)
        """
        return await self._elsewhere(self._now())

    # On the runner's loop.

    async def run_now(
        self, workflow: Workflow, inputs: Mapping[str, Any] | None = None, *, within: timedelta = _LONGEST
    ) -> Job:
        """Like `run`, on the runner's own loop; for `call`."""
        job_id = await self._submit(workflow, inputs)
        began = self._moved
        while True:
            await self._settle(None)
            if (job := await self._client.jobs.show(job_id)).state.is_final:
                return job
            step = await self._next_step()
            if step is None or self._moved - began + step > within:
                raise WaitTimeout(job_id, within.total_seconds())
            await self._move(step)

    async def _start(self) -> None:
        self._client: Client = await self._stack.enter_async_context(self._database.client(**self._settings))
        database = self._client.database
        async with database.acquire() as conn:
            if not await conn.fetchval(SQL.is_movable):
                raise InvalidInput("database", "its clock cannot be moved: take one that a ScratchServer has made")
        worker, orchestrator = await self._stack.enter_async_context(at_work(self._client, self._registry))
        self._queues = [*worker.queues, *orchestrator.queues]
        self._services = (
            Stager(database), JobTimer(database), Rescuer(database, self._client.settings, lambda: True),
        )  # fmt: skip

    async def _submit(self, workflow: Workflow, inputs: Mapping[str, Any] | None) -> int:
        handle = await submit_here(self._client, as_workflow(workflow), inputs or {})
        more = sorted(await self._client.jobs.queues(handle.id) - set(self._queues))
        if more:
            worker = Worker(client=self._client, registry=self._registry, queues=more)
            await self._stack.enter_async_context(worker)
            self._queues += more
        return handle.id

    async def _advance(self, span: timedelta) -> None:
        if span < timedelta(0):
            raise InvalidInput("span", "time does not go back")
        left = span
        await self._settle(_STILL)
        while (step := await self._next_step()) is not None and step <= left:
            await self._move(step)
            left -= step
            await self._settle(_STILL)
        await self._move(left)
        await self._settle(_STILL)

    async def _settle(self, patience: int | None) -> None:
        """Return when nothing can run, and what runs only sleeps, or was found the same by ``patience`` looks."""
        looks, before = 0, set[int]()
        while True:
            running = await self._running()
            if running is not None:
                awake = running.keys() - self._loop.asleep()
                if not awake:
                    return
                looks, before = looks + 1 if awake == before else 0, awake
                if looks > (patience or _STILL) and (patience is not None or all(running[id] for id in awake)):
                    return
            await asyncio.sleep(_LOOK_EVERY)

    async def _running(self) -> dict[int, bool] | None:
        """Return the tasks whose handlers run, and which of them have others to wait for.

        None while one is about to run, or the engine itself has something to do.
        """
        async with self._client.database.acquire() as conn:
            rows: Sequence[Any] = await conn.fetch(SQL.busy, self._queues)
        return None if any(row["is_ours"] for row in rows) else {row["id"]: row["has_children"] for row in rows}

    async def _next_step(self) -> timedelta | None:
        """Return the time until something is due, in the database or in a handler."""
        async with self._client.database.acquire() as conn:
            due: timedelta | None = await conn.fetchval(SQL.next_due)
        timer = self._loop.next_timer
        found = [each for each in (due, None if timer is None else timedelta(seconds=timer)) if each is not None]
        # A little more, so that what is due by the one clock is due by the other.
        return max(timedelta(0), min(found)) + timedelta(milliseconds=1) if found else None

    async def _move(self, span: timedelta) -> None:
        async with self._client.database.transaction() as conn:
            await conn.execute(SQL.move, span)
        async with self._client.database.acquire() as conn:
            await conn.execute(SQL.ensure_partitions)
        self._moved += span
        self._loop.move(span.total_seconds())
        for service in self._services:
            await service.run_once()

    async def _now(self) -> datetime:
        async with self._client.database.acquire() as conn:
            found: datetime = await conn.fetchval(SQL.now)
        return found


def with_stand_ins(registry: Registry, handlers: Mapping[str, Callable[..., Any]]) -> Registry:
    """Return a registry in which some handlers are others; each is named as it is registered, or as its function is."""
    found = Registry()
    used: set[str] = set()
    for handler in registry:
        names = [name for name in (handler.name, handler.function.__name__) if name in handlers]
        if not names:
            found.add(handler)
            continue
        used.update(names)
        stand_in = handlers[names[0]]
        is_async = asyncio.iscoroutinefunction(stand_in)
        found.add(
            Handler(
                name=handler.name, function=stand_in, queue=handler.queue, retry=handler.retry, timeout=handler.timeout,
                heartbeat_timeout=handler.heartbeat_timeout, executor="async" if is_async else "thread",
            )
        )  # fmt: skip
    for name, function in handlers.items():
        if name not in used:
            if registry.names() and did_you_mean(name, registry.names()):
                raise InvalidInput("handlers", f"there is no {name!r}.{did_you_mean(name, registry.names())}")
            found.task(name=name)(function)
    return found
