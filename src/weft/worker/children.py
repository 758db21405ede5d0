"""The tasks that a running one makes: each call makes one, and a later attempt gets those of the attempts before it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.checks import check_handler, check_key, check_number, check_priority, check_queue, check_span
from weft.core.errors import InvalidInput, TaskFailed
from weft.core.json import encode
from weft.queue.retry import MAX_ATTEMPTS, Retry
from weft.worker.steps import Ask, given, is_in_loop

if TYPE_CHECKING:
    from weft.worker.registry import AnyHandler

_WAITS = itertools.count(1)


class SpawnedTask:
    """A task that another one has made by `Context.spawn`.

    Example::

        part = await ctx.spawn("resize", {"path": path})
        print(part.id, await part.result())
    """

    def __init__(self, id: int, ask: Ask) -> None:
        self.id = id
        self._ask = ask

    def result(self) -> Any:
        """Return its output when it has completed; raises `TaskFailed` when it ends otherwise.

        Await it in an async handler; elsewhere it blocks. The worker runs others meanwhile.
        """
        return _awaited(self._ask, [self.id], lambda found: _outputs(found)[0])

    def __repr__(self) -> str:
        return f"SpawnedTask({self.id})"


class Children:
    """What one attempt makes, by the names or the order of its calls."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._calls: set[str] = set()
        self._unnamed = 0
        self._additions = 0

    def spawn(
        self, handler: str | AnyHandler, params: Mapping[str, Any] | None, key: str | None, queue: str | None,
        priority: int, max_attempts: int | None, retry: Retry | int | None, timeout: float | timedelta | None,
        heartbeat_timeout: float | timedelta | None, concurrency_key: str | None, allow_failure: bool,
    ) -> Any:  # fmt: skip
        """Make a task, or find the one of an earlier attempt; awaitable where a loop runs."""
        if self._ask is None:
            raise InvalidInput("spawn", "only a task of a job that a worker runs makes others")
        # Loaded here: handlers are registered by what knows this context.
        from weft.worker.registry import Handler, retry_policy

        ask = self._ask
        name = check_handler(handler.name if isinstance(handler, Handler) else handler)
        if queue is None:
            queue = handler.queue if isinstance(handler, Handler) else "default"
        policy = None if retry is None else retry_policy(retry)
        if max_attempts is not None:
            check_number(max_attempts, "max_attempts", 1, MAX_ATTEMPTS)
        arguments = {
            "call": self._call(key),
            "handler": name,
            "queue": check_queue(queue),
            "params": encode(dict(params or {}), "params"),
            "priority": check_priority(priority),
            "max_attempts": max_attempts if policy is None or max_attempts is not None else policy.max_attempts,
            "retry": None if policy is None else policy.to_json(),
            "timeout": _seconds(timeout, "timeout"),
            "heartbeat_timeout": _seconds(heartbeat_timeout, "heartbeat_timeout"),
            "concurrency_key": None if concurrency_key is None else check_key(concurrency_key, "concurrency_key"),
            "allow_failure": bool(allow_failure),
        }
        return given(ask("spawn", arguments), lambda id: SpawnedTask(int(id), ask))

    def _call(self, key: str | None) -> str:
        if key is None:
            self._unnamed += 1
            return f"#{self._unnamed}"
        call = f"={check_key(key, 'key')}"
        if call in self._calls:
            raise InvalidInput("key", f"{key!r} occurs twice in this attempt: give each task its own")
        self._calls.add(call)
        return call

    def next_addition(self) -> int:
        """Return the number of a call by which the attempt adds to its job."""
        self._additions += 1
        return self._additions

    def gather(self, tasks: tuple[SpawnedTask, ...]) -> Any:
        """Return the outputs of several, in their order; awaitable where a loop runs."""
        for task in tasks:
            if not isinstance(task, SpawnedTask):
                advice = ": await ctx.spawn(…) first" if hasattr(task, "__await__") else ""
                raise InvalidInput("tasks", f"must be what ctx.spawn returned, not {type(task).__name__}{advice}")
        if not tasks or self._ask is None:
            answer: Future[Any] = Future()
            answer.set_result([])
            return given(answer)
        return _awaited(self._ask, [task.id for task in tasks], _outputs)


def _awaited(ask: Ask, ids: list[int], made: Callable[[list[dict[str, Any]]], Any]) -> Any:
    """Return what is made of how tasks ended; awaitable where a loop runs."""
    wait = next(_WAITS)
    answer = ask("await_tasks", {"ids": [str(id) for id in ids], "wait": wait})

    async def later() -> Any:
        try:
            return made(await asyncio.wrap_future(answer))
        except asyncio.CancelledError:
            # Whoever gives up waiting goes on with what it needs to go on, such as a slot of its key.
            await asyncio.wrap_future(ask("leave", {"wait": wait}))
            raise

    return later() if is_in_loop() else made(answer.result())


def _outputs(found: list[dict[str, Any]]) -> list[Any]:
    for each in found:
        if each["state"] != "completed":
            error = None if each["error"] is None else orjson.loads(each["error"])
            raise TaskFailed(int(each["id"]), each["state"], error, each["reason"])
    return [orjson.loads(each["output"] or "null") for each in found]


def _seconds(span: float | timedelta | None, field: str) -> float | None:
    return None if span is None else check_span(span, field).total_seconds()
