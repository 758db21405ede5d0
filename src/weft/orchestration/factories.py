"""Makes tasks and jobs of functions, by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.core.errors import InvalidInput
from weft.jobs.items import Item
from weft.orchestration.context import borrowed_client
from weft.orchestration.models import Job, Task
from weft.worker.registry import Handler


def create_task(callback: str | Callable[..., Any], kwargs: Mapping[str, Any] | None = None, **options: Any) -> Task:
    """Return a task that calls a function, given itself or by its dotted name, or a handler; nothing is written yet.

    ``options`` are those of `Task`. Example::

        extract = create_task("myapp.extract", kwargs={"table": "orders"})
    """
    return Task(_entrypoint(callback), kwargs, **options)


async def create_job(
    name: str, entry: str | Callable[..., Any] | Item | Sequence[Item], *, priority: int = 0,
    idempotency_key: str | None = None, labels: Mapping[str, str] | None = None,
) -> Job:  # fmt: skip
    """Submit a job that begins with a function, a task, or whole graphs, and return it.

    Its definition is kept like any other. Example::

        job = await create_job("nightly", "myapp.extract")
    """
    items = entry if isinstance(entry, (Item, Sequence)) and not isinstance(entry, str) else create_task(entry)
    async with borrowed_client() as client:
        handle = await client.jobs.submit_graph(
            name, items, priority=priority, idempotency_key=idempotency_key, labels=labels
        )
        return Job.of(await client.jobs.show(handle.id), client.settings)


def _entrypoint(callback: object) -> str:
    if isinstance(callback, str):
        return callback
    if isinstance(callback, Handler):
        return callback.name
    if not inspect.isfunction(callback):
        raise InvalidInput("callback", f"must be a function or the name of one, not {type(callback).__name__}")
    if "<" in callback.__qualname__ or "." in callback.__qualname__:
        raise InvalidInput(
            "callback", f"{callback.__qualname__} has no name of its own in its module: no worker would find it"
        )
    return f"{callback.__module__}.{callback.__qualname__}"
