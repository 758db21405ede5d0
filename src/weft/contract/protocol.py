"""The worker protocol: what each of its requests has in it, and the lease by which a worker acts."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    Tag,
    WithJsonSchema,
)

from weft.contract.bounds import (
    MOST,
    Attempts,
    CallName,
    Delay,
    Key,
    Limit,
    Name,
    Priority,
    Running,
    Seconds,
    Text,
    Wait,
)
from weft.contract.wire import Id
from weft.core.checks import MAX_NAME

_LEASE = r"^[0-9]{1,19}\.[0-9]{1,9}$"
_DIGEST = r"^[0-9a-f]{64}$"
# Why an attempt did not succeed, as it is kept.
Reason = Literal[
    "error",
    "timeout",
    "crashed",
    "expression",
    "non_retryable",
    "output_refused",
    "heartbeat_timeout",
    "no_handler",
    "write_conflict",
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


LeaseToken = Annotated[Any, BeforeValidator(_read_lease), WithJsonSchema({"type": "string", "pattern": _LEASE})]
Digest = Annotated[str, Field(pattern=_DIGEST)]
CodeHash = Annotated[str, Field(pattern=r"^([0-9a-f]{2}){1,64}$")]
# As far as the numbers of JSON go without losing digits.
LARGEST = 2**53


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Held(_Request):
    """A task that a worker holds."""

    task_id: Id
    lease_token: LeaseToken


Each = TypeVar("Each", bound=Held)


class Several(_Request, Generic[Each]):
    """Tasks of one worker; those that it holds no more are told as ``refused``."""

    tasks: list[Each] = Field(min_length=1, max_length=MOST)


def _form(found: object) -> str:
    return "several" if isinstance(found, dict) and "tasks" in found else "one"


class OneOrSeveral(
    RootModel[Annotated[Annotated[Each, Tag("one")] | Annotated[Several[Each], Tag("several")], Discriminator(_form)]],
    Generic[Each],
):
    """A task, or under ``tasks`` several of one worker."""

    @property
    def tasks(self) -> list[Each]:
        """Whatever it is about."""
        return self.root.tasks if isinstance(self.root, Several) else [self.root]

    @property
    def is_one(self) -> bool:
        """Whether it is about one by itself, whose lease is known to be lost when it is refused."""
        return not isinstance(self.root, Several)


class ByWorker(_Request):
    """A worker, by the id that it got when it registered."""

    worker_id: Id


class Register(_Request):
    """A worker that begins: the queues it works, the handlers it knows, how much it runs at once."""

    queues: list[Name] = Field(min_length=1, max_length=10 * MOST)
    handlers: list[Name] = Field(max_length=10 * MOST)
    concurrency: Running = 1
    hostname: Text = Field("", max_length=255)
    pid: int = Field(0, ge=0, le=2**31 - 1)
    version: Text = Field("", max_length=100)
    codes: dict[Name, CodeHash] = Field(
        default_factory=dict, max_length=100 * MOST,
        description="By handler, and by what may become one, the hash of its code, as hex.",
    )  # fmt: skip


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
    size: int = Field(ge=0, le=LARGEST)


class Reuse(_Request):
    """What the cache keeps of an output: the key that it is known by and how long, or whose it is, as it was found."""

    key: Digest | None = None
    lasts: Seconds | None = None
    root: Id | None = None
    entry: Id | None = Field(
        None, description="As it was found: the task completes only if what the output was made of has not changed."
    )


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


class Complete(OneOrSeveral[Done]):
    """A task that has completed, or several of one worker under ``tasks``."""


class Failure(_Request):
    """What went wrong."""

    type: str = Field("Error", max_length=200)
    message: str = Field("", max_length=20_000)
    traceback: str = Field("", max_length=100_000)


class Failed(Held):
    """An attempt that did not succeed.

    It is tried again as its task says, or in ``retry_in`` seconds, or not at all when it is not ``retryable``. With
    ``snooze`` it comes back after that time, and nothing counts; ``reason`` is ``write_conflict`` then when it goes by
    data that others have changed. ``state`` says that it was the last.
    """

    error: Failure | None = None
    retryable: bool = True
    retry_in: Seconds | None = None
    snooze: Seconds | None = None
    state: Literal["failed", "dead"] | None = None
    outcome: Literal["failed", "crashed"] = "failed"
    reason: Reason = "error"


class Fail(OneOrSeveral[Failed]):
    """An attempt that did not succeed, or several of one worker under ``tasks``."""


class HeldTasks(OneOrSeveral[Held]):
    """A task that a worker holds, or several under ``tasks``."""


class Decline(Held):
    """A task whose handler the worker does not know."""

    # As Python writes a name, each of its signs may take ten.
    advice: Text = Field("", max_length=100 + 10 * MAX_NAME)


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

    data: dict[str, Any] = Field(default_factory=dict)
    blob: Blob | None = Field(None, description="The data, put before, when they are large.")


class Policy(_Request):
    """How late a failed attempt is tried again."""

    backoff: Literal["exponential", "linear", "fixed"] = "exponential"
    initial_delay: Delay = 1.0
    max_delay: Delay = 3600.0
    jitter: float = Field(0.2, ge=0, le=1)


class Run(_Request):
    """What a new task is given, and how it runs."""

    params: dict[str, Any] = Field(default_factory=dict)
    queue: Name = "default"
    priority: Priority = 0
    max_attempts: Attempts | None = None
    retry: Policy | None = None
    timeout: Limit | None = None
    heartbeat_timeout: Limit | None = None
    concurrency_key: Key | None = None
    allow_failure: bool = False


class Spawn(Run, Held):
    """A further task of the job; ``call`` is the same in each attempt, so that it is made once."""

    call: CallName
    handler: Name
    blob: Blob | None = Field(None, description="The params, put before, when they are large.")


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

    offset: int = Field(0, ge=0, le=LARGEST)
    text: str = ""
    is_last: bool = Field(False, description="Whether the attempt prints no more: then its log may be copied.")


class FindOutput(Held):
    """The key of an output that may be there."""

    key: Digest
    args: Digest | None = Field(
        None, description="The hash of the same without the code, by which it is told later that the code has changed."
    )
    within: Seconds | None = None
    takes: bool = Field(True, description="Whether one is taken; else it is noted that the task runs in any case.")
