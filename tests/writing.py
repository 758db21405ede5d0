"""Datasets with something in them, written by real tasks."""

from __future__ import annotations

from typing import Any

import weft
from weft.worker.registry import Registry


async def written(client: weft.Client, name: str, *values: float) -> None:
    """Replace a dataset by one row with each of the values, in this order."""
    registry = Registry()

    @registry.task(name="write one row", queue="datasets")
    async def write(name: str, value: Any, ctx: weft.Context) -> None:
        await ctx.dataset(name).write([{"value": value}])

    await client.create_queue("datasets")
    async with weft.Worker(client=client, registry=registry, queues=["datasets"]):
        for value in values:
            await client.wait((await client.enqueue(write, {"name": name, "value": value})).id, timeout=60)
