"""What an attempt ended with, in one line."""

from __future__ import annotations

from collections.abc import Mapping


def error_line(error: Mapping[str, str]) -> str:
    """Return what an attempt ended with in short: its type and its message, as far as it has them."""
    return ": ".join(str(part) for part in (error.get("type"), error.get("message")) if part)
