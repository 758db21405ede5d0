"""Maps a handler over a list while a task runs: each chunk of the list is a task of the same job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from weft.core.checks import check_number
from weft.core.errors import InvalidInput
from weft.worker.context import RUNNING, Context
from weft.worker.registry import REGISTRY, AnyHandler, Handler

if TYPE_CHECKING:
    from weft.worker.children import SpawnedTask

CHUNK_SIZE = 10_000
# So many are asked for at once; which one is which is decided by the order of the calls.
_AT_ONCE = 100


def map(callback: str | AnyHandler, obj: Sequence[Any], chunk_size: int = CHUNK_SIZE, **shared: Any) -> Any:
    """Apply a handler to a list in chunks, each a task of this task's job, and return what came of all, in order.

    The handler gets a chunk, a list of at most ``chunk_size`` items, as its argument ``chunk``, else as its first one,
    and the ``shared`` values beside it. Where it returns a list, these are joined. Await it in an async handler;
    elsewhere it blocks. Meanwhile the worker runs others in this task's place. A later attempt of this task gets the
    tasks that an earlier one made. Example::

        squares = await map("math.square_all", [1, 2, 3, 4], chunk_size=2)
    """
    running = RUNNING.get()
    if running is None:
        raise InvalidInput("map", "is for a task of a job, while it runs; in a @weft.workflow use task.map(…)")
    if not isinstance(obj, (list, tuple)):
        raise InvalidInput("obj", f"must be a list, not a {type(obj).__name__}")
    check_number(chunk_size, "chunk_size", 1, 10**9)
    calls = list(_calls(callback, obj, chunk_size, shared))
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _joined(running.context.gather(*[running.context.spawn(callback, params) for params in calls]))
    return _mapped(running.context, callback, calls)


async def _mapped(ctx: Context, callback: str | AnyHandler, calls: list[dict[str, Any]]) -> list[Any]:
    tasks: list[SpawnedTask] = []
    for start in range(0, len(calls), _AT_ONCE):
        made = [ctx.spawn(callback, params) for params in islice(calls, start, start + _AT_ONCE)]
        tasks += await asyncio.gather(*made)
    return _joined(await ctx.gather(*tasks))


def _calls(
    callback: str | AnyHandler, obj: Sequence[Any], chunk_size: int, shared: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the params of each chunk's task."""
    handler = callback if isinstance(callback, Handler) else REGISTRY.get(callback)
    name = "chunk"
    if handler is not None:
        free = [each for each in handler.arguments.signature.parameters if each not in shared]
        if not free:
            raise InvalidInput("callback", f"{handler.name} has no argument for a chunk")
        name = name if name in free else free[0]
    for start in range(0, len(obj), chunk_size):
        yield {name: list(obj[start : start + chunk_size]), **shared}


def _joined(outputs: list[Any]) -> list[Any]:
    found: list[Any] = []
    for output in outputs:
        found += output if isinstance(output, list) else [output]
    return found
