"""Weft: a durable task queue, its workers, and workflow definitions with their history, in PostgreSQL."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weft.version import __version__

if TYPE_CHECKING:
    from weft.catalog.dataset_diff import ColumnChange, DatasetDiff, PartitionChange
    from weft.catalog.dataset_reading import DatasetState, Partition
    from weft.catalog.dataset_versions import DatasetVersion, DatasetWrite
    from weft.catalog.datasets import Column, Dataset, Producer
    from weft.catalog.explaining import Explanation
    from weft.catalog.lineage import Lineage, LineageEdge, LineagePlace
    from weft.catalog.model import NewToken, Org, OrgRole, SignIn, Token, User
    from weft.core.data_errors import DatasetBusy, DataUnavailable, DeployConflict, WriteConflict
    from weft.core.errors import (
        BlobUnavailable,
        DatabaseUnavailable,
        InvalidDefinition,
        InvalidInput,
        JobFailed,
        LeaseLost,
        MergeConflict,
        NotFound,
        PermissionDenied,
        SchemaOutdated,
        StateConflict,
        TagConflict,
        TaskFailed,
        UnknownQueue,
        WaitTimeout,
        WeftError,
    )
    from weft.core.job_states import JobState
    from weft.core.query_errors import InvalidQuery, QueryCancelled, QueryCrashed, QueryLimitReached
    from weft.core.server_errors import (
        Forbidden,
        KeyReused,
        ServerUnavailable,
        SourceFull,
        TooLarge,
        Unauthenticated,
    )
    from weft.core.settings import Settings
    from weft.core.signals import NonRetryable, Snooze
    from weft.core.states import TaskState
    from weft.data.sql_lineage import Untold, columns_of_query
    from weft.flow.live.model import DagDefinition
    from weft.flow.live.reading import read_dag
    from weft.flow.model import WorkflowDefinition
    from weft.flow.reading import read_definition
    from weft.history.model import Artifact, Collected, Finding, Materialized, Pushed, Tag, TagMove
    from weft.jobs.events import JobEvent, JobEvents
    from weft.jobs.graph import GraphEdge, GraphGroup, GraphItem, GraphNode, JobGraph
    from weft.jobs.health import Health, HealthCheck
    from weft.jobs.metrics import Metric, Sample
    from weft.jobs.model import Approval, Job, JobAttempt, JobHandle, JobNode, JobPage, JobSummary, NewEvent, SentEvent
    from weft.jobs.rerun import RerunAction, RerunPlan, RerunStep
    from weft.jobs.why import NodeWhy
    from weft.live.backfilling import LiveBackfill
    from weft.live.dag_versions import DagVersion
    from weft.live.looking import LiveDag, LiveJob, OpenUnit, OperatorState
    from weft.live.past import CollectedData
    from weft.live.plans import DatasetPlan, DeployPlan, InputPlan, JobPlan, Touched
    from weft.live.schedules import Backfill, Schedule
    from weft.queue.audit import AuditEntry
    from weft.queue.cache import CachedOutputs
    from weft.queue.model import Attempt, NewTask, Page, Task, TaskHandle, TaskSummary
    from weft.queue.outbox import OutboxRow
    from weft.queue.queues import KeyLimit, QueueInfo
    from weft.queue.retry import Retry
    from weft.queue.seals import AuditFinding, AuditSeals
    from weft.queue.steps import TaskStep
    from weft.queue.why import Why
    from weft.queue.workers import WorkerInfo
    from weft.remote.client import RemoteClient
    from weft.sdk.authoring.branching import group, wait_for_approval, wait_for_event, when
    from weft.sdk.authoring.symbols import filtered
    from weft.sdk.authoring.workflow import Workflow, workflow
    from weft.sdk.bisecting import Bisected, BisectStep
    from weft.sdk.client import Client
    from weft.sdk.datasets import Datasets, QueryAnswer
    from weft.sdk.jobs import Jobs
    from weft.sdk.live import Live
    from weft.sdk.live_deploys import RolledBack
    from weft.sdk.orchestrator import Orchestrator
    from weft.sdk.orgs import Orgs
    from weft.sdk.reruns import Rerun
    from weft.sdk.roles import Roles
    from weft.sdk.row_diff import RowChange, RowDiff
    from weft.sdk.running import run, submit
    from weft.sdk.schedules import Schedules
    from weft.sdk.submitted import SubmittedJob
    from weft.sdk.tokens import Tokens
    from weft.sdk.users import Users
    from weft.sdk.worker import Worker
    from weft.sdk.workflows import Workflows
    from weft.worker.children import SpawnedTask
    from weft.worker.context import Context
    from weft.worker.datasets import TaskDataset, WriteResult
    from weft.worker.handling import BlobRepository, HandlerContext, HandlerResult, register_handler
    from weft.worker.live import LiveContext, LiveUnit, operator
    from weft.worker.registry import Registry, task
    from weft.worker.steps import Checkpoint, Checkpoints

# Each public name and the module it lives in; loaded when first used, so that `import weft` is quick.
_HOMES = {
    "Approval": "weft.jobs.model",
    "Artifact": "weft.history.model",
    "Attempt": "weft.queue.model",
    "AuditEntry": "weft.queue.audit",
    "AuditFinding": "weft.queue.seals",
    "AuditSeals": "weft.queue.seals",
    "Backfill": "weft.live.schedules",
    "BisectStep": "weft.sdk.bisecting",
    "Bisected": "weft.sdk.bisecting",
    "BlobRepository": "weft.worker.handling",
    "BlobUnavailable": "weft.core.errors",
    "CachedOutputs": "weft.queue.cache",
    "Checkpoint": "weft.worker.steps",
    "Checkpoints": "weft.worker.steps",
    "Client": "weft.sdk.client",
    "Collected": "weft.history.model",
    "CollectedData": "weft.live.past",
    "Column": "weft.catalog.datasets",
    "ColumnChange": "weft.catalog.dataset_diff",
    "Context": "weft.worker.context",
    "DagDefinition": "weft.flow.live.model",
    "DagVersion": "weft.live.dag_versions",
    "DataUnavailable": "weft.core.data_errors",
    "DatabaseUnavailable": "weft.core.errors",
    "Dataset": "weft.catalog.datasets",
    "DatasetBusy": "weft.core.data_errors",
    "DatasetDiff": "weft.catalog.dataset_diff",
    "DatasetPlan": "weft.live.plans",
    "DatasetState": "weft.catalog.dataset_reading",
    "DatasetVersion": "weft.catalog.dataset_versions",
    "DatasetWrite": "weft.catalog.dataset_versions",
    "Datasets": "weft.sdk.datasets",
    "DeployConflict": "weft.core.data_errors",
    "DeployPlan": "weft.live.plans",
    "Explanation": "weft.catalog.explaining",
    "Finding": "weft.history.model",
    "Forbidden": "weft.core.server_errors",
    "GraphEdge": "weft.jobs.graph",
    "GraphGroup": "weft.jobs.graph",
    "GraphItem": "weft.jobs.graph",
    "GraphNode": "weft.jobs.graph",
    "HandlerContext": "weft.worker.handling",
    "HandlerResult": "weft.worker.handling",
    "Health": "weft.jobs.health",
    "HealthCheck": "weft.jobs.health",
    "InputPlan": "weft.live.plans",
    "InvalidDefinition": "weft.core.errors",
    "InvalidInput": "weft.core.errors",
    "InvalidQuery": "weft.core.query_errors",
    "Job": "weft.jobs.model",
    "JobAttempt": "weft.jobs.model",
    "JobEvent": "weft.jobs.events",
    "JobEvents": "weft.jobs.events",
    "JobFailed": "weft.core.errors",
    "JobGraph": "weft.jobs.graph",
    "JobHandle": "weft.jobs.model",
    "JobNode": "weft.jobs.model",
    "JobPage": "weft.jobs.model",
    "JobPlan": "weft.live.plans",
    "JobState": "weft.core.job_states",
    "JobSummary": "weft.jobs.model",
    "Jobs": "weft.sdk.jobs",
    "KeyLimit": "weft.queue.queues",
    "KeyReused": "weft.core.server_errors",
    "LeaseLost": "weft.core.errors",
    "Lineage": "weft.catalog.lineage",
    "LineageEdge": "weft.catalog.lineage",
    "LineagePlace": "weft.catalog.lineage",
    "Live": "weft.sdk.live",
    "LiveBackfill": "weft.live.backfilling",
    "LiveContext": "weft.worker.live",
    "LiveDag": "weft.live.looking",
    "LiveJob": "weft.live.looking",
    "LiveUnit": "weft.worker.live",
    "Materialized": "weft.history.model",
    "MergeConflict": "weft.core.errors",
    "Metric": "weft.jobs.metrics",
    "NewEvent": "weft.jobs.model",
    "NewTask": "weft.queue.model",
    "NewToken": "weft.catalog.model",
    "NodeWhy": "weft.jobs.why",
    "NonRetryable": "weft.core.signals",
    "NotFound": "weft.core.errors",
    "OpenUnit": "weft.live.looking",
    "OperatorState": "weft.live.looking",
    "Orchestrator": "weft.sdk.orchestrator",
    "Org": "weft.catalog.model",
    "OrgRole": "weft.catalog.model",
    "Orgs": "weft.sdk.orgs",
    "OutboxRow": "weft.queue.outbox",
    "Page": "weft.queue.model",
    "Partition": "weft.catalog.dataset_reading",
    "PartitionChange": "weft.catalog.dataset_diff",
    "PermissionDenied": "weft.core.errors",
    "Producer": "weft.catalog.datasets",
    "Pushed": "weft.history.model",
    "QueryAnswer": "weft.sdk.datasets",
    "QueryCancelled": "weft.core.query_errors",
    "QueryCrashed": "weft.core.query_errors",
    "QueryLimitReached": "weft.core.query_errors",
    "QueueInfo": "weft.queue.queues",
    "Registry": "weft.worker.registry",
    "RemoteClient": "weft.remote.client",
    "Rerun": "weft.sdk.reruns",
    "RerunAction": "weft.jobs.rerun",
    "RerunPlan": "weft.jobs.rerun",
    "RerunStep": "weft.jobs.rerun",
    "Retry": "weft.queue.retry",
    "Roles": "weft.sdk.roles",
    "RolledBack": "weft.sdk.live_deploys",
    "RowChange": "weft.sdk.row_diff",
    "RowDiff": "weft.sdk.row_diff",
    "Sample": "weft.jobs.metrics",
    "Schedule": "weft.live.schedules",
    "Schedules": "weft.sdk.schedules",
    "SchemaOutdated": "weft.core.errors",
    "SentEvent": "weft.jobs.model",
    "ServerUnavailable": "weft.core.server_errors",
    "Settings": "weft.core.settings",
    "SignIn": "weft.catalog.model",
    "Snooze": "weft.core.signals",
    "SourceFull": "weft.core.server_errors",
    "SpawnedTask": "weft.worker.children",
    "StateConflict": "weft.core.errors",
    "SubmittedJob": "weft.sdk.submitted",
    "Tag": "weft.history.model",
    "TagConflict": "weft.core.errors",
    "TagMove": "weft.history.model",
    "Task": "weft.queue.model",
    "TaskDataset": "weft.worker.datasets",
    "TaskFailed": "weft.core.errors",
    "TaskHandle": "weft.queue.model",
    "TaskState": "weft.core.states",
    "TaskStep": "weft.queue.steps",
    "TaskSummary": "weft.queue.model",
    "Token": "weft.catalog.model",
    "Tokens": "weft.sdk.tokens",
    "TooLarge": "weft.core.server_errors",
    "Touched": "weft.live.plans",
    "Unauthenticated": "weft.core.server_errors",
    "UnknownQueue": "weft.core.errors",
    "Untold": "weft.data.sql_lineage",
    "User": "weft.catalog.model",
    "Users": "weft.sdk.users",
    "WaitTimeout": "weft.core.errors",
    "WeftError": "weft.core.errors",
    "Why": "weft.queue.why",
    "Worker": "weft.sdk.worker",
    "WorkerInfo": "weft.queue.workers",
    "Workflow": "weft.sdk.authoring.workflow",
    "WorkflowDefinition": "weft.flow.model",
    "Workflows": "weft.sdk.workflows",
    "WriteConflict": "weft.core.data_errors",
    "WriteResult": "weft.worker.datasets",
    "columns_of_query": "weft.data.sql_lineage",
    "filtered": "weft.sdk.authoring.symbols",
    "group": "weft.sdk.authoring.branching",
    "operator": "weft.worker.live",
    "read_dag": "weft.flow.live.reading",
    "read_definition": "weft.flow.reading",
    "register_handler": "weft.worker.handling",
    "run": "weft.sdk.running",
    "submit": "weft.sdk.running",
    "task": "weft.worker.registry",
    "wait_for_approval": "weft.sdk.authoring.branching",
    "wait_for_event": "weft.sdk.authoring.branching",
    "when": "weft.sdk.authoring.branching",
    "workflow": "weft.sdk.authoring.workflow",
}

__all__ = [
    "Approval", "Artifact", "Attempt", "AuditEntry", "AuditFinding", "AuditSeals", "Backfill", "BisectStep",
    "Bisected", "BlobRepository", "BlobUnavailable", "CachedOutputs", "Checkpoint", "Checkpoints", "Client",
    "Collected", "CollectedData", "Column", "ColumnChange", "Context", "DagDefinition", "DagVersion", "DataUnavailable",
    "DatabaseUnavailable", "Dataset", "DatasetBusy", "DatasetDiff", "DatasetPlan", "DatasetState", "DatasetVersion",
    "DatasetWrite", "Datasets", "DeployConflict", "DeployPlan", "Explanation", "Finding", "Forbidden", "GraphEdge",
    "GraphGroup", "GraphItem", "GraphNode", "HandlerContext", "HandlerResult", "Health", "HealthCheck", "InputPlan",
    "InvalidDefinition", "InvalidInput", "InvalidQuery", "Job", "JobAttempt", "JobEvent", "JobEvents", "JobFailed",
    "JobGraph", "JobHandle", "JobNode", "JobPage", "JobPlan", "JobState", "JobSummary", "Jobs", "KeyLimit",
    "KeyReused", "LeaseLost", "Lineage", "LineageEdge", "LineagePlace", "Live", "LiveBackfill", "LiveContext",
    "LiveDag", "LiveJob", "LiveUnit", "Materialized", "MergeConflict", "Metric", "NewEvent", "NewTask", "NewToken",
    "NodeWhy", "NonRetryable", "NotFound", "OpenUnit", "OperatorState", "Orchestrator", "Org", "OrgRole", "Orgs",
    "OutboxRow", "Page", "Partition", "PartitionChange", "PermissionDenied", "Producer", "Pushed", "QueryAnswer",
    "QueryCancelled", "QueryCrashed", "QueryLimitReached", "QueueInfo", "Registry", "RemoteClient", "Rerun",
    "RerunAction", "RerunPlan", "RerunStep", "Retry", "Roles", "RolledBack", "RowChange", "RowDiff", "Sample",
    "Schedule", "Schedules", "SchemaOutdated", "SentEvent", "ServerUnavailable", "Settings", "SignIn", "Snooze",
    "SourceFull", "SpawnedTask", "StateConflict", "SubmittedJob", "Tag", "TagConflict", "TagMove", "Task",
    "TaskDataset", "TaskFailed", "TaskHandle", "TaskState", "TaskStep", "TaskSummary", "Token", "Tokens",
    "TooLarge", "Touched", "Unauthenticated", "UnknownQueue", "Untold", "User", "Users", "WaitTimeout", "WeftError",
    "Why", "Worker", "WorkerInfo", "Workflow", "WorkflowDefinition", "Workflows", "WriteConflict", "WriteResult",
    "__version__", "columns_of_query", "filtered", "group", "operator", "read_dag", "read_definition",
    "register_handler", "run", "submit", "task", "wait_for_approval", "wait_for_event", "when", "workflow",
]  # fmt: skip


# Not for type checkers, which would take any name for one that is there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
