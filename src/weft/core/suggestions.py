"""Guesses what somebody meant who wrote something that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(wrong: str, known: Iterable[str]) -> str | None:
    """Return what is known and close to what was written, if anything is."""
    names = list(known)
    # Who writes `timeout` means `timeout_seconds`, though `idle_timeout` has more letters in common with it.
    begun = [name for name in names if name.startswith(f"{wrong}_")]
    return begun[0] if len(begun) == 1 else next(iter(difflib.get_close_matches(wrong, names, n=1)), None)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` when something known is close to what was written, else nothing."""
    close = closest(wrong, known)
    return "" if close is None else f" Did you mean {close!r}?"
