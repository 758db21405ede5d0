"""The handlers that the benchmarks run."""

import asyncio
import os
import socket
import time
from typing import Any

import weft

_telling: socket.socket | None = None


@weft.task(name="bench:noop")
async def noop(x: object = None) -> None:
    """Do nothing."""


@weft.task(name="bench:nap")
async def nap(seconds: float) -> None:
    """Take a moment."""
    await asyncio.sleep(seconds)


@weft.task(name="bench:fib")
async def fib(n: int) -> float:
    """Compute a number of Fibonacci by recursion, and return the seconds that it took."""
    began = time.perf_counter()
    _fib(n)
    return time.perf_counter() - began


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)


@weft.task(name="bench:stamp")
async def stamp(sent: float) -> None:
    """Tell when it started, by a datagram with the handler's own clock."""
    _tell(sent, time.time())


@weft.task(name="bench:stamp_unit")
async def stamp_unit(live_job: str, unit: dict[str, Any]) -> None:
    """The same for a unit of a live job, which is an event that says when it was sent."""
    _tell(unit["said"]["payload"]["sent"], time.time())


def _tell(sent: float, now: float) -> None:
    global _telling
    if _telling is None:
        _telling = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    _telling.sendto(f"{sent} {now}".encode(), os.environ["BENCH_INBOX"])


@weft.task(name="bench:unit")
async def unit(live_job: str, unit: object) -> None:
    """Do nothing for a unit of a live job."""
