"""Whether a definition means something: the graph hangs together, and every name stands for something upstream."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from weft.core.garbage import uncollected
from weft.flow.document import Document, read_or_tell
from weft.flow.expressions import Reference
from weft.flow.graph import MAX_WAYS, Graph, Link, groups_of, links_of_groups
from weft.flow.identity import version_hash
from weft.flow.inputs import input_problems
from weft.flow.model import WorkflowDefinition
from weft.flow.nodes import NodeFacts
from weft.flow.problems import Hints, Path, Problem, Severity, placed
from weft.flow.structure import is_dag, read_structure

Data = Mapping[str, Any]
Nodes = Mapping[str, NodeFacts]
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Shape:
    """The nodes of a sound document, and what else decides whether they hang together."""

    nodes: Nodes
    frame: bytes

    def is_of(self, nodes: Nodes, data: Data) -> bool:
        """Whether a document's nodes hang together as these do: each has the same place among the same others."""
        return (
            self.frame == _frame(data)
            and self.nodes.keys() == nodes.keys()
            and all(facts.stands_like(self.nodes[name]) for name, facts in nodes.items())
        )


def _frame(data: Data) -> bytes:
    return orjson.dumps([data.get("inputs"), data.get("groups")])


@dataclass(frozen=True)
class Checked:
    """What became of a text: its definition, unless an error is among the problems."""

    definition: WorkflowDefinition | None
    document: Document
    problems: list[Problem]
    nodes: Nodes = field(default_factory=dict, repr=False)

    @property
    def is_sound(self) -> bool:
        """Whether no problem is an error."""
        return self.definition is not None

    @property
    def shape(self) -> Shape:
        """How the nodes hang together, for documents that are like it; there is none of a document with errors."""
        assert self.definition is not None
        return Shape(self.nodes, _frame(self.document.data))

    @cached_property
    def version_hash(self) -> str:
        """The hash of what the definition means; there is none of a document with errors."""
        assert self.definition is not None
        known = {name: facts.meaning for name, facts in self.nodes.items() if facts.meaning is not None}
        return version_hash(self.definition, known)


def check_text(text: str | bytes, file: str | None = None, **options: Any) -> Checked:
    """Return the definition in a text of YAML or JSON, and everything that is wrong with it, by line."""
    document, problems = read_or_tell(text, file)
    return Checked(None, document, problems) if problems else check_document(document, **options)


@uncollected()
def check_document(
    document: Document,
    *,
    handlers: Collection[str] | None = None,
    strict: bool = False,
    like: Shape | None = None,
    changed: Collection[str] | None = None,
) -> Checked:
    """Return the definition in a document, and everything that is wrong with it.

    ``handlers`` are those that are known: a task of another is warned about, and refused when ``strict``. ``like`` is
    the shape of a sound document that is nearly the same, of which only the nodes ``changed`` may differ, if that is
    known: what cannot be wrong again is not looked at again, and not warned about.
    """
    known = {}
    if like is not None and changed is not None:
        known = {name: facts for name, facts in like.nodes.items() if name not in changed}
    structure = read_structure(document.data, known)
    problems = [*document.problems, *structure.problems]
    if isinstance(document.data, dict) and not is_dag(document.data):
        hints = Hints()
        if like is None or problems or not like.is_of(structure.nodes, document.data):
            problems += _meaning(document.data, structure.nodes, hints)
        if handlers is not None:
            problems += _handler_problems(structure.nodes, handlers, hints, strict=strict)
    definition = structure.definition
    if any(problem.severity is Severity.ERROR for problem in problems):
        definition = None
    return Checked(definition, document, placed(problems, document) if problems else [], structure.nodes)


def _meaning(data: Data, all_nodes: Nodes, hints: Hints) -> Iterator[Problem]:
    if not isinstance(data.get("nodes"), dict) or len(all_nodes) < len(data["nodes"]):
        return  # too many to look at, which is told
    nodes = {name: facts for name, facts in all_nodes.items() if isinstance(data["nodes"][name], dict)}
    groups = groups_of(data)
    links = [link for facts in nodes.values() for link in facts.links]
    links += links_of_groups(data)
    graph = Graph(nodes, links, groups)
    yield from _link_problems(nodes, links, groups, hints)
    if graph.excessive:
        for link in graph.excessive:
            yield Problem("too_large", link.path, f"more than {MAX_WAYS:,} ways in all: put a fan_in in between")
        return  # what it hangs together with is not known
    yield from _end_problems(nodes)
    yield from _path_problems(data["nodes"], nodes, graph)
    yield from input_problems(data.get("inputs"))
    inputs = data.get("inputs")
    inputs = inputs if isinstance(inputs, dict) else {}
    for name, facts in nodes.items():
        before = graph.previous[name]
        for place, reference in facts.references:
            fields = reference.fields
            if reference.name == "nodes" and place[-1] == "concurrency_key":
                message = "must be known before the task waits for its turn: use inputs, or item in a fan_out"
                yield Problem("bad_expression", place, message)
                continue
            # By far the most are of an input that is there, or of a node just before.
            known = inputs if reference.name == "inputs" else before if fields[1:2] == ("output",) else ()
            if not fields or fields[0] not in known:
                yield from _reference_problems(reference, place, name, nodes, inputs, graph, hints)


def _link_problems(nodes: Nodes, links: list[Link], groups: Mapping[str, list[str]], hints: Hints) -> Iterator[Problem]:
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


def _end_problems(nodes: Nodes) -> Iterator[Problem]:
    starts = [name for name, facts in nodes.items() if facts.kind == "start"]
    if not starts:
        yield Problem(
            "no_start", ("nodes",), "there is no start: add a node `START: {type: start, next: …}`", is_about_key=True
        )
    for name in starts[1:]:
        yield Problem("two_starts", ("nodes", name), f"there is a start already, {starts[0]!r}", is_about_key=True)
    if not any(facts.kind == "end" for facts in nodes.values()):
        yield Problem("no_end", ("nodes",), "there is no end: add a node `END: {type: end}`", is_about_key=True)


def _path_problems(written: Data, nodes: Nodes, graph: Graph) -> Iterator[Problem]:
    for circle in graph.circles():
        shown = circle if len(circle) <= _SHOWN else [*circle[: _SHOWN - 2], "…", circle[-1]]
        yield Problem(
            "cycle", ("nodes", circle[0]), f"nodes wait for each other: {' -> '.join(shown)}", is_about_key=True
        )
    starts = [name for name, facts in nodes.items() if facts.kind == "start"]
    reached = set().union(*(graph.reached(name) for name in starts)) if starts else set(nodes)
    for name, facts in nodes.items():
        if facts.kind == "fan_in" and not graph.previous[name]:
            yield Problem("fan_in_alone", ("nodes", name), "nothing leads to this fan_in", is_about_key=True)
        elif name not in reached:
            yield Problem(
                "unreachable", ("nodes", name), f"no way leads from {starts[0]!r} to this node", is_about_key=True
            )
        # A `next` that stands for nothing is told where it stands.
        leads_on = graph.next[name] or written[name].get("next")
        if not leads_on and facts.kind not in ("end", "start", "conditional"):
            message = "nothing comes after this node: add `next`"
            yield Problem("leads_nowhere", ("nodes", name), message, Severity.WARNING, is_about_key=True)


def _reference_problems(
    reference: Reference, path: Path, name: str, nodes: Nodes, inputs: Data, graph: Graph, hints: Hints
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
        dashed = hints.first(each for each in nodes if each.startswith(f"{field}-"))
        hint = f" Write nodes['{dashed}'].output." if dashed else ""
        yield Problem("unknown_node", path, hints.unknown("node", field, nodes) + hint)
    elif not graph.comes_before(field, name):
        reason = "is this node itself" if field == name else f"does not come before {name!r}"
        yield Problem("not_upstream", path, f"{field!r} {reason}: its output is not there yet")
    elif reference.fields[1:2] != ("output",):
        yield Problem("bad_expression", path, f"of a node only its output is visible: write nodes.{field}.output")


def _handler_problems(nodes: Nodes, handlers: Collection[str], hints: Hints, *, strict: bool) -> Iterator[Problem]:
    severity = Severity.ERROR if strict else Severity.WARNING
    for facts in nodes.values():
        for path, handler in facts.handlers:
            if handler not in handlers:
                yield Problem("unknown_handler", path, hints.unknown("handler", handler, handlers), severity)
