"""A Python workflow that calls another, neither of which any tag knows."""

from __future__ import annotations

import weft


@weft.task(name="nested.double")
def double(x: int) -> int:
    """Return twice as much."""
    return 2 * x


@weft.workflow
def inner(x: int) -> int:
    """The inner one."""
    return double(x)


@weft.workflow
def outer(x: int) -> int:
    """The outer one."""
    return double(inner(x))
