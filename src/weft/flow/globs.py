"""Patterns of paths: ``*.csv`` in a folder, ``**/*.csv`` beneath it."""

from __future__ import annotations

import re

_SIGNS = re.compile(r"[*?\[]")


def split_pattern(path: str) -> tuple[str, str | None]:
    """Return the folder that a path leads to, and the pattern after it, if there is one.

    Example::

        split_pattern("/data/in/*.csv") == ("/data/in", "*.csv")
    """
    parts = path.split("/")
    for place, part in enumerate(parts):
        if _SIGNS.search(part):
            return "/".join(parts[:place]), "/".join(parts[place:])
    return path.rstrip("/") if path != "/" else path, None


def compiled(pattern: str) -> re.Pattern[str]:
    """Return what matches the paths of a pattern: ``*`` is all but a slash, ``**/`` any folders."""
    found, place = [], 0
    while place < len(pattern):
        if pattern.startswith("**/", place):
            found.append("(?:[^/]+/)*")
            place += 3
            continue
        sign = pattern[place]
        place += 1
        if sign == "*":
            found.append("[^/]*")
        elif sign == "?":
            found.append("[^/]")
        elif sign == "[" and (end := pattern.find("]", place + 1)) > 0:
            inside = pattern[place:end].replace("\\", r"\\")
            negated = inside.startswith("!")
            found.append(f"(?!/)[{'^' if negated else ''}{re.escape(inside[negated:]).replace(chr(92) + '-', '-')}]")
            place = end + 1
        else:
            found.append(re.escape(sign))
    return re.compile("".join(found), re.DOTALL)


def is_deep(pattern: str) -> bool:
    """Whether a pattern is about more than the folder itself."""
    return "/" in pattern
