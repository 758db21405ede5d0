"""The one registry of handlers, looked up by name and filled by decorators only."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, ParamSpec, TypeVar, overload

from weft.core.checks import check_handler, check_queue, check_span
from weft.core.errors import InvalidInput
from weft.core.ids import CONTROL_QUEUE
from weft.core.suggestions import did_you_mean
from weft.queue.retry import MAX_ATTEMPTS, Retry
from weft.worker.arguments import Arguments
from weft.worker.caching import Caching, caching_of
from weft.worker.code_versions import code_version
from weft.worker.composing import COMPOSER, Composable, NodeOptions

P = ParamSpec("P")
R = TypeVar("R")

EXECUTORS = ("async", "thread", "process")
# Handlers of operators of live DAGs that come with Weft: every registry knows them, and loads one when it is asked for.
OWN_OPERATORS = "live."


@dataclass
class Handler(Composable[P, R]):
    """A function that tasks run, with the defaults of its tasks. Calling it calls the function."""

    name: str
    function: Callable[P, R]
    queue: str = "default"
    retry: Retry | None = None
    timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    executor: str = "async"
    caching: Caching | None = None

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)
        self.is_async = inspect.iscoroutinefunction(self.function)
        self.arguments = Arguments(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, here and now, without the queue; in a `weft.workflow`, make a node of it."""
        if (composer := COMPOSER.get()) is not None:
            return composer.call(self, NodeOptions(), args, dict(kwargs))  # type: ignore[no-any-return]
        return self.function(*args, **kwargs)

    @functools.cached_property
    def code_version(self) -> str:
        """The hash of the function's code."""
        return code_version(self.function)

    def may_run(self, queue_id: int) -> bool:
        """Whether a task of it may be in a queue: steps of the engine are taken only from its own queues."""
        return not self.name.startswith("@") or queue_id == CONTROL_QUEUE or queue_id < 0

    def gives_up_on(self, problem: BaseException) -> bool:
        """Whether an error is one that no further attempt can mend."""
        return self.retry is not None and self.retry.gives_up_on(problem)


AnyHandler = Handler[..., Any]


class Registry:
    """Handlers by name."""

    def __init__(self) -> None:
        self._handlers: dict[str, AnyHandler] = {}
        self._modules: dict[str, None] = {}

    def add(self, handler: Handler[P, R]) -> Handler[P, R]:
        """Register a handler; a second one of the same name from another place is an error."""
        known = self._handlers.get(handler.name)
        if known is not None and _place(known.function) != _place(handler.function):
            raise InvalidInput("name", f"there is a handler {handler.name!r} already, in {known.function.__module__}")
        self._handlers[handler.name] = handler
        return handler

    def get(self, name: str) -> AnyHandler | None:
        """Return the handler of that name, if there is one; or a function of a module that is admitted."""
        known = self._handlers.get(name)
        if known is None and name.startswith(OWN_OPERATORS):
            known = own_operator(name)
        return self._entrypoint(name) if known is None and self._modules else known

    def knows(self, name: str) -> bool:
        """Whether there is a handler of that name."""
        return self.get(name) is not None

    def admit(self, modules: Iterable[str]) -> None:
        """Let the functions of loaded modules be handlers too, by their dotted names; nothing is ever imported."""
        self._modules.update(dict.fromkeys(modules))

    def _entrypoint(self, name: str) -> AnyHandler | None:
        module, _, attribute = name.rpartition(".")
        is_inside = self._is_admitted(module) and attribute[:1] != "_"
        found = getattr(sys.modules.get(module), attribute, None) if is_inside else None
        if isinstance(found, Handler):
            return found
        if not inspect.isfunction(found) or found.__module__ != module:
            return None
        try:
            handler: AnyHandler = self.task(name=name)(found)
        except InvalidInput:
            # Such as one whose arguments have no names: to whoever asks it is no handler.
            return None
        return handler

    def names(self) -> list[str]:
        """Return all names, sorted; a module that is admitted and has no handlers is known by its functions."""
        own = {handler.function.__module__ for handler in self._handlers.values()}
        names = set(self._handlers)
        for module in self._modules.keys() - own:
            for name, each in vars(sys.modules.get(module, object)).items():
                if inspect.isfunction(each) and each.__module__ == module and not name.startswith("_"):
                    names.add(f"{module}.{name}")
        return sorted(names)

    def code_versions(self) -> dict[str, str]:
        """Return the hash of each handler's code, and of what may become one; what is the engine's own has none."""
        functions = {name: each.function for name, each in self._handlers.items() if not name.startswith("@")}
        return {name: code_version(function) for name, function in {**dict(self._admitted()), **functions}.items()}

    def _admitted(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yield the functions of modules that are admitted, by their dotted names."""
        for module in [each for each in list(sys.modules) if self._is_admitted(each)]:
            for name, found in list(vars(sys.modules[module]).items()):
                if name[:1] != "_" and inspect.isfunction(found) and found.__module__ == module:
                    yield f"{module}.{name}", found

    def _is_admitted(self, module: str) -> bool:
        return any(module == each or module.startswith(f"{each}.") for each in self._modules)

    def suggest(self, name: str) -> str:
        """Return a hint at a handler with a similar name, or nothing."""
        return did_you_mean(name, self._handlers)

    def __iter__(self) -> Iterator[AnyHandler]:
        return iter(self._handlers.values())

    @overload
    def task(self, function: Callable[P, R], /) -> Handler[P, R]: ...

    @overload
    def task(
        self, function: None = None, /, *, name: str | None = None, queue: str = "default",
        retry: Retry | int | None = None, timeout: float | timedelta | None = None,
        heartbeat_timeout: float | timedelta | None = None, executor: str | None = None,
        cache: bool | float | timedelta | Literal["refresh"] = False,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]: ...  # fmt: skip

    def task(
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, queue: str = "default",
        retry: Retry | int | None = None, timeout: float | timedelta | None = None,
        heartbeat_timeout: float | timedelta | None = None, executor: str | None = None,
        cache: bool | float | timedelta | Literal["refresh"] = False,
    ) -> Any:  # fmt: skip
        """Register a function as a handler.

        ``retry`` is a `Retry` or the number of attempts after the first. Async functions run on the worker's event
        loop, others in threads; ``executor="process"`` runs them in a process that can be killed. Params and results
        are validated by the annotations: params that do not fit fail the task at once, a result that does not fit is
        an error of its attempt. With ``cache``, True or how long, the output serves the same params of the same code
        again, while what was read and written of datasets stands; ``"refresh"`` makes a new one in any case. Example::

            @weft.task(name="email:send", retry=3, timeout=60)
            async def send(to: str) -> None: ...
        """
        if function is None:
            return functools.partial(
                self.task, name=name, queue=queue, retry=retry, timeout=timeout,
                heartbeat_timeout=heartbeat_timeout, executor=executor, cache=cache,
            )  # fmt: skip
        if not inspect.isfunction(function) and not inspect.ismethod(function):
            advice = f"; write @weft.task(name={function!r})" if isinstance(function, str) else ""
            raise InvalidInput("function", f"must be a function, not {type(function).__name__}{advice}")
        is_async = inspect.iscoroutinefunction(function)
        chosen = executor or ("async" if is_async else "thread")
        if chosen not in EXECUTORS:
            raise InvalidInput("executor", f"{chosen!r} is not one of {', '.join(EXECUTORS)}")
        if chosen == "async" and not is_async:
            raise InvalidInput("executor", f"{function.__qualname__} is not async: use thread or process")
        if chosen == "thread" and is_async:
            raise InvalidInput("executor", f"{function.__qualname__} is async: use async or process")
        policy = None if retry is None else retry_policy(retry)
        return self.add(
            Handler(
                name=check_handler(f"{function.__module__}.{function.__qualname__}" if name is None else name, "name"),
                function=function,
                queue=check_queue(queue),
                retry=policy,
                timeout=None if timeout is None else check_span(timeout, "timeout"),
                heartbeat_timeout=None
                if heartbeat_timeout is None
                else check_span(heartbeat_timeout, "heartbeat_timeout"),
                executor=chosen,
                caching=caching_of(cache),
            )
        )


def retry_policy(retry: object) -> Retry:
    """Return a policy: itself, or the default one with so many attempts after the first."""
    if isinstance(retry, Retry):
        return retry
    if type(retry) is not int or not 0 <= retry < MAX_ATTEMPTS:
        raise InvalidInput("retry", f"must be a weft.Retry or a number of further attempts, not {retry!r}")
    return Retry(max_attempts=retry + 1)


def own_operator(name: str) -> AnyHandler | None:
    """Return the handler of an operator that comes with Weft."""
    from weft.worker.operators.known import handler_named

    return handler_named(name.removeprefix(OWN_OPERATORS))


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__


REGISTRY = Registry()
task = REGISTRY.task
