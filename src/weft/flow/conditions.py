"""Conditions of branches: ``< 100``, ``== 'tif'``, ``in ['a', 'b']``, or a whole expression."""

from __future__ import annotations

import re

from weft.flow.budget import ExpressionError
from weft.flow.expressions import OUTSIDE, Expression, read_expression

# A comparison with the value of ``condition_field``; what else a condition is must stand in {{ }}.
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>|not\s+in\b|in\b|is\b)")
COMPARED = (*OUTSIDE, "value")


def is_whole(condition: str) -> bool:
    """Whether a condition is an expression of its own, which needs no ``condition_field``."""
    return condition.lstrip().startswith("{{")


def read_condition(condition: str) -> Expression:
    """Return the expression of a condition; ``value`` is that of the ``condition_field``."""
    if is_whole(condition):
        if not condition.rstrip().endswith("}}"):
            raise ExpressionError("a condition that begins with {{ must end with }}")
        # Exactly one: `{{ a }} or {{ b }}` would be a text, which always holds.
        return read_expression(condition.strip()[2:-2], OUTSIDE)
    if _COMPARISON.match(condition) is None:
        raise ExpressionError(
            f'{condition[:60]!r} is no condition: write a comparison such as "< 100", "== \'tif\'" or '
            "\"in ['a', 'b']\", or a whole expression in {{ }}"
        )
    return read_expression(f"value {condition}", COMPARED)
