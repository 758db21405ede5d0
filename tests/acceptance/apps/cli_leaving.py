"""Handlers that end the event loop of their worker in an orderly way."""

from __future__ import annotations

import asyncio

import weft


@weft.task(name="leaving:exit", retry=1)
async def exit_from_a_task() -> None:
    """Raise SystemExit in a task of one's own, which ends the event loop."""

    async def leave() -> None:
        raise SystemExit(5)

    leaving = asyncio.create_task(leave())
    await asyncio.sleep(30)
    del leaving


@weft.task(name="leaving:stop", retry=1)
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(30)


@weft.task(name="leaving:cancel", retry=1)
async def cancel_everything() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(30)
