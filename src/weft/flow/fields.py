"""Plain data as one part of a definition: each field of the right kind, and all that is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from weft.core.suggestions import did_you_mean
from weft.flow.names import DATASET, HANDLER, QUEUE
from weft.flow.problems import Path, Problem, unknown
from weft.flow.values import kind_of, shown

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
_BOUNDS: dict[str, Callable[..., str]] = {
    "string_too_short": lambda value, min_length: "not be empty",
    "string_too_long": lambda value, max_length: f"have at most {max_length:,} characters, not {len(value):,}",
    "too_short": lambda value, min_length, **_: "not be empty",
    "greater_than_equal": lambda value, ge: f"be at least {ge:g}, not {value}",
    "less_than_equal": lambda value, le: f"be at most {le:,}, not {value}",
}

_PATH = "letters, digits, _, - and .; / between parts"
_NAMES = {
    HANDLER: "that of a handler does not begin with @, and has no control characters",
    QUEUE: "that of a queue does not begin with @, and has no comma and no control characters",
    DATASET: "that of a dataset has no @, after which a version is named, and no control characters",
}


def read_part(model: type[Model], value: object, path: Path, problems: list[Problem]) -> Model | None:
    """Return the part that a value is; None, and what is wrong added to ``problems``, when it is none."""
    try:
        found: Model = model.__pydantic_validator__.validate_python(value)
        return found
    except ValidationError as refused:
        problems += [_problem(model, error, path) for error in refused.errors(include_url=False)]
        return None


def _problem(model: type[BaseModel], error: ErrorDetails, path: Path) -> Problem:
    loc, part = _written(model, error["loc"])
    place, value, told = (*path, *loc), error["input"], error.get("ctx", {})
    match error["type"]:
        case "missing":
            return Problem("missing", place, f"`{loc[-1]}` is missing")
        case "extra_forbidden":
            return Problem("unknown_field", place, unknown("field", str(loc[-1]), fields_of(part)), is_about_key=True)
        case "union_tag_not_found" | "union_tag_invalid":
            words = re.findall(r"'([^']+)'", told.get("expected_tags", "")) or sorted(_tags(part, loc))
            name = told["discriminator"].strip("'")
            if "tag" not in told:
                return Problem("missing", (*place, name), f"`{name}` is missing: one of {', '.join(words)}")
            hint = did_you_mean(str(told["tag"]), words)
            wanted = " or ".join(map(repr, words))
            return Problem("bad_value", (*place, name), f"must be {wanted}, not {shown(told['tag'])}.{hint}")
        case "bad_duration" | "bad_next" as code:
            return Problem(code, place, error["msg"])
        case "bad_version" | "bad_items" | "bad_here":
            return Problem("bad_value", place, error["msg"])
        case "literal_error":
            words = re.findall(r"'([^']+)'", told["expected"])
            wanted = " or ".join(map(repr, words)) or "true"
            return Problem(
                "bad_value", place, f"must be {wanted}, not {shown(value)}.{did_you_mean(str(value), words)}"
            )
        case "string_pattern_mismatch":
            what = f"{str(value)[:60]!r} is no name: {_NAMES.get(told['pattern'], _PATH)}"
            return Problem("bad_name", place, what)
        case kind if kind in _EXPECTED:
            return Problem("bad_value", place, f"must be {_EXPECTED[kind]}, not {kind_of(value)}")
        case kind if kind in _BOUNDS:
            return Problem("bad_value", place, f"must {_BOUNDS[kind](value, **told)}")
    return Problem("bad_value", place, f"{shown(value)} is refused here")


def fields_of(model: type[BaseModel]) -> set[str]:
    """Return the fields of a part as they are written."""
    return {field.alias or name for name, field in model.model_fields.items()}


def _written(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[tuple[int | str, ...], type[BaseModel]]:
    """Return where something stands, as it is written, and the part of a model that it stands in.

    Of parts of several kinds Pydantic names the kind as if it were a place.
    """
    found: list[int | str] = []
    kinds: dict[str, type[BaseModel]] = {}
    for step in loc:
        if kinds and str(step) in kinds:
            model, kinds = kinds[str(step)], {}
            continue
        if found and found[-1] in _names(model):
            inner = _models_in(_names(model)[found[-1]].annotation)
            model = inner[0] if len(inner) == 1 else model
        found.append(step)
        field = _names(model).get(step)
        kinds = {} if field is None or field.discriminator is None else _kinds(field)
    return tuple(found), model


def _names(model: type[BaseModel]) -> dict[int | str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _kinds(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the parts that may stand in a field, by what each says of its kind."""
    name = str(field.discriminator)
    return {
        word: model
        for model in _models_in(field.annotation)
        for word in getattr(model.model_fields[name].annotation, "__args__", ())
    }


def _tags(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    return list(_kinds(_names(model)[loc[-1]]))


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]
