"""The inputs of a workflow: whether their declarations make sense, and whether values fit them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from weft.flow.model import Input
from weft.flow.patterns import is_pattern, matches
from weft.flow.problems import Path, Problem, Severity, unknown
from weft.flow.values import equal, kind_of, shown

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
# The types that each bound says something about.
ABOUT = {
    "minimum": {"integer", "number", "any"},
    "maximum": {"integer", "number", "any"},
    "min_length": {"string", "array", "object", "any"},
    "max_length": {"string", "array", "object", "any"},
    "pattern": {"string", "any"},
}


def input_problems(inputs: object) -> Iterator[Problem]:
    """Yield what is wrong with the declarations of a document."""
    for name, entry in inputs.items() if isinstance(inputs, dict) else ():
        try:
            declared = Input.model_validate(entry)
        except ValidationError:
            continue  # told by the structure
        path: Path = ("inputs", name)
        if declared.pattern is not None and not is_pattern(declared.pattern):
            yield Problem("bad_value", (*path, "pattern"), f"{declared.pattern!r} is no regular expression")
            continue
        for field, kinds in ABOUT.items():
            if getattr(declared, field) is not None and declared.type not in kinds:
                yield Problem(
                    "bad_value", (*path, field), f"`{field}` says nothing about an input of type {declared.type}"
                )
        yield from _impossible(declared, path)
        if "default" in declared.model_fields_set:
            if declared.required:
                yield Problem(
                    "bad_default", path, "an input that is required has no use for a default", Severity.WARNING
                )
            if declared.default is not None and (flaw := value_problem(declared, declared.default)):
                yield Problem("bad_default", (*path, "default"), flaw)


def _impossible(declared: Input, path: Path) -> Iterator[Problem]:
    """Yield what no value could fit."""
    for low, high in (("minimum", "maximum"), ("min_length", "max_length")):
        least, most = getattr(declared, low), getattr(declared, high)
        if least is not None and most is not None and least > most:
            yield Problem("bad_value", (*path, low), f"`{low}` is above `{high}`: no value fits")
    for place, value in enumerate(declared.enum or ()):
        if (flaw := value_problem(declared, value)) is not None:
            yield Problem("bad_value", (*path, "enum", place), flaw)


def check_inputs(declared: Mapping[str, Input], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the inputs of a job with the defaults filled in, and everything that is wrong with what was given."""
    problems = [
        Problem("unknown_input", (name,), unknown("input", name, declared)) for name in given if name not in declared
    ]
    values: dict[str, Any] = {}
    for name, entry in declared.items():
        if name not in given:
            if entry.required:
                problems.append(Problem("missing", (name,), f"the input {name!r} is required"))
            values[name] = entry.default
        else:
            values[name] = given[name]
            if (flaw := value_problem(entry, given[name])) is not None:
                problems.append(Problem("bad_value", (name,), flaw))
    return values, problems


def told_of(problems: Sequence[Problem]) -> str:
    """Return all that is wrong with inputs in one line."""
    return "; ".join(f"{problem.path[0]}: {problem.message.rstrip('.')}" for problem in problems)


def value_problem(declared: Input, value: Any) -> str | None:
    """Return what keeps a value from being an input, if anything."""
    if value is None:
        return None if not declared.required or declared.type == "any" else "must not be nothing"
    if declared.type != "any" and type(value) not in TYPES[declared.type]:
        return f"must be of type {declared.type}, not {kind_of(value)}"
    if declared.enum is not None and not any(equal(value, each) for each in declared.enum):
        return f"must be one of {', '.join(map(shown, declared.enum))}, not {shown(value)}"
    if type(value) in (int, float):
        if declared.minimum is not None and value < declared.minimum:
            return f"must be at least {declared.minimum:g}, not {value}"
        if declared.maximum is not None and value > declared.maximum:
            return f"must be at most {declared.maximum:g}, not {value}"
    if type(value) in (str, list, dict):
        if declared.min_length is not None and len(value) < declared.min_length:
            return f"must have at least {declared.min_length} parts, not {len(value)}"
        if declared.max_length is not None and len(value) > declared.max_length:
            return f"must have at most {declared.max_length} parts, not {len(value)}"
    if type(value) is str and declared.pattern is not None and not matches(declared.pattern, value):
        return f"must match {declared.pattern!r}"
    return None
