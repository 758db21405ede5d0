"""Jobs, tasks, groups and workers as authors of graphs see them, and the words for their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from weft.core.error_lines import error_line
from weft.core.errors import InvalidInput
from weft.core.job_states import JobState
from weft.core.json import Json
from weft.core.settings import Settings
from weft.core.states import TaskState
from weft.jobs import items
from weft.jobs.model import Job as WeftJob
from weft.jobs.model import JobSummary
from weft.queue.retry import Retry
from weft.queue.workers import WorkerInfo


class JobStatus(StrEnum):
    """How far a job is."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TaskStatus(StrEnum):
    """How far a task is."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class WorkerStatus(StrEnum):
    """How a worker is."""

    ACTIVE = "ACTIVE"
    IDLE = "IDLE"
    STOPPED = "STOPPED"


# Each state of Weft in the words of here; a status stands for all states that have it.
JOB_STATUS = {
    JobState.PENDING: JobStatus.PENDING,
    JobState.RUNNING: JobStatus.RUNNING,
    JobState.PAUSED: JobStatus.RUNNING,
    JobState.CANCELLING: JobStatus.RUNNING,
    JobState.COMPLETED: JobStatus.COMPLETED,
    JobState.FAILED: JobStatus.FAILED,
    JobState.CANCELLED: JobStatus.CANCELLED,
}
TASK_STATUS = {
    TaskState.PENDING: TaskStatus.PENDING,
    TaskState.SCHEDULED: TaskStatus.PENDING,
    TaskState.READY: TaskStatus.PENDING,
    TaskState.DISPATCHED: TaskStatus.CLAIMED,
    TaskState.CLAIMED: TaskStatus.CLAIMED,
    TaskState.RUNNING: TaskStatus.RUNNING,
    TaskState.WAITING: TaskStatus.RUNNING,
    TaskState.COMPLETED: TaskStatus.COMPLETED,
    TaskState.FAILED: TaskStatus.FAILED,
    TaskState.DEAD: TaskStatus.FAILED,
    TaskState.SKIPPED: TaskStatus.CANCELLED,
    TaskState.CANCELLED: TaskStatus.CANCELLED,
}
WORKER_STATUS = {
    "active": WorkerStatus.ACTIVE,
    "idle": WorkerStatus.IDLE,
    "stopped": WorkerStatus.STOPPED,
    "lost": WorkerStatus.STOPPED,
}


Status = TypeVar("Status", JobStatus, TaskStatus, WorkerStatus)


def word_of(value: object, words: type[Status]) -> Status:
    """Return a status that somebody names, in capitals or not."""
    text = value.upper() if isinstance(value, str) else ""
    if text not in tuple(words):
        raise InvalidInput("status", f"must be one of {', '.join(words)}, not {value!r}")
    return words(text)


@dataclass
class Job:
    """A job as it was when it was last looked at.

    Example::

        job = await create_job("nightly", "myapp.extract")
        print(job.id, job.status)
    """

    id: int
    name: str
    status: JobStatus
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str | None = None
    result: Json = None
    settings: Settings | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, found: JobSummary, settings: Settings) -> Job:
        """Return a job of Weft in the words of here."""
        job = cls(
            found.id, found.workflow_id, JOB_STATUS[found.state], found.created_at, found.started_at, found.ended_at,
            settings=settings,
        )  # fmt: skip
        if isinstance(found, WeftJob):
            job.result = found.result
            job.error = None if found.error is None else error_line(found.error)
        if job.error is None and job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
            job.error = found.reason
        return job

    def update(self, other: Job) -> None:
        """Take over what another look has found."""
        for name in ("status", "started_at", "completed_at", "error", "result"):
            setattr(self, name, getattr(other, name))


class Group(items.Group):
    """Tasks and groups inside a job that can wait, and be waited for, as one.

    It has an id when it is part of a job; ``parent_group_id`` is that of a group that is. Example::

        extract, load = Group(name="extract"), Group(name="load")
        extract >> load
    """

    def __init__(
        self, name: str | None = None, *, group: items.Group | None = None, parent_group_id: int | None = None,
        id: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, group=_group(group, parent_group_id, "parent_group_id"), id=id)

    @property
    def parent_group_id(self) -> int | None:
        """The id of the group that it is in."""
        return None if self.group is None else self.group.id


class Task(items.Task):
    """A call of a function, by its dotted name, or of a handler, by its own.

    It has an id when it is part of a job. ``group_id`` is the id of a group that is part of it already. Example::

        extract, load = Task("myapp.extract"), Task("myapp.load", kwargs={"table": "orders"})
        extract >> load
    """

    def __init__(
        self, entrypoint: str, kwargs: Mapping[str, Any] | None = None, *, name: str | None = None,
        group: items.Group | None = None, group_id: int | None = None, queue: str = "default", priority: int = 0,
        max_attempts: int | None = None, retry: Retry | None = None, timeout: float | timedelta | None = None,
        heartbeat_timeout: float | timedelta | None = None, concurrency_key: str | None = None,
        allow_failure: bool = False, id: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            entrypoint, kwargs, name=name, group=_group(group, group_id, "group_id"), queue=queue, priority=priority,
            max_attempts=max_attempts, retry=retry, timeout=timeout, heartbeat_timeout=heartbeat_timeout,
            concurrency_key=concurrency_key, allow_failure=allow_failure, id=id,
        )  # fmt: skip
        self.kwargs = dict(kwargs or {})
        self.status = TaskStatus.PENDING
        self.result: Json = None
        self.error: str | None = None
        self.log_path: str | None = None
        self.worker_id: int | None = None
        self.created_at: datetime | None = None
        self.claimed_at: datetime | None = None
        self.started_at: datetime | None = None
        self.completed_at: datetime | None = None

    @property
    def entrypoint(self) -> str:
        """The name of what it calls."""
        return self.handler

    @property
    def group_id(self) -> int | None:
        """The id of the group that it is in."""
        return None if self.group is None else self.group.id


def _group(group: items.Group | None, id: int | None, field: str) -> items.Group | None:
    if group is not None and id is not None:
        raise InvalidInput(field, "give either a group or the id of one")
    return group if id is None else Group(id=id)


@dataclass(frozen=True)
class Dependency:
    """That one task or group waits for another; ``previous_type`` and ``next_type`` are ``task`` or ``group``."""

    previous_id: int
    previous_type: str
    next_id: int
    next_type: str


@dataclass
class Worker:
    """A worker as the registry knows it."""

    id: int
    hostname: str
    pid: int
    status: WorkerStatus
    last_heartbeat: datetime
    tasks_completed: int
    tasks_failed: int
    started_at: datetime

    @classmethod
    def of(cls, found: WorkerInfo) -> Worker:
        """Return a worker of Weft in the words of here."""
        return cls(
            found.id, found.hostname, found.pid, WORKER_STATUS[found.state], found.last_heartbeat,
            found.tasks_completed, found.tasks_failed, found.started_at,
        )  # fmt: skip
