"""What is tried every day of many values that show the same law, and what only tests that are deep try."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def daily(values: Iterable[Any], every: int) -> list[Any]:
    """Return parameters of which one of so many is tried every day, and the others with ``--deep`` and in campaigns."""
    return [_parameter(value, is_deep=place % every > 0) for place, value in enumerate(values)]


def _parameter(value: Any, *, is_deep: bool) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=[pytest.mark.deep] if is_deep else [])
