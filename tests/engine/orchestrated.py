"""Functions that no decorator has made handlers: tasks call them by their dotted names."""

from __future__ import annotations

import asyncio
from typing import Any

from weft import NonRetryable
from weft.orchestration import Group, add_task_to_job, create_task, get_current_context
from weft.orchestration.context import borrowed_client

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


ADDED: list[int | None] = []


async def grow_again(same: bool = True) -> None:
    """Add tasks, and fail twice after that; a third attempt adds others unless they are to be the ``same``."""
    is_last = len(ADDED) == 2
    group = Group("grown")
    handler = "orchestrated.transform" if is_last and not same else "orchestrated.extract"
    await get_current_context().apply([group, *(create_task(handler, {"name": name}, group=group) for name in "ab")])
    last = await add_task_to_job(get_current_context().job_id or 0, transform, {"name": "last"})
    ADDED.append(last.id)
    if not is_last:
        raise ConnectionError("not yet")


async def grow_fragile() -> str:
    """Add a task that fails at first."""
    SAID.append("grow")
    await get_current_context().apply(create_task("orchestrated.fragile"))
    return "grown"


async def wait_until_seen(task_id: int) -> None:
    """Return when somebody had a task and gave it back, or ended it."""
    async with borrowed_client() as client:
        while (task := await client.get_task(task_id)).attempt == 0 or task.state == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
