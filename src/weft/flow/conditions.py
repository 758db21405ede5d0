"""Conditions of branches: ``< 100``, ``== 'tif'``, ``in ['a', 'b']``, or a whole expression."""

from __future__ import annotations

import re

from weft.flow.budget import ExpressionError
from weft.flow.expressions import NAMES, Expression, read_expression, read_template

# A comparison with the value of ``condition_field``; what else a condition is must stand in {{ }}.
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>|not\s+in\b|in\b|is\b)")
COMPARED = (*NAMES, "value")


def is_whole(condition: str) -> bool:
    """Whether a condition is an expression of its own, which needs no ``condition_field``."""
    return condition.lstrip().startswith("{{")


def read_condition(condition: str) -> Expression:
    """Return the expression of a condition; ``value`` is that of the ``condition_field``."""
    if is_whole(condition):
        return read_template(condition.strip())
    if _COMPARISON.match(condition) is None:
        raise ExpressionError(
            f'{condition[:60]!r} is no condition: write a comparison such as "< 100", "== \'tif\'" or '
            "\"in ['a', 'b']\", or a whole expression in {{ }}"
        )
    return read_expression(f"value {condition}", COMPARED)
