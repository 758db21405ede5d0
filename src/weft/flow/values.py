"""Values inside expressions: JSON, and what is not there."""

from __future__ import annotations

import math
from typing import Any

import orjson

from weft.flow.budget import Budget, ExpressionError

Json = Any
# As deep as values may be that are kept.
MAX_DEPTH = 200
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


def shown(value: Json) -> str:
    """Return a value as it stands in a document, or what it is where that would be long."""
    if isinstance(value, str):
        return repr(value[:60])
    if isinstance(value, (list, dict)) or value is None:
        return kind_of(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    """Return the items of a list, the keys of a mapping, sorted, or the characters of a text."""
    value = present(value)
    if type(value) not in (list, dict, str):
        raise ExpressionError(f"{kind_of(value)} stands where a list belongs")
    budget.spend(len(value))
    # In which order a mapping was written makes no difference, here as in the hash of a definition.
    return sorted(value) if type(value) is dict else list(value)


def written(value: Json, budget: Budget) -> str:
    """Return a value as it stands inside a text: text as it is, the rest as JSON."""
    if type(present(value)) is str:
        budget.fill(len(value))
        return str(value)
    return as_json(value, budget).decode()


def as_json(value: Json, budget: Budget) -> bytes:
    """Return the JSON of a value, weighed before it is made; keys are sorted."""
    weight = weigh(present(value))
    budget.fill(weight)
    made = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    budget.fill(max(0, len(made) - weight))
    return made


def weigh(value: Json) -> int:
    """Return about how many characters a value has as JSON; raises when it is nested too deep.

    A list can hold another a thousand times at no cost, and that one a third: each is looked at once, and counts as
    often as it would be written.
    """
    return _weighed(value, {})[0]


def _weighed(value: Json, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    kind = type(value)
    if kind is str:
        return len(value) + 2, 0
    if kind is not list and kind is not dict:
        return 5, 0
    if (found := known.get(id(value))) is not None:
        return found
    weight, height = 2, 0
    for part in value if kind is list else value.values():
        size, depth = _weighed(part, known)
        weight += size + 1
        height = max(height, depth)
    if kind is dict:
        weight += sum(len(key) + 3 for key in value)
    if height >= MAX_DEPTH:
        raise ExpressionError(f"a value came out that is nested deeper than {MAX_DEPTH} levels")
    known[id(value)] = weight, height + 1
    return weight, height + 1


def equal(left: Json, right: Json) -> bool:
    """Whether two values are the same; true is not 1."""
    left, right = present(left), present(right)
    return (type(left) is bool) == (type(right) is bool) and bool(left == right)


def are_equal(left: Json, right: Json, budget: Budget) -> bool:
    """Whether two values are equal, what has to be read for it counted."""
    _read(left, right, budget)
    return equal(left, right)


def before(left: Json, right: Json, budget: Budget) -> bool:
    """Whether one value comes before another of its kind."""
    left, right = present(left), present(right)
    _read(left, right, budget)
    for kind in ((int, float), (str,), (list,)):
        if type(left) in kind and type(right) in kind:
            try:
                return bool(left < right)
            except TypeError:
                break
    raise ExpressionError(f"{kind_of(left)} cannot be compared with {kind_of(right)}")


def _read(left: Json, right: Json, budget: Budget) -> None:
    if type(left) is str and type(right) is str:
        budget.read(min(len(left), len(right)))
    elif type(left) is type(right) and type(left) in (list, dict):
        # Of what is nested a character costs five times as much as of a text: each value is looked at by itself.
        budget.read(5 * (weigh(left) + weigh(right)))


def holds(value: Json) -> bool:
    """Whether a value counts as true: not nothing, false, zero, or empty."""
    return bool(present(value))


def within(item: Json, container: Json, budget: Budget) -> bool:
    """Whether a list, a mapping or a text contains something."""
    container = present(container)
    if type(container) is str:
        budget.read(len(container))
        return text(item) in container
    if type(container) is dict:
        return type(present(item)) is str and item in container
    return any(are_equal(item, each, budget) for each in listed(container, budget))
