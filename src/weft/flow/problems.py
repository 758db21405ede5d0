"""What is wrong with a definition, and where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import orjson

from weft.core.error_lines import hint_in
from weft.core.suggestions import did_you_mean

Path = tuple[str | int, ...]


class Severity(StrEnum):
    """Whether a problem keeps a definition from being used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a definition.

    ``code`` is stable, for programs; ``path`` leads to the place in the document, ``line`` and ``column`` (from 1) to
    the place in the file, where there is one.
    """

    code: str
    path: Path
    message: str
    severity: Severity = Severity.ERROR
    file: str | None = None
    line: int | None = None
    column: int | None = None
    is_about_key: bool = False

    @property
    def where(self) -> str:
        """Return the place as compilers write it: ``flow.yaml:12:5``, as far as it is known."""
        return ":".join(str(part) for part in (self.file or "<definition>", self.line, self.column) if part is not None)

    def __str__(self) -> str:
        place = f"{dotted(self.path)}: " if self.path else ""
        return f"{self.where}: {self.severity}: {place}{self.message} [{self.code}]"

    def to_json(self) -> dict[str, object]:
        """Return the problem for programs."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "hint": hint_in(self.message),
            "path": dotted(self.path),
            "file": self.file,
            "line": self.line,
            "column": self.column,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Problem:
        """Return what `to_json` told of."""
        path = path_in(told["path"]) or ()
        severity = Severity(told["severity"])
        return cls(told["code"], path, told["message"], severity, told["file"], told["line"], told["column"])


# A part of a path as it is written: a name, an index, or a name in quotes that has one of these characters in it.
_PECULIAR = re.compile(r"""[.\[\]="']""")
_PART = re.compile(r"""(?:^|\.)(?P<name>[^.\[\]]+)|\[(?P<index>[0-9]+|-)\]|\.?\[(?P<quoted>"(?:[^"\\]|\\.)*")\]""")


def dotted(path: Path) -> str:
    """Return a path as people write it: ``nodes.a.branches[0].next``; `path_in` reads it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part or _PECULIAR.search(part):
            text += f"[{orjson.dumps(part).decode()}]"
        else:
            text += f".{part}" if text else part
    return text


def path_in(text: str) -> Path | None:
    """Return the path that people have written so; None when it is none. An index is a number, or ``-`` for the end."""
    path: Path = ()
    place = 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or text.startswith("."):
            return None
        index = part["index"]
        if index is not None:
            path += ("-",) if index == "-" else (int(index),)
        else:
            path += (part["name"] if part["quoted"] is None else orjson.loads(part["quoted"]),)
        place = part.end()
    return path or None


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for a name that stands for nothing, with the one that was meant if there is one."""
    return f"there is no {kind} {name[:200]!r}.{did_you_mean(name[:200], known)}"


class Hints:
    """Sentences for names that stand for nothing. Only so many are compared with all that are known: it takes long."""

    def __init__(self, count: int = 100) -> None:
        self._left = count

    def unknown(self, kind: str, name: str, known: Iterable[str]) -> str:
        """Return the sentence for a name, with the one that was meant if there is one."""
        self._left -= 1
        return unknown(kind, name, known if self._left >= 0 else ())

    def first(self, found: Iterator[str]) -> str | None:
        """Return the first of what is looked for among all that are known; nothing when too many were compared."""
        return next(found, None) if self._left >= 0 else None


class Locates(Protocol):
    """What knows the place of each part of a document."""

    file: str | None

    def locate(self, path: Path, *, key: bool) -> tuple[int, int] | None:
        """Return line and column, from 1, of the value at ``path``, or of its key."""
        ...


def placed(problems: Sequence[Problem], source: Locates) -> list[Problem]:
    """Return the problems with their places in a file, in the order of the file, errors of one line together."""
    found = []
    for problem in problems:
        place = (
            (problem.line, problem.column) if problem.line else source.locate(problem.path, key=problem.is_about_key)
        )
        line, column = place or (None, None)
        found.append(replace(problem, file=source.file, line=line, column=column))
    return sorted(found, key=lambda each: (each.line or 0, each.column or 0, each.code))
