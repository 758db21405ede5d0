"""The arguments of a workflow's function as the inputs of its definition."""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from weft.core.errors import InvalidInput
from weft.core.json import plain
from weft.sdk.authoring.places import cannot_compile, place_of

_TYPES = {
    bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array", tuple: "array",
    date: "string", datetime: "string", time: "string",
}  # fmt: skip
# What annotations such as `Annotated[int, pydantic.Field(ge=1)]` bound, and what definitions call it.
_BOUNDS = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "min_length",
    "max_length": "max_length",
    "pattern": "pattern",
}


def inputs_of(function: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Return the inputs that a function's arguments are: their types by annotation, their defaults as they stand."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as problem:
        raise cannot_compile(f"its annotations cannot be read: {problem}", place_of(function)) from None
    found: dict[str, dict[str, Any]] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise cannot_compile(f"the inputs must be named one by one, not by {parameter}", place_of(function))
        entry = _described(hints.get(parameter.name, Any))
        if parameter.default is inspect.Parameter.empty:
            entry["required"] = True
        elif parameter.default is not None:
            try:
                entry["default"] = plain(parameter.default, parameter.name)
            except InvalidInput as problem:
                raise cannot_compile(f"the default of {problem}", place_of(function)) from None
        found[parameter.name] = entry
    return found


def _described(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        found = _described(inner)
        for note in notes:
            found |= _noted(note)
        return found
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [each for each in get_args(hint) if each is not type(None)]
        return _described(kinds[0]) if len(kinds) == 1 else {}
    if get_origin(hint) is Literal:
        values = list(get_args(hint))
        types_of = {type(each) for each in values}
        return {**(_described(types_of.pop()) if len(types_of) == 1 else {}), "enum": values}
    kind = get_origin(hint) or hint
    if isinstance(kind, type):
        if issubclass(kind, enum.Enum):
            return {"enum": [plain(each, "enum") for each in kind]}
        if (name := _TYPES.get(kind)) is not None:
            return {"type": name}
        if hasattr(kind, "model_fields") or hasattr(kind, "__dataclass_fields__") or issubclass(kind, Mapping):
            return {"type": "object"}
        if issubclass(kind, Sequence):
            return {"type": "array"}
    return {}


def _noted(note: Any) -> dict[str, Any]:
    """Return what a note of an annotation says: a bound, or several as Pydantic's ``Field`` has them."""
    if isinstance(note, str):
        return {"description": note}
    found: dict[str, Any] = {}
    for each in (note, *getattr(note, "metadata", ())):
        for name, field in _BOUNDS.items():
            if (value := getattr(each, name, None)) is not None:
                found[field] = value
    if isinstance(said := getattr(note, "description", None), str):
        found["description"] = said
    return found
