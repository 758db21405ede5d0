"""What calls take over HTTP: where each argument stands, its type, and what it means."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from weft.contract.protocol import CodeHash
from weft.contract.vocabulary import BACKOFFS, PRIORITY, between, narrowed, one_of
from weft.contract.wire import Id, Moment, moment_text, wire
from weft.core.checks import LONGEST_PAGE, check_span
from weft.core.errors import InvalidInput
from weft.jobs.model import NewEvent
from weft.queue.model import NewTask
from weft.queue.retry import MAX_ATTEMPTS, Retry
from weft.sdk.live_deploys import dag_document
from weft.sdk.workflows import document_of
from weft.worker.registry import Handler

Place = Literal["path", "query", "body"]
# What only makes sense inside the caller's process.
LEFT_OUT = frozenset({"connection", "on_progress", "on_step"})
_ABSENT = inspect.Parameter.empty

SAID = {
    "actor": "By this actor only.",
    "add": "What is added.",
    "admin": "The first user, who is an admin: what the identity provider calls him.",
    "after": "Go on after this one: `next` of the page before.",
    "artifact_id": "The id of a version, a patch or a snapshot.",
    "at": "What it was at this moment.",
    "at_once": "How many of its jobs may run at a time.",
    "attempt": "Of this attempt only.",
    "backfill_id": "The backfill's id.",
    "bad": "A version that fails.",
    "before": "Go on below this one: `next` of the page before.",
    "cache": "Whether outputs that were kept may serve again, and new ones are kept; `refresh` only keeps new ones.",
    "callback_url": "Who is told by HTTP when the job has ended.",
    "catch_up": "What becomes of ticks that were missed: `none`, the `latest`, or `all` of them begin late.",
    "change": "The change: the id or hash of a version.",
    "concurrency_key": "Tasks of one key run one after the other, or as many at once as its limit says.",
    "count": "How many.",
    "cron": "Minute, hour, day, month and weekday, such as `30 6 * * 1-5`; or one of @hourly, @daily, @weekly.",
    "definition": "The definition: as an object, or as YAML or JSON text.",
    "as_of": "What it was at this moment.",
    "depth": "How many steps it goes.",
    "delay": "Not before so many seconds have passed.",
    "dag": "The live DAG.",
    "dry_run": "Change nothing, and tell what would happen.",
    "email": "Where the user is written to.",
    "events": "The events; all of them are sent, or none.",
    "every": "So many seconds from one tick to the next.",
    "expect": "The number of the tag's move, or the hash, that is expected: anything else is a conflict.",
    "expand": "A page of the items of this node.",
    "expires_in": "After so many seconds it lets nobody in; it stays good for ever when left out.",
    "external_id": "What the identity provider calls the user.",
    "failed": "Run only what failed, and what comes after it.",
    "force": "Also when the tag is protected.",
    "from_node": "Run these nodes and what comes after them.",
    "good": "A version that works.",
    "grace": "Leave alone what is younger than so many seconds.",
    "handler": "The name of the handler.",
    "head": "A head of the audit's seals that was noted before: it must still be there.",
    "heartbeat_timeout": "An attempt that gives no sign of life for so many seconds has failed.",
    "idempotency_key": (
        "What there may be one of, whoever asks: a known key makes nothing, and the answer names what is there. "
        "Keys of tasks are those of their handler: the same key with another handler makes another task."
    ),
    "ids": "These only.",
    "inputs": "The inputs of the workflow.",
    "into": "The tag that takes over the changes.",
    "is_protected": "Whether the tag can be moved only by force.",
    "items": "What is added.",
    "job": "About this job only.",
    "job_id": "The job's id.",
    "key": "The limit is for this concurrency key.",
    "kind": "Of this kind only.",
    "first": "From this key on.",
    "labels": "Labels of the job, or of the jobs that are asked for.",
    "last": "Up to this key.",
    "limit": "At most so many.",
    "materialize": "With the whole document.",
    "max_attempts": "How often the task is attempted at most.",
    "max_running": "How many tasks run at once; null lifts the limit.",
    "message": "Why, in words.",
    "name": "The name.",
    "new": "The new one.",
    "node": "Of this node only.",
    "offset": "From this byte on.",
    "old": "The old one.",
    "older_than": "Those that ended so many seconds ago, or earlier.",
    "on": "Another version of the workflow: a tag, an id, a hash, or a definition.",
    "ops": "A JSON Patch (RFC 6902).",
    "ordering_key": "Effects with the same key are carried out one after the other.",
    "overlap": "While the job of the tick before goes on: `allow` the next, or `skip` it.",
    "params": "The handler's arguments by name.",
    "partitions": "The keys of partitions.",
    "patch": "A JSON Patch (RFC 6902) for this job only.",
    "payload": "What is told.",
    "per_key": "The limit is for each concurrency key.",
    "prefer": "Which side wins where both changed the same: `ours` or `theirs`.",
    "priority": "Higher goes first; 0 by default.",
    "queue": "Of this queue only.",
    "queues": "For workers of these queues alone.",
    "quick": "Look at what is cheap to look at only.",
    "reason": "Why.",
    "registry": "By handler, the hash of its code, of those by which it is to run and that no worker has registered.",
    "reject": "Let the node fail instead.",
    "repair": "Mend what can be mended.",
    "replace": "Let what is there by that name become as is said here.",
    "replaces": "The other workflow that the tag is of, and will not be any more.",
    "rerun_of": "Those that run this job again.",
    "retry": "How a failed attempt is tried again: a policy, or how many retries.",
    "role": "`reader`, `writer`, `admin`; of a token also `worker`.",
    "run_at": "Not before this moment.",
    "seen": "The number of the last version that you know of, 0 for none: after a later one it is a conflict.",
    "set": "Fields and their new values.",
    "since": "From this moment on: of a list when they were submitted or done, of jobs to be rerun when they ended.",
    "slug": "The short name.",
    "sort": "Which come first: `newest` or `oldest`.",
    "source": "What it is made of: a tag, an id or a hash.",
    "state": "In one of these states.",
    "steps": "How many moves.",
    "tag": "The tag; a slash in it may be written as %2F.",
    "task": "About this task only.",
    "task_id": "The task's id.",
    "tasks": "The tasks; all of them are enqueued, or none.",
    "timeout": "How many seconds it may take.",
    "timezone": "The time zone in which `cron` is read, such as Europe/Berlin.",
    "to": "Where the tag goes: another tag, an id or a hash.",
    "token_id": "The token's id.",
    "unit_id": "The id of a unit of work.",
    "until": "Those submitted before this moment.",
    "uses": "Definitions of workflows that it calls, to be called as they are here and not as their tags are.",
    "user": "The user: what the identity provider calls him, or an id.",
    "values": "The fields of the form.",
    "version": "The number of a version; the one before unless given.",
    "verb": "Acts of this kind only.",
    "which": "A tag, an id, a hash, or a point such as `etl~2` or `etl@12`.",
    "with_deactivated": "Also those who are deactivated.",
    "with_deleted": "Also those that are deleted.",
    "with_ended": "Also those that are revoked or past their time.",
    "workflow": "The workflow: a tag, the id or hash of a version, or a whole definition.",
    "workflow_id": "Of this workflow only.",
}


_OF_LIVE_JOBS = ("units", "state", "retry", "skip", "rematerialize", "rebuild", "backfill")
# Where a word means something else than with other calls.
_SAID_OF = {
    "datasets.create.description": "What it is about.",
    "datasets.create.storage": "How its rows are kept: `parquet` in files, `postgres` in a table of the database.",
    "datasets.hand_over.node": "The node that writes it from here on; of tasks without a job their handler.",
    "datasets.hand_over.workflow": "The workflow that writes it from here on; `@task` for tasks without a job.",
    "datasets.register.address": "Where the files are: a folder of the server, or `s3://bucket/prefix`.",
    "datasets.register.breaking": "Also with columns by which readers of what was there before would stumble.",
    "datasets.register.glob": "Which files beneath it: `*` within a part of a path, `**/` any number of parts.",
    "datasets.register.name": "What the dataset is called, which is made if it is not there.",
    "datasets.register.partition_by": "`hive` if parts `name=value` of the paths are columns, else `none`.",
    "datasets.register.range_start": "Where the range begins that the files cover.",
    "datasets.register.range_end": "Where the range ends that the files cover.",
    "datasets.register.replace": "Look for the files of a registration again, in place of those that it has.",
    "datasets.describe.description": "What it is about.",
    "datasets.grant.roles": "Which roles of the org see it, in the place of those that do now; none for admins alone.",
    "datasets.create.name": "What the dataset is called.",
    "datasets.diff.limit": "At most so many partitions.",
    "datasets.diff.name": "A state, `orders@1.3`; without `other` it is compared with the one before it.",
    "datasets.diff.other": "The state to compare it with.",
    "datasets.lineage.direction": "`up` is what it is made of, `down` what is made of it.",
    "datasets.lineage.limit": "At most so many places.",
    "datasets.lineage.name": "A dataset, a column, `orders.price`, or a state, `orders@3.12`.",
    "datasets.partitions.after": "Those after this key.",
    "datasets.partitions.latest": "Those that were written last, newest first.",
    "datasets.partitions.name": "The dataset; `orders@3` is its version 3.",
    "datasets.rollback.name": "Where to go back to: `orders@2` is a version, `orders@2.7` what it was after a write.",
    "datasets.state.name": "The dataset; `orders@3` is its version 3, `orders@3.12` what that was after a write.",
    "datasets.versions.before": "Those with a smaller number.",
    "datasets.writes.before": "Those with a smaller number.",
    "datasets.writes.name": "The dataset; `orders@3` is its version 3.",
    "live.backfill.at_once": "How many partitions may be open at a time.",
    "live.backfill.dataset": "The input whose partitions are meant; the first of the job unless given.",
    "live.rematerialize.dataset": "The input whose partitions are meant; the first of the job unless given.",
    "live.deploy.definition": "The live DAG: as an object, or as YAML or JSON text.",
    "live.history.before": "Those with a smaller number.",
    "live.jobs.after": "Those after this one: `next` of the page before.",
    **{f"live.{call}.job": "The job; that in effect, or `candles@4` for that of version 4." for call in _OF_LIVE_JOBS},
    "live.pause.job": "This job only.",
    "live.plan.definition": "The live DAG: as an object, or as YAML or JSON text.",
    "live.resume.job": "This job only.",
    "live.state.after": "Those after this key.",
    "schedules.add.inputs": "The inputs of its jobs, which may speak of the tick: `{{ tick.date }}`.",
    "schedules.add.name": "What the schedule is called; the tag unless given.",
    "schedules.add.tag": "The workflow, by its tag: each job goes by where it stands then.",
    "schedules.backfill.since": "From this moment on.",
    "schedules.backfill.until": "Up to this moment; now unless given.",
    "schedules.change.inputs": "The inputs of its jobs, in the place of all that it had.",
    "schedules.change.tag": "Another workflow, by its tag.",
    "schedules.list.tag": "Of this workflow only, by its tag.",
    "jobs.events.after": "Go on after this place: `cursor` of the page before.",
    "jobs.graph.after": "Go on after this item: `next_item` of the page before.",
    "jobs.rerun_all.idempotency_key": (
        "With the same key the call goes on where it was broken off, and takes no job that was submitted after the "
        "first such call."
    ),
    "jobs.send_event.idempotency_key": (
        "An event of a known key is sent no more, and the answer is about the first, which must have been the same."
    ),
}

_Attempts = Annotated[int, between(1, MAX_ATTEMPTS)]
_Priority = Annotated[int, between(*PRIORITY)]


class RetryPolicy(BaseModel):
    """How often and how late a failed attempt is tried again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    max_attempts: _Attempts = 3
    backoff: Annotated[str, one_of(BACKOFFS)] = "exponential"
    initial_delay: float = 1.0
    max_delay: float = 3600.0
    jitter: float = 0.2


class TaskToEnqueue(BaseModel):
    """A task to be enqueued."""

    model_config = ConfigDict(extra="forbid", strict=True)

    handler: str
    params: Any = None
    queue: str | None = None
    priority: _Priority = 0
    idempotency_key: str | None = None
    run_at: Moment | None = None
    delay: float | None = None
    max_attempts: _Attempts | None = None
    retry: int | RetryPolicy | None = None
    timeout: float | None = None
    heartbeat_timeout: float | None = None
    concurrency_key: str | None = None


class EventToSend(BaseModel):
    """An event to be sent; one of a known key is sent no more."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    payload: dict[str, Any] | None = None
    idempotency_key: str | None = None


def _document(value: Any) -> Any:
    """Return a workflow as it travels: what names one as it is, a file or a Python workflow as its document."""
    if isinstance(value, int):
        return str(value)
    return value if value is None or isinstance(value, str) else document_of(value).data


def _definition(value: Any) -> Any:
    return value if isinstance(value, str) else document_of(value).data


def _dag(value: Any) -> Any:
    return value if isinstance(value, str) else dag_document(value).data


def _retry(value: Any) -> Any:
    if not isinstance(value, Retry):
        return value
    if value.non_retryable:
        raise InvalidInput("retry", "names exceptions, which a server cannot know: declare it with the handler")
    return {name: getattr(value, name) for name in RetryPolicy.model_fields}


def _task(new: NewTask) -> dict[str, Any]:
    told = {name: getattr(new, name) for name in TaskToEnqueue.model_fields}
    told |= {"handler": _handler(new.handler), "retry": _retry(new.retry)}
    told |= {name: wire(float | None).encode(told[name]) for name in ("delay", "timeout", "heartbeat_timeout")}
    return {name: value for name, value in told.items() if value is not None}


def _handler(value: Any) -> str:
    return value.name if isinstance(value, Handler) else str(value)


def _label_words(labels: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in labels.items()]


def labels_in(words: list[str]) -> dict[str, str]:
    """Return the labels that texts of the form NAME=VALUE tell."""
    for word in words:
        if "=" not in word:
            raise InvalidInput("labels", f"{word!r} is not of the form NAME=VALUE")
    return dict(word.split("=", 1) for word in words)


def _new_retry(value: Any) -> Any:
    return Retry(**value.model_dump()) if isinstance(value, RetryPolicy) else value


def _new_tasks(tasks: list[TaskToEnqueue]) -> list[NewTask]:
    return [NewTask(**{**dict(task), "retry": _new_retry(task.retry)}) for task in tasks]


def _event(new: NewEvent) -> dict[str, Any]:
    return {name: value for name, value in NewEvent(*new)._asdict().items() if value is not None}


def _told_since(since: datetime | timedelta) -> float | str:
    return since.total_seconds() if isinstance(since, timedelta) else moment_text(since)


def _since(told: float | datetime | None) -> datetime | timedelta | None:
    return check_span(told, "since") if isinstance(told, (int, float)) else told


def _same(value: Any) -> Any:
    return value


class _Codes(dict[str, str]):
    """The handlers of another process, as far as a rerun asks for them."""

    def code_versions(self) -> dict[str, str]:
        """Return the hash of each handler's code."""
        return dict(self)


@dataclass(frozen=True, slots=True)
class _Form:
    """How an argument travels whose type says too little: its type in JSON, and the ways there and back."""

    type: Any
    encode: Callable[[Any], Any] = _same
    decode: Callable[[Any], Any] = _same


_FORMS = {
    "workflow": _Form(str | dict[str, Any], _document),
    "on": _Form(str | dict[str, Any] | None, _document),
    "uses": _Form(list[str | dict[str, Any]], lambda each: [_document(used) for used in each]),
    "definition": _Form(str | dict[str, Any], _definition),
    "handler": _Form(str, _handler),
    "retry": _Form(int | RetryPolicy | None, _retry, _new_retry),
    "tasks": _Form(list[TaskToEnqueue], lambda tasks: [_task(new) for new in tasks], _new_tasks),
    "events": _Form(
        list[EventToSend],
        lambda events: [_event(new) for new in events],
        lambda events: [NewEvent(**dict(event)) for event in events],
    ),
    "ops": _Form(list[dict[str, Any]] | None, list),
    "patch": _Form(list[dict[str, Any]] | None, list),
    "before": _Form(Id | None, str),
    "task": _Form(Id | None, str),
    "ids": _Form(list[Id] | None, lambda ids: [str(each) for each in ids]),
    "registry": _Form(dict[str, CodeHash] | None, lambda registry: registry.code_versions(), _Codes),
    "since": _Form(float | Moment | None, _told_since, _since),
    "until": _Form(Moment | None),
}
_NAMES = ("which", "source", "to", "change", "user", "old", "new", "good", "bad")
# A tag is moved by number, and so are its pages; events go on after a text, jobs, nodes and approvals after an id.
_OF_CALL = {
    "workflows.moves.before": _Form(int | None),
    "datasets.versions.before": _Form(int | None),
    "datasets.writes.before": _Form(int | None),
    "datasets.grant.roles": _Form(list[str], list),
    "datasets.state.as_of": _Form(Moment | None, moment_text),
    "live.deploy.definition": _Form(str | dict[str, Any], _dag),
    "live.plan.definition": _Form(str | dict[str, Any], _dag),
    "live.history.before": _Form(int | None),
    "live.rematerialize.partitions": _Form(list[str], list),
    "live.units.after": _Form(Id | None, str),
    "list_tasks.after": _Form(Id | None, str),
    "dead_letters.after": _Form(Id | None, str),
    "outbox.after": _Form(Id | None, str),
    "audit.after": _Form(Id | None, str),
    "audit.job": _Form(Id | None, str),
    "audit.since": _Form(Moment | None),
    "jobs.page.after": _Form(Id | None, str),
    "jobs.nodes.after": _Form(Id | None, str),
    "jobs.approvals.after": _Form(Id | None, str),
    "jobs.why.after": _Form(Id | None, str),
    "jobs.page.since": _Form(Moment | None),
    "schedules.backfill.since": _Form(Moment, moment_text),
    "schedules.backfill.until": _Form(Moment | None, moment_text),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a call as it travels: its place, its type in JSON, and the ways there and back."""

    name: str
    place: Place
    type: Any
    default: Any
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    said: str

    @property
    def is_required(self) -> bool:
        """Whether a call without it is refused."""
        return self.default is _ABSENT


def parameter_of(call: str, wanted: inspect.Parameter, hint: Any, place: Place) -> Parameter:
    """Return how one argument of a call travels."""
    name = wanted.name
    default = wanted.default if wanted.default in (_ABSENT, None) else wire(hint, name).encode(wanted.default)
    form = _OF_CALL.get(f"{call}.{name}") or _FORMS.get(name)
    if name == "handler" and call != "enqueue":
        form = None
    if name == "labels" and place == "query":
        form = _Form(list[str] | None, _label_words, labels_in)
    if name in _NAMES:
        form = _Form(str if default is _ABSENT else str | None, str)
    if name == "limit" and place == "query" and default is None:
        # Whoever has the database is given all of it at once.
        form, default = _Form(int), LONGEST_PAGE
    if form is None:
        travelling = wire(hint, name)
        form = _Form(travelling.type, travelling.encode)
    said = _SAID_OF.get(f"{call}.{name}") or SAID[name]
    return Parameter(name, place, narrowed(call, name, form.type), default, form.encode, form.decode, said)
