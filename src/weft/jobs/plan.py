"""What a workflow becomes when it is executed: its steps, and what leads from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import orjson

from weft.core.ids import CONTROL_QUEUE
from weft.core.json import Json
from weft.flow.conditions import read_condition
from weft.flow.expressions import Reference
from weft.flow.graph import Graph, links_of
from weft.flow.model import (
    AnyNode,
    ConditionalNode,
    Described,
    EndNode,
    Execution,
    FanInNode,
    FanOutNode,
    TaskNode,
    WaitNode,
    WorkflowDefinition,
    WorkflowNode,
)
from weft.flow.policies import policy_of
from weft.flow.templates import Template, read_value
from weft.jobs.layout import OPEN
from weft.jobs.rendering import END

# So many ways may lead from the nodes of one group to those of another; where there are more, one step is between them.
MOST_WAYS = 1_000
_NOTHING: frozenset[str] = frozenset()
_Crossing = tuple[list[str], frozenset[str]]
_CONTROL = {
    ConditionalNode: "@conditional",
    FanOutNode: "@fan_out",
    FanInNode: "@fan_in",
    WaitNode: "@wait",
    WorkflowNode: "@workflow",
    EndNode: "@output",
}

# What is no part of what a control step goes by: where it leads, and what is for people.
_NO_PART_OF_SPEC = {"next", "type", "group", *Described.model_fields}


@dataclass(frozen=True, slots=True)
class Step:
    """A task as every job of a workflow has it.

    ``needs`` are the nodes whose outputs its expressions take, ``starts`` those of them that give the inputs; ``child``
    is what a fan_out makes for each item; ``collects`` are the nodes whose outputs a fan_in gathers.
    """

    node: str | None
    handler: str
    spec: Json
    template: Template | None = None
    key: Template | None = None
    inputs: frozenset[str] | None = frozenset()
    needs: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    queue: str | None = None
    priority: int = 0
    max_attempts: int | None = None
    retry: str | None = None
    timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    dispatch_timeout: timedelta | None = None
    allow_failure: bool = False
    cache: bool | float | str | None = None
    child: Step | None = None
    collects: tuple[str, ...] = ()

    @property
    def is_control(self) -> bool:
        """Whether the engine carries it out, and no worker."""
        return self.handler.startswith("@")


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a workflow, the last of which is the end, and what leads from one to another, by their places."""

    steps: tuple[Step, ...]
    edges: tuple[tuple[int, int, tuple[int, ...] | None], ...]
    waits: tuple[int, ...]
    finishes_independent: bool
    timeout: timedelta | None

    @classmethod
    def of(cls, definition: WorkflowDefinition) -> Plan:
        """Return the plan of a sound definition."""
        data = definition.model_dump(by_alias=True, exclude_unset=True)
        graph = Graph.of(data)
        branches = _branches(data, graph)
        gates = _gates(graph, branches, definition)
        names = [name for name, node in definition.nodes.items() if node.type != "start"]
        ends = [name for name in names if definition.nodes[name].type == "end"]
        if len(ends) == 1:
            # It is the end of the job itself, and its last step.
            names.remove(ends[0])
        places = {name: place for place, name in enumerate(names)}
        steps = [_step(name, definition.nodes[name], definition, graph.previous) for name in names]
        steps += [Step(None, OPEN, {}) for _ in gates]
        if len(ends) == 1:
            places[ends[0]] = len(steps)
            steps.append(_step(ends[0], definition.nodes[ends[0]], definition, graph.previous))
        if len(ends) == 1:
            steps[-1] = Step(ends[0], END, **_evaluated({"output": steps[-1].spec["output"]}))
        else:
            steps.append(Step(None, END, {"ends": ends}, needs=tuple(ends)))
        starts = definition.nodes.keys() - places.keys()
        steps = [_without(starts, step) for step in steps]
        edges = _edges(graph, branches, gates, places, len(steps) - 1)
        waits = [0] * len(steps)
        for _, target, _ in edges:
            waits[target] += 1
        limit = None if definition.timeout_seconds is None else timedelta(seconds=definition.timeout_seconds)
        is_patient = definition.on_failure == "finish_independent"
        return cls(tuple(steps), tuple(edges), tuple(waits), is_patient, limit)

    @property
    def queues(self) -> set[str]:
        """The names of the queues in which its tasks wait."""
        return {step.queue or "default" for each in self.steps for step in (each, each.child) if step is not None}

    def queues_of(self, knows: Callable[[str], bool]) -> set[str]:
        """Return the names of the queues in which tasks wait whose handlers somebody knows."""
        steps = (step for each in self.steps for step in (each, each.child) if step is not None)
        return {step.queue or "default" for step in steps if not step.is_control and knows(step.handler)}

    def first_queues(self, ids: Mapping[str, int]) -> set[int]:
        """Return the queues in which something is ready as soon as a job is submitted."""
        firsts = (step for step, waits in zip(self.steps, self.waits, strict=True) if waits == 0)
        return {CONTROL_QUEUE if step.is_control else ids[step.queue or "default"] for step in firsts}


def _without(starts: AbstractSet[str], step: Step) -> Step:
    """Return a step that does not wait for a start, whose output is the inputs of the job."""
    if starts.isdisjoint(step.needs):
        return step
    needs = tuple(name for name in step.needs if name not in starts)
    return replace(step, needs=needs, starts=tuple(starts & set(step.needs)), inputs=None)


def _branches(data: Mapping[str, Any], graph: Graph) -> dict[tuple[str, str], set[int]]:
    """Return by which branches of conditionals what comes after them is reached."""
    branches: dict[tuple[str, str], set[int]] = {}
    for link in links_of(data):
        if link.branch is not None:
            for target in graph.groups.get(link.target, [link.target]):
                branches.setdefault((link.source, target), set()).add(link.branch)
    return branches


def _gates(graph: Graph, branches: Collection[tuple[str, str]], definition: WorkflowDefinition) -> list[_Crossing]:
    """Return where many lead to many: one step in between saves a way from each to each."""
    choosers = {source for source, _ in branches}
    starts = {name for name, node in definition.nodes.items() if node.type == "start"}
    return [
        (sources, frozenset(targets))
        for sources, targets in graph.crossings
        if len(sources) * len(targets) > MOST_WAYS and min(len(sources), len(targets)) > 1
        and not choosers.intersection(sources) and not starts.intersection(sources)
    ]  # fmt: skip


def _edges(
    graph: Graph, branches: Mapping[tuple[str, str], set[int]], gates: Sequence[_Crossing], places: Mapping[str, int],
    end: int,
) -> list[tuple[int, int, tuple[int, ...] | None]]:  # fmt: skip
    edges: list[tuple[int, int, tuple[int, ...] | None]] = []
    gated: dict[str, frozenset[str]] = {}
    first = len(places) - (end in places.values())
    for gate, (sources, targets) in enumerate(gates, first):
        edges += [(places[source], gate, None) for source in sources]
        edges += [(gate, places[target], None) for target in sorted(targets, key=places.__getitem__)]
        for source in sources:
            gated[source] = targets | gated[source] if source in gated else targets
    for name, place in places.items():
        behind_gates = gated.get(name, _NOTHING)
        for target in graph.next[name]:
            if target in behind_gates:
                continue
            taken = branches.get((name, target))
            edges.append((place, places[target], None if taken is None else tuple(sorted(taken))))
        if not graph.next[name] and place != end:
            edges.append((place, end, None))
    return edges


def _step(name: str, node: AnyNode, definition: WorkflowDefinition, before: Mapping[str, list[str]]) -> Step:
    match node:
        case TaskNode():
            said = _execution(node, definition.defaults)
            key = None if node.concurrency_key is None else read_value(node.concurrency_key)
            return Step(name, node.handler, key=key, **_evaluated(node.params), **said)
        case ConditionalNode():
            spec = {
                "value": node.condition_field,
                "branches": [branch.condition for branch in node.branches],
            }
            # The texts in a comparison are texts, whatever stands in them.
            return Step(name, _CONTROL[type(node)], **_evaluated(spec, ("value",), _conditions(node)))
        case EndNode():
            return Step(name, _CONTROL[type(node)], **_evaluated({"output": node.output}))
        case FanOutNode():
            child = Step(name, node.task.handler, node.task.params, **_execution(node.task, definition.defaults))
            spec = {
                "items": node.items,
                "params": node.task.params,
                "key": node.task.concurrency_key,
                "max_parallel": node.max_parallel,
            }
            return Step(name, _CONTROL[type(node)], child=child, **_evaluated(spec))
        case FanInNode():
            # By their names: the order in which nodes are written means nothing.
            collects = tuple(sorted(each for each in before[name] if definition.nodes[each].type != "start"))
            return Step(name, _CONTROL[type(node)], {"results": []}, collects=collects)
        case _:
            said = node.model_dump(by_alias=True, exclude_unset=True, mode="json", exclude=_NO_PART_OF_SPEC)
            spec = {field: value for field, value in said.items() if value is not None}
            is_lenient = isinstance(node, WorkflowNode) and bool(node.allow_failure)
            evaluated = _evaluated(spec, ("match", "inputs"))
            return Step(name, _CONTROL[type(node)], allow_failure=is_lenient, **evaluated)


def _conditions(node: ConditionalNode) -> Iterator[Reference]:
    for branch in node.branches:
        if branch.condition is not None:
            yield from read_condition(branch.condition).references


def _evaluated(spec: Json, fields: tuple[str, ...] | None = None, more: Iterable[Reference] = ()) -> dict[str, Any]:
    """Return the fields of a step that say what its expressions refer to: those of all of it, or of some fields."""
    template = read_value(spec if fields is None else {name: spec[name] for name in fields if name in spec})
    references = [*(reference for _, reference in template.references), *more]
    if not references and template.is_constant:
        return {"spec": spec}
    inputs: set[str] | None = set()
    needs: dict[str, None] = {}
    for reference in references:
        first = reference.fields[0] if reference.fields else None
        if reference.name == "nodes" and isinstance(first, str):
            needs[first] = None
        elif reference.name == "inputs" and isinstance(first, str) and inputs is not None:
            inputs.add(first)
        elif reference.name == "inputs":
            inputs = None  # taken as a whole
    known = None if inputs is None else frozenset(inputs)
    return {"spec": spec, "template": template, "inputs": known, "needs": tuple(needs)}


def _execution(node: Execution, defaults: Execution) -> dict[str, Any]:
    """Return how a task is executed: as its node says, else as the workflow does; the rest only its worker knows."""

    def said(field: str) -> Any:
        own = getattr(node, field)
        return getattr(defaults, field) if own is None else own

    found: dict[str, Any] = {
        "queue": said("queue"),
        "priority": said("priority") or 0,
        "timeout": _span(said("timeout_seconds")),
        "heartbeat_timeout": _span(said("heartbeat_timeout_seconds")),
        "dispatch_timeout": _span(said("dispatch_timeout_seconds")),
        "allow_failure": bool(said("allow_failure")),
        "cache": said("cache"),
    }
    if policy := policy_of(node.retry, defaults.retry):
        found["max_attempts"] = policy.pop("max_attempts", None)
        found["retry"] = orjson.dumps(policy).decode()
    return found


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
