"""Finds the definition that an argument names: a file, or what the history keeps under a tag."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any


def find_document(which: str) -> dict[str, Any]:
    """Return the document that an argument names; it need not be sound, but must be readable."""
    from weft.core.errors import InvalidDefinition, InvalidInput
    from weft.flow.document import Unreadable, read_document

    path = Path(which)
    if not path.is_file():
        raise InvalidInput("file", f"there is no file {which}")
    try:
        data = read_document(path.read_bytes(), which).data
    except Unreadable as problem:
        raise InvalidDefinition([replace(problem.problem, file=which)]) from None
    if not isinstance(data, dict):
        raise InvalidInput("file", f"{which} is no definition: it has no mapping with nodes")
    return data
