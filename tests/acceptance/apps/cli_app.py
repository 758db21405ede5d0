"""Handlers that the tests of the command line run in real worker processes."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from pathlib import Path

import weft

logger = logging.getLogger(__name__)


@weft.task(name="cli:add")
async def add(a: int, b: int = 1) -> int:
    return a + b


@weft.task(name="cli:speak")
def speak(text: str) -> None:
    print(text)
    print("to stderr", file=sys.stderr)
    logger.info("logged")


@weft.task(name="cli:fail", retry=weft.Retry(2, initial_delay=0))
async def fail(message: str = "no luck") -> None:
    raise ValueError(message)


@weft.task(name="cli:hold", queue="held")
async def hold(gate: str) -> str:
    """Run until the test writes a word to the named pipe ``gate``."""
    print("holding", flush=True)
    return await asyncio.to_thread(lambda: Path(gate).read_text(encoding="utf-8"))


@weft.task(name="cli:forever")
async def forever() -> None:
    print("waiting for ever", flush=True)
    await asyncio.Event().wait()


@weft.task(name="cli:block_the_loop")
async def block_the_loop() -> None:
    print("blocking the loop", flush=True)
    while True:
        pass


@weft.task(name="cli:leave_a_thread")
async def leave_a_thread() -> None:
    print("waiting in a thread", flush=True)
    await asyncio.to_thread(threading.Event().wait)
