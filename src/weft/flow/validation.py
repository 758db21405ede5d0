"""Whether a definition means something: the graph hangs together, and every name stands for something upstream."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from weft.flow.budget import ExpressionError
from weft.flow.conditions import is_whole, read_condition
from weft.flow.document import Document, Unreadable, read_document
from weft.flow.expressions import NAMES, OUTSIDE, Reference, has_expression
from weft.flow.graph import Graph, Link, groups_of, links_of
from weft.flow.inputs import input_problems
from weft.flow.model import WorkflowDefinition
from weft.flow.problems import Hints, Path, Problem, Severity, placed
from weft.flow.structure import read_structure
from weft.flow.templates import read_value

Data = Mapping[str, Any]
_SHOWN = 12


@dataclass(frozen=True)
class Checked:
    """What became of a text: its definition, unless an error is among the problems."""

    definition: WorkflowDefinition | None
    document: Document
    problems: list[Problem]

    @property
    def is_sound(self) -> bool:
        """Whether no problem is an error."""
        return self.definition is not None


def check_text(text: str | bytes, file: str | None = None, **options: Any) -> Checked:
    """Return the definition in a text of YAML or JSON, and everything that is wrong with it, by line."""
    try:
        document = read_document(text, file)
    except Unreadable as problem:
        document = Document(None, "", file)
        problems = placed([problem.problem], document)
        # Only now: a text that cannot be read has lines to show, and no places to look up.
        document.text = text if isinstance(text, str) else text.decode("utf-8-sig", "replace")
        return Checked(None, document, problems)
    return check_document(document, **options)


def check_document(document: Document, *, handlers: Collection[str] | None = None, strict: bool = False) -> Checked:
    """Return the definition in a document, and everything that is wrong with it.

    ``handlers`` are those that are known: a task of another is warned about, and refused when ``strict``.
    """
    definition, problems = read_structure(document.data)
    problems = [*document.problems, *problems]
    if isinstance(document.data, dict):
        hints = Hints()
        problems += _meaning(document.data, hints)
        problems += _handler_problems(document.data, handlers, hints, strict=strict)
    if any(problem.severity is Severity.ERROR for problem in problems):
        definition = None
    return Checked(definition, document, placed(problems, document) if problems else [])


def _meaning(data: Data, hints: Hints) -> Iterator[Problem]:
    nodes = data.get("nodes")
    if not isinstance(nodes, dict):
        return
    nodes = {name: node for name, node in nodes.items() if isinstance(node, dict)}
    groups = groups_of(data)
    links = list(links_of(data))
    graph = Graph(nodes, links, groups)
    yield from _link_problems(nodes, links, groups, hints)
    yield from _end_problems(nodes)
    yield from _path_problems(nodes, graph)
    yield from _conditional_problems(nodes)
    yield from _wait_problems(nodes)
    yield from input_problems(data.get("inputs"))
    yield from _expression_problems(data, nodes, graph, hints)


def _kind(node: Data) -> str:
    kind = node.get("type", "task")
    return kind if isinstance(kind, str) else ""


def _link_problems(nodes: Data, links: list[Link], groups: Mapping[str, list[str]], hints: Hints) -> Iterator[Problem]:
    for link in links:
        if link.target not in nodes and not groups.get(link.target):
            yield Problem("unknown_node", link.path, hints.unknown("node", link.target, [*nodes, *groups]))
    for name, members in groups.items():
        if name in nodes:
            yield Problem(
                "bad_name", ("nodes", name), f"{name!r} is a group too: name one of them otherwise", is_about_key=True
            )
        if not members:
            yield Problem(
                "empty_group", ("groups", name), "no node is in this group", Severity.WARNING, is_about_key=True
            )


def _end_problems(nodes: Data) -> Iterator[Problem]:
    starts = [name for name, node in nodes.items() if _kind(node) == "start"]
    if not starts:
        yield Problem(
            "no_start", ("nodes",), "there is no start: add a node `START: {type: start, next: …}`", is_about_key=True
        )
    for name in starts[1:]:
        yield Problem("two_starts", ("nodes", name), f"there is a start already, {starts[0]!r}", is_about_key=True)
    if not any(_kind(node) == "end" for node in nodes.values()):
        yield Problem("no_end", ("nodes",), "there is no end: add a node `END: {type: end}`", is_about_key=True)


def _path_problems(nodes: Data, graph: Graph) -> Iterator[Problem]:
    circle = graph.circle()
    if circle is not None:
        shown = circle if len(circle) <= _SHOWN else [*circle[: _SHOWN - 2], "…", circle[-1]]
        yield Problem(
            "cycle", ("nodes", circle[0]), f"nodes wait for each other: {' -> '.join(shown)}", is_about_key=True
        )
    starts = [name for name, node in nodes.items() if _kind(node) == "start"]
    reached = set().union(*(graph.reached(name) for name in starts)) if starts else set(nodes)
    for name, node in nodes.items():
        if _kind(node) == "fan_in" and not graph.previous[name]:
            yield Problem("fan_in_alone", ("nodes", name), "nothing leads to this fan_in", is_about_key=True)
        elif name not in reached:
            yield Problem(
                "unreachable", ("nodes", name), f"no way leads from {starts[0]!r} to this node", is_about_key=True
            )
        # A `next` that stands for nothing is told where it stands.
        if _kind(node) not in ("end", "start", "conditional") and not graph.next[name] and not node.get("next"):
            message = "nothing comes after this node: add `next`"
            yield Problem("leads_nowhere", ("nodes", name), message, Severity.WARNING, is_about_key=True)


def _conditional_problems(nodes: Data) -> Iterator[Problem]:
    for name, node in nodes.items():
        branches = node.get("branches")
        if _kind(node) != "conditional" or not isinstance(branches, list):
            continue
        path: Path = ("nodes", name, "branches")
        defaults = [
            place for place, branch in enumerate(branches) if isinstance(branch, dict) and branch.get("default")
        ]
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
                yield from _branch_problems(node, branch, (*path, place))


def _branch_problems(node: Data, branch: Data, path: Path) -> Iterator[Problem]:
    condition = branch.get("condition")
    if (condition is None) == (not branch.get("default")):
        yield Problem("bad_condition", path, "a branch has either a condition or `default: true`")
    if not isinstance(condition, str):
        return
    if not is_whole(condition) and "condition_field" not in node:
        yield Problem(
            "bad_condition", (*path, "condition"), "a comparison needs `condition_field`, the value that it is about"
        )
    try:
        read_condition(condition)
    except ExpressionError as problem:
        yield Problem("bad_condition", (*path, "condition"), str(problem))


def _wait_problems(nodes: Data) -> Iterator[Problem]:
    for name, node in nodes.items():
        if _kind(node) != "wait":
            continue
        if node.get("for") == "event" and "event" not in node:
            yield Problem(
                "missing", ("nodes", name, "event"), "`event` is missing: the name of the event that is waited for"
            )
        for field, kind in (("event", "event"), ("match", "event"), ("form", "approval")):
            if field in node and node.get("for") != kind:
                yield Problem(
                    "unknown_field", ("nodes", name, field), f"`{field}` goes with `for: {kind}`", is_about_key=True
                )


def _expression_problems(data: Data, nodes: Data, graph: Graph, hints: Hints) -> Iterator[Problem]:
    inputs = data.get("inputs") if isinstance(data.get("inputs"), dict) else {}
    for name, node in nodes.items():
        for path, value, names in templates_of(name, node):
            broken: list[Problem] = []

            def note(place: Path, message: str, broken: list[Problem] = broken) -> None:
                broken.append(Problem("bad_expression", place, message))

            template = read_value(value, path, names, note)
            yield from broken
            for place, reference in template.references:
                yield from _reference_problems(reference, place, name, nodes, inputs or {}, graph, hints)
        for path, value in _constants_of(name, node):
            if isinstance(value, str) and has_expression(value):
                yield Problem(
                    "bad_expression", path, "no expression is evaluated here: it must be the same for every job"
                )
        if _kind(node) == "conditional":
            yield from _condition_references(name, node, nodes, inputs or {}, graph, hints)


def _condition_references(
    name: str, node: Data, nodes: Data, inputs: Data, graph: Graph, hints: Hints
) -> Iterator[Problem]:
    branches = node.get("branches")
    for place, branch in enumerate(branches if isinstance(branches, list) else ()):
        condition = branch.get("condition") if isinstance(branch, dict) else None
        if isinstance(condition, str):
            try:
                references = read_condition(condition).references
            except ExpressionError:
                continue
            for reference in references:
                path = ("nodes", name, "branches", place, "condition")
                yield from _reference_problems(reference, path, name, nodes, inputs, graph, hints)


def templates_of(name: str, node: Data) -> Iterator[tuple[Path, Any, tuple[str, ...]]]:
    """Yield the values of a node in which expressions are evaluated, with their place and the names they may use."""
    path: Path = ("nodes", name)
    fields = {
        "task": ("params", "concurrency_key"),
        "conditional": ("condition_field",),
        "fan_out": ("items",),
        "end": ("output",),
        "wait": ("match",),
        "workflow": ("inputs",),
    }
    for field in fields.get(_kind(node), ()):
        if field in node:
            yield (*path, field), node[field], OUTSIDE
    task = node.get("task")
    if _kind(node) == "fan_out" and isinstance(task, dict):
        for field in fields["task"]:
            if field in task:
                yield (*path, "task", field), task[field], NAMES


def _constants_of(name: str, node: Data) -> Iterator[tuple[Path, object]]:
    for field in ("handler", "queue", "workflow", "event", "group"):
        if field in node:
            yield ("nodes", name, field), node[field]
    task = node.get("task")
    for field in ("handler", "queue"):
        if isinstance(task, dict) and field in task:
            yield ("nodes", name, "task", field), task[field]


def _reference_problems(
    reference: Reference, path: Path, name: str, nodes: Data, inputs: Data, graph: Graph, hints: Hints
) -> Iterator[Problem]:
    field = reference.fields[0] if reference.fields else None
    if reference.name == "inputs":
        if isinstance(field, str) and field not in inputs:
            yield Problem("unknown_input", path, hints.unknown("input", field, inputs))
        return
    if reference.name != "nodes":
        return
    if not isinstance(field, str):
        yield Problem("bad_expression", path, "nodes are named one by one: `nodes.NAME.output`")
    elif field not in nodes:
        dashed = [each for each in nodes if each.startswith(f"{field}-")]
        hint = f" Write nodes['{dashed[0]}'].output." if dashed else ""
        yield Problem("unknown_node", path, hints.unknown("node", field, nodes) + hint)
    elif not graph.comes_before(field, name):
        reason = "is this node itself" if field == name else f"does not come before {name!r}"
        yield Problem("not_upstream", path, f"{field!r} {reason}: its output is not there yet")
    elif reference.fields[1:2] != ("output",):
        yield Problem("bad_expression", path, f"of a node only its output is visible: write nodes.{field}.output")


def _handler_problems(data: Data, handlers: Collection[str] | None, hints: Hints, *, strict: bool) -> Iterator[Problem]:
    nodes = data.get("nodes")
    if handlers is None or not isinstance(nodes, dict):
        return
    severity = Severity.ERROR if strict else Severity.WARNING
    for name, node in nodes.items():
        for path, value in _constants_of(name, node) if isinstance(node, dict) else ():
            if path[-1] == "handler" and isinstance(value, str) and value not in handlers:
                yield Problem("unknown_handler", path, hints.unknown("handler", value, handlers), severity)
