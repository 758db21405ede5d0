"""What tests of jobs share: handlers that a test can hold, and short definitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import weft
from weft.worker.context import Context
from weft.worker.registry import Registry


class Handlers:
    """Handlers that say, wait or fail, and what they were given."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.given: list[Any] = []
        self.leave = asyncio.Event()
        self.begun = asyncio.Event()
        for handler in (self.say, self.hold, self.fail, self.fail_once, self.stepwise):
            self.registry.task(name=handler.__name__)(handler)

    async def say(self, value: Any = None) -> Any:
        print("saying", value)
        self.given.append(value)
        return value

    async def hold(self) -> None:
        self.begun.set()
        await self.leave.wait()

    async def fail(self) -> None:
        print("about to fail")
        raise ValueError("never")

    async def fail_once(self, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async def stepwise(self, ctx: Context) -> None:
        await ctx.step("first", self.say, 1)


@asynccontextmanager
async def at_work(client: weft.Client, handlers: Handlers) -> AsyncIterator[None]:
    async with weft.Worker(client=client, registry=handlers.registry), weft.Orchestrator(client=client):
        yield


def flow(inputs: dict[str, Any] | None = None, **nodes: Any) -> dict[str, Any]:
    """Return a definition of these nodes, the first of which comes first; the last leads to the end."""
    first, *_, last = [*nodes, *nodes]
    ends = {} if "END" in nodes else {"END": {"type": "end"}}
    if ends:
        nodes[last] = {**nodes[last], "next": "END"}
    return {
        "workflow_id": "tried",
        "inputs": inputs or {},
        "nodes": {"START": {"type": "start", "next": first}, **nodes, **ends},
    }
