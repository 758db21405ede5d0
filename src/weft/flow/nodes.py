"""One node by itself: what it is, what is wrong with it, what it leads to, what it takes from others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from weft.core.json import RESERVED_KEYS, depth_of
from weft.core.suggestions import closest
from weft.flow.budget import ExpressionError
from weft.flow.conditions import is_whole, read_condition
from weft.flow.document import MAX_DEPTH
from weft.flow.expressions import NAMES, OUTSIDE, Reference, has_expression, read_template
from weft.flow.fields import fields_of, read_part
from weft.flow.graph import Link, links_of_node
from weft.flow.identity import NodeMeaning
from weft.flow.model import NODE_TYPES, AnyNode
from weft.flow.names import MAX_NAME, NAME
from weft.flow.problems import Path, Problem, unknown
from weft.flow.values import Json, shown

Data = Mapping[str, Any]
_NAME = re.compile(NAME)
# In so many generations of so many nodes each what was read is remembered: most of a changed workflow is as it was.
_REMEMBERED = 5_000
_LONGEST = 10_000
# Below `nodes` and its name.
_DEEPEST = MAX_DEPTH - 2
# The fields in which expressions are evaluated, by type of node.
_EVALUATED = {
    "task": ("params", "concurrency_key"),
    "conditional": ("condition_field",),
    "fan_out": ("items",),
    "end": ("output",),
    "wait": ("match",),
    "workflow": ("inputs",),
}
_WITH_EXPRESSIONS = (str, dict, list)
_CONSTANT = ("handler", "queue", "workflow", "event", "group")
_CONSTANT_OF_TASK = ("handler", "queue")


@dataclass(slots=True)
class NodeFacts:
    """What can be said of a node without looking at others; ``node`` is None when a field of it is wrong."""

    kind: str
    group: str | None
    node: AnyNode | None
    meaning: NodeMeaning | None
    problems: tuple[Problem, ...]
    links: tuple[Link, ...]
    references: tuple[tuple[Path, Reference], ...]
    handlers: tuple[tuple[Path, str], ...]

    def stands_like(self, other: NodeFacts) -> bool:
        """Whether another node has the same place among others: it leads to the same, and takes from the same."""
        if self is other:
            return True
        here = self.kind, self.group, self.links, self.references
        return here == (other.kind, other.group, other.links, other.references)


class _Memory:
    """Facts by the name and the text of a node; what was not asked for in two generations is forgotten."""

    def __init__(self) -> None:
        self._young: dict[tuple[str, bytes], NodeFacts] = {}
        self._old: dict[tuple[str, bytes], NodeFacts] = {}

    def get(self, key: tuple[str, bytes]) -> NodeFacts | None:
        found = self._young.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self.put(key, found)
        return found

    def put(self, key: tuple[str, bytes], facts: NodeFacts) -> None:
        if len(self._young) >= _REMEMBERED:
            self._old, self._young = self._young, {}
        self._young[key] = facts


_memory = _Memory()


def read_node(name: str, entry: Json) -> NodeFacts:
    """Return the facts of a node; paths in them begin at the document."""
    try:
        text = orjson.dumps(entry)
    except TypeError:
        return _facts(name, entry)  # no JSON, which is told elsewhere
    # What opens so few mappings and lists cannot be nested deeper.
    may_be_deep = text.count(b"{") + text.count(b"[") > _DEEPEST
    if len(text) > _LONGEST:
        return _facts(name, entry, may_be_deep=may_be_deep)
    key = name, text
    found = _memory.get(key)
    if found is None:
        # Of what was written, not of the caller's own, which may change.
        found = _facts(name, orjson.loads(text), may_be_deep=may_be_deep)
        _memory.put(key, found)
    return found


def too_deep(path: Path) -> Problem:
    """Return the problem of what is nested deeper than a document may be."""
    return Problem("too_deep", path, f"the document is nested deeper than {MAX_DEPTH} levels")


@lru_cache(maxsize=20_000)
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and len(name) <= MAX_NAME


def name_problems(name: str, path: Path) -> Iterator[Problem]:
    """Yield what is wrong with the name of a node or an input."""
    if not _is_name(name):
        what = f"{name[:60]!r} is no name: letters, digits, _ and -, up to {MAX_NAME}"
        yield Problem("bad_name", path, what, is_about_key=True)


def _facts(name: str, entry: Json, *, may_be_deep: bool = True) -> NodeFacts:
    path: Path = ("nodes", name)
    problems = [] if _is_name(name) else list(name_problems(name, path))
    if may_be_deep and depth_of(entry) > _DEEPEST:
        problems.append(too_deep(path))
    if not isinstance(entry, dict):
        read_part(NODE_TYPES["task"], entry, path, problems)
        return NodeFacts("", None, None, None, tuple(problems), (), (), ())
    kind = entry.get("type", "task")
    node: AnyNode | None = None
    if isinstance(kind, str) and kind in NODE_TYPES:
        node = read_part(NODE_TYPES[kind], entry, path, problems)
    else:
        kind = _unknown_type(kind, entry, path, problems)
    references: list[tuple[Path, Reference]] = []
    for place, value, names in _evaluated(kind, entry, path):
        _gather(value, place, names, references, problems)
    handlers: list[tuple[Path, str]] = []
    _gather_constants(entry, _CONSTANT, path, handlers, problems)
    if type(task := entry.get("task")) is dict:
        _gather_constants(task, _CONSTANT_OF_TASK, (*path, "task"), handlers, problems)
    if kind == "conditional":
        problems += _conditional_problems(entry, path, references)
    elif kind == "fan_out":
        problems += _fan_out_problems(entry, path)
    elif kind == "wait":
        problems += _wait_problems(entry, path)
    problems += _params_problems(entry, path)
    meaning = None if node is None else NodeMeaning(node)
    links = tuple(links_of_node(name, entry))
    group = entry.get("group")
    group = group if isinstance(group, str) else None
    return NodeFacts(kind, group, node, meaning, tuple(problems), links, tuple(references), tuple(handlers))


def _unknown_type(kind: Json, entry: Data, path: Path, problems: list[Problem]) -> str:
    """Tell of a type that there is not, and of what is wrong with the other fields whatever was meant.

    Return the type that was meant, if it can be told.
    """
    meant = closest(str(kind), NODE_TYPES)
    hint = f" Did you mean {meant!r}?" if meant else f" There are {', '.join(NODE_TYPES)}."
    problems.append(Problem("unknown_type", (*path, "type"), f"there is no type of node {shown(kind)}.{hint}"))
    if meant is not None:
        read_part(NODE_TYPES[meant], {**entry, "type": meant}, path, problems)
        return meant
    # Of the type that has the most of its fields: what is wrong with these is wrong.
    likely = max(NODE_TYPES, key=lambda each: len(fields_of(NODE_TYPES[each]) & entry.keys()))
    own = {name: value for name, value in entry.items() if name in fields_of(NODE_TYPES[likely])}
    found: list[Problem] = []
    read_part(NODE_TYPES[likely], {**own, "type": likely}, path, found)
    problems += [problem for problem in found if problem.code != "missing"]
    known = set().union(*(fields_of(model) for model in NODE_TYPES.values()))
    for name in entry.keys() - known:
        problems.append(Problem("unknown_field", (*path, name), unknown("field", name, known), is_about_key=True))
    return ""


def _evaluated(kind: str, node: Data, path: Path) -> Iterator[tuple[Path, Json, tuple[str, ...]]]:
    """Yield the values in which expressions are evaluated, with their place and the names they may use."""
    for field in _EVALUATED.get(kind, ()):
        if field in node:
            yield (*path, field), node[field], OUTSIDE
    task = node.get("task")
    if kind == "fan_out" and isinstance(task, dict):
        for field in _EVALUATED["task"]:
            if field in task:
                yield (*path, "task", field), task[field], NAMES


def _gather(
    value: Json, path: Path, names: tuple[str, ...], references: list[tuple[Path, Reference]], problems: list[Problem]
) -> None:
    """Add what the expressions in a value of any depth refer to, and what is wrong with them."""
    kind = type(value)
    if kind is str:
        if has_expression(value):
            try:
                references += [(path, reference) for reference in read_template(value, names).references]
            except ExpressionError as problem:
                problems.append(Problem("bad_expression", path, str(problem)))
    elif kind is dict or kind is list:
        for key, entry in value.items() if kind is dict else enumerate(value):
            if type(entry) in _WITH_EXPRESSIONS and (type(entry) is not str or "{" in entry):
                _gather(entry, (*path, key), names, references, problems)


def _gather_constants(
    holder: Data, fields: tuple[str, ...], path: Path, handlers: list[tuple[Path, str]], problems: list[Problem]
) -> None:
    """Add the handler, and the problems of texts that must be the same for every job."""
    for field in fields:
        value = holder.get(field)
        if type(value) is str:
            if has_expression(value):
                what = "no expression is evaluated here: it must be the same for every job"
                problems.append(Problem("bad_expression", (*path, field), what))
            if field == "handler":
                handlers.append(((*path, field), value))


def _conditional_problems(node: Data, path: Path, references: list[tuple[Path, Reference]]) -> Iterator[Problem]:
    """Yield what is wrong with the branches, and add what their conditions refer to."""
    branches = node.get("branches")
    if not isinstance(branches, list):
        return
    path = (*path, "branches")
    defaults = [place for place, branch in enumerate(branches) if isinstance(branch, dict) and branch.get("default")]
    if not defaults:
        yield Problem(
            "no_default", path, "no branch is taken when no condition holds: add `- {default: true, next: …}`"
        )
    elif defaults[0] != len(branches) - 1:
        yield Problem(
            "no_default", (*path, defaults[0]), "the default must come last: no branch after it is ever taken"
        )
    for place, branch in enumerate(branches):
        if isinstance(branch, dict):
            yield from _branch_problems(node, branch, (*path, place), references)


def _branch_problems(
    node: Data, branch: Data, path: Path, references: list[tuple[Path, Reference]]
) -> Iterator[Problem]:
    condition = branch.get("condition")
    if (condition is None) == (not branch.get("default")):
        yield Problem("bad_condition", path, "a branch has either a condition or `default: true`")
    if not isinstance(condition, str):
        return
    path = (*path, "condition")
    if not is_whole(condition) and "condition_field" not in node:
        yield Problem("bad_condition", path, "a comparison needs `condition_field`, the value that it is about")
    try:
        references += [(path, reference) for reference in read_condition(condition).references]
    except ExpressionError as problem:
        yield Problem("bad_condition", path, str(problem))


def _fan_out_problems(node: Data, path: Path) -> Iterator[Problem]:
    task = node.get("task")
    if node.get("max_parallel") and isinstance(task, dict) and task.get("concurrency_key"):
        message = "a task waits for one turn only: leave out max_parallel or the concurrency_key of its task"
        yield Problem("two_limits", (*path, "max_parallel"), message)


def _params_problems(node: Data, path: Path) -> Iterator[Problem]:
    """Yield the keys of params by which what is kept in the place of params is known."""
    for holder, place in ((node, path), (node.get("task"), (*path, "task"))):
        params = holder.get("params") if type(holder) is dict else None
        if type(params) is dict:
            for key in RESERVED_KEYS:
                if key in params:
                    what = f"the key {key!r} is reserved for {RESERVED_KEYS[key]}"
                    yield Problem("bad_value", (*place, "params", key), what, is_about_key=True)


def _wait_problems(node: Data, path: Path) -> Iterator[Problem]:
    if node.get("for") == "event" and "event" not in node:
        yield Problem("missing", (*path, "event"), "`event` is missing: the name of the event that is waited for")
    for field, kind in (("event", "event"), ("match", "event"), ("form", "approval")):
        if field in node and node.get("for") != kind:
            yield Problem("unknown_field", (*path, field), f"`{field}` goes with `for: {kind}`", is_about_key=True)
