"""The page of the public names."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

import weft
from docs.pages.markdown import code, from_docstring, table
from weft import testing
from weft.worker.registry import Handler

_HEAD = """\
# Python

The public names are those of `import weft` and `weft.testing`; everything else may change without notice. All calls
are async but `weft.run`. Every verb that writes raises one of the [errors](errors.md) when it did not land.

"""

# What the engine alone calls.
_HIDDEN = {
    "Retry": {"to_json", "from_json"},
    "Context": {"cancel", "save_metrics"},
    "Client": {"database", "blobs", "actor"},
    "Registry": {"add", "admit", "get", "names", "suggest"},
    "Runner": {"run_now"},
}

_CONTEXT = """\
| attribute | meaning |
| --- | --- |
| `task_id` | the task |
| `attempt` | the number of this attempt |
| `handler` | the name of the handler |
| `worker_id` | the worker that runs it |
| `job_id` | the job that the task belongs to, or None |
| `node` | the node of that job, or None |

"""

_GROUPS = {
    "Enqueue and operate": ["RemoteClient", "Client", "NewTask", "TaskHandle", "Retry"],
    "Run": [
        "task",
        "Context",
        "SpawnedTask",
        "Checkpoints",
        "Checkpoint",
        "Worker",
        "Registry",
        "Snooze",
        "NonRetryable",
    ],
    "Run with a context and a result": ["register_handler", "HandlerContext", "HandlerResult", "BlobRepository"],
    "Define": [
        *("workflow", "Workflow", "when", "group", "wait_for_approval", "wait_for_event", "filtered"),
        "WorkflowDefinition",
        "read_definition",
        "Workflows",
        "Pushed",
        "Tag",
        "TagMove",
        "Artifact",
        "Materialized",
        "Finding",
        "Collected",
    ],
    "Execute": [
        *(
            "run",
            "submit",
            "SubmittedJob",
            "Jobs",
            "JobHandle",
            "NewEvent",
            "SentEvent",
            "Job",
            "JobSummary",
            "JobPage",
            "JobNode",
            "JobState",
            "Approval",
        ),
        *("Orchestrator", "Rerun", "RerunPlan", "RerunStep", "RerunAction", "Bisected", "BisectStep"),
        *("JobEvent", "JobEvents", "JobAttempt", "NodeWhy"),
        *("JobGraph", "GraphNode", "GraphEdge", "GraphGroup", "GraphItem"),
    ],
    "Data": [
        *(
            "Datasets",
            "Dataset",
            "Column",
            "Producer",
            "DatasetState",
            "DatasetVersion",
            "DatasetWrite",
            "Partition",
            "CollectedData",
        ),
        *("TaskDataset", "WriteResult", "QueryAnswer", "Lineage", "LineagePlace", "LineageEdge", "DatasetDiff"),
        *("ColumnChange", "PartitionChange", "RowDiff", "RowChange", "columns_of_query", "Untold"),
    ],
    "Begin by itself": ["Schedules", "Schedule", "Backfill"],
    "Go on for ever": [
        *("DagDefinition", "read_dag", "Live", "DeployPlan", "JobPlan", "DatasetPlan", "InputPlan", "Touched"),
        *("RolledBack", "DagVersion", "LiveDag", "LiveJob", "OpenUnit", "OperatorState", "LiveBackfill"),
        *("operator", "LiveContext", "LiveUnit"),
    ],
    "Look": [
        *(
            "Task",
            "TaskSummary",
            "TaskState",
            "TaskStep",
            "Attempt",
            "AuditEntry",
            "AuditSeals",
            "AuditFinding",
            "Page",
            "Why",
            "Explanation",
        ),
        *(
            "QueueInfo",
            "KeyLimit",
            "WorkerInfo",
            "OutboxRow",
            "CachedOutputs",
            "Metric",
            "Sample",
            "Health",
            "HealthCheck",
        ),
    ],
    "People": ["Orgs", "Org", "Users", "User", "Roles", "OrgRole", "Tokens", "Token", "NewToken", "SignIn"],
    "Settings": ["Settings", "__version__"],
    "Errors": [
        "Forbidden",
        "KeyReused",
        "SourceFull",
        "ServerUnavailable",
        "TooLarge",
        "Unauthenticated",
        *("WeftError", "InvalidInput", "InvalidDefinition", "UnknownQueue", "NotFound", "StateConflict"),
        *(
            "TagConflict",
            "MergeConflict",
            "LeaseLost",
            "WriteConflict",
            "DatasetBusy",
            "DataUnavailable",
            "DeployConflict",
            "WaitTimeout",
            "TaskFailed",
            "JobFailed",
            "BlobUnavailable",
            "InvalidQuery",
            "QueryLimitReached",
            "QueryCancelled",
            "QueryCrashed",
        ),
        *("DatabaseUnavailable", "PermissionDenied", "SchemaOutdated"),
    ],
}


def names() -> list[str]:
    """Return the public names in the order of the page; one that no group has is an error."""
    found = [name for group in _GROUPS.values() for name in group]
    if missing := set(weft.__all__) - set(found):
        raise SystemExit(f"docs/pages/python.py: no group for {', '.join(sorted(missing))}")
    return found


def _signature(name: str, function: Any) -> str:
    if isinstance(function, type) and inspect.getattr_static(function, "__init__") is Exception.__init__:
        return f"{name}(message)"
    if isinstance(function, type) and issubclass(function, BaseModel):
        # Pydantic says its fields once a model was used, and nothing of them before: the docstring tells.
        return f"{name}(**data: Any)"
    signature = inspect.signature(function)
    parameters = [_parameter(p) for p in signature.parameters.values() if p.name != "self"]
    star = next(
        (n for n, p in enumerate(signature.parameters.values()) if p.kind is inspect.Parameter.KEYWORD_ONLY), None
    )
    if star is not None and not any(p.startswith("*") for p in parameters):
        parameters.insert(star - ("self" in signature.parameters), "*")
    result = "" if isinstance(function, type) else f" -> {_annotation(signature.return_annotation)}"
    text = f"{name}({', '.join(parameters)}){result}"
    if len(text) <= 100:
        return text
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    value = parameter.default
    is_plain = value is None or isinstance(value, (bool, int, float, str, tuple))
    default = "" if value is inspect.Parameter.empty else f" = {value!r}" if is_plain else " = ..."
    return f"{stars}{parameter.name}: {_annotation(parameter.annotation)}{default}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _block(text: str) -> str:
    return f"<!-- not run: a signature -->\n```python\n{text}\n```\n\n"


def _fields(kind: type) -> str:
    rows = []
    if issubclass(kind, tuple):
        rows = [(code(name), code(kind.__annotations__[name].__forward_arg__), "") for name in kind.__annotations__]
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        default = "" if field.default is dataclasses.MISSING else code(repr(field.default))
        rows.append((code(field.name), code(str(field.type).replace("'", "")), default))
    return table(("field", "type", "default"), rows) + "\n"


def _own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the members of a class, and those of the classes of ours that it is made of."""
    for part in kind.__mro__:
        if part.__module__.startswith("weft."):
            yield from vars(part).items()


def _members(kind: type, name: str) -> str:
    parts = []
    for member, raw in _own_members(kind):
        if member.startswith("_") or member in _HIDDEN.get(name, ()):
            continue
        if isinstance(raw, property):
            parts.append(f"#### `{name}.{member}`\n\n{from_docstring(raw.__doc__ or '')}\n")
        elif isinstance(raw, (classmethod, staticmethod)) or inspect.isfunction(raw):
            function = getattr(kind, member)
            head = "await " if inspect.iscoroutinefunction(function) else ""
            parts.append(f"#### `{name}.{member}`\n\n{_block(head + _signature(f'{name}.{member}', function))}")
            parts.append(from_docstring(function.__doc__ or "") + "\n")
    return "".join(parts)


def _entry(name: str) -> str:
    value = getattr(weft, name)
    head = f"### `weft.{name}`\n\n"
    if name == "__version__":
        return head + "The release, as text.\n\n"
    if isinstance(value, type) and issubclass(value, enum.Enum):
        members = ", ".join(code(member.value) for member in value)
        return (
            f"{head}{from_docstring(value.__doc__ or '')}\nOne of {members}; see [states](states.md).\n\n"
            + _members(value, name)
        )
    if isinstance(value, type) and issubclass(value, weft.WeftError):
        return f"{head}{from_docstring(value.__doc__ or '')}\nCode [{value.code}](errors.md#{value.code}).\n\n"
    if isinstance(value, type):
        is_plain = (dataclasses.is_dataclass(value) or issubclass(value, tuple)) and value is not weft.Settings
        parts = [head]
        if not is_plain and value not in (weft.Settings, weft.Context, weft.WorkflowDefinition):
            parts.append(_block(_signature(f"weft.{name}", value)))
        parts.append(from_docstring(value.__doc__ or "") + "\n")
        if is_plain:
            parts.append(_fields(value))
        if value is weft.Settings:
            parts.append("Its fields are the [settings](settings.md).\n\n")
        if value is weft.Context:
            parts.append(_CONTEXT)
        if value is weft.WorkflowDefinition:
            fields = ", ".join(code(field) for field in sorted(weft.WorkflowDefinition.model_fields))
            parts.append(f"Its fields are {fields}; see [define workflows](../how-to/define-workflows.md).\n\n")
        parts.append(_members(value, name))
        return "".join(parts)
    return head + _block(_signature(f"weft.{name}", value)) + from_docstring(value.__doc__ or "") + "\n"


def _of_testing(kind: type) -> str:
    name = f"weft.testing.{kind.__name__}"
    head = f"### `{name}`\n\n{_block(_signature(name, kind))}{from_docstring(kind.__doc__ or '')}\n"
    return head + _members(kind, kind.__name__)


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for title, group in _GROUPS.items():
        parts.append(f"## {title}\n\n")
        parts += [_entry(name) for name in group if name in names()]
        if title == "Run":
            parts.append(
                "### Handlers\n\n`weft.task` returns a handler: it can be called like the function that it decorates, "
                "and given to `Client.enqueue`, which then takes these from it unless the call says otherwise.\n\n"
            )
            parts.append(_fields(Handler))
    parts.append("## Test\n\nIn `weft.testing`; see [test handlers](../how-to/test-handlers.md).\n\n")
    parts += [_of_testing(kind) for kind in (testing.Runner, testing.ScratchDatabase, testing.ScratchServer)]
    return "".join(parts).rstrip("\n") + "\n"
