"""How wide a text is when it is drawn, about, and how it is cut to a width."""

from __future__ import annotations

import unicodedata

_NARROW = frozenset("iIjlft.,:;|!'`()[]{}/\\ ")
_WIDE = frozenset("mwMW@%—…")


def width_of(text: str, size: float, *, is_bold: bool = False) -> float:
    """Return how wide a text of a size is, in a font without serifs."""
    return sum(_share(char) for char in text) * size * (1.08 if is_bold else 1.0)


def _share(char: str) -> float:
    """Return how wide a sign is, measured by the size of the font."""
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    if char in _NARROW:
        return 0.38
    if char in _WIDE:
        return 0.95
    return 0.72 if char.isupper() else 0.62


def cut(text: str, width: float, size: float, *, is_bold: bool = False) -> str:
    """Return a text that is no wider than ``width``: the beginning of it, where it would be."""
    if width_of(text, size, is_bold=is_bold) <= width:
        return text
    room = width - width_of("…", size, is_bold=is_bold)
    for length, char in enumerate(text):
        room -= width_of(char, size, is_bold=is_bold)
        if room < 0:
            return text[:length].rstrip() + "…"
    return text
