"""What a definition means, apart from how it is written, and the hashes of that.

Two definitions have one hash when no job could tell them apart: key order, quoting, the order of nodes, names for
people, labels and descriptions make no difference, nor does it matter whether a task says something itself or by
``defaults``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel

from weft.flow.graph import Graph, links_of
from weft.flow.model import (
    AnyNode,
    ConditionalNode,
    Described,
    FanOutNode,
    WorkflowDefinition,
)

_FOR_PEOPLE = frozenset(Described.model_fields)
# The fields that hold parts of a definition, and not only values.
_HOLDERS = frozenset({"inputs", "form", "branches", "task", "retry"})
# What decides the output of a node; the rest says where, when and how often it is tried.
_DECISIVE = {
    "task": ("handler", "params"),
    "conditional": ("condition_field",),
    "fan_out": ("items",),
    "fan_in": (),
    "start": (),
    "end": ("output",),
    "wait": ("for_", "event", "match", "form", "on_timeout"),
    "workflow": ("workflow", "inputs"),
}


def meaning(definition: WorkflowDefinition) -> dict[str, Any]:
    """Return what a definition means as plain data: nothing in it can be changed without changing what jobs do."""
    general = _plain(definition.defaults)
    nodes = {name: _with_general(own_meaning(node), general) for name, node in definition.nodes.items()}
    return _without_nodes(definition) | {"nodes": nodes}


def version_hash(definition: WorkflowDefinition, known: Mapping[str, NodeMeaning] | None = None) -> str:
    """Return the hash of what a definition means; ``known`` is what is remembered of its nodes."""
    nodes = known or {name: NodeMeaning(node) for name, node in definition.nodes.items()}
    general = _plain(definition.defaults)
    key = canonical_json(general)
    digests = {name: node.digest_with(general, key) for name, node in nodes.items()}
    return digest_of(_without_nodes(definition) | {"nodes": digests})


class NodeMeaning:
    """What a node means by itself; its hash is remembered, for what its workflow said last."""

    __slots__ = ("_known", "_node")

    def __init__(self, node: AnyNode) -> None:
        self._node = node
        self._known: tuple[bytes, str] | None = None

    def digest_with(self, general: dict[str, Any], key: bytes) -> str:
        """Return the hash of what the node means where the workflow says ``general``, whose text is ``key``."""
        known = self._known
        if known is None or known[0] != key:
            # Both in one: threads share what is remembered.
            self._known = known = key, digest_of(_with_general(own_meaning(self._node), general))
        return known[1]


def _without_nodes(definition: WorkflowDefinition) -> dict[str, Any]:
    found = _plain(definition, leave=("version", "defaults", "nodes", "groups"))
    if groups := {name: {"next": sorted(set(group.next))} for name, group in definition.groups.items() if group.next}:
        found["groups"] = groups
    return found


def node_hashes(definition: WorkflowDefinition) -> dict[str, str]:
    """Return for each node the hash of what decides its output: its own definition, and those of all before it.

    Where a node is executed, how often and how long it is tried does not count: a longer timeout makes no output stale.
    """
    data = definition.model_dump(by_alias=True, exclude_unset=True)
    graph = Graph.of(data)
    branches: dict[tuple[str, str], set[int]] = {}
    for link in links_of(data):
        if link.branch is not None:
            for target in graph.groups.get(link.target, [link.target]):
                branches.setdefault((link.source, target), set()).add(link.branch)
    found: dict[str, str] = {}
    for name in graph.order:
        # With its name, by which expressions take its output: two nodes that change places are a change.
        before = [[each, found[each], sorted(branches.get((each, name), ()))] for each in graph.previous[name]]
        found[name] = digest_of({"node": _decisive(definition.nodes[name]), "after": sorted(before)})
    return found


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, as hexadecimal digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def canonical_json(value: Any) -> bytes:
    """Return the one form of a value as JSON: keys sorted, no blanks."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def own_meaning(node: AnyNode) -> dict[str, Any]:
    """Return what a node says, the workflow's defaults left out."""
    own = _plain(node)
    own["type"] = node.type
    return own


def _with_general(node: dict[str, Any], general: dict[str, Any]) -> dict[str, Any]:
    """Return what a node means where the workflow says ``general`` for what its tasks leave out."""
    match node["type"]:
        case "task":
            return _with_defaults(node, general)
        case "fan_out":
            return node | {"task": _with_defaults(node["task"], general)}
        case "workflow":
            return _with_defaults(node, {})
    return node


def _with_defaults(task: dict[str, Any], general: dict[str, Any]) -> dict[str, Any]:
    """Return a task with what the workflow says where the task itself is silent."""
    found = general | task if general else task
    if "retry" in task and "retry" in general:
        found["retry"] = general["retry"] | task["retry"]
    if "allow_failure" in found and not found["allow_failure"]:
        # Nobody else allows it.
        found = {key: value for key, value in found.items() if key != "allow_failure"}
    return found


def _decisive(node: AnyNode) -> dict[str, Any]:
    found: dict[str, Any] = {field: getattr(node, field) for field in _DECISIVE[node.type]}
    if isinstance(node, FanOutNode):
        found |= {"handler": node.task.handler, "params": node.task.params}
    if isinstance(node, ConditionalNode):
        found["conditions"] = [branch.condition for branch in node.branches]
    return {"type": node.type, **{key: _value(value) for key, value in found.items()}}


def _plain(part: BaseModel, leave: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a part that say something: not what is for people, nor what is so anyway."""
    declared, values, found = _declared(type(part)), part.__dict__, {}
    for name in part.__pydantic_fields_set__:
        value = values[name]
        if value is None or name in leave or (known := declared.get(name)) is None:
            continue
        written, usual = known
        if usual is not None and value == usual:
            continue
        if name == "next":
            value = sorted(set(value)) if len(value) > 1 else value
        elif name in _HOLDERS:
            value = _value(value)
            if not value and isinstance(values[name], BaseModel):
                continue
        found[written] = value
    return found


@cache
def _declared(kind: type[BaseModel]) -> dict[str, tuple[str, Any]]:
    """Return for each field that says something how it is written, and what is so anyway."""
    fields = {name: field for name, field in kind.model_fields.items() if name not in _FOR_PEOPLE}
    return {name: (field.alias or name, field.get_default(call_default_factory=True)) for name, field in fields.items()}


def _value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _plain(value)
    if isinstance(value, dict):
        return {key: _value(entry) for key, entry in value.items()}
    return [_value(item) for item in value] if isinstance(value, list) else value
