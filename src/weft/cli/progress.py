"""Shows on a terminal how far a long command is, and wipes it in the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft.cli.output import is_quiet

_WIDTH = 30
_BETWEEN = 0.1


@contextmanager
def counted(
    verb: str, total: int | None = None, shown: Callable[[int], str] = "{:,}".format
) -> Iterator[Callable[[int], None] | None]:
    """Lend what shows a count, as a bar where it is known how many there are; None where nobody looks.

    Nobody looks when the standard error is no terminal, or --quiet was given.
    """
    if not sys.stderr.isatty() or is_quiet() or os.environ.get("TERM") == "dumb":
        yield None
        return
    drawn_at = 0.0

    def show(count: int) -> None:
        nonlocal drawn_at
        now = time.monotonic()
        if now - drawn_at < _BETWEEN and count != total:
            return
        drawn_at = now
        text = f"{shown(count)} …" if total is None else f"{_bar(count / max(1, total))} {shown(count)}/{shown(total)}"
        print(f"\r{verb} {text}\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _bar(share: float) -> str:
    done = round(_WIDTH * min(1.0, share))
    return "█" * done + "░" * (_WIDTH - done)
