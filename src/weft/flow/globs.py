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


class Glob:
    """A pattern of paths: ``*`` is all but a slash, ``**/`` any folders.

    However many of these it has, a path is looked at in a time that grows with its length and with the pattern's, and
    no more: whoever may put a file there chooses its name.
    """

    def __init__(self, pattern: str) -> None:
        *folders, name = pattern.split("/")
        self._parts = [*(_ANY if each == "**" else _part(each) for each in folders), _part(name)]

    def fullmatch(self, path: str) -> bool:
        """Whether a path is one of those that are meant."""
        names, parts = path.split("/"), self._parts
        name = part = 0
        again: tuple[int, int] | None = None
        while name < len(names):
            if part < len(parts) and parts[part] is _ANY:
                # None at first, and one more each time that the rest does not fit.
                again, part = (name, part), part + 1
            elif part < len(parts) and parts[part].fullmatch(names[name]):
                name, part = name + 1, part + 1
            elif again is not None:
                name, part = again[0] + 1, again[1] + 1
                again = name, again[1]
            else:
                return False
        return part == len(parts)


_ANY = re.compile("")


def compiled(pattern: str) -> Glob:
    """Return what matches the paths of a pattern."""
    return Glob(pattern)


def _part(pattern: str) -> re.Pattern[str]:
    """Return what matches a name: each text between two ``*`` is where it comes first, and is looked for no further."""
    found, text, place, stars = [], "", 0, 0
    while place < len(pattern):
        sign = pattern[place]
        place += 1
        if sign == "*":
            found.append(text if stars == 0 else f"(?>[^/]*?{text})")
            text, stars = "", stars + 1
        elif sign == "?":
            text += "[^/]"
        elif sign == "[" and (end := pattern.find("]", place + 1)) > 0:
            inside = pattern[place:end].replace("\\", r"\\")
            negated = inside.startswith("!")
            text += f"(?!/)[{'^' if negated else ''}{re.escape(inside[negated:]).replace(chr(92) + '-', '-')}]"
            place = end + 1
        else:
            text += re.escape(sign)
    return re.compile("".join([*found, f"[^/]*{text}" if stars else text]), re.DOTALL)


def is_deep(pattern: str) -> bool:
    """Whether a pattern is about more than the folder itself."""
    return "/" in pattern
