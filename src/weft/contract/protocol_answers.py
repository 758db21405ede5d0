"""The worker protocol: what is answered to each of its requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from weft.contract.protocol import Blob


class Told(BaseModel):
    """What there is to say of a request that was carried out."""


class WorkerTold(BaseModel):
    """A worker's id, its queues, and how often it must say that it lives."""

    worker_id: str = Field(examples=["7340085817581568"])
    queues: dict[str, str] = Field(description="The ids of its queues, by name.")
    lease_seconds: float
    heartbeat_seconds: float
    inline_limit: int = Field(description="Outputs beyond as many bytes are best put as a blob.")
    value_limit: int = Field(description="Params and outputs beyond as many bytes are refused.")
    body_limit: int = Field(description="Requests beyond as many bytes are refused, but those that put a blob.")


class BeatTold(BaseModel):
    """What a heartbeat brings back: how much the worker holds, and which of the tasks it told of it does not."""

    lease_seconds: float
    held: int | None
    lost: list[str]


class News(BaseModel):
    """What a worker should know: ``work``, or ``cancel TASK ATTEMPT``; ``is_new`` when earlier news may be missing."""

    messages: list[str]
    is_new: bool


class ClaimedTask(BaseModel):
    """A task and its lease; its params, or the blob that they are in."""

    task_id: str
    attempt: int
    lease_token: str
    queue: str
    handler: str
    params: Any
    params_blob: Blob | None
    job_id: str | None
    node_id: str | None
    timeout_seconds: float | None
    heartbeat_timeout_seconds: float | None
    retry_count: int
    max_attempts: int | None
    crashes: int


class StoredTask(BaseModel):
    """A task and its lease as it is kept, for Weft's own workers: other releases may tell it otherwise."""

    task_id: str
    lease_token: str
    claim: list[Any]


class ClaimTold(BaseModel):
    """The tasks that the worker holds from now on, and those completed ones that it held no more."""

    tasks: list[ClaimedTask | StoredTask]
    refused: list[str]
    again_in: float | None = Field(description="After how many seconds at most a worker with room should ask again.")


class Settled(BaseModel):
    """The tasks for which it landed, and those that the worker holds no more: nothing was written of them."""

    tasks: list[str]
    refused: list[str]


class StepTold(BaseModel):
    """A step as it was kept; null when there is none."""

    name: str
    attempt: int
    saved_at: str
    data: Any


class FoundStep(BaseModel):
    """A step, if there is one."""

    step: StepTold | None


class Spawned(BaseModel):
    """The task that was made, now or by an earlier attempt; and whether the one that made it has a key to lend."""

    task_id: str
    has_key: bool


class Ended(BaseModel):
    """How a task ended."""

    id: str
    state: str
    reason: str | None
    error: dict[str, Any] | None
    output: Any


class Awaited(BaseModel):
    """How all of them ended; null when one has not."""

    ended: list[Ended] | None


class Lent(BaseModel):
    """Whether the slot of the task's concurrency key is others' now; it may have none."""

    lent: bool


class Taken(BaseModel):
    """Whether the task has a slot of its concurrency key again; if not, it is next in line."""

    taken: bool


class MayGoOn(BaseModel):
    """Whether the task may go on, within the limit of its queue."""

    may: bool


class LogTold(BaseModel):
    """How long the attempt's log is now, in bytes; what is sent next begins there."""

    size: int


class FoundOutput(BaseModel):
    """An output that serves, as it is kept, and the task whose it is; null when there is none.

    The ``entry``, if there is one, is told again when the task completes with it.
    """

    output: str | None
    root: str | None
    entry: str | None


class BlobTold(BaseModel):
    """The name of a value that was put."""

    digest: str
    size: int


class Declined(BaseModel):
    """Whether the task waits for a worker that knows its handler; else it has failed."""

    is_left: bool
