"""What is done to datasets in a process that a test may kill: an attempt that writes, and whoever collects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import weft
from weft.data.collecting import DatasetCollector
from weft.queue import work
from weft.queue.cache import Keys
from weft.queue.steps import Fence
from weft.queue.work import Claim, Completed
from weft.worker.answers import Answers
from weft.worker.caching import Caching
from weft.worker.datasets import TaskDataset
from weft.worker.output_cache import OutputCache

NAME = "orders"
SEVENS = b"7" * 32


async def write(client: weft.Client, worker_id: int, task_id: int) -> None:
    """Do what an attempt does that appends one row of its own, and replaces a partition of its own; complete it."""
    answers, loop, fence = (
        Answers(client.database, client.blobs, client.settings),
        asyncio.get_running_loop(),
        Fence(worker_id, task_id, 1),
    )

    def ask(verb: str, arguments: dict[str, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(answers.answer(fence, verb, arguments, lambda: False), loop)

    dataset = TaskDataset(NAME, ask, lambda: None)
    await dataset.write([{"id": task_id}], mode="append", unique_key="id")
    await dataset.write([{"id": task_id}], partition=str(task_id))
    done = [Completed(task_id, 1, "null")]
    await client.database.run(lambda conn: work.finish_and_claim(conn, worker_id, done, [], 0))
    await answers.close()


async def serve(client: weft.Client, worker_id: int, task_id: int) -> None:
    """Do what an attempt does of which an output is in the cache, that of the key of nothing but sevens."""
    kept = OutputCache(client.database, client.blobs)
    claim = Claim(task_id, 1, 1, 0, 1, "read", "{}", 3, 0, 0, None, None, None, None)
    found = await kept.find(claim, Keys(SEVENS, SEVENS), Caching())
    assert found is not None
    done = [Completed(task_id, 1, *found)]
    await client.database.run(lambda conn: work.finish_and_claim(conn, worker_id, done, [], 0))


async def collect(client: weft.Client) -> None:
    """Remove all that nobody sees, however young it is."""
    collector = DatasetCollector(client.database, client.settings, timedelta(0))
    while await collector.run_once():
        pass


async def roll_back(client: weft.Client, name: str) -> None:
    """Go back to a state."""
    await client.datasets.rollback(name)


async def register(client: weft.Client, address: str) -> None:
    """Register what is at an address now."""
    await client.datasets.register(NAME, address, replace=True)


async def delete(client: weft.Client) -> None:
    """Delete the dataset, and bring it back."""
    await client.datasets.delete(NAME)
    await client.datasets.undelete(NAME)


async def undelete(client: weft.Client, name: str) -> None:
    """Bring back what was deleted."""
    await client.datasets.undelete(name)


async def hand_over(client: weft.Client, name: str, node: str) -> None:
    """Let another handler write."""
    await client.datasets.hand_over(name, "@task", node)


async def delete_role(client: weft.Client, slug: str) -> None:
    """Take a role away from all."""
    await client.roles.delete(slug)


async def remove_past(client: weft.Client) -> None:
    """Remove what is past, as somebody does who asks for it."""
    await client.datasets.gc(timedelta(milliseconds=1))


ACTS: dict[str, Callable[..., Awaitable[None]]] = {
    "write": write, "serve": serve, "collect": collect, "rollback": roll_back, "register": register, "delete": delete,
    "undelete": undelete, "hand over": hand_over, "delete role": delete_role, "remove past": remove_past,
}  # fmt: skip
