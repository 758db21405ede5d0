"""Enqueues without end, and notes on the disk what was acknowledged; ends when its standard input does.

It keeps a bounded number of tasks open. A call that failed may have landed: with an idempotency key it is made again
until it is acknowledged, without one its tasks are neither counted on nor counted twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import deque
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

import weft
from crash import ledger
from weft.core.settings import Settings
from weft.db.database import CONNECTION_ERRORS

TROUBLE = (*CONNECTION_ERRORS, asyncpg.PostgresError, TimeoutError, weft.WeftError)


class Submitter:
    """One stream of calls, drawn from a seed."""

    def __init__(self, client: weft.Client, config: dict[str, Any], ended: asyncio.Event) -> None:
        self._client = client
        self._config = config
        self._folder = Path(config["folder"])
        self._random = random.Random(config["seed"])
        self._ended = ended
        self._calls = 0

    async def run(self) -> None:
        """Submit, waiting for the oldest batch whenever too many are open."""
        window: deque[int] = deque()
        while not self._ended.is_set():
            ids = await self._submit()
            if ids:
                ledger.acknowledge(self._folder, ids)
                window.append(self._random.choice(ids))
            if len(window) >= self._config["window"]:
                await self._wait(window.popleft())

    async def _wait(self, task_id: int) -> None:
        while not self._ended.is_set():
            try:
                await self._client.wait(task_id, timeout=1)
                return
            except weft.TaskFailed:
                return
            except TROUBLE:
                await asyncio.sleep(0.02)

    async def _submit(self) -> list[int]:
        self._calls += 1
        keyed = self._random.random() < 0.6
        new = [self._task(n, keyed) for n in range(self._random.choice((1, 1, 5, 40)))]
        while True:
            try:
                if len(new) == 1:
                    task = new[0]
                    handle = await self._client.enqueue(
                        task.handler, task.params, queue=task.queue, priority=task.priority, delay=task.delay,
                        idempotency_key=task.idempotency_key, concurrency_key=task.concurrency_key,
                    )  # fmt: skip
                    return [handle.id]
                return [handle.id for handle in await self._client.enqueue_many(new)]
            except TROUBLE:
                await asyncio.sleep(0.02)
                if not keyed or self._ended.is_set():
                    return []

    def _task(self, n: int, keyed: bool) -> weft.NewTask:
        draw = self._random
        params = {"folder": str(self._folder), "seconds": draw.choice((0, 0, 0.01, 0.05, 0.3))}
        if draw.random() < 0.1:
            params["tag"] = "x" * 400  # long enough to be kept beside the task's row
        return weft.NewTask(
            draw.choice(("work", "work", "work_in_thread")),
            params,
            queue=draw.choice(self._config["queues"]),
            priority=draw.choice((0, 0, 0, 5, -5)),
            delay=0.2 if draw.random() < 0.1 else None,
            idempotency_key=f"{self._config['seed']}-{self._calls}-{n}" if keyed else None,
            concurrency_key=f"key-{draw.randrange(5)}" if draw.random() < 0.2 else None,
        )


async def main(config: dict[str, Any]) -> None:
    """Submit until the standard input ends."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    watch = asyncio.create_task(reader.read())
    watch.add_done_callback(lambda _: ended.set())
    async with weft.Client(settings=Settings.load(environ={}, **config["settings"])) as client:
        os.write(1, b"ready\n")
        await Submitter(client, config, ended).run()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(json.loads(sys.argv[1])))
