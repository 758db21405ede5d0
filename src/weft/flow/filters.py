"""The filters and tests of expressions: Jinja's names and meanings, each bounded, none that leaves JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from urllib.parse import quote

import orjson

from weft.core.suggestions import did_you_mean
from weft.flow.budget import Budget, ExpressionError
from weft.flow.values import (
    Json,
    Missing,
    are_equal,
    as_json,
    before,
    field_of,
    holds,
    kind_of,
    listed,
    number,
    present,
    text,
    within,
    written,
)

Filter = Callable[..., Json]
Test = Callable[..., bool]
_NONE = Missing("no default")


def _default(budget: Budget, value: Json, other: Json = "", boolean: bool = False) -> Json:
    is_wanted = type(value) is Missing or (holds(boolean) and not value)
    return other if is_wanted else value


# The filters that look at their arguments only when they need them.
LENIENT: frozenset[Filter] = frozenset({_default})


def _length(budget: Budget, value: Json) -> int:
    if type(present(value)) not in (list, dict, str):
        raise ExpressionError(f"{kind_of(value)} has no length")
    return len(value)


def _replace(budget: Budget, value: Json, old: Json, new: Json, count: int = -1) -> str:
    whole, part, other = text(value), text(old), text(new)
    times = whole.count(part) if count < 0 else min(count, whole.count(part))
    budget.fill(len(whole) + times * max(0, len(other) - len(part)))
    return whole.replace(part, other, count)


def _split(budget: Budget, value: Json, separator: Json = None, most: int = -1) -> list[str]:
    if separator == "":
        raise ExpressionError("split needs a separator that is not empty")
    budget.spend(len(text(value)))
    return text(value).split(separator if separator is None else text(separator), most)


def _join(budget: Budget, value: Json, separator: Json = "", attribute: Json = None) -> str:
    parts = [written(item, budget) for item in _map(budget, value, attribute=attribute)]
    budget.fill(len(text(separator)) * len(parts))
    return text(separator).join(parts)


def _first(budget: Budget, value: Json) -> Json:
    items = listed(value, budget)
    return items[0] if items else Missing("the first item of an empty list")


def _last(budget: Budget, value: Json) -> Json:
    items = listed(value, budget)
    return items[-1] if items else Missing("the last item of an empty list")


def _sort(budget: Budget, value: Json, reverse: bool = False, attribute: Json = None) -> list[Json]:
    items = listed(value, budget)
    budget.spend(len(items) * max(1, len(items).bit_length()))
    marked = [(_attribute(item, attribute, budget), item) for item in items]

    def compare(left: tuple[Json, Json], right: tuple[Json, Json]) -> int:
        return -1 if before(left[0], right[0], budget) else int(before(right[0], left[0], budget))

    return [item for _, item in sorted(marked, key=cmp_to_key(compare), reverse=holds(reverse))]


def _least(budget: Budget, value: Json, attribute: Json = None) -> Json:
    return _first(budget, _sort(budget, value, attribute=attribute))


def _greatest(budget: Budget, value: Json, attribute: Json = None) -> Json:
    return _last(budget, _sort(budget, value, attribute=attribute))


def _sum(budget: Budget, value: Json, attribute: Json = None, start: Json = 0) -> int | float:
    total = number(start)
    for item in _map(budget, value, attribute=attribute):
        total = number(total + number(item))
    return total


def _unique(budget: Budget, value: Json, attribute: Json = None) -> list[Json]:
    seen: set[bytes] = set()
    found = []
    for item in listed(value, budget):
        mark = as_json(_attribute(item, attribute, budget), budget)
        if mark not in seen:
            seen.add(mark)
            found.append(item)
    return found


def _attribute(item: Json, attribute: Json, budget: Budget) -> Json:
    if attribute is None:
        return item
    parts = [attribute]
    if type(attribute) is str:
        budget.spend(attribute.count("."))
        budget.read(len(attribute))
        parts = attribute.split(".")
    for part in parts:
        item = field_of(
            item, int(part) if type(part) is str and part.isdecimal() and len(part) < 9 else part, f"the field {part!r}"
        )
    return item


def _map(
    budget: Budget, value: Json, name: Json = None, *args: Json, attribute: Json = None, default: Json = None
) -> list[Json]:
    items = listed(value, budget)
    if name is not None:
        apply = find_filter(text(name))
        return [apply(budget, item, *args) for item in items]
    found = [_attribute(item, attribute, budget) for item in items]
    return (
        [default if type(item) is Missing else item for item in found]
        if default is not None
        else [present(item) for item in found]
    )


def _select(budget: Budget, value: Json, name: Json = None, *args: Json) -> list[Json]:
    return [item for item in listed(value, budget) if _passes(budget, item, name, args)]


def _reject(budget: Budget, value: Json, name: Json = None, *args: Json) -> list[Json]:
    return [item for item in listed(value, budget) if not _passes(budget, item, name, args)]


def _selectattr(budget: Budget, value: Json, attribute: Json, name: Json = None, *args: Json) -> list[Json]:
    return [item for item in listed(value, budget) if _passes(budget, _attribute(item, attribute, budget), name, args)]


def _rejectattr(budget: Budget, value: Json, attribute: Json, name: Json = None, *args: Json) -> list[Json]:
    items = listed(value, budget)
    return [item for item in items if not _passes(budget, _attribute(item, attribute, budget), name, args)]


def _passes(budget: Budget, item: Json, name: Json, args: tuple[Json, ...]) -> bool:
    return holds(item) if name is None else find_test(text(name))(budget, item, *args)


def _groupby(budget: Budget, value: Json, attribute: Json) -> list[list[Json]]:
    groups: dict[bytes, list[Json]] = {}
    for item in listed(value, budget):
        mark = _attribute(item, attribute, budget)
        groups.setdefault(as_json(mark, budget), [mark, []])[1].append(item)
    return list(groups.values())


def _batch(budget: Budget, value: Json, size: int) -> list[list[Json]]:
    items = listed(value, budget)
    if type(size) is not int or size < 1:
        raise ExpressionError("batch needs a size of at least 1")
    return [items[start : start + size] for start in range(0, len(items), size)]


def _flatten(budget: Budget, value: Json) -> list[Json]:
    found: list[Json] = []
    for item in listed(value, budget):
        found += listed(item, budget) if type(item) is list else [item]
    return found


def _mapping(value: Json) -> dict[str, Json]:
    if type(present(value)) is not dict:
        raise ExpressionError(f"{kind_of(value)} stands where a mapping belongs")
    return dict(value)


def _key(entry: tuple[str, Json]) -> str:
    return entry[0]


def _entries(budget: Budget, value: Json) -> list[list[Json]]:
    budget.spend(len(_mapping(value)))
    return [[key, entry] for key, entry in sorted(_mapping(value).items(), key=_key)]


def _round(budget: Budget, value: Json, precision: int = 0) -> float:
    if type(precision) is not int or abs(precision) > 20:
        raise ExpressionError("round needs a precision between -20 and 20")
    return number(round(float(number(value)), precision))


def _int(budget: Budget, value: Json, default: Json = _NONE) -> Json:
    value = present(value)
    try:
        if type(value) is str and len(value) < 25:
            return number(int(value.strip()))
        if type(value) in (bool, int, float):
            return number(int(value))
    except (ValueError, OverflowError):
        pass
    if default is _NONE:
        raise ExpressionError(f"{_shown(value)} is no whole number")
    return default


def _float(budget: Budget, value: Json, default: Json = _NONE) -> Json:
    value = present(value)
    try:
        if type(value) is str and len(value) < 400 and "n" not in value.lower():
            return number(float(value))
        if type(value) in (bool, int, float):
            return number(float(value))
    except (ValueError, OverflowError):
        pass
    if default is _NONE:
        raise ExpressionError(f"{_shown(value)} is no number")
    return default


def _shown(value: Json) -> str:
    return repr(value[:40]) if type(value) is str else kind_of(value)


def _truncate(budget: Budget, value: Json, length: int = 255, end: Json = "...") -> str:
    whole, tail = text(value), text(end)
    if type(length) is not int or length < len(tail):
        raise ExpressionError("truncate needs a length of at least that of its end")
    budget.fill(min(length, len(whole)))
    return whole if len(whole) <= length else whole[: length - len(tail)] + tail


def _fromjson(budget: Budget, value: Json) -> Json:
    budget.spend(len(text(value)) // 8)
    try:
        return orjson.loads(text(value))
    except ValueError as problem:
        raise ExpressionError(f"the text is no JSON: {problem}") from None


def _reverse(budget: Budget, value: Json) -> Json:
    if type(value) is str:
        budget.fill(len(value))
        return value[::-1]
    return listed(value, budget)[::-1]


def _of_text(make: Callable[[str], str]) -> Filter:
    def apply(budget: Budget, value: Json) -> str:
        budget.fill(3 * len(text(value)))
        return make(text(value))

    return apply


FILTERS: dict[str, Filter] = {
    "abs": lambda budget, value: number(abs(number(value))),
    "basename": _of_text(lambda value: value.rstrip("/").rpartition("/")[2]),
    "batch": _batch,
    "capitalize": _of_text(str.capitalize),
    "count": _length,
    "d": _default,
    "default": _default,
    "dirname": _of_text(lambda value: value.rstrip("/").rpartition("/")[0]),
    "first": _first,
    "flatten": _flatten,
    "float": _float,
    "fromjson": _fromjson,
    "groupby": _groupby,
    "int": _int,
    "items": _entries,
    "join": _join,
    "keys": lambda budget, value: listed(_mapping(value), budget),
    "last": _last,
    "length": _length,
    "list": lambda budget, value: listed(value, budget),
    "lower": _of_text(str.lower),
    "map": _map,
    "max": _greatest,
    "min": _least,
    "reject": _reject,
    "rejectattr": _rejectattr,
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "select": _select,
    "selectattr": _selectattr,
    "sort": _sort,
    "split": _split,
    "string": lambda budget, value: written(value, budget),
    "sum": _sum,
    "title": _of_text(str.title),
    "tojson": lambda budget, value: as_json(value, budget).decode(),
    "trim": _of_text(str.strip),
    "truncate": _truncate,
    "unique": _unique,
    "upper": _of_text(str.upper),
    "urlencode": _of_text(lambda value: quote(value, safe="")),
    "values": lambda budget, value: [entry for _, entry in _entries(budget, value)],
}


def _compared(part: Json, budget: Budget) -> str:
    budget.read(len(text(part)))
    return text(part)


TESTS: dict[str, Test] = {
    "boolean": lambda budget, value: type(present(value)) is bool,
    "containing": lambda budget, value, item: within(item, value, budget),
    "defined": lambda budget, value: type(value) is not Missing,
    "divisibleby": lambda budget, value, by: number(value) % (number(by) or _no_zero()) == 0,
    "endingwith": lambda budget, value, end: text(value).endswith(_compared(end, budget)),
    "eq": lambda budget, value, other: are_equal(value, other, budget),
    "even": lambda budget, value: number(value) % 2 == 0,
    "false": lambda budget, value: present(value) is False,
    "float": lambda budget, value: type(present(value)) is float,
    "ge": lambda budget, value, other: not before(value, other, budget),
    "gt": lambda budget, value, other: before(other, value, budget),
    "in": lambda budget, value, container: within(value, container, budget),
    "integer": lambda budget, value: type(present(value)) is int,
    "le": lambda budget, value, other: not before(other, value, budget),
    "lt": lambda budget, value, other: before(value, other, budget),
    "mapping": lambda budget, value: type(present(value)) is dict,
    "ne": lambda budget, value, other: not are_equal(value, other, budget),
    "none": lambda budget, value: present(value) is None,
    "number": lambda budget, value: type(present(value)) in (int, float),
    "odd": lambda budget, value: number(value) % 2 == 1,
    "sequence": lambda budget, value: type(present(value)) in (list, str),
    "startingwith": lambda budget, value, start: text(value).startswith(_compared(start, budget)),
    "string": lambda budget, value: type(present(value)) is str,
    "true": lambda budget, value: present(value) is True,
    "undefined": lambda budget, value: type(value) is Missing,
}
_ALSO = {
    "eq": ("equalto", "=="),
    "ne": ("!=",),
    "lt": ("<", "lessthan"),
    "le": ("<=",),
    "gt": (">", "greaterthan"),
    "ge": (">=",),
    "containing": ("contains",),
}
for _name, _same in ((name, same) for name, all_same in _ALSO.items() for same in all_same):
    TESTS[_same] = TESTS[_name]


def _no_zero() -> int:
    raise ExpressionError("a division by zero")


def find_filter(name: str) -> Filter:
    """Return a filter by its name."""
    if name not in FILTERS:
        raise ExpressionError(f"there is no filter {name[:60]!r}.{did_you_mean(name[:60], FILTERS)}")
    return FILTERS[name]


def find_test(name: str) -> Test:
    """Return a test by its name."""
    if name not in TESTS:
        raise ExpressionError(f"there is no test {name[:60]!r}.{did_you_mean(name[:60], TESTS)}")
    return TESTS[name]
