"""What a workflow definition consists of: the one form that YAML, JSON and Python are ways to write."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from weft.core.json import RESERVED_KEYS
from weft.flow import durations
from weft.flow.names import HANDLER, MAX_NAME, NAME, PATH, QUEUE


def _seconds(value: object) -> float:
    if type(value) is int and 0 < value <= durations.LONGEST:
        return value  # as most are written
    try:
        return durations.seconds_of(value)
    except ValueError as problem:
        raise PydanticCustomError("bad_duration", "{problem}", {"problem": str(problem)}) from None


def _names(value: object) -> list[str]:
    if type(value) is str and value:
        return [value]  # as most are written
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


def _cache(value: object) -> bool | float | Literal["refresh"]:
    return value if isinstance(value, bool) or value == "refresh" else _seconds(value)


def _delay(value: object) -> float:
    if type(value) in (int, float) and value == 0:
        return 0
    if (seconds := _seconds(value)) > _LONGEST_DELAY:
        raise PydanticCustomError("bad_duration", "must be at most 366 days: nothing is tried again later than that")
    return seconds


def _span(longest: float, least: str = "exclusiveMinimum") -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "number", least: 0, "maximum": longest},
            {"type": "string", "pattern": durations.pattern(longest)},
        ]
    }


# As `weft.Retry` has it.
_LONGEST_DELAY = 366 * 86_400.0
_SPAN = _span(durations.LONGEST)
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema(_SPAN),
]
Delay = Annotated[float, BeforeValidator(_delay), WithJsonSchema(_span(_LONGEST_DELAY, "minimum"))]
# Whether an output serves the same params of the same code again, or for how long; or that it is made anew in any case.
Cache = Annotated[
    bool | float | Literal["refresh"],
    BeforeValidator(_cache),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"const": "refresh"}, *_SPAN["anyOf"]]}),
]
_REFERENCE: dict[str, Any] = {"type": "string", "minLength": 1}
Next = Annotated[
    list[str],
    BeforeValidator(_names),
    WithJsonSchema({"anyOf": [_REFERENCE, {"type": "array", "items": _REFERENCE, "minItems": 1}]}),
]
Text = Annotated[str, Field(max_length=10_000)]
HandlerName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=HANDLER)]
QueueName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=QUEUE)]
GroupPath = Annotated[str, Field(max_length=MAX_NAME, pattern=PATH)]


# Of keys, Pydantic checks no names: `weft.flow.structure` does, and the JSON Schema says it here.
_NAMES: dict[str, Any] = {"propertyNames": {"pattern": NAME, "maxLength": MAX_NAME}}
_PATHS: dict[str, Any] = {"propertyNames": {"pattern": PATH, "maxLength": MAX_NAME}}
_ARGUMENTS: dict[str, Any] = {"propertyNames": {"not": {"enum": list(RESERVED_KEYS)}}}
_AFTER = "The node or group that comes after this, or a list of them."
_TIMEOUT = "How long it may take: seconds, or a text such as 90s, 15m or 1h30m; at most 20,000 days in all."
_ALLOW_FAILURE = "Whether the job goes on when this fails."


class Part(BaseModel):
    """A part of a definition: it has no fields but those that it declares, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True, defer_build=True)


class Described(Part):
    """What people say about a part; it changes nothing that the engine does."""

    name: Text | None = Field(default=None, description="A name for people.")
    description: Text | None = Field(default=None, description="What it is for, in words.")
    labels: dict[str, str] = Field(default_factory=dict, description="Words by which people find it.")


class Input(Described):
    """A value that a job is given."""

    type: Literal["string", "integer", "number", "boolean", "object", "array", "any"] = Field(
        default="any", description="The type of the value."
    )
    required: bool = Field(default=False, description="Whether a job must be given a value.")
    default: Any = Field(default=None, description="The value of a job that is given none; it must be of the type.")
    enum: Annotated[list[Any], Field(min_length=1)] | None = Field(
        default=None, description="The values that are allowed."
    )
    minimum: float | None = Field(default=None, description="The least that a number may be.")
    maximum: float | None = Field(default=None, description="The most that a number may be.")
    min_length: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="How many characters, items or keys there must be at least."
    )
    max_length: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="How many characters, items or keys there may be at most."
    )
    pattern: Annotated[str, Field(max_length=500, json_schema_extra={"format": "regex"})] | None = Field(
        default=None,
        description="A regular expression that is found in the text, as Rust's regex has them: without look-around "
        "and references back.",
    )


class RetryPolicy(Part):
    """How often and how late a failed attempt is tried again."""

    max_attempts: Annotated[int, Field(ge=1, le=32767)] | None = Field(
        default=None, description="How often it is tried in all, the first time too; a whole number, without a point."
    )
    backoff: Literal["exponential", "linear", "fixed"] | None = Field(
        default=None, description="How the delay grows from one attempt to the next."
    )
    initial_delay_seconds: Delay | None = Field(
        default=None, description="The delay before the second attempt; 0 for none."
    )
    max_delay_seconds: Delay | None = Field(default=None, description="The longest delay; at most 366 days.")
    jitter: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="By which part of itself a delay may differ, from 0 to 1."
    )


class Execution(Part):
    """How a task is executed. What a node leaves out comes from ``defaults``, then the handler, then the settings."""

    queue: QueueName | None = Field(default=None, description="The queue that the task waits in.")
    priority: Annotated[int, Field(ge=-32767, le=32767)] | None = Field(
        default=None, description="Higher is claimed first; a whole number, without a point."
    )
    timeout_seconds: Seconds | None = Field(default=None, description=_TIMEOUT)
    heartbeat_timeout_seconds: Seconds | None = Field(
        default=None, description="How long the task may be silent before it counts as lost."
    )
    dispatch_timeout_seconds: Seconds | None = Field(
        default=None,
        description="How long it may wait, ready, until somebody begins it; not for tasks that wait for a turn.",
    )
    retry: RetryPolicy | None = Field(
        default=None, description="How often and how late a failed attempt is tried again."
    )
    allow_failure: bool | None = Field(default=None, description=_ALLOW_FAILURE)
    cache: Cache | None = Field(
        default=None,
        description="Whether an output serves the same params of the same code again, or for how long; refresh makes a "
        "new one in any case.",
    )


class Defaults(Execution):
    """What holds for each task of a workflow that does not say otherwise."""


class TaskSpec(Execution):
    """A task: the handler that it runs and the params that it is given."""

    handler: HandlerName = Field(description="The name of the function that the task runs.")
    params: dict[str, Any] = Field(
        default_factory=dict,
        description="The arguments of the handler; texts may have expressions in {{ }}.",
        json_schema_extra=_ARGUMENTS,
    )
    concurrency_key: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="Tasks of one key share a limit; the text may have expressions."
    )


class Node(Described):
    """One step of a workflow."""

    group: GroupPath | None = Field(default=None, description="The group that it is in; `a/b` is inside of `a`.")


class StartNode(Node):
    """Where a job begins; each workflow has one."""

    type: Literal["start"] = Field(description="The type of the node.")
    next: Next = Field(description=_AFTER)


class EndNode(Node):
    """Where a job ends, and what its result is; a workflow has at least one."""

    type: Literal["end"] = Field(description="The type of the node.")
    output: Any = Field(default=None, description="The job's result; texts may have expressions.")


class TaskNode(Node, TaskSpec):
    """A task; the type of a node that names none."""

    type: Literal["task"] = Field(default="task", description="The type of the node.")
    next: Next | None = Field(default=None, description=_AFTER)


class Branch(Part):
    """One way on from a conditional: the first whose condition holds is taken, or the default."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {
                    "required": ["condition"],
                    "properties": {"condition": {"type": "string"}, "default": {"type": "null"}},
                },
                {"required": ["default"], "properties": {"default": {"const": True}, "condition": {"type": "null"}}},
            ]
        }
    )

    condition: str | None = Field(
        default=None,
        description="A comparison such as `< 100` with the value of condition_field, or an expression in {{ }}.",
    )
    default: Literal[True] | None = Field(
        default=None, description="Taken when no condition holds; the last branch has it."
    )
    next: Next = Field(description="The node or group that this way leads to, or a list of them.")


_HAS_DEFAULT: dict[str, Any] = {
    "contains": {"type": "object", "required": ["default"], "properties": {"default": {"const": True}}}
}


class ConditionalNode(Node):
    """Takes one of several ways, by a value."""

    type: Literal["conditional"] = Field(description="The type of the node.")
    condition_field: Any = Field(
        default=None, description="The value that the conditions are about, mostly an expression."
    )
    branches: Annotated[list[Branch], Field(min_length=1, json_schema_extra=_HAS_DEFAULT)] = Field(
        description="The ways, of which the first whose condition holds is taken; the last is the default."
    )


class FanOutNode(Node):
    """The same task for each item of a list, in parallel."""

    type: Literal["fan_out"] = Field(description="The type of the node.")
    items: Annotated[str | list[Any], BeforeValidator(_items)] = Field(
        description="The items: a list, or an expression that gives one."
    )
    task: TaskSpec = Field(description="The task; its expressions may use item and index.")
    max_parallel: Annotated[int, Field(ge=1, le=2147483647)] | None = Field(
        default=None, description="How many run at once at most."
    )
    next: Next | None = Field(default=None, description=_AFTER)


class FanInNode(Node):
    """Waits for what leads to it, and collects the outputs in the order of the items."""

    type: Literal["fan_in"] = Field(description="The type of the node.")
    next: Next | None = Field(default=None, description=_AFTER)


class WaitNode(Node):
    """Waits for a person's approval or for an event."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["for"], "properties": {"for": {"const": "event"}}},
            "then": {"required": ["event"], "properties": {"form": False}},
            "else": {"properties": {"event": False, "match": False}},
        }
    )

    type: Literal["wait"] = Field(description="The type of the node.")
    for_: Literal["approval", "event"] = Field(alias="for", description="What is waited for.")
    form: dict[str, Input] | None = Field(default=None, description="What the person who approves is asked for.")
    event: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = Field(
        default=None, description="The name of the event."
    )
    match: dict[str, Any] | None = Field(
        default=None, description="The fields that the event must have, and their values."
    )
    timeout_seconds: Seconds | None = Field(
        default=None, description="How long it waits: seconds, or a text such as 90s, 15m or 2d."
    )
    on_timeout: Literal["fail", "skip"] = Field(
        default="fail", description="What becomes of the node when the time is over."
    )
    next: Next | None = Field(default=None, description=_AFTER)


class WorkflowNode(Node):
    """Another workflow as one step; its version is pinned when the job is submitted."""

    type: Literal["workflow"] = Field(description="The type of the node.")
    workflow: Annotated[str, Field(max_length=MAX_NAME, pattern=PATH)] = Field(
        description="The tag of the workflow; a bare `etl` means `etl/main`."
    )
    inputs: dict[str, Any] = Field(
        default_factory=dict, description="What its job is given; texts may have expressions."
    )
    timeout_seconds: Seconds | None = Field(default=None, description=_TIMEOUT)
    allow_failure: bool | None = Field(default=None, description=_ALLOW_FAILURE)
    next: Next | None = Field(default=None, description=_AFTER)


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

    next: Next | None = Field(
        default=None, description="What comes after all of the group: a node or group, or a list of them."
    )


class WorkflowDefinition(Described):
    """A workflow: a graph of nodes with typed inputs.

    Example::

        definition = weft.read_definition(Path("flow.yaml"))
        print(definition.workflow_id, sorted(definition.nodes))
    """

    workflow_id: Annotated[str, Field(max_length=MAX_NAME, pattern=PATH)] = Field(
        description="What the workflow is called; a push moves the tag `<workflow_id>/main`."
    )
    version: Annotated[int | str | None, BeforeValidator(_version)] = Field(
        default=None, description="The author's own number; Weft counts for itself, and passes it over."
    )
    inputs: dict[str, Input] = Field(
        default_factory=dict, description="What a job is given, by name.", json_schema_extra=_NAMES
    )
    defaults: Defaults = Field(default=Defaults(), description="What holds for each task that does not say otherwise.")
    on_failure: Literal["fail_fast", "finish_independent"] = Field(
        default="fail_fast", description="Whether a failed node ends the job, or only what comes after it."
    )
    timeout_seconds: Seconds | None = Field(
        default=None, description="How long a job may take: seconds, or a text such as 2h."
    )
    groups: dict[str, Group] = Field(
        default_factory=dict, description="What comes after groups, by their names.", json_schema_extra=_PATHS
    )
    nodes: dict[str, AnyNode] = Field(description="The steps, by name.", json_schema_extra=_NAMES)
