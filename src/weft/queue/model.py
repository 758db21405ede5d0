"""What a task looks like from outside: handles, full records, pages and attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from weft.core.errors import BlobUnavailable
from weft.core.json import Json
from weft.core.states import TaskState
from weft.queue.audit import AuditEntry
from weft.queue.retry import Retry
from weft.queue.steps import TaskStep


class TaskHandle(NamedTuple):
    """What `enqueue` returns: the task's id, and whether this call created it."""

    id: int
    created: bool


@dataclass(slots=True)
class NewTask:
    """A task to be enqueued by `Client.enqueue_many`.

    Example::

        weft.NewTask("email:send", {"to": "ada@example.com"}, priority=5)
    """

    handler: Any
    params: Any = None
    queue: str | None = None
    priority: int = 0
    idempotency_key: str | None = None
    run_at: datetime | None = None
    delay: float | timedelta | None = None
    max_attempts: int | None = None
    retry: Retry | int | None = None
    timeout: float | timedelta | None = None
    heartbeat_timeout: float | timedelta | None = None
    concurrency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that did not complete; ``code_version`` is the hash of the code that its worker had for it."""

    attempt: int
    outcome: str
    reason: str | None
    worker_id: int | None
    started_at: datetime | None
    ended_at: datetime
    error: Mapping[str, str] | None
    code_version: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A line of a list of tasks."""

    id: int
    state: TaskState
    reason: str | None
    queue: str
    handler: str
    priority: int
    attempt: int
    failures: int
    max_attempts: int | None
    worker_id: int | None
    created_at: datetime
    due_at: datetime | None
    claimed_at: datetime | None
    ended_at: datetime | None
    error: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Task(TaskSummary):
    """All that is known of one task; ``actor`` enqueued it, ``audit`` tells who cancelled or replayed it.

    ``steps`` are what it has saved on its way, ``metrics`` what its last attempt has measured.
    ``code_version`` is the hash of the code that the worker of its last attempt had for it.
    """

    params: Json
    output: Json
    crashes: int
    generation: int
    concurrency_key: str | None
    waiting_on: int
    job_id: int | None
    actor: str | None
    code_version: str | None = None
    attempts: tuple[Attempt, ...] = field(default=())
    steps: tuple[TaskStep, ...] = field(default=())
    metrics: Mapping[str, Any] = field(default_factory=dict)
    audit: tuple[AuditEntry, ...] = field(default=())
    # Params or output that cannot be read, with the reason.
    unavailable: Mapping[str, BlobUnavailable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines of a list of tasks, and the key of the next page; None when there is none."""

    tasks: tuple[TaskSummary, ...]
    next: int | None
