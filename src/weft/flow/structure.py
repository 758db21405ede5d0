"""Plain data as a definition: all its parts of the right kind, all that is wrong with them told at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from weft.core.json import depth_of
from weft.flow.document import MAX_DEPTH
from weft.flow.fields import read_part
from weft.flow.model import Defaults, Group, Input, WorkflowDefinition
from weft.flow.names import MAX_NAME, PATH
from weft.flow.nodes import NodeFacts, name_problems, read_node, too_deep
from weft.flow.problems import Path, Problem
from weft.flow.values import kind_of

MAX_NODES = 20_000
_PATH = re.compile(PATH)


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of a document: the definition, unless a field is wrong, and each node by itself."""

    definition: WorkflowDefinition | None
    nodes: Mapping[str, NodeFacts]
    problems: list[Problem]


def read_structure(data: object, known: Mapping[str, NodeFacts] | None = None) -> Structure:
    """Return the definition that plain data is, or None, with all problems of its fields.

    Names that begin with ``x-`` at the top are the author's own, for anchors, and ``$schema`` is what editors write:
    both are passed over. ``known`` are nodes of which the caller knows that they are as they were when they were read.
    """
    problems: list[Problem] = []
    if not isinstance(data, dict):
        what = f"a definition is a mapping with workflow_id and nodes, not {kind_of(data)}"
        return Structure(None, {}, [Problem("bad_value", (), what)])
    if is_dag(data):
        what = "this is a live DAG, and no workflow: `weft deploy` takes it"
        return Structure(None, {}, [Problem("live_dag", (), what)])
    if not isinstance(data.get("$schema", ""), str):
        problems.append(Problem("bad_value", ("$schema",), f"must be text, not {kind_of(data['$schema'])}"))
    data = {key: value for key, value in data.items() if key != "$schema" and not key.startswith("x-")}
    found: dict[str, Any] = {
        "inputs": _each(Input, data.get("inputs", {}), ("inputs",), problems),
        "groups": _each(Group, data.get("groups", {}), ("groups",), problems),
        "defaults": read_part(Defaults, data.get("defaults", {}), ("defaults",), problems),
    }
    nodes = _nodes(data, known or {}, problems)
    if depth_of({key: value for key, value in data.items() if key != "nodes"}) > MAX_DEPTH:
        problems.append(too_deep(()))
    found["nodes"] = {name: facts.node for name, facts in nodes.items()}
    head = {key: value for key, value in data.items() if key not in found}
    checked = read_part(WorkflowDefinition, {**head, "nodes": {}}, (), problems)
    definition = None
    if checked is not None and not problems and None not in found["nodes"].values():
        fields = checked.model_fields_set.union(data)
        definition = checked.model_copy(update={name: value for name, value in found.items() if name in fields})
    return Structure(definition, nodes, problems)


def is_dag(data: object) -> bool:
    """Whether a document is meant to be a live DAG, and not a workflow."""
    return isinstance(data, dict) and "dag" in data and "nodes" not in data


def _nodes(data: Mapping[str, Any], known: Mapping[str, NodeFacts], problems: list[Problem]) -> dict[str, NodeFacts]:
    path: Path = ("nodes",)
    if "nodes" not in data:
        problems.append(Problem("missing", path, "`nodes` is missing: a workflow has at least a start and an end"))
        return {}
    nodes = data["nodes"]
    if not _is_mapping(nodes, path, problems):
        return {}
    if len(nodes) > MAX_NODES:
        problems.append(Problem("too_large", path, f"a workflow has at most {MAX_NODES:,} nodes, not {len(nodes):,}"))
        return {}
    found = {}
    for name, entry in nodes.items():
        found[name] = facts = known.get(name) or read_node(name, entry)
        problems += facts.problems
    return found


def _each(model: type[Input | Group], entries: object, path: Path, problems: list[Problem]) -> dict[str, Any]:
    if not _is_mapping(entries, path, problems):
        return {}
    assert isinstance(entries, dict)
    for name in entries:
        problems += (name_problems if model is Input else _path_problems)(name, (*path, name))
    return {name: read_part(model, entry, (*path, name), problems) for name, entry in entries.items()}


def _path_problems(name: str, path: Path) -> Iterator[Problem]:
    """Yield what is wrong with the name of a group."""
    if _PATH.fullmatch(name) is None or len(name) > MAX_NAME:
        what = f"{name[:60]!r} is no name: letters, digits, _, - and .; / between parts; up to {MAX_NAME}"
        yield Problem("bad_name", path, what, is_about_key=True)


def _is_mapping(value: object, path: Path, problems: list[Problem]) -> bool:
    if isinstance(value, dict):
        return True
    problems.append(Problem("bad_value", path, f"must be a mapping, not {kind_of(value)}"))
    return False
