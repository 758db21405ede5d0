"""What a job looks like from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from weft.core.checks import MAX_ID, check_moment, check_number
from weft.core.errors import BlobUnavailable, InvalidInput
from weft.core.job_states import JobState
from weft.core.json import Json
from weft.core.states import TaskState

# When an attempt began that has not.
_NEVER = "infinity"
_MOST = 2**31 - 1


class JobHandle(NamedTuple):
    """What `submit` returns: the job's id, and whether this call created it."""

    id: int
    created: bool


class NewEvent(NamedTuple):
    """An event to be sent by `Jobs.send_events`.

    Example::

        weft.NewEvent("order.created", {"order": 7}, idempotency_key="order-7")
    """

    name: str
    payload: Mapping[str, Any] | None = None
    idempotency_key: str | None = None


class SentEvent(NamedTuple):
    """What `send_event` returns: the event's id, how many nodes waited for one like it, and whether it is new.

    ``sources`` counts those of live DAGs that have taken it.
    """

    id: int
    answered: int
    created: bool
    sources: int = 0


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A line of a list of jobs."""

    id: int
    workflow_id: str
    state: JobState
    reason: str | None
    priority: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    failed_id: int | None
    owner_id: int | None
    base_ref: str | None
    actor: str | None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some lines of a list of jobs, and the key of the next page; None when there is none."""

    jobs: tuple[JobSummary, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class JobNode:
    """A node of a job: the state of its task, and of a fan_out how many of its items are in which state.

    One that is tried again has the error of its last attempt, and ``due_at`` says when. With ``allow_failure`` others
    go on when it, or one of its items, has failed. ``kept_id`` is the task whose output it has, when the job runs
    another again or the output was in the cache; ``code_version`` the hash of the code that made it.
    """

    id: int
    node: str
    state: TaskState
    reason: str | None
    attempt: int
    handler: str
    claimed_at: datetime | None
    ended_at: datetime | None
    error: Mapping[str, Any] | None
    items: Mapping[str, int]
    due_at: datetime | None = None
    allow_failure: bool = False
    kept_id: int | None = None
    code_version: str | None = None


@dataclass(frozen=True, slots=True)
class Job(JobSummary):
    """All that is known of one execution of a workflow; ``rerun_of`` is the job that it runs again.

    ``callback_url`` is who is told by HTTP when it has ended.
    """

    inputs: Mapping[str, Json]
    result: Json
    error: Mapping[str, Any] | None
    parent_id: int | None
    base_kind: str
    snapshot_id: int | None
    version_hash: str | None
    labels: Mapping[str, str]
    end_id: int
    rerun_of: int | None
    patch: Sequence[Mapping[str, Json]] | None
    tag_positions: Mapping[str, Mapping[str, Json]]
    callback_url: str | None
    # A result that cannot be read, with the reason.
    unavailable: Mapping[str, BlobUnavailable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Approval:
    """A node that waits for a person; ``form`` says what is asked."""

    task_id: int
    job_id: int
    node: str
    since: datetime
    form: Mapping[str, Any]
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """An attempt at a task of a job: its node, and of a fan_out for which item; lists go on after its ``cursor``."""

    task_id: int
    node: str
    item: int | None
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def cursor(self) -> str:
        """Where a list goes on after this attempt."""
        began = _NEVER if self.started_at is None else self.started_at.astimezone(UTC).isoformat()
        return f"{began.replace('+00:00', 'Z')}/{self.task_id}/{self.attempt}"

    @staticmethod
    def place_of(cursor: str | None) -> tuple[str, int, int]:
        """Return when the attempt of a cursor began, its task and its number; before all others without one."""
        if cursor is None:
            return "-infinity", 0, 0
        try:
            began, task_id, attempt = cursor.split("/")
            moment = began if began == _NEVER else check_moment(datetime.fromisoformat(began), "after").isoformat()
            return moment, check_number(int(task_id), "after", 0, MAX_ID), check_number(int(attempt), "after", 0, _MOST)
        except (AttributeError, ValueError, InvalidInput):
            raise InvalidInput("after", "is no cursor: give what came with the page before") from None
