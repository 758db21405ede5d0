"""Handlers of the workflow that the tests of the command line execute."""

from __future__ import annotations

import asyncio

import weft


@weft.task(name="tiles.scheme")
def scheme(count: int) -> list[int]:
    """Return so many tiles."""
    return list(range(count))


@weft.task(name="tiles.process", retry=0)
def process(tile: int) -> int:
    """Return a tile's area; the seventh is broken."""
    if tile == 7:
        raise ValueError("tile 7 is broken")
    return tile * tile


@weft.task(name="tiles.say", retry=0)
def say(lines: int, word: str = "line") -> None:
    """Print so many lines."""
    for number in range(lines):
        print(word, number)


@weft.task(name="tiles.break", retry=0)
def break_(lines: int) -> None:
    """Print so many lines, and fail."""
    for number in range(lines):
        print("broken line", number)
    raise ValueError("it is broken")


@weft.task(name="tiles.wait")
async def wait(ctx: weft.Context) -> None:
    """Run until the task is cancelled, or for a minute."""
    print("waiting", flush=True)
    await asyncio.sleep(60)


@weft.task(name="tiles.flaky", retry=weft.Retry(max_attempts=2, initial_delay=0.001))
async def flaky(ctx: weft.Context) -> None:
    """Fail the first time."""
    print("attempt", ctx.attempt)
    if ctx.attempt == 1:
        raise ConnectionResetError("the other side hung up")
