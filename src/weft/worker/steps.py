"""The steps and checkpoints of one attempt: what an earlier attempt has saved is not done again."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from weft.core.checks import RESERVED, check_name
from weft.core.errors import InvalidInput
from weft.core.json import Json, encode
from weft.data.own_thread import in_own_thread
from weft.worker.returned import Returned

# What an attempt asks for while it runs: a verb and its arguments, all JSON. The answer may come from another process.
Ask = Callable[[str, dict[str, Any]], "Future[Any]"]
Validator = Callable[[Any], Any]
_IN_STEP: contextvars.ContextVar[str | None] = contextvars.ContextVar("weft_step", default=None)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What an attempt has saved at the end of a phase, as `Checkpoints.load` returns it.

    Example::

        found = await ctx.checkpoint.load()
        print(found.phase, found.data, found.attempt, found.saved_at)
    """

    phase: str
    data: Json
    attempt: int
    saved_at: datetime


class Steps:
    """What one attempt saves, and what it finds of those before it."""

    def __init__(self, attempt: int, ask: Ask | None) -> None:
        self._ask = Memory(attempt).ask if ask is None else ask
        # Before a first attempt nobody can have saved anything; where nothing is kept, only this one saves.
        self._may_find = attempt > 1 or ask is None
        self._steps: set[str] = set()
        self._phases: set[str] = set()

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, or return what it returned in an earlier attempt; awaitable where a loop runs."""
        if _checked(name, "step") in self._steps or name in self._phases:
            raise InvalidInput("step", f"the name {name!r} occurs twice in this attempt: give each step its own")
        self._steps.add(name)
        call = functools.partial(function, *args, **kwargs)
        return (self._step_awaited if is_in_loop() else self._step)(name, call, Returned(function))

    async def _step_awaited(self, name: str, call: functools.partial[Any], returned: Returned) -> Any:
        if (found := await _answer(self._find(name))) is not None:
            return returned.read(found["data"])
        began = time.monotonic()
        is_async = inspect.iscoroutinefunction(inspect.unwrap(call.func))
        # A sync function has a thread, as a sync handler does: the loop is not its own.
        with _within(name):
            value = call() if is_async else await in_own_thread(call)
            if inspect.isawaitable(value):
                value = await value
        text = returned.write(value, name)
        kept = returned.read(text)
        await _answer(self._save(name, text, time.monotonic() - began))
        return kept

    def _step(self, name: str, call: functools.partial[Any], returned: Returned) -> Any:
        if (found := self._find(name).result()) is not None:
            return returned.read(found["data"])
        began = time.monotonic()
        with _within(name):
            value = call()
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
        text = returned.write(value, name)
        kept = returned.read(text)
        self._save(name, text, time.monotonic() - began).result()
        return kept

    def save(self, phase: str, data: Any) -> Any:
        """Save a checkpoint, over an earlier one of its phase; awaitable where a loop runs."""
        if _checked(phase, "phase") in self._steps:
            raise InvalidInput("phase", f"the name {phase!r} is that of a step of this attempt: give it another")
        self._phases.add(phase)
        return given(self._save(phase, encode(data, "data"), None))

    def save_metrics(self, metrics: dict[str, Any]) -> Any:
        """Keep what the attempt has measured; awaitable where a loop runs."""
        text = encode(metrics, "metrics")
        if not text.startswith("{"):
            raise InvalidInput("metrics", f"must be an object of names and values, not {type(metrics).__name__}")
        return given(self._ask("save_metrics", {"data": text}))

    def load(self, phase: str | None, validator: Validator | None) -> Any:
        """Return a checkpoint that passes its validator, or None; awaitable where a loop runs."""
        if phase is not None:
            _checked(phase, "phase")
        return (self._load_awaited if is_in_loop() else self._load)(phase, validator)

    async def _load_awaited(self, phase: str | None, validator: Validator | None) -> Checkpoint | None:
        while (found := await _answer(self._find(phase))) is not None:
            checkpoint = _checkpoint(found)
            try:
                verdict = True if validator is None else validator(checkpoint.data)
                verdict = await verdict if inspect.isawaitable(verdict) else verdict
            except Exception:  # noqa: BLE001  the boundary to user code: a validator may say no by any error
                verdict = False
            if verdict is not False:
                return checkpoint
            await _answer(self._ask("drop_step", {"name": checkpoint.phase}))
        return None

    def _load(self, phase: str | None, validator: Validator | None) -> Checkpoint | None:
        while (found := self._find(phase).result()) is not None:
            checkpoint = _checkpoint(found)
            try:
                verdict = True if validator is None else validator(checkpoint.data)
                verdict = asyncio.run(_awaited(verdict)) if inspect.isawaitable(verdict) else verdict
            except Exception:  # noqa: BLE001  the same
                verdict = False
            if verdict is not False:
                return checkpoint
            self._ask("drop_step", {"name": checkpoint.phase}).result()
        return None

    def _find(self, name: str | None) -> Future[Any]:
        if self._may_find or self._phases:
            return self._ask("load_step", {"name": name})
        nothing: Future[Any] = Future()
        nothing.set_result(None)
        return nothing

    def _save(self, name: str, text: str, took: float | None) -> Future[Any]:
        return self._ask("save_step", {"name": name, "data": text, "took": took})


class Checkpoints:
    """The checkpoints of a task; `Context.checkpoint`. Its verbs are awaited in an async handler, and block in others.

    Example::

        found = await ctx.checkpoint.load()
        if found is None:
            await ctx.checkpoint.save("download", {"path": path})
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def save(self, phase: str, data: Any = None) -> Any:
        """Save what is needed to go on after ``phase``; a later save of the same phase replaces it.

        Raises `LeaseLost` when another worker has the task by now: end. Example::

            await ctx.checkpoint.save("copy", {"blocks": 300})
        """
        return self._steps.save(phase, data)

    def load(self, phase: str | None = None, *, validator: Validator | None = None) -> Any:
        """Return the `Checkpoint` of a phase, or the last that was saved; None when there is none.

        One of which ``validator`` says False, or at which it raises, is dropped, so that its phase runs again: of all
        the next older one is tried then. Example::

            found = await ctx.checkpoint.load(validator=lambda data: os.path.exists(data["path"]))
        """
        return self._steps.load(phase, validator)


class Memory:
    """Keeps steps where there is no task to keep them with: in a test that calls a handler itself."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._saved: dict[str, dict[str, Any]] = {}

    def ask(self, verb: str, arguments: dict[str, Any]) -> Future[Any]:
        """Do at once what a worker would do."""
        name = arguments.get("name")
        answer: Future[Any] = Future()
        match verb:
            case "save_metrics":
                answer.set_result(None)
            case "save_step":
                self._saved.pop(str(name), None)
                now = datetime.now(UTC).isoformat()
                self._saved[str(name)] = {**arguments, "attempt": self._attempt, "saved_at": now}
                answer.set_result(None)
            case "drop_step":
                self._saved.pop(str(name), None)
                answer.set_result(None)
            case _:
                last = next(reversed(self._saved.values()), None)
                answer.set_result(last if name is None else self._saved.get(name))
        return answer


def _checkpoint(found: dict[str, Any]) -> Checkpoint:
    saved_at = datetime.fromisoformat(found["saved_at"])
    return Checkpoint(found["name"], orjson.loads(found["data"]), found["attempt"], saved_at)


def _checked(name: str, field: str) -> str:
    if check_name(name, field).startswith("@"):
        raise InvalidInput(field, RESERVED)
    return name


@contextmanager
def _within(name: str) -> Iterator[None]:
    before = _IN_STEP.set(name)
    try:
        yield
    finally:
        _IN_STEP.reset(before)


def require_no_step(field: str, what: str) -> None:
    """Raise `InvalidInput` in a step: what is brought about by an attempt is lost when that comes to nothing."""
    if (name := _IN_STEP.get()) is not None:
        raise InvalidInput(
            field, f"{what} is written in a step, {name!r}, which a later attempt leaves out, and the write with it: "
            "return what is to be written, and write it after the step",
        )  # fmt: skip


def is_in_loop() -> bool:
    """Whether an event loop runs in this thread, so that what is asked for must be awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _answer(future: Future[Any]) -> Awaitable[Any]:
    return asyncio.wrap_future(future)


def given(future: Future[Any], made: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return an answer, or what is ``made`` of it: to be awaited where a loop runs, else when it is there."""

    async def later() -> Any:
        return made(await asyncio.wrap_future(future))

    return later() if is_in_loop() else made(future.result())


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
