"""What a job looks like from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from weft.core.job_states import JobState
from weft.core.json import Json


class JobHandle(NamedTuple):
    """What `submit` returns: the job's id, and whether this call created it."""

    id: int
    created: bool


@dataclass(frozen=True, slots=True)
class Job:
    """All that is known of one execution of a workflow."""

    id: int
    workflow_id: str
    state: JobState
    reason: str | None
    priority: int
    inputs: Mapping[str, Json]
    result: Json
    error: Mapping[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    failed_id: int | None
    owner_id: int | None
    parent_id: int | None
    base_kind: str
    base_ref: str | None
    snapshot_id: int | None
    version_hash: str | None
    labels: Mapping[str, str]
    actor: str | None
    end_id: int
