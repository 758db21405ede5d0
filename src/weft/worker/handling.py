"""Handlers that are given a context and return a result, registered beside all others."""

from __future__ import annotations

import base64
import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

from weft.core.errors import InvalidInput
from weft.queue.retry import Retry
from weft.worker.connections import ConnectionPool
from weft.worker.context import RUNNING, Context
from weft.worker.registry import REGISTRY, Registry
from weft.worker.steps import Ask, Checkpoints, given

F = TypeVar("F", bound=Callable[..., Any])


class HandlerFailed(Exception):
    """A handler returned that it did not succeed: its attempt has failed, like one whose handler raised."""


@dataclass
class HandlerResult:
    """What a handler of `register_handler` returns.

    With ``success=False`` its attempt has failed with ``error_message``, and is retried like any other. ``metrics`` are
    kept with the attempt, whichever way it ended. Example::

        return weft.HandlerResult(success=True, output={"crs": "EPSG:4326"}, metrics={"pixels": 1024})
    """

    success: bool
    output: dict[str, Any] = field(default_factory=dict)
    error_message: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)


class BlobRepository:
    """The blob storage as a handler sees it: what it puts there stays for as long as its task.

    Its verbs are awaited in an async handler, and block in others. Example::

        digest = await ctx.blob_repository.put(b"…")
        data = await ctx.blob_repository.get(digest)
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def put(self, data: bytes) -> Any:
        """Keep ``data`` durably; return its digest."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidInput("data", f"must be bytes, not {type(data).__name__}")
        return given(self._ask("put_blob", {"data": base64.b64encode(data).decode()}))

    def get(self, digest: str) -> Any:
        """Return the bytes of a digest; raises `BlobUnavailable`."""
        return given(self._ask("get_blob", {"digest": str(digest)}), base64.b64decode)


@dataclass
class HandlerContext:
    """What a handler of `register_handler` is given.

    ``pool`` lends connections to Weft's database, on the worker's event loop only; ``blob_repository`` is the blob
    storage. `step`, `checkpoint`, `shutdown_requested` and the like are those of `Context`. A test of a handler makes
    one by hand. Example::

        ctx = weft.HandlerContext(task_id="1", job_id="2", node_id="validate", params={"path": "a.tif"})
        assert (await validate(ctx)).success
    """

    task_id: str
    job_id: str | None
    node_id: str | None
    params: dict[str, Any]
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("weft.task"))
    pool: ConnectionPool | None = None
    blob_repository: BlobRepository | None = None
    context: Context = field(
        default_factory=lambda: Context(task_id=0, attempt=1, handler="", worker_id=0), repr=False, compare=False
    )

    @property
    def attempt(self) -> int:
        """The number of this attempt."""
        return self.context.attempt

    @property
    def traceparent(self) -> str:
        """The place of this attempt in the trace of its job; see `Context.traceparent`."""
        return self.context.traceparent

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, or return what it returned in an earlier attempt; see `Context.step`."""
        return self.context.step(name, function, *args, **kwargs)

    @property
    def checkpoint(self) -> Checkpoints:
        """What this task has saved at the ends of its phases; see `Context.checkpoint`."""
        return self.context.checkpoint

    @property
    def shutdown_requested(self) -> bool:
        """Whether the worker was told to stop."""
        return self.context.shutdown_requested

    @property
    def is_cancelled(self) -> bool:
        """Whether the task was cancelled, timed out or is being stopped: return soon."""
        return self.context.is_cancelled

    def heartbeat(self) -> None:
        """Say that the attempt is alive; see `Context.heartbeat`."""
        self.context.heartbeat()


def register_handler(
    name: str, *, queue: str = "default", timeout_seconds: float | timedelta | None = None,
    retry: Retry | int | None = None, heartbeat_timeout_seconds: float | timedelta | None = None,
    executor: str | None = None, cache: bool | float | timedelta | Literal["refresh"] = False,
    registry: Registry = REGISTRY,
) -> Callable[[F], F]:  # fmt: skip
    """Register a function that takes a `HandlerContext` and returns a `HandlerResult`; the function stays as it is.

    It stands in the same registry as those of `task`, and whatever holds for them holds for it. Example::

        @weft.register_handler("raster.validate", queue="container-tasks", timeout_seconds=600)
        async def validate(ctx: weft.HandlerContext) -> weft.HandlerResult:
            return weft.HandlerResult(success=True, output={"path": ctx.params["path"]})
    """

    def register(function: F) -> F:
        registry.task(
            name=name, queue=queue, timeout=timeout_seconds, retry=retry, executor=executor,
            heartbeat_timeout=heartbeat_timeout_seconds, cache=cache,
        )(_of_params(function))  # fmt: skip
        return function

    return register


def _of_params(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a worker calls: it takes the params of a task, whatever they are, and returns the output."""
    if not inspect.isfunction(function):
        raise InvalidInput("function", f"must be a function, not {type(function).__name__}")

    async def run_async(**params: Any) -> Any:
        context = _running()
        result = _checked(await function(_handler_context(context, params, on_loop=True)), function)
        if result.metrics:
            await context.save_metrics(result.metrics)
        return _output(result)

    def run(**params: Any) -> Any:
        context = _running()
        result = _checked(function(_handler_context(context, params, on_loop=False)), function)
        if result.metrics:
            context.save_metrics(result.metrics)
        return _output(result)

    chosen: Any = run_async if inspect.iscoroutinefunction(function) else run
    # Known by its own name and place, but not by its arguments.
    functools.update_wrapper(chosen, function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    del chosen.__wrapped__
    return chosen  # type: ignore[no-any-return]


def _running() -> Context:
    running = RUNNING.get()
    assert running is not None
    return running.context


def _handler_context(context: Context, params: dict[str, Any], *, on_loop: bool) -> HandlerContext:
    return HandlerContext(
        task_id=str(context.task_id), job_id=None if context.job_id is None else str(context.job_id),
        node_id=context.node, params=params, logger=context.logger, pool=context.pool if on_loop else None,
        blob_repository=None if context.ask is None else BlobRepository(context.ask), context=context,
    )  # fmt: skip


def _checked(result: Any, function: Callable[..., Any]) -> HandlerResult:
    if not isinstance(result, HandlerResult):
        raise TypeError(f"{function.__qualname__} must return a weft.HandlerResult, not {type(result).__name__}")
    return result


def _output(result: HandlerResult) -> dict[str, Any]:
    if not result.success:
        raise HandlerFailed(result.error_message or "the handler returned success=False without an error_message")
    return result.output
