"""What calling a handler means while a workflow is composed: a node of that workflow, and not the function."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar

from weft.core.errors import InvalidInput

if TYPE_CHECKING:
    from weft.queue.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class NodeOptions:
    """What an author says of a node beside its arguments; None leaves it to the workflow and the handler."""

    node: str | None = None
    queue: str | None = None
    priority: int | None = None
    retry: Retry | int | None = None
    timeout: float | timedelta | None = None
    heartbeat_timeout: float | timedelta | None = None
    allow_failure: bool | None = None
    cache: bool | float | timedelta | Literal["refresh"] | None = None
    concurrency_key: Any = None
    max_parallel: int | None = None
    after: Any = None


class Composer(Protocol):
    """Whoever makes nodes of calls."""

    def call(self, called: Any, options: NodeOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a node of a call; return what stands for its output."""
        ...

    def map(self, called: Any, options: NodeOptions, items: Any, shared: dict[str, Any], *, spread: bool) -> Any:
        """Make a task for each item; return what stands for the list of their outputs."""
        ...

    def order(self, before: Any, after: Any) -> None:
        """Let some nodes wait for others, though they take nothing of them."""
        ...

    def write(self, value: Any) -> int:
        """Note a value that is written into a text; return its number."""
        ...

    def written(self, number: int) -> Any:
        """Return the value of that number."""
        ...


COMPOSER: ContextVar[Composer | None] = ContextVar("weft_composer", default=None)


class Composable(Generic[P, R]):
    """What can be a node of a Python workflow: a handler, or another workflow."""

    def map(self, items: Any, /, **shared: Any) -> Any:
        """Run it for each item of a list, in parallel; the outputs come in the order of the items.

        An item is the first argument that is not among the ``shared`` ones. Only in a `weft.workflow`. Example::

            doubled = double.map(fetch(url))
        """
        return _composer("map").map(self, NodeOptions(), items, shared, spread=False)

    def starmap(self, items: Any, /, **shared: Any) -> Any:
        """Like `map`, where each item is a list of the first arguments.

        Example::

            sums = add.starmap([[1, 2], [3, 4]])
        """
        return _composer("starmap").map(self, NodeOptions(), items, shared, spread=True)

    def named(self, node: str) -> Call[..., R]:
        """Choose the name of the node that the next call makes.

        Example::

            first = fetch.named("first")(url)
        """
        return Call(self, NodeOptions(node=node))

    def using(
        self, *, node: str | None = None, queue: str | None = None, priority: int | None = None,
        retry: Retry | int | None = None, timeout: float | timedelta | None = None,
        heartbeat_timeout: float | timedelta | None = None, allow_failure: bool | None = None,
        cache: bool | float | timedelta | Literal["refresh"] | None = None, concurrency_key: Any = None,
        max_parallel: int | None = None, after: Any = None,
    ) -> Call[..., R]:  # fmt: skip
        """Say how the node that the next call makes is executed; ``after`` are others that it waits for.

        Example::

            tiles = render.using(retry=5, max_parallel=8).map(scheme.tiles)
        """
        return Call(
            self,
            NodeOptions(
                node, queue, priority, retry, timeout, heartbeat_timeout, allow_failure, cache, concurrency_key,
                max_parallel, after,
            ),
        )  # fmt: skip


@dataclass(frozen=True)
class Call(Generic[P, R]):
    """A handler or workflow with what is said of the node that calling it makes."""

    _called: Composable[P, R]
    _options: NodeOptions

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the node; only in a `weft.workflow`."""
        return _composer("named or using").call(self._called, self._options, args, dict(kwargs))  # type: ignore[no-any-return]

    def map(self, items: Any, /, **shared: Any) -> Any:
        """Run it for each item of a list."""
        return _composer("map").map(self._called, self._options, items, shared, spread=False)

    def starmap(self, items: Any, /, **shared: Any) -> Any:
        """Like `map`, where each item is a list of the first arguments."""
        return _composer("starmap").map(self._called, self._options, items, shared, spread=True)

    def named(self, node: str) -> Call[P, R]:
        """Choose the name of the node."""
        return replace(self, _options=replace(self._options, node=node))


def _composer(verb: str) -> Composer:
    composer = COMPOSER.get()
    if composer is None:
        raise InvalidInput(verb, "is for the function of a @weft.workflow, while it is composed")
    return composer
