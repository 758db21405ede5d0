"""Plain data as a definition: each field of the right kind, all that is wrong with them told at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from weft.core.errors import did_you_mean
from weft.flow.model import NAME, NODE_TYPES, AnyNode, Defaults, Group, Input, WorkflowDefinition
from weft.flow.problems import Path, Problem, unknown
from weft.flow.values import kind_of

Model = TypeVar("Model", bound=BaseModel)
MAX_NODES = 20_000
_NAME = re.compile(NAME)
_PARTS: dict[str, type[BaseModel]] = {"inputs": Input, "groups": Group}
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


def read_structure(data: object) -> tuple[WorkflowDefinition | None, list[Problem]]:
    """Return the definition that plain data is, or None, and all problems of its fields.

    Names that begin with ``x-`` at the top are the author's own, for anchors, and are passed over.
    """
    problems: list[Problem] = []
    if not isinstance(data, dict):
        return None, [
            Problem("bad_value", (), f"a definition is a mapping with workflow_id and nodes, not {kind_of(data)}")
        ]
    data = {key: value for key, value in data.items() if not key.startswith("x-")}
    found: dict[str, Any] = {}
    for name, model in _PARTS.items():
        read = partial(_one, model)
        found[name] = _each(data.get(name, {}), (name,), read, problems)
    found["defaults"] = _one(Defaults, data.get("defaults", {}), ("defaults",), problems)
    found["nodes"] = _nodes(data, problems)
    head = {key: value for key, value in data.items() if key not in found}
    checked = _one(WorkflowDefinition, {**head, "nodes": {}}, (), problems)
    if problems or checked is None:
        return None, problems
    fields = checked.model_fields_set.union(data)
    return checked.model_copy(update={name: value for name, value in found.items() if name in fields}), []


def _nodes(data: Mapping[str, Any], problems: list[Problem]) -> dict[str, AnyNode]:
    if "nodes" not in data:
        problems.append(
            Problem("missing", ("nodes",), "`nodes` is missing: a workflow has at least a start and an end")
        )
        return {}
    nodes = data["nodes"]
    if isinstance(nodes, dict) and len(nodes) > MAX_NODES:
        problems.append(
            Problem("too_large", ("nodes",), f"a workflow has at most {MAX_NODES:,} nodes, not {len(nodes):,}")
        )
        return {}
    return _each(nodes, ("nodes",), _node, problems)


def _node(entry: object, path: Path, problems: list[Problem]) -> AnyNode | None:
    kind = entry.get("type", "task") if isinstance(entry, dict) else "task"
    if not isinstance(kind, str) or kind not in NODE_TYPES:
        known = ", ".join(NODE_TYPES)
        hint = did_you_mean(str(kind), NODE_TYPES) or f" There are {known}."
        problems.append(Problem("unknown_type", (*path, "type"), f"there is no type of node {kind!r}.{hint}"))
        return None
    return _one(NODE_TYPES[kind], entry, path, problems)


def _each(
    entries: object,
    path: Path,
    read: Callable[[object, Path, list[Problem]], BaseModel | None],
    problems: list[Problem],
) -> dict[str, Any]:
    if not isinstance(entries, dict):
        problems.append(Problem("bad_value", path, f"must be a mapping, not {kind_of(entries)}"))
        return {}
    found = {}
    for name, entry in entries.items():
        place = (*path, name)
        if path != ("groups",) and (_NAME.fullmatch(name) is None or len(name) > 200):
            problems.append(
                Problem(
                    "bad_name",
                    place,
                    f"{name[:60]!r} is no name: letters, digits, _ and -, up to 200",
                    is_about_key=True,
                )
            )
        found[name] = read(entry, place, problems)
    return found


def _one(model: type[Model], value: object, path: Path, problems: list[Problem]) -> Model | None:
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
