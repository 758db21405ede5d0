"""Patterns for texts, in the language of Rust's ``regex``, which takes linear time whatever the pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError


@lru_cache(maxsize=1_000)
def _reader(pattern: str) -> TypeAdapter[str] | None:
    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError:
        return None


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern."""
    return _reader(text) is not None


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text; one that is no pattern is found in none."""
    reader = _reader(pattern)
    try:
        return reader is not None and reader.validate_python(text) == text
    except ValidationError:
        return False
