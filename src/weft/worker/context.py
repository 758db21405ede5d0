"""What a handler may know and do about its own task while it runs."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from weft.core.errors import InvalidInput, LeaseLost
from weft.core.json import encode
from weft.core.tracing import place_of_attempt, tracer
from weft.db.foreign import Row, fetch_row
from weft.queue.retry import Retry
from weft.worker.children import Children, SpawnedTask
from weft.worker.shutdown import Shutdown
from weft.worker.steps import Ask, Checkpoints, Steps

if TYPE_CHECKING:
    from weft.worker.datasets import TaskDataset
    from weft.worker.registry import AnyHandler
    from weft.worker.workshop import Workshop

# How often a heartbeat is sent on, as a part of its timeout; the expiry it sets is later by as much.
_BEATS_IN_TIMEOUT = 10
# What to do where a task cannot be completed in a transaction of the handler.
RETURN_IT = "return the output, and write so that it may be done again, by ctx.idempotency_key"
_OURS = (os.path.dirname(__file__), os.path.dirname(asyncio.__file__))


class Context:
    """The running attempt, as its handler sees it.

    A handler asks for it by annotation::

        @weft.task
        async def import_file(path: str, ctx: weft.Context) -> int:
            ctx.logger.info("attempt %s", ctx.attempt)
            ...
    """

    def __init__(
        self, *, task_id: int, attempt: int, handler: str, worker_id: int,
        write: Callable[[Any], str] = lambda output: encode(output, "output"),
        beat: Callable[[], None] = lambda: None, beat_interval: float | None = None, job_id: int | None = None,
        node: str | None = None, ask: Ask | None = None, shutdown: Shutdown | None = None, pool: Any = None,
        workshop: Workshop | None = None,
    ) -> None:  # fmt: skip
        self.task_id = task_id
        self.attempt = attempt
        self.handler = handler
        self.worker_id = worker_id
        self.job_id = job_id
        self.node = node
        self.ask = ask
        self.pool = pool
        self.workshop = workshop
        self._steps: Steps | None = None
        self._children: Children | None = None
        self._datasets: dict[str, TaskDataset] = {}
        self._shutdown = shutdown or Shutdown()
        self._write = write
        self._beat = beat
        self._beat_interval = beat_interval
        self._next_beat = 0.0
        self._is_cancelled = False

    @property
    def idempotency_key(self) -> str:
        """A key for calls to the outside that is the same in every attempt of this task."""
        return f"weft-task-{self.task_id}"

    @property
    def traceparent(self) -> str:
        """The place of this attempt in the trace of its job, as others are told it (W3C Trace Context).

        It is the same in every process. Example::

            await http.post(url, headers={"traceparent": ctx.traceparent})
        """
        place, spans = place_of_attempt(self.job_id, self.task_id, self.attempt), tracer()
        return (place if spans is None else spans.chosen(place)).traceparent

    @property
    def logger(self) -> logging.Logger:
        """A logger whose lines go to the task's log."""
        return logging.getLogger(f"weft.task.{self.handler}")

    @property
    def is_cancelled(self) -> bool:
        """Whether the task was cancelled, timed out or is being stopped: return soon."""
        return self._is_cancelled

    def heartbeat(self) -> None:
        """Say that the attempt is alive; needed only by tasks with a ``heartbeat_timeout``.

        It may be called as often as you like, from any thread: what comes sooner than a tenth of the timeout after the
        last is not sent on.
        """
        if self._beat_interval is not None and (now := time.monotonic()) >= self._next_beat:
            self._next_beat = now + self._beat_interval
            self._beat()

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function and keep what it returns: a later attempt of this task gets that, and calls nothing.

        Await it in an async handler; elsewhere it returns when the function has. The function may be async or not, and
        what it returns must be JSON or of the type of its annotation. Each step of an attempt has a name of its own.
        Raises `LeaseLost` when another worker has the task by now: end. Example::

            order = await ctx.step("charge", charge, customer, amount=100)
            await ctx.step("mail", send_receipt, order)
        """
        return self._own_steps.step(name, function, *args, **kwargs)

    def spawn(
        self, handler: str | AnyHandler, params: Mapping[str, Any] | None = None, *, key: str | None = None,
        queue: str | None = None, priority: int = 0, max_attempts: int | None = None,
        retry: Retry | int | None = None, timeout: float | timedelta | None = None,
        heartbeat_timeout: float | timedelta | None = None, concurrency_key: str | None = None,
        allow_failure: bool = False,
    ) -> Any:  # fmt: skip
        """Make a further task of this one's job, and return it as a `SpawnedTask`; await it in an async handler.

        What comes after this task waits for it too. A later attempt gets the same task by its ``key``, or without one
        by the order of the calls. When it fails the job does what it does about any failure, unless ``allow_failure``.
        Raises `LeaseLost` when another worker has the task by now: end. Example::

            parts = [await ctx.spawn("resize", {"path": path}, key=path) for path in paths]
            sizes = await ctx.gather(*parts)
        """
        return self._own_children.spawn(
            handler, params, key, queue, priority, max_attempts, retry, timeout, heartbeat_timeout, concurrency_key,
            allow_failure,
        )  # fmt: skip

    def gather(self, *tasks: SpawnedTask) -> Any:
        """Return the outputs of tasks that this one made, in their order, when all have completed.

        Await it in an async handler. Meanwhile the worker runs others in this one's place. Raises `TaskFailed`.
        """
        return self._own_children.gather(tasks)

    @property
    def _own_children(self) -> Children:
        if self._children is None:
            self._children = Children(self.ask if self.job_id is not None else None)
        return self._children

    def dataset(self, name: str) -> TaskDataset:
        """Return a dataset, to read it or to write it; ``orders@3`` is its version 3, to read.

        What is written is visible when this task completes, in the same transaction, and never if it does not.
        Example::

            orders = await ctx.dataset("orders").read(partition=day)
            await ctx.dataset("daily").write(summarise(orders), partition=day)
        """
        from weft.worker.datasets import TaskDataset

        if self.ask is None:
            raise InvalidInput("dataset", "only a task that a worker runs has datasets")
        if name not in self._datasets:
            self._datasets[name] = TaskDataset(name, self.ask, self.heartbeat)
        found: TaskDataset = self._datasets[name]
        return found

    @property
    def checkpoint(self) -> Checkpoints:
        """What this task has saved at the ends of its phases, to go on from there in a later attempt."""
        return Checkpoints(self._own_steps)

    @property
    def _own_steps(self) -> Steps:
        if self._steps is None:
            self._steps = Steps(self.attempt, self.ask)
        return self._steps

    def save_metrics(self, metrics: dict[str, Any]) -> Any:
        """Keep what this attempt has measured, over what it has before; awaitable where a loop runs."""
        return self._own_steps.save_metrics(metrics)

    @property
    def shutdown_requested(self) -> bool:
        """Whether the worker was told to stop: save what you have, and return or raise `Snooze` within the grace."""
        return self._shutdown.is_requested

    def wait_for_shutdown(self, timeout: float | None = None) -> Any:
        """Wait until the worker is told to stop, at most ``timeout`` seconds; return whether it was.

        Await it in an async handler; elsewhere it blocks. Example::

            if await ctx.wait_for_shutdown(60):
                raise weft.Snooze(0)
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._shutdown.wait(timeout)
        return self._await_shutdown(timeout)

    async def _await_shutdown(self, timeout: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(self._shutdown.future())
        except TimeoutError:
            return self._shutdown.is_requested

    def complete_in(self, connection: Any, output: Any = None) -> Awaitable[None]:
        """Complete this task inside the caller's own transaction: both are committed, or neither is.

        Await it when the connection is an async one. Raises `LeaseLost` when another worker has the task by now:
        roll back. After it, return from the handler. Example::

            async with pool.acquire() as conn, conn.transaction():
                await conn.execute("update account set …")
                await ctx.complete_in(conn, {"ok": True})
        """
        answer = fetch_row(
            connection,
            "weft.complete",
            (
                (self.worker_id, "bigint"),
                (self.task_id, "bigint"),
                (self.attempt, "int"),
                (self._write(output), "json"),
            ),
        )
        if isinstance(answer, tuple):
            self._landed(answer)
            return _Landed()
        return self._await_landed(answer)

    async def _await_landed(self, answer: Awaitable[Row]) -> None:
        self._landed(await answer)

    def _landed(self, row: Row) -> None:
        if row[0] is not True:
            raise LeaseLost(self.task_id)

    def cancel(self) -> None:
        """Tell the handler that it should end; called by the worker."""
        self._is_cancelled = True


class _Landed:
    """What is there already, for whoever awaits it none the less."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


def beat_interval(timeout: timedelta | None) -> float | None:
    """Return how many seconds apart the heartbeats of an attempt are sent on; None when nobody waits for them."""
    return None if timeout is None else timeout.total_seconds() / _BEATS_IN_TIMEOUT


class Running(Protocol):
    """Whatever runs here: it has a context and a log, both made when first asked for."""

    @property
    def context(self) -> Context:
        """What the handler may know and do."""
        ...

    def write_log(self, text: str) -> bool:
        """Append to the task's log; False when it is closed."""
        ...


RUNNING: contextvars.ContextVar[Running | None] = contextvars.ContextVar("weft_running", default=None)


def describe_error(problem: BaseException) -> str:
    """Return an error as it is kept with an attempt, its traceback without our own frames; long texts are cut."""
    try:
        message = str(problem)
    except BaseException:  # noqa: BLE001  the boundary to user code: an error that cannot be read must still be recorded
        message = "(its text cannot be read)"
    trace = problem.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(problem), problem, trace) if trace is not None else []
    except BaseException:  # noqa: BLE001  the same
        lines = traceback.format_tb(trace)
    return orjson.dumps(
        {"type": type(problem).__name__, "message": _cut(message, 4000), "traceback": _cut("".join(lines), 16000)},
    ).decode()


def _cut(text: str, most: int) -> str:
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8", "replace")
    return clean if len(clean) <= most else f"{clean[: most // 2]}\n… cut …\n{clean[-most // 2 :]}"
