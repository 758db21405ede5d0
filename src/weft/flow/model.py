"""What a workflow definition consists of: the one form that YAML, JSON and Python are ways to write."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from weft.flow import durations

MAX_NAME = 200
NAME = r"^[A-Za-z_][A-Za-z0-9_\-]*$"
PATH = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*$"


def _seconds(value: object) -> float:
    try:
        return durations.seconds_of(value)
    except ValueError as problem:
        raise PydanticCustomError("bad_duration", "{problem}", {"problem": str(problem)}) from None


def _names(value: object) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise PydanticCustomError("bad_next", "must be the name of a node or a group, or a list of such names")
    return names


def _version(value: object) -> object:
    if value is None or type(value) in (int, str):
        return value
    raise PydanticCustomError("bad_version", "must be a whole number or text")


def _items(value: object) -> object:
    if isinstance(value, (str, list)):
        return value
    raise PydanticCustomError("bad_items", "must be a list, or an expression that gives one")


def _cache(value: object) -> bool | float:
    return value if isinstance(value, bool) else _seconds(value)


_SPAN: dict[str, Any] = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": durations.PATTERN}]
}
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema(_SPAN),
]
# Whether an output serves the same params of the same code again, or for how long.
Cache = Annotated[
    bool | float, BeforeValidator(_cache), WithJsonSchema({"anyOf": [{"type": "boolean"}, *_SPAN["anyOf"]]})
]
Next = Annotated[
    list[str],
    BeforeValidator(_names),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Text = Annotated[str, Field(max_length=10_000)]
HandlerName = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
GroupPath = Annotated[str, Field(max_length=MAX_NAME, pattern=PATH)]


class Part(BaseModel):
    """A part of a definition: it has no fields but those that it declares, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Described(Part):
    """What people say about a part; it changes nothing that the engine does."""

    name: Text | None = None
    description: Text | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class Input(Described):
    """A value that a job is given."""

    type: Literal["string", "integer", "number", "boolean", "object", "array", "any"] = "any"
    required: bool = False
    default: Any = None
    enum: list[Any] | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: Annotated[int, Field(ge=0)] | None = None
    max_length: Annotated[int, Field(ge=0)] | None = None
    pattern: Annotated[str, Field(max_length=500)] | None = None


class RetryPolicy(Part):
    """How often and how late a failed attempt is tried again."""

    max_attempts: Annotated[int, Field(ge=1, le=32767)] | None = None
    backoff: Literal["exponential", "linear", "fixed"] | None = None
    initial_delay_seconds: Seconds | None = None
    max_delay_seconds: Seconds | None = None
    jitter: Annotated[float, Field(ge=0, le=1)] | None = None


class Execution(Part):
    """How a task is executed. What a node leaves out comes from ``defaults``, then the handler, then the settings."""

    queue: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = None
    priority: Annotated[int, Field(ge=-32767, le=32767)] | None = None
    timeout_seconds: Seconds | None = None
    heartbeat_timeout_seconds: Seconds | None = None
    dispatch_timeout_seconds: Seconds | None = None
    retry: RetryPolicy | None = None
    allow_failure: bool | None = None
    cache: Cache | None = None


class Defaults(Execution):
    """What holds for each task of a workflow that does not say otherwise."""


class TaskSpec(Execution):
    """A task: the handler that it runs and the params that it is given."""

    handler: HandlerName
    params: dict[str, Any] = Field(default_factory=dict)
    concurrency_key: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class Node(Described):
    """One step of a workflow."""

    group: GroupPath | None = None


class StartNode(Node):
    """Where a job begins; each workflow has one."""

    type: Literal["start"]
    next: Next


class EndNode(Node):
    """Where a job ends, and what its result is; a workflow has at least one."""

    type: Literal["end"]
    output: Any = None


class TaskNode(Node, TaskSpec):
    """A task; the type of a node that names none."""

    type: Literal["task"] = "task"
    next: Next | None = None


class Branch(Part):
    """One way on from a conditional: the first whose condition holds is taken, or the default."""

    condition: str | None = None
    default: Literal[True] | None = None
    next: Next


class ConditionalNode(Node):
    """Takes one of several ways, by a value."""

    type: Literal["conditional"]
    condition_field: Any = None
    branches: Annotated[list[Branch], Field(min_length=1)]


class FanOutNode(Node):
    """The same task for each item of a list, in parallel."""

    type: Literal["fan_out"]
    items: Annotated[str | list[Any], BeforeValidator(_items)]
    task: TaskSpec
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    next: Next | None = None


class FanInNode(Node):
    """Waits for what leads to it, and collects the outputs in the order of the items."""

    type: Literal["fan_in"]
    next: Next | None = None


class WaitNode(Node):
    """Waits for a person's approval or for an event."""

    type: Literal["wait"]
    for_: Literal["approval", "event"] = Field(alias="for")
    form: dict[str, Input] | None = None
    event: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = None
    match: dict[str, Any] | None = None
    timeout_seconds: Seconds | None = None
    on_timeout: Literal["fail", "skip"] = "fail"
    next: Next | None = None


class WorkflowNode(Node):
    """Another workflow as one step; its version is pinned when the job is submitted."""

    type: Literal["workflow"]
    workflow: Annotated[str, Field(max_length=MAX_NAME, pattern=PATH)]
    inputs: dict[str, Any] = Field(default_factory=dict)
    timeout_seconds: Seconds | None = None
    allow_failure: bool | None = None
    next: Next | None = None


AnyNode = StartNode | EndNode | TaskNode | ConditionalNode | FanOutNode | FanInNode | WaitNode | WorkflowNode
NODE_TYPES: dict[str, type[AnyNode]] = {
    "start": StartNode,
    "end": EndNode,
    "task": TaskNode,
    "conditional": ConditionalNode,
    "fan_out": FanOutNode,
    "fan_in": FanInNode,
    "wait": WaitNode,
    "workflow": WorkflowNode,
}


class Group(Described):
    """A set of nodes that can be waited for as one: ``next`` comes when all of them have ended."""

    next: Next | None = None


class WorkflowDefinition(Described):
    """A workflow: a graph of nodes with typed inputs.

    Example::

        definition = weft.read_definition(Path("flow.yaml"))
        print(definition.workflow_id, sorted(definition.nodes))
    """

    workflow_id: Annotated[str, Field(max_length=MAX_NAME, pattern=PATH)]
    version: Annotated[int | str | None, BeforeValidator(_version)] = None
    inputs: dict[str, Input] = Field(default_factory=dict)
    defaults: Defaults = Defaults()
    on_failure: Literal["fail_fast", "finish_independent"] = "fail_fast"
    timeout_seconds: Seconds | None = None
    groups: dict[str, Group] = Field(default_factory=dict)
    nodes: dict[str, AnyNode]
