"""A handler of steps, whose first attempt never comes to the end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import weft


@weft.task(name="stepping")
async def stepping(path: str, ctx: weft.Context) -> list[int]:
    """Note the process of each step, and hang in the second of the first attempt."""
    first = await ctx.step("first", _note, path)
    second = await ctx.step("second", _note if ctx.attempt > 1 else _hang, path)
    return [first, second]


@weft.task(name="stopping")
async def stopping(path: str, ctx: weft.Context) -> list[int]:
    """Save how far it is when its worker is told to stop; whoever comes next goes on from there."""
    found = await ctx.checkpoint.load("until here")
    if found is None:
        _note(path)
        await ctx.wait_for_shutdown()
        await ctx.checkpoint.save("until here", os.getpid())
        raise weft.Snooze(0)
    return [found.data, os.getpid()]


def _note(path: str) -> int:
    with Path(path).open("a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")
    return os.getpid()


async def _hang(path: str) -> int:
    _note(path)
    return await asyncio.Event().wait()
