"""Spans of time as definitions write them: a number of seconds, or a text such as ``1h30m``."""

from __future__ import annotations

import re

LONGEST = 20_000 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_NUMBER, _UNIT = r"[0-9]{1,9}(?:\.[0-9]{1,9})?", "ms|s|m|h|d|w"
_PART = re.compile(rf"({_NUMBER})\s*({_UNIT})\s*")
# For editors: at least one part, and not all of them nothing.
PATTERN = rf"^\s*(?=.*[1-9])({_NUMBER}\s*({_UNIT})\s*)+$"


def seconds_of(value: object) -> float:
    """Return a span in seconds; raises `ValueError` with what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("must be a number of seconds, or a text such as 90s, 15m or 1h30m")
    seconds = _read(value) if isinstance(value, str) else float(value)
    if not 0 < seconds <= LONGEST:
        raise ValueError("must be longer than nothing and at most 20,000 days")
    return int(seconds) if seconds == int(seconds) else seconds


def _read(text: str) -> float:
    seconds, place = 0.0, 0
    text = text.strip()
    while part := _PART.match(text, place):
        seconds += float(part[1]) * _UNITS[part[2]]
        place = part.end()
    if place != len(text) or not text:
        raise ValueError(f"{text[:40]!r} is no span of time: write 90s, 15m, 1h30m or 2d")
    return seconds
