"""What is done to live DAGs in a process that a test may kill: an attempt, a router, and whoever deploys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import orjson

import weft
from weft.data.collecting import DatasetCollector
from weft.live import backfilling, swapping
from weft.live.collecting import DagCollector
from weft.live.router import Router
from weft.live.source_ticks import SourceTicker
from weft.queue import work
from weft.queue.steps import Fence
from weft.queue.work import Completed
from weft.worker.answers import Answers
from weft.worker.context import Context
from weft.worker.live import LiveContext, _info


async def attempt(client: weft.Client, worker_id: int, task_id: int) -> None:
    """Do what an attempt does that writes, remembers, emits and rests; complete it."""
    answers, loop = Answers(client.database, client.blobs, client.settings), asyncio.get_running_loop()
    fence = Fence(worker_id, task_id, 1)

    def ask(verb: str, arguments: dict[str, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(answers.answer(fence, verb, arguments, lambda: False), loop)

    async with client.database.acquire() as conn:
        params = orjson.loads(await conn.fetchval("select params from weft.task_params where id = $1", task_id))
    ctx = Context(task_id=task_id, attempt=1, handler="note", worker_id=worker_id, ask=ask)
    live_job, unit = params["live_job"], params["unit"]
    live = LiveContext(ctx, live_job, unit, await asyncio.to_thread(_info, ctx, live_job))
    number = unit["said"]["payload"]["n"]
    seen = await live.state() or []
    await live.write([{"id": number}])
    await live.set_state([*seen, number])
    await live.emit({"key": f"after{number}", "lane": "after", "said": {"payload": {"n": -number}}})
    done = [Completed(task_id, 1, "null")]
    await client.database.run(lambda conn: work.finish_and_claim(conn, worker_id, done, [], 0))
    await answers.close()


async def route(client: weft.Client) -> None:
    """Give live jobs their turns once."""
    await Router(client.database).run_once()


async def tick(client: weft.Client) -> None:
    """Make units of what is due."""
    await SourceTicker(client.database).run_once()


async def deploy(client: weft.Client, definition: dict[str, Any]) -> None:
    """Deploy a live DAG."""
    await client.live.deploy(definition)


async def swap(client: weft.Client) -> None:
    """Bring what was built into effect."""
    await swapping.run_once(client.database)


async def roll_back(client: weft.Client, dag: str, version: int) -> None:
    """Go back to a version."""
    await client.live.rollback(dag, version=version)


async def collect(client: weft.Client) -> None:
    """Remove what nobody goes back to any more."""
    for _ in range(3):
        await DagCollector(client.database, client.settings.dataset_retention).run_once()
        await DatasetCollector(client.database, client.settings, timedelta(0)).run_once()


async def backfill(client: weft.Client, dag: str, job: str) -> None:
    """Let a job compute all anew."""
    await client.live.backfill(dag, job, at_once=2)


async def advance(client: weft.Client) -> None:
    """Let backfills go on."""
    await backfilling.run_once(client.database)


ACTS: dict[str, Callable[..., Awaitable[None]]] = {
    "attempt": attempt, "route": route, "tick": tick, "deploy": deploy, "swap": swap, "rollback": roll_back,
    "collect": collect, "backfill": backfill, "advance": advance,
}  # fmt: skip
