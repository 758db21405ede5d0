"""What may be tried on a history: which names, documents and operations, most of which can be applied."""

from __future__ import annotations

from typing import Any

from history_model import MISSING, Document, Op, at

Change = tuple[str, int, int, int]
DEPTH = 3
NAMES = ["etl/main", "etl/a", "etl/b", "etl/c"]
STEPS = ["a", "b", "c", "d"]
FIELDS = [
    "params/size", "params/size", "params/size", "queue", "queue", "next", "params", "params/deep", "params/deep/x",
    "description",
]  # fmt: skip

KINDS = ["set", "set", "set", "set", "replace", "replace", "add", "remove", "drop"]
FORCES = [False, True, True]
PREFERENCES = [None, None, "ours", "theirs"]
# Whether the caller says which version of the tag it has seen, and is right.
EXPECTATIONS = [None, None, None, None, None, None, "right", "wrong"]
SIZES = [None, 1, 2, True]


def is_rare(pick: int) -> bool:
    """Whether a pick is one of those for which something unlikely is tried: one in eight."""
    return pick % 8 == 7


def written(sizes: dict[str, Any]) -> Document:
    """A definition with a step for each name that has a size."""
    steps = {
        name: {"handler": "h", "group": "work", "params": {"size": size}}
        for name, size in sizes.items()
        if name in STEPS and size is not None
    }
    told = {key: value for key, value in sizes.items() if key == "description"}
    nodes = {"START": {"type": "start", "next": "work"}, **steps, "END": {"type": "end"}}
    return {"workflow_id": "etl", "groups": {"work": {"next": "END"}}, **told, "nodes": nodes}


def op_of(document: Document, kind: str, node: int, field: int, value: int) -> Op:
    """An operation that mostly can be applied: on a node that is there, but for one time in eight."""
    known = [name for name in document["nodes"] if name in STEPS]
    step = STEPS[node % 4] if is_rare(node) or not known else known[node % len(known)]
    if kind == "add":
        size = {"size": value % 3}
        return {
            "op": "add",
            "path": f"/nodes/{STEPS[node % 4]}",
            "value": {"handler": "h", "group": "work", "params": size},
        }
    if kind == "drop":
        return {"op": "remove", "path": f"/nodes/{step}/handler" if is_rare(value) else f"/nodes/{step}"}
    name = FIELDS[field % len(FIELDS)]
    path = "/description" if name == "description" else f"/nodes/{step}/{name}"
    is_there = at(document, tuple(path.split("/")[1:])) is not MISSING
    if kind == "remove" and (is_there or is_rare(value)):
        return {"op": "remove", "path": path}
    values: dict[str, list[Any]] = {
        "queue": ["fast", "slow"],
        "next": [*STEPS, "END", "END"],
        "params": [{}, {"size": 1}, {"deep": {"x": 1}}],
        "params/deep": [{}, {"x": 2}, 5],
        "description": ["one", "two", "three"],
    }
    chosen = values.get(name, [1, True, 2, 1.0, "1", None])
    op = "replace" if kind == "replace" and (is_there or is_rare(value)) else "add"
    return {"op": op, "path": path, "value": chosen[value % len(chosen)]}
