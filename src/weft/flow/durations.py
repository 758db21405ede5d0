"""Spans of time as definitions write them: a number of seconds, or a text such as ``1h30m``."""

from __future__ import annotations

import re

LONGEST = 20_000 * 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_NUMBER, _UNIT = r"[0-9]{1,9}(?:\.[0-9]{1,9})?", "ms|s|m|h|d|w"
_PART = re.compile(rf"({_NUMBER})\s*({_UNIT})\s*")


def _up_to(most: int) -> str:
    """Return a pattern of the whole numbers up to one, zeros before them or not, of nine digits at most."""
    if most >= 999_999_999:
        return "[0-9]{1,9}"
    digits = str(most)
    shorter = rf"[0-9]{{1,{len(digits) - 1}}}"
    smaller = [
        rf"{digits[:place]}[0-{int(digit) - 1}][0-9]{{{len(digits) - place - 1}}}"
        for place, digit in enumerate(digits)
        if digit != "0"
    ]
    return f"(?=[0-9]{{1,9}}(?![0-9]))0*(?:{'|'.join([shorter, *smaller, digits])})"


def pattern(longest: float) -> str:
    """Return a pattern for editors: at least one part, none of them beyond the longest, and not all of them nothing."""
    parts = "|".join(rf"{_up_to(int(longest / size))}(?:\.[0-9]{{1,9}})?\s*{unit}" for unit, size in _UNITS.items())
    return rf"^\s*(?=.*[1-9])(?:(?:{parts})\s*)+$"


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
