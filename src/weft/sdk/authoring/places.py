"""Where in an author's own source something is wrong."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from weft import version
from weft.core.errors import InvalidDefinition
from weft.flow.problems import Problem

# Neither Weft's own lines are meant, nor those by which a `with` gets to them.
_OURS = (str(Path(version.__file__).parent), contextlib.__file__)


@dataclass(frozen=True)
class Place:
    """A line of a file, and where on it, from 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def here() -> Place:
    """Return the line of the author's that is being executed: the innermost that is not Weft's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno, _column_of(frame))


def _column_of(frame: FrameType) -> int:
    """Return where on its line a frame is."""
    positions = islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, _, column, _ = next(positions, (None, None, None, None))
    return column + 1 if column is not None and line == frame.f_lineno else 1


def place_of(function: Any) -> Place:
    """Return where a function is defined."""
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno)


def cannot_compile(message: str, place: Place | None = None) -> InvalidDefinition:
    """Return the error of what no definition can say, with the author's line."""
    found = here() if place is None else place
    return InvalidDefinition(
        [Problem("cannot_compile", (), message, file=found.file, line=found.line, column=found.column)]
    )
