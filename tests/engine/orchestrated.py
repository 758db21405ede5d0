"""Functions that no decorator has made handlers: tasks call them by their dotted names."""

from __future__ import annotations

import asyncio
from typing import Any

from weft import NonRetryable
from weft.orchestration import create_task, get_current_context

SAID: list[Any] = []
IS_BROKEN = True


async def extract(name: str = "extract") -> str:
    SAID.append(name)
    await asyncio.sleep(0)
    return name


def transform(name: str = "transform") -> str:
    SAID.append(name)
    print("transforming")
    return name


async def fail() -> None:
    raise ValueError("as drawn")


async def fragile() -> str:
    if IS_BROKEN:
        raise NonRetryable("broken")
    return "whole"


async def grow(count: int) -> int:
    """Add tasks to the job that this one is part of."""
    ctx = get_current_context()
    tasks = [create_task("orchestrated.extract", kwargs={"name": f"grown {number}"}) for number in range(count)]
    after = create_task(transform, {"name": "after"}).depends_on(tasks)
    await ctx.apply([*tasks, after])
    return len(tasks)


async def _hidden() -> None:
    SAID.append("hidden")


ATTEMPTS: list[int] = []


async def grow_twice(changed: bool = False) -> None:
    """Add tasks by two calls, and fail the first time."""
    ctx = get_current_context()
    ATTEMPTS.append(len(ATTEMPTS))
    is_first = len(ATTEMPTS) == 1
    pair = [create_task("orchestrated.extract", {"name": name}) for name in ("a", "b")]
    await ctx.apply(pair[0] >> pair[1])
    await ctx.apply(create_task("orchestrated.transform" if changed and not is_first else "orchestrated.extract"))
    IDS.append([pair[0].id, pair[1].id])
    if is_first:
        raise ValueError("the first time")


IDS: list[list[int | None]] = []
