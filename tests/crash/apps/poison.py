"""Handlers that take their process, its memory or its time with them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import time
from pathlib import Path

import weft

ONCE_MORE = weft.Retry(max_attempts=2, initial_delay=0.1)


@weft.task(name="segfault")
def segfault() -> None:
    """Read where there is nothing."""
    ctypes.string_at(0)


@weft.task(name="exit")
async def leave() -> None:
    """End the process without a word."""
    os._exit(3)


@weft.task(name="suicide")
def suicide() -> None:
    """Be killed."""
    os.kill(os.getpid(), signal.SIGKILL)


@weft.task(name="hoard", retry=ONCE_MORE)
def hoard() -> None:
    """Ask for memory until there is none."""
    kept = []
    while True:
        kept.append(bytearray(1 << 24))


@weft.task(name="spin_in_thread", timeout=1, retry=ONCE_MORE)
def spin_in_thread() -> None:
    """Never end, in a thread."""
    while True:
        pass


@weft.task(name="spin_apart", timeout=1, retry=ONCE_MORE, executor="process")
def spin_apart() -> None:
    """Never end, in a process of its own."""
    while True:
        pass


@weft.task(name="spin_on_loop", timeout=1, retry=ONCE_MORE)
async def spin_on_loop() -> None:
    """Never end, and never let the event loop go on."""
    while True:
        pass


@weft.task(name="stubborn", timeout=1, retry=ONCE_MORE)
async def stubborn() -> None:
    """Never end, and take no notice of being cancelled."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@weft.task(name="hoard_apart", retry=ONCE_MORE, executor="process")
def hoard_apart() -> None:
    """Ask for memory until the process may have no more."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    hoard.function()


@weft.task(name="choke", executor="process", retry=weft.Retry(max_attempts=3, initial_delay=0.1))
def choke() -> None:
    """Go on asking for memory, whoever says no, until the process is ended for the time that it takes."""
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    while True:
        with contextlib.suppress(MemoryError):
            hoard_apart.function()


@weft.task(name="breed", retry=ONCE_MORE, executor="process")
def breed(path: str, children: int = 50, stays: bool = False) -> None:
    """Fork children that go on for a while, note who they are, and leave them behind."""
    born = []
    for _ in range(children):
        if (pid := os.fork()) == 0:
            time.sleep(30)
            os._exit(0)
        born.append(pid)
    with Path(path).open("a", encoding="ascii") as file:
        file.write(" ".join(map(str, born)) + "\n")
    if stays:
        time.sleep(30)
    os._exit(3)


@weft.task(name="patricide", executor="process")
def patricide() -> None:
    """Kill the worker from a process of one's own, and be killed by what is left of it."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)
