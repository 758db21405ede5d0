"""A program that does what it does when it is imported, as many a first script."""

from __future__ import annotations

import asyncio
import sys

import weft


@weft.task(executor="process", retry=0)
def double(n: int) -> int:
    return 2 * n


async def main() -> None:
    async with weft.Client() as client:
        task = await client.enqueue(double, {"n": 21})
        await weft.Worker(client=client, concurrency=2).run_until_idle()
        try:
            print(await client.wait(task.id, timeout=60))
        except weft.TaskFailed as problem:
            sys.exit(str(problem))


asyncio.run(main())
