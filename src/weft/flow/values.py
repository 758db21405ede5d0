"""Values inside expressions: JSON, and what is not there."""

from __future__ import annotations

import math
from typing import Any

import orjson

from weft.flow.budget import Budget, ExpressionError

Json = Any
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}


class Missing:
    """Stands for a value that is not there; only ``default`` and ``is defined`` may look at it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def kind_of(value: Json) -> str:
    """Return what a value is, for people."""
    return "nothing" if value is None else _KINDS.get(type(value), type(value).__name__)


def present(value: Json) -> Json:
    """Return a value that is there; raises for one that is not."""
    if type(value) is Missing:
        raise ExpressionError(f"{value.name} is not there; give another value with `| default(...)`")
    return value


def field_of(value: Json, key: Json, name: str) -> Json:
    """Return an entry of a mapping or a list: never an attribute of an object."""
    if type(value) is Missing:
        return Missing(name)
    if type(value) is dict and type(key) is str:
        return value[key] if key in value else Missing(name)
    if type(value) in (list, str) and type(key) is int:
        return value[key] if -len(value) <= key < len(value) else Missing(name)
    return Missing(name)


def number(value: Json) -> int | float:
    """Return a number that JSON can hold; raises for anything else."""
    value = present(value)
    if type(value) is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise ExpressionError("a number beyond 64 bits came out")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ExpressionError(f"{value} came out, which is no number that JSON has")
        return value
    raise ExpressionError(f"{kind_of(value)} stands where a number belongs")


def text(value: Json) -> str:
    """Return a text; raises for anything else."""
    if type(present(value)) is str:
        return str(value)
    raise ExpressionError(f"{kind_of(value)} stands where text belongs; write it as text with `| string`")


def listed(value: Json, budget: Budget) -> list[Json]:
    """Return the items of a list, the keys of a mapping or the characters of a text."""
    value = present(value)
    if type(value) not in (list, dict, str):
        raise ExpressionError(f"{kind_of(value)} stands where a list belongs")
    budget.spend(len(value))
    return list(value)


def written(value: Json, budget: Budget) -> str:
    """Return a value as it stands inside a text: text as it is, the rest as JSON."""
    if type(present(value)) is str:
        budget.fill(len(value))
        return str(value)
    made = orjson.dumps(value).decode()
    budget.fill(len(made))
    return made


def equal(left: Json, right: Json) -> bool:
    """Whether two values are the same; true is not 1."""
    left, right = present(left), present(right)
    return (type(left) is bool) == (type(right) is bool) and bool(left == right)


def before(left: Json, right: Json) -> bool:
    """Whether one value comes before another of its kind."""
    left, right = present(left), present(right)
    for kind in ((int, float), (str,), (list,)):
        if type(left) in kind and type(right) in kind:
            try:
                return bool(left < right)
            except TypeError:
                break
    raise ExpressionError(f"{kind_of(left)} cannot be compared with {kind_of(right)}")


def holds(value: Json) -> bool:
    """Whether a value counts as true: not nothing, false, zero, or empty."""
    return bool(present(value))


def within(item: Json, container: Json, budget: Budget) -> bool:
    """Whether a list, a mapping or a text contains something."""
    container = present(container)
    if type(container) is str:
        return text(item) in container
    if type(container) is dict:
        return type(present(item)) is str and item in container
    return any(equal(item, each) for each in listed(container, budget))
