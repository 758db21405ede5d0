"""What the document of a live DAG consists of: jobs that go on for ever, and the datasets between them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from weft.flow import durations
from weft.flow.hooks import Hmac
from weft.flow.model import Described, Part, QueueName, RetryPolicy, Seconds
from weft.flow.names import DATASET, HANDLER, MAX_NAME, NAME, PATH

NEVER = "never"
# What comes after the name of a DAG in the tag that says which version of it is in effect.
LINE = "live"
# Runtimes that are known by name, and not there yet.
LATER = ("lambda", "ecs_platform", "ecs_udf", "sqs", "ray")
_INLINE = {"dispatcher": "inline"}


def _idle(value: object) -> float | str:
    if value == NEVER:
        return NEVER
    if (type(value) in (int, float) and value == 0) or value == "0":
        return 0
    try:
        return durations.seconds_of(value)
    except ValueError as problem:
        what = f"{problem}; or `never`, or 0"
        raise PydanticCustomError("bad_duration", "{problem}", {"problem": what}) from None


def _strategy(value: object) -> object:
    if value == "Bulk":
        what = "Bulk is not supported: take PerPartition, by which each partition is computed as a whole"
        raise PydanticCustomError("bad_here", "{what}", {"what": what})
    return value


def _runtime(value: object) -> object:
    if value in LATER:
        what = f"the runtime {value!r} is not there yet: take worker, or inline"
        raise PydanticCustomError("bad_here", "{what}", {"what": what})
    return _INLINE.get(value, value) if isinstance(value, str) else value


def _lane(value: object) -> object:
    if isinstance(value, str) and value and all(value.split(".")):
        return value
    raise PydanticCustomError("bad_here", "must be the place of a field in what comes, such as customer.id")


_SPANS: list[dict[str, Any]] = [
    {"type": "number", "minimum": 0, "maximum": durations.LONGEST},
    {"type": "string", "pattern": durations.pattern(durations.LONGEST)},
    {"enum": [NEVER, "0"]},
]
IdleTimeout = Annotated[float | str, BeforeValidator(_idle), WithJsonSchema({"anyOf": _SPANS})]
Strategy = Annotated[Literal["PerUpdate", "PerPartition"], BeforeValidator(_strategy)]
Runtime = Annotated[
    Literal["worker", "inline"],
    BeforeValidator(_runtime),
    WithJsonSchema({"enum": ["worker", "inline", *_INLINE]}),
]


def _settle(value: object) -> float:
    return 0 if value in (0, "0", "0s") and value is not False else _seconds_of(value)


def _seconds_of(value: object) -> float:
    try:
        return durations.seconds_of(value)
    except ValueError as problem:
        raise PydanticCustomError("bad_duration", "{problem}", {"problem": str(problem)}) from None


Settle = Annotated[float, BeforeValidator(_settle), WithJsonSchema({"anyOf": _SPANS[:2]})]
Column = Annotated[str, Field(min_length=1, max_length=63)]
_NAME_IN_SQL = r'(?:[A-Za-z_][A-Za-z0-9_$]*|"(?:[^"]|"")+")'
_TABLE = rf"^{_NAME_IN_SQL}\.{_NAME_IN_SQL}$"
Lane = Annotated[str, BeforeValidator(_lane), Field(max_length=500)]
DatasetName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=DATASET)]
OperatorName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=HANDLER)]
ColumnName = Annotated[str, Field(min_length=1, max_length=500)]
CatchUpWord = Literal["none", "latest", "all"]
_CATCH_UP = "What becomes of ticks while nobody was there: none, the latest, or all of them."
_LANE = "The field by whose value units are kept in order, such as customer.id; each is for itself without."
_POLL = "How long it rests when nothing new is there."


class CronSource(Part):
    """Begins at the times of a cron expression."""

    kind: Literal["cron"] = Field(description="What makes the job begin.")
    schedule: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Minute, hour, day, month and weekday, such as `30 6 * * 1-5`; or one of @hourly, @daily, @weekly."
    )
    timezone: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        default="UTC", description="The time zone in which the schedule is read, such as Europe/Berlin."
    )
    catch_up: CatchUpWord = Field(default="latest", description=_CATCH_UP)


class IntervalSource(Part):
    """Begins again and again, after the same time."""

    kind: Literal["interval"] = Field(description="What makes the job begin.")
    every: Seconds = Field(description="From one time to the next: seconds, or a text such as 90s or 15m.")
    catch_up: CatchUpWord = Field(default="latest", description=_CATCH_UP)


class EventSource(Part):
    """Begins with each event of a name that is sent."""

    kind: Literal["event"] = Field(description="What makes the job begin.")
    event: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] = Field(description="The name of the events.")
    match: dict[str, Any] | None = Field(
        default=None, description="The fields that an event must have, and their values."
    )
    lane: Lane | None = Field(default=None, description=_LANE)
    hmac: Hmac | None = Field(
        default=None, description="How those sign who send such events without a token, to `/api/v1/hooks`."
    )


class FilesSource(Part):
    """Begins with each file that arrives in a folder or under a prefix."""

    kind: Literal["files"] = Field(description="What makes the job begin.")
    path: Annotated[str, Field(min_length=1, max_length=2000)] = Field(
        description="A folder of the workers, or `s3://bucket/prefix`, and perhaps a pattern: `/data/in/*.csv`. It "
        "must be within WEFT_FILES_ROOTS of the workers."
    )
    pattern: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        default="*", description="Which files, where the path does not say: such as `*.csv`, or `**/*.csv` beneath it."
    )
    poll: Seconds = Field(default=5, description=_POLL)
    settle: Settle = Field(
        default=2,
        description="How long a file of a folder must stay as it is before it counts as whole; 0: not at all.",
    )
    order: Literal["name", "mtime"] | None = Field(
        default=None,
        description="By what the files that a look finds are in order, one after the other; none at first.",
    )


class TableSource(Part):
    """Begins with each row that is added to a table of the database."""

    kind: Literal["table"] = Field(description="What makes the job begin.")
    table: Annotated[str, Field(min_length=3, max_length=200, pattern=_TABLE)] = Field(
        description="The table of Weft's own database, with its schema: `public.orders`."
    )
    columns: Annotated[list[Column], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="The columns that are told; all of them unless said."
    )
    lane: Column | None = Field(
        default=None,
        description="The column by whose value rows are kept in order; each statement is for itself without.",
    )


class ContinuousSource(Part):
    """Goes on for ever, in slices, one after the other."""

    kind: Literal["continuous"] = Field(description="What makes the job begin.")
    poll: Seconds = Field(default=1, description=_POLL)


AnySource = CronSource | IntervalSource | EventSource | FilesSource | TableSource | ContinuousSource
SOURCES: dict[str, type[AnySource]] = {
    "cron": CronSource,
    "interval": IntervalSource,
    "event": EventSource,
    "files": FilesSource,
    "table": TableSource,
    "continuous": ContinuousSource,
}


class Bootstrap(Part):
    """How a source begins when it is deployed."""

    reset_outputs: bool = Field(
        default=False, description="Whether each deploy that changes the DAG lets its datasets begin anew."
    )


class Scaling(Part):
    """How much of a job goes on at once."""

    max_concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="How many units of work run at once at most; 10 unless said."
    )
    max_backlog: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None,
        description="How many units wait at most; what comes beyond is taken up later. 10,000 unless said.",
    )


class Upkeep(Part):
    """How a job is executed; none of it changes what its datasets have."""

    runtime: Runtime | None = Field(
        default=None, description="Where it runs: `worker` unless said, or `inline`, in the orchestrators."
    )
    queue: QueueName | None = Field(
        default=None, description="The queue that its tasks wait in; `default` unless said."
    )
    priority: Annotated[int, Field(ge=-32767, le=32767)] | None = Field(
        default=None, description="Higher is claimed first; a whole number, without a point."
    )
    timeout_seconds: Seconds | None = Field(
        default=None, description="How long a unit of work may take: seconds, or a text such as 90s, 15m or 1h30m."
    )
    heartbeat_timeout_seconds: Seconds | None = Field(
        default=None, description="How long a unit may be silent before it counts as lost."
    )
    max_attempts: Annotated[int, Field(ge=1, le=32767)] | None = Field(
        default=None, description="How often a unit is tried in all; as its operator says, else 3, unless said."
    )
    retry: RetryPolicy | None = Field(
        default=None, description="How often and how late a unit is tried again; what is left out, its operator says."
    )
    on_failure: Literal["hold", "skip"] | None = Field(
        default=None,
        description="When a unit has failed for good: `hold` what comes after it in its lane, or `skip` it.",
    )
    scaling: Scaling | None = Field(default=None, description="How much goes on at once.")


class JobDefaults(Upkeep):
    """What holds for each job of a DAG that does not say otherwise."""


class JobSpec(Described, Upkeep):
    """A job of a live DAG: a source, which begins by itself, or one that reacts to what is written."""

    activation: Literal["source", "reactive"] = Field(
        description="Whether it begins by itself, or with what is written into its inputs."
    )
    operator: OperatorName = Field(
        description="What it does: an operator that comes with Weft, or one of your own (`@weft.operator`)."
    )
    source: AnySource | None = Field(default=None, description="What makes a source begin.")
    bootstrap: Bootstrap | None = Field(default=None, description="How a source begins when it is deployed.")
    execution_strategy: Strategy | None = Field(
        default=None,
        description="Of a reactive job: a unit of work for each write (PerUpdate), or for each partition that was "
        "written (PerPartition).",
    )
    idle_timeout: IdleTimeout | None = Field(
        default=None,
        description="After how long without work a reactive job is idle: a span, 0 or `never`; 5m unless said.",
    )
    config: dict[str, Any] = Field(default_factory=dict, description="What the operator is told.")
    inputs: list[DatasetName] = Field(
        default_factory=list, description="The datasets that it reads: of this DAG, or any other of the org."
    )
    outputs: list[DatasetName] = Field(
        default_factory=list, description="The datasets that it writes, by output index; nobody else may write them."
    )
    update_strategy: Literal["append", "replace"] = Field(
        default="replace", description="Whether a write adds to what is there, or takes the place of its partitions."
    )
    unique_key: list[ColumnName] | None = Field(
        default=None, description="The columns by which rows are told apart; needed for append."
    )


_JOBS: dict[str, Any] = {"propertyNames": {"pattern": NAME, "maxLength": MAX_NAME}}


class DagDefinition(Described):
    """A live DAG: jobs that go on for ever, and the datasets between them.

    Example::

        definition = weft.read_dag(Path("market.yaml"))
        print(definition.dag, sorted(definition.jobs))
    """

    dag: Annotated[str, Field(max_length=MAX_NAME - len(LINE) - 1, pattern=PATH)] = Field(
        description="What the DAG is called; the tag `<dag>/live` is at the version that is in effect."
    )
    version: int | str | None = Field(
        default=None, description="The author's own number; Weft counts for itself, and passes it over."
    )
    defaults: JobDefaults = Field(
        default=JobDefaults(), description="What holds for each job that does not say otherwise."
    )
    jobs: dict[str, JobSpec] = Field(description="The jobs, by name.", json_schema_extra=_JOBS)
