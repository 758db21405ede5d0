"""Plain data as one part of a definition: each field of the right kind, and all that is wrong with them."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from weft.core.errors import did_you_mean
from weft.flow.problems import Path, Problem, unknown
from weft.flow.values import kind_of

Model = TypeVar("Model", bound=BaseModel)
_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def read_part(model: type[Model], value: object, path: Path, problems: list[Problem]) -> Model | None:
    """Return the part that a value is; None, and what is wrong added to ``problems``, when it is none."""
    try:
        return model.model_validate(value)
    except ValidationError as refused:
        problems += [_problem(model, error, path) for error in refused.errors(include_url=False)]
        return None


def _problem(model: type[BaseModel], error: ErrorDetails, path: Path) -> Problem:
    place = (*path, *error["loc"])
    match error["type"]:
        case "missing":
            return Problem("missing", place, f"`{error['loc'][-1]}` is missing")
        case "extra_forbidden":
            fields = _fields_at(model, error["loc"])
            return Problem("unknown_field", place, unknown("field", str(error["loc"][-1]), fields), is_about_key=True)
        case "bad_duration" | "bad_next" as code:
            return Problem(code, place, error["msg"])
        case "literal_error":
            hint = did_you_mean(str(error["input"]), re.findall(r"'([^']+)'", error["ctx"]["expected"]))
            return Problem("bad_value", place, f"must be {error['ctx']['expected']}, not {error['input']!r}.{hint}")
        case "string_pattern_mismatch":
            return Problem(
                "bad_name",
                place,
                f"{str(error['input'])[:60]!r} is no name: letters, digits, _, - and .; / between parts",
            )
        case kind if kind in _EXPECTED:
            return Problem("bad_value", place, f"must be {_EXPECTED[kind]}, not {kind_of(error['input'])}")
    return Problem("bad_value", place, error["msg"].replace("Input should", "must").replace("String should", "must"))


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Return the fields of the part of a model in which something unknown stands."""
    for step in loc[:-1]:
        field = model.model_fields.get(str(step))
        inner = _models_in(field.annotation) if field is not None else []
        if inner:
            model = inner[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]
