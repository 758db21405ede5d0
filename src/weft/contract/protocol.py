"""The worker protocol: what each of its requests and answers has in it, and the lease by which a worker acts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from weft.contract.wire import Id
from weft.core.json import text_problem

MOST = 1000
LONGEST_WAIT = 60.0
_LEASE = r"^[0-9]{1,19}\.[0-9]{1,9}$"
_DIGEST = r"^[0-9a-f]{64}$"
# Why an attempt did not succeed, as it is kept.
Reason = Literal[
    "error", "timeout", "crashed", "expression", "non_retryable", "output_refused", "heartbeat_timeout", "no_handler"
]


class Lease(NamedTuple):
    """Who may write an outcome of a task: the worker, and the attempt of it that the worker holds."""

    worker_id: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.worker_id}.{self.attempt}"


def _read_lease(value: object) -> object:
    if isinstance(value, str) and len(value) <= 29 and value.isascii():
        worker, _, attempt = value.partition(".")
        if worker.isdigit() and attempt.isdigit() and int(worker) < 2**63 and int(attempt) < 2**31:
            return Lease(int(worker), int(attempt))
    raise ValueError("is not a lease_token, as it comes with a claim")


def _storable(value: str) -> str:
    if (problem := text_problem(value)) is not None:
        raise ValueError(problem)
    return value


LeaseToken = Annotated[Any, BeforeValidator(_read_lease), WithJsonSchema({"type": "string", "pattern": _LEASE})]
Wait = Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="How many seconds to wait for something to tell.")]
Seconds = Annotated[float, Field(ge=0, le=10 * 365 * 86400)]
Digest = Annotated[str, Field(pattern=_DIGEST)]
Text = Annotated[str, AfterValidator(_storable)]
Name = Annotated[Text, Field(min_length=1, max_length=500)]
CodeHash = Annotated[str, Field(pattern=r"^([0-9a-f]{2}){1,64}$")]
# As far as the numbers of JSON go without losing digits.
_LARGEST = 2**53


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Held(_Request):
    """A task that a worker holds."""

    task_id: Id
    lease_token: LeaseToken


class ByWorker(_Request):
    """A worker, by the id that it got when it registered."""

    worker_id: Id


class Register(_Request):
    """A worker that begins: the queues it works, the handlers it knows, how much it runs at once."""

    queues: list[Name] = Field(min_length=1, max_length=MOST)
    handlers: list[Name] = Field(max_length=10 * MOST)
    concurrency: int = Field(1, ge=1, le=1_000_000)
    hostname: Text = Field("", max_length=255)
    pid: int = Field(0, ge=0, le=2**31 - 1)
    version: Text = Field("", max_length=100)
    codes: dict[str, CodeHash] = Field(default_factory=dict, description="By handler, the hash of its code, as hex.")


class Beat(ByWorker):
    """A worker that lives; ``completed`` and ``failed`` are added to its counts."""

    busy: bool = True
    completed: int = Field(0, ge=0, le=2**31)
    failed: int = Field(0, ge=0, le=2**31)
    is_blocked: bool = Field(False, description="Whether its program hangs: others do the upkeep then.")
    tasks: list[Held] = Field(default_factory=list, max_length=10 * MOST)


class Leave(ByWorker):
    """A worker that ends; ``completed`` and ``failed`` are added to its counts."""

    is_lost: bool = Field(False, description="Whether what it runs is lost, as after a crash, and not given back.")
    completed: int = Field(0, ge=0, le=2**31)
    failed: int = Field(0, ge=0, le=2**31)


class Listen(ByWorker):
    """A worker that waits for news."""

    wait: Wait = 30.0
    is_new: bool = Field(False, description="Whether what came before this request is told too.")


class Holdings(ByWorker):
    """A worker that asks what it holds."""

    stored: bool = Field(False, description="Whether params are told as they are kept, to be rendered by the worker.")


class Blob(_Request):
    """A value that was put by itself."""

    digest: Digest
    size: int = Field(ge=0, le=_LARGEST)


class Reuse(_Request):
    """What the cache keeps of an output: the key that it is known by and how long, or whose it is."""

    key: Digest | None = None
    lasts: Seconds | None = None
    root: Id | None = None


class Done(Held):
    """A task that has completed: its ``output``, or its ``outputs`` by name, or the ``blob`` that it has put before."""

    output: Any = None
    outputs: dict[str, dict[str, Any]] | None = Field(
        None, description="By output what there is to say of it: paths, cursors, partitions, metrics."
    )
    blob: Blob | None = None
    reuse: Reuse | None = None


class ClaimTasks(ByWorker):
    """What a worker has completed, and how much more it takes."""

    limit: int = Field(1, ge=0, le=MOST)
    wait: Wait = 0.0
    completed: list[Done] = Field(default_factory=list, max_length=MOST)
    stored: bool = Field(False, description="Whether params are told as they are kept, to be rendered by the worker.")


class Complete(_Request):
    """Tasks that have completed: one, or several of one worker under ``tasks``."""

    task_id: Id | None = None
    lease_token: LeaseToken | None = None
    output: Any = None
    outputs: dict[str, dict[str, Any]] | None = None
    blob: Blob | None = None
    tasks: list[Done] | None = Field(None, max_length=MOST)


class Failure(_Request):
    """What went wrong."""

    type: str = Field("Error", max_length=200)
    message: str = Field("", max_length=20_000)
    traceback: str = Field("", max_length=100_000)


class Failed(Held):
    """An attempt that did not succeed.

    It is tried again as its task says, or in ``retry_in`` seconds, or not at all when it is not ``retryable``. With
    ``snooze`` it comes back after that time, and nothing counts. ``state`` says that it was the last.
    """

    error: Failure | None = None
    retryable: bool = True
    retry_in: Seconds | None = None
    snooze: Seconds | None = None
    state: Literal["failed", "dead"] | None = None
    outcome: Literal["failed", "crashed"] = "failed"
    reason: Reason = "error"


class Fail(_Request):
    """Attempts of one worker that did not succeed."""

    tasks: list[Failed] = Field(min_length=1, max_length=MOST)


class Release(_Request):
    """Tasks that are given back as if they had not begun."""

    tasks: list[Held] = Field(min_length=1, max_length=MOST)


class Decline(Held):
    """A task whose handler the worker does not know."""

    advice: Text = Field("", max_length=500)


class Step(Held):
    """A step that is to be kept: what it returned, and how long it took."""

    name: Name
    data: Any = None
    blob: Blob | None = Field(None, description="The data, put before, when they are large.")
    took: Seconds | None = None


class Checkpoint(Held):
    """The end of a phase, with what is needed to go on."""

    phase: Name
    data: Any = None
    blob: Blob | None = Field(None, description="The data, put before, when they are large.")


class FindStep(Held):
    """A step or checkpoint by its name, or the last."""

    name: Name | None = None


class DropStep(Held):
    """A step or checkpoint that is of no use."""

    name: Name


class Metrics(Held):
    """What an attempt has measured."""

    data: dict[str, Any]


class Policy(_Request):
    """How late a failed attempt is tried again."""

    backoff: Literal["exponential", "linear", "fixed"] = "exponential"
    initial_delay: Seconds = 1.0
    max_delay: Seconds = 3600.0
    jitter: float = Field(0.2, ge=0, le=1)


class Spawn(Held):
    """A further task of the job; ``call`` is the same in each attempt, so that it is made once."""

    call: Name
    handler: Name
    params: dict[str, Any] = Field(default_factory=dict)
    queue: Name = "default"
    priority: int = Field(0, ge=-32767, le=32767)
    max_attempts: int | None = Field(None, ge=1, le=10_000)
    retry: Policy | None = None
    timeout: Seconds | None = None
    heartbeat_timeout: Seconds | None = None
    concurrency_key: Name | None = None
    allow_failure: bool = False


class Await(Held):
    """Tasks that this one has made and waits for."""

    ids: list[Id] = Field(min_length=1, max_length=MOST)
    wait: Wait = 30.0
    keeps_resting: bool = Field(
        False, description="Whether the task goes on to rest when they have ended, until it asks to go on."
    )


class GoOn(Held):
    """A task that has waited for others and would go on."""

    wait: Wait = 30.0


class Log(Held):
    """What an attempt has printed from ``offset`` on, in bytes of UTF-8."""

    offset: int = Field(0, ge=0, le=_LARGEST)
    text: str = ""
    is_last: bool = Field(False, description="Whether the attempt prints no more: then its log may be copied.")


class FindOutput(Held):
    """The key of an output that may be there."""

    key: Digest
    within: Seconds | None = None


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
    """An output that serves, as it is kept, and the task whose it is; null when there is none."""

    output: str | None
    root: str | None


class BlobTold(BaseModel):
    """The name of a value that was put."""

    digest: str
    size: int


class Declined(BaseModel):
    """Whether the task waits for a worker that knows its handler; else it has failed."""

    is_left: bool
