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


class Count:
    """Shows a count whenever it is called with one, as a bar once ``total`` is known."""

    def __init__(self, verb: str, total: int | None, shown: Callable[[int], str]) -> None:
        self.total = total
        self._verb = verb
        self._shown = shown
        self._drawn_at = 0.0

    def __call__(self, count: int) -> None:
        """Show how far it is, but not more often than eyes can follow."""
        now = time.monotonic()
        if now - self._drawn_at < _BETWEEN and count != self.total:
            return
        self._drawn_at = now
        text = f"{self._shown(count)} …"
        if self.total is not None:
            text = f"{_bar(count / max(1, self.total))} {self._shown(count)}/{self._shown(self.total)}"
        print(f"\r{self._verb} {text}\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def counted(verb: str, total: int | None = None, shown: Callable[[int], str] = "{:,}".format) -> Iterator[Count | None]:
    """Lend what shows a count, as a bar where it is known how many there are; None where nobody looks.

    Nobody looks when the standard error is no terminal, or --quiet was given.
    """
    if not sys.stderr.isatty() or is_quiet() or os.environ.get("TERM") == "dumb":
        yield None
        return
    try:
        yield Count(verb, total, shown)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _bar(share: float) -> str:
    done = round(_WIDTH * min(1.0, share))
    return "█" * done + "░" * (_WIDTH - done)
