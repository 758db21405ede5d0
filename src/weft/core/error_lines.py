"""What errors come down to: one line, and what a message asks."""

from __future__ import annotations

import re
from collections.abc import Mapping


def error_line(error: Mapping[str, str]) -> str:
    """Return what an attempt ended with in short: its type and its message, as far as it has them."""
    return ": ".join(str(part) for part in (error.get("type"), error.get("message")) if part)


def hint_in(message: str) -> str | None:
    """Return the question that `weft.core.errors.did_you_mean` has put into a message, if there is one."""
    found = re.search(r"Did you mean .*\?", message)
    return None if found is None else found[0]
