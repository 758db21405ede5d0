"""Makes a job of a plan: its row, its tasks, and what leads from one to the next, all or nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.checks import MAX_PRIORITY
from weft.core.errors import InvalidInput
from weft.core.ids import CONTROL_QUEUE
from weft.core.json import Json, encode
from weft.db.statements import Statements
from weft.flow.budget import ExpressionError
from weft.flow.patches import Op
from weft.jobs.cached_params import with_cache
from weft.jobs.layout import OPEN
from weft.jobs.plan import Plan, Step
from weft.jobs.rendering import key_of, packed, values_of
from weft.queue.audit import AuditVerb, where_from, why

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.jobs.library import Pins

SQL = Statements("weft.jobs", "sql/job.sql")
# What all tasks of a job may have of its inputs: PostgreSQL takes a gigabyte in one statement.
MOST_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be submitted: what it goes by, and what is noted of where that came from."""

    workflow_id: str
    inputs: Mapping[str, Json]
    priority: int = 0
    idempotency_key: str | None = None
    base_kind: str = "definition"
    base_ref: str | None = None
    snapshot_id: int | None = None
    version_hash: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    actor: str | None = None
    pins: Pins = field(default_factory=dict)
    parent_id: int | None = None
    patch: Sequence[Op] | None = None
    rerun_of: int | None = None
    callback_url: str | None = None
    # The digest of the request that its idempotency key is of.
    request: bytes | None = None
    # Whether somebody asks for it, which is kept as his act; else a job of somebody does.
    is_act: bool = False
    # False leaves the cache alone, "refresh" takes nothing from there and renews it; so do some nodes in any case.
    cache: bool | str = True
    fresh: Collection[str] = ()

    def cache_for(self, node: str | None, said: bool | float | str | None) -> tuple[bool | float | str | None, bool]:
        """How long the output of a node lasts in the cache, by what its author says, and whether it takes one."""
        if self.cache is False:
            return False, True
        return said, self.cache is True and node not in self.fresh


@dataclass(frozen=True, slots=True)
class Kept:
    """Which steps of a new job have ended before it begins, by their places.

    ``froms`` are the tasks whose outputs are kept, None for what is skipped; ``reached`` says how many of them have
    reached the others. ``items`` are for the node of a fan_out those whose items have been completed.
    """

    froms: Mapping[int, int | None] = field(default_factory=dict)
    items: Mapping[str, Sequence[int]] = field(default_factory=dict)
    reached: Mapping[int, int] = field(default_factory=dict)


NOTHING = Kept()


class OutputGone(Exception):
    """What was to be kept is not there any more."""


async def submit(
    conn: type_Connection, org_id: int, new: NewJob, plan: Plan, ids: Sequence[int], queues: Mapping[str, int],
    patience: timedelta, kept: Kept = NOTHING,
) -> int:  # fmt: skip
    """Insert a job with its tasks and return its id, the first, or that of the job of its idempotency key.

    It may take as long as its workflow says, else ``patience``. What is ``kept`` has ended before; raises `OutputGone`.
    """
    job_id, *task_ids = ids
    row = job_row(org_id, new, job_id, task_ids[-1], is_patient=plan.finishes_independent, kept=kept)
    if len(row) * len(plan.steps) > MOST_BYTES:
        _require_room(plan, new.inputs)
    rows = _Rows.of(plan, new, job_id, task_ids, queues, kept)
    columns = [task_ids, *rows.columns()]
    if kept.froms:
        columns = [[each for place, each in enumerate(column) if place not in kept.froms] for column in columns]
    found: int = await conn.fetchval(
        SQL.put,
        row,
        plan.timeout or patience,
        new.idempotency_key,
        *columns,
        *_edges(plan, task_ids, kept),
        *act_of(org_id, new, job_id),
        new.request,
    )
    if found == job_id and kept.froms:
        await _keep(conn, org_id, new, job_id, task_ids, rows, kept)
    return found


def _require_room(plan: Plan, inputs: Mapping[str, Json]) -> None:
    """Refuse inputs of which the tasks, each of which has those that it takes, would have too much."""
    sizes = {name: len(orjson.dumps(value)) for name, value in inputs.items()}
    taken = (sizes if step.inputs is None else step.inputs for step in plan.steps)
    if (total := sum(sizes.get(name, 0) for names in taken for name in names)) > MOST_BYTES:
        what = f"the nodes that take them have {total:,} bytes of them in all, and may have {MOST_BYTES:,}"
        raise InvalidInput("inputs", f"{what}: give the name of a file, and not what is in it")


def job_row(org_id: int, new: NewJob, job_id: int, end_id: int, *, is_patient: bool, kept: Kept = NOTHING) -> str:
    """Return the row of a job, as JSON."""
    job = {
        "id": job_id, "org_id": org_id, "end_id": end_id, "state": "pending", "rank": -new.priority,
        "finishes_independent": is_patient, "workflow_id": new.workflow_id, "inputs": new.inputs,
        "base_kind": new.base_kind, "base_ref": new.base_ref, "snapshot_id": new.snapshot_id,
        "version_hash": None if new.version_hash is None else f"\\x{new.version_hash}",
        "labels": new.labels or None, "actor": new.actor, "parent_id": new.parent_id,
        "tag_positions": new.pins or None, "patch": new.patch, "rerun_of": new.rerun_of,
        "callback_url": new.callback_url,
        "kept_from": min((root for roots in kept.items.values() for root in roots), default=None),
    }  # fmt: skip
    # What is not said is null anyway.
    return encode({name: value for name, value in job.items() if value is not None}, "job")


def act_of(org_id: int, new: NewJob, job_id: int) -> tuple[Any, ...]:
    """Return what the audit keeps of a new job, as `SQL.put` takes it; a verb of None keeps nothing."""
    if not new.is_act:
        return org_id, job_id, None, None, None, None, None
    told = {"workflow": new.workflow_id} | ({} if new.rerun_of is None else {"rerun_of": str(new.rerun_of)})
    verb = AuditVerb.SUBMIT if new.rerun_of is None else AuditVerb.RERUN
    return org_id, job_id, new.actor, verb, orjson.dumps(told).decode(), where_from(), why()


async def _keep(
    conn: type_Connection, org_id: int, new: NewJob, job_id: int, ids: Sequence[int], rows: _Rows, kept: Kept
) -> None:
    ended = sorted(kept.froms)
    columns = (
        ids, rows.nodes, rows.handlers, rows.queues, rows.ranks, rows.params, rows.needs, rows.lenient, kept.froms,
        rows.outputs,
    )  # fmt: skip
    if not await conn.fetchval(
        SQL.keep_tasks,
        org_id,
        job_id,
        new.actor,
        *([column[place] for place in ended] for column in columns),
        [ids[place] for place in kept.reached],
        list(kept.reached.values()),
    ):
        raise OutputGone


def _edges(plan: Plan, ids: Sequence[int], kept: Kept) -> tuple[list[int], list[int], list[str | None]]:
    edges = [edge for edge in plan.edges if edge[0] not in kept.froms] if kept.froms else plan.edges
    return (
        [ids[source] for source, _, _ in edges],
        [ids[target] for _, target, _ in edges],
        [None if taken is None else "{" + ",".join(map(str, taken)) + "}" for _, _, taken in edges],
    )


@dataclass(slots=True)
class _Rows:
    """The columns of a job's tasks, in the order of `weft.put_job`."""

    nodes: list[str | None]
    handlers: list[str]
    queues: list[int]
    ranks: list[int]
    params: list[str]
    waits: list[int]
    needs: list[str | None]
    attempts: list[int | None]
    retries: list[str | None]
    timeouts: list[Any]
    heartbeats: list[Any]
    dispatches: list[Any]
    keys: list[str | None]
    lenient: list[bool]
    outputs: list[str | None]

    @classmethod
    def of(
        cls, plan: Plan, new: NewJob, job_id: int, ids: Sequence[int], queues: Mapping[str, int], kept: Kept
    ) -> _Rows:
        steps = plan.steps
        by_node = {step.node: id for step, id in zip(steps, ids, strict=True)}
        results = _results(steps, ids, kept)
        job: dict[str, Json] = {"id": str(job_id), "workflow_id": new.workflow_id}
        return cls(
            [step.node for step in steps],
            [step.handler for step in steps],
            [CONTROL_QUEUE if step.is_control else queues[step.queue or "default"] for step in steps],
            [_rank(new.priority + step.priority) for step in steps],
            [_params(step, _spec(step, new, results, queues, kept), new, job) for step in steps],
            waits_of(plan, kept),
            ["{" + ",".join(str(by_node[name]) for name in step.needs) + "}" if step.needs else None for step in steps],
            [step.max_attempts for step in steps],
            [step.retry for step in steps],
            [step.timeout for step in steps],
            [step.heartbeat_timeout for step in steps],
            [step.dispatch_timeout for step in steps],
            [_key(step, new.inputs, job) for step in steps],
            [step.allow_failure for step in steps],
            [_gathered(step, results) for step in steps] if kept.froms else [],
        )

    def columns(self) -> tuple[Any, ...]:
        return (
            self.nodes, self.handlers, self.queues, self.ranks, self.params, self.waits, self.needs, self.attempts,
            self.retries, self.timeouts, self.heartbeats, self.dispatches, self.keys, self.lenient,
        )  # fmt: skip


def waits_of(plan: Plan, kept: Kept) -> list[int]:
    """Return for how many others each step waits."""
    waits = list(plan.waits)
    for source, target, _ in plan.edges if kept.froms else ():
        waits[target] -= source in kept.froms
    return waits


def _results(steps: Sequence[Step], ids: Sequence[int], kept: Kept) -> dict[str, Json]:
    """Return how a fan_in refers to what it gathers of each node: the items of a fan_out, or the node itself."""
    found: dict[str, Json] = {}
    for place, (step, id) in enumerate(zip(steps, ids, strict=True)):
        if step.node is None:
            continue
        own = [] if place in kept.froms else [id]
        parents = [*kept.items.get(step.node, ()), *own]
        if step.child is None:
            found[step.node] = {"of": str(id)}
        else:
            found[step.node] = {"each": str(parents[0])} if len(parents) == 1 else {"all": list(map(str, parents))}
    return found


def _gathered(step: Step, results: Mapping[str, Json]) -> str | None:
    """Return the output of a fan_in that has ended before: it refers to the outputs, wherever they are."""
    return orjson.dumps({"$results": [results[name] for name in step.collects]}).decode() if step.collects else None


def _spec(step: Step, new: NewJob, results: Mapping[str, Json], queues: Mapping[str, int], kept: Kept) -> Json:
    """Return what a task goes by, with what only this job knows: the ids of others, and those of queues."""
    if step.collects:
        return {"results": [results[name] for name in step.collects]}
    if (child := step.child) is None:
        for_job = "refresh" if step.node in new.fresh and new.cache else new.cache
        return step.spec if for_job is True or step.handler != "@workflow" else {**step.spec, "job_cache": for_job}
    task = {
        "handler": child.handler, "queue_id": queues[child.queue or "default"], "priority": child.priority,
        "max_attempts": child.max_attempts, "retry": child.retry, "timeout": _seconds(child.timeout),
        "heartbeat_timeout": _seconds(child.heartbeat_timeout),
        "dispatch_timeout": _seconds(child.dispatch_timeout), "allow_failure": child.allow_failure,
    }  # fmt: skip
    lasts, takes = new.cache_for(step.node, child.cache)
    if lasts is not None or not takes:
        task["cache"] = [lasts, takes]
    before = {"kept": list(map(str, kept.items[step.node or ""]))} if step.node in kept.items else {}
    return {**step.spec, "task": task, **before}


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _params(step: Step, spec: Json, new: NewJob, job: Mapping[str, Json]) -> str:
    """Return the params of a task, with what is said of the cache."""
    params, (lasts, takes) = _own_params(step, spec, new.inputs, job), new.cache_for(step.node, step.cache)
    if step.is_control or (lasts is None and takes):
        return params
    return with_cache(params, lasts, takes=takes)


def _own_params(step: Step, spec: Json, inputs: Mapping[str, Json], job: Mapping[str, Json]) -> str:
    """Return the params of a task: rendered, unless the outputs of others are asked for."""
    used = inputs if step.inputs is None else {name: inputs[name] for name in step.inputs if name in inputs}
    if step.handler == OPEN:
        return "{}"
    if step.is_control or step.needs:
        return packed(spec, used, step.needs, step.starts, job)
    if step.template is None:
        return orjson.dumps(spec).decode()
    try:
        return encode(step.template.render(values_of(used, {}, step.starts, job)), "params")
    except ExpressionError as problem:
        raise InvalidInput(f"nodes.{step.node}.params", str(problem)) from None


def _key(step: Step, inputs: Mapping[str, Json], job: Mapping[str, Json]) -> str | None:
    if step.key is None:
        return None
    return key_of(step.key, {"inputs": inputs, "nodes": {}, "job": job}, f"nodes.{step.node}.concurrency_key")


def _rank(priority: int) -> int:
    """Return the rank of a priority that is the sum of the job's and a node's, as far as there are such."""
    return -max(-MAX_PRIORITY, min(MAX_PRIORITY, priority))
