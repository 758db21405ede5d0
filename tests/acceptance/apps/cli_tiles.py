"""Handlers of the workflow that the tests of the command line execute."""

from __future__ import annotations

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
