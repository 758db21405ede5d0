"""Handlers that note in the ledger when they start and end, and handlers that end badly."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import weft
from crash import ledger


def _outcome(ctx: weft.Context) -> dict[str, int]:
    return {"attempt": ctx.attempt, "pid": os.getpid()}


@weft.task(name="work")
async def work(ctx: weft.Context, folder: str, seconds: float = 0.0, tag: str = "-") -> dict[str, int]:
    """Take some time on the event loop."""
    ledger.note(Path(folder), "start", ctx.task_id, ctx.attempt, tag)
    await asyncio.sleep(seconds)
    ledger.note(Path(folder), "end", ctx.task_id, ctx.attempt, tag)
    return _outcome(ctx)


@weft.task(name="gated")
async def gated(ctx: weft.Context, folder: str) -> dict[str, int]:
    """Wait until there is a file of the name ``open``."""
    ledger.note(Path(folder), "start", ctx.task_id, ctx.attempt)
    while not Path(folder, "open").exists():  # noqa: ASYNC110  the test is in another process
        await asyncio.sleep(0.01)
    ledger.note(Path(folder), "end", ctx.task_id, ctx.attempt)
    return _outcome(ctx)


@weft.task(name="block")
async def block(ctx: weft.Context, folder: str) -> dict[str, int]:
    """Let the event loop stand still until there is a file of the name ``open``."""
    ledger.note(Path(folder), "start", ctx.task_id, ctx.attempt)
    while not Path(folder, "open").exists():
        time.sleep(0.01)
    ledger.note(Path(folder), "end", ctx.task_id, ctx.attempt)
    return _outcome(ctx)


@weft.task(name="work_in_thread")
def work_in_thread(ctx: weft.Context, folder: str, seconds: float = 0.0, tag: str = "-") -> dict[str, int]:
    """Take some time in a thread."""
    ledger.note(Path(folder), "start", ctx.task_id, ctx.attempt, tag)
    time.sleep(seconds)
    ledger.note(Path(folder), "end", ctx.task_id, ctx.attempt, tag)
    return _outcome(ctx)


@weft.task(name="gated_in_thread")
def gated_in_thread(ctx: weft.Context, folder: str) -> dict[str, int]:
    """Wait in a thread until there is a file of the name ``open``."""
    ledger.note(Path(folder), "start", ctx.task_id, ctx.attempt)
    while not Path(folder, "open").exists():
        time.sleep(0.01)
    ledger.note(Path(folder), "end", ctx.task_id, ctx.attempt)
    return _outcome(ctx)


@weft.task(name="burn")
def burn(ctx: weft.Context, folder: str, seconds: float) -> dict[str, int]:
    """Keep the interpreter busy in a thread."""
    ledger.note(Path(folder), "start", ctx.task_id, ctx.attempt)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    ledger.note(Path(folder), "end", ctx.task_id, ctx.attempt)
    return _outcome(ctx)
