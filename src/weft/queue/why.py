"""Says why a task does not run, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.states import HELD, TaskState
from weft.core.suggestions import did_you_mean
from weft.db.statements import Statements
from weft.queue import look

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/why.sql")
_MANY = 1000


class Cause(StrEnum):
    """What a task waits for, in a word."""

    ENDED = "ended"
    RUNNING = "running"
    WORKER_LOST = "worker_lost"
    LATER = "later"
    RETRY = "retry"
    SNOOZE = "snooze"
    NO_WORKER = "no_worker"
    NO_HANDLER = "no_handler"
    DEPENDENCIES = "dependencies"
    OUTCOME_REFUSED = "outcome_refused"
    CONCURRENCY_KEY = "concurrency_key"
    PAUSED = "paused"
    LIMIT = "limit"
    OTHERS_FIRST = "others_first"
    NEXT = "next"
    JOB_PAUSED = "job_paused"
    CANCELLING = "cancelling"
    MAX_PARALLEL = "max_parallel"
    NO_ORCHESTRATOR = "no_orchestrator"
    APPROVAL = "approval"
    EVENT = "event"
    WORKFLOW = "workflow"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Why:
    """Why a task does not run: a word for programs, a sentence for people, and what to do, if anything.

    ``task_ids`` are some of the tasks that it waits for, or that hold what it waits for.
    """

    cause: Cause
    text: str
    advice: str | None = None
    task_ids: tuple[int, ...] = ()


async def why(conn: type_Connection, org_id: int, task_id: int) -> Why:
    """Return what a task waits for; raises `NotFound`."""
    row = await conn.fetchrow(SQL.why, org_id, task_id)
    if row is not None:
        return _explained(row)
    task, _, _ = await look.show(conn, org_id, task_id)
    return Why(Cause.ENDED, f"it has ended: {task.state}" + (f" ({task.reason})" if task.reason else ""))


def _explained(row: Record) -> Why:
    state = TaskState(row["state"])
    if state in HELD:
        return _held(row)
    if state is TaskState.WAITING:
        return _waiting(row)
    if (of_job := _of_job(row, state)) is not None:
        return of_job
    if state is TaskState.PENDING:
        return _pending(row)
    if state is TaskState.SCHEDULED and row["is_early"]:
        return _early(row)
    return _unclaimed(row)


def _held(row: Record) -> Why:
    since = f" since {row['claimed_at']:%Y-%m-%d %H:%M:%S %Z}" if row["claimed_at"] is not None else ""
    told = f"worker {row['worker_id']} has run attempt {row['attempt']}{since}"
    if not row["is_worker_lost"]:
        return Why(Cause.RUNNING, told) if row["is_key_wanted"] is None else _resting(row, told)
    if row["workers"]:
        return Why(Cause.WORKER_LOST, f"{told}, and is lost: others take the task over in a moment")
    return Why(
        Cause.WORKER_LOST,
        f"{told}, and is lost; no worker is alive to take the task over",
        f"start one: `weft worker --app MODULE --queues {quote(row['queue'])}`",
    )


def _resting(row: Record, told: str) -> Why:
    """Of a task that waits for others that it made, and has lent the slot of its key meanwhile."""
    key = row["concurrency_key"]
    if not row["is_key_wanted"]:
        made = f"{told}, which waits for {row['made']:,} tasks that it has made"
        return Why(Cause.DEPENDENCIES, f"{made}; others may have its slot of the concurrency key {key!r} meanwhile")
    holders, ids = _holders(row)
    return Why(
        Cause.CONCURRENCY_KEY,
        f"{told}, which has waited for tasks that it made, and goes on when it is its turn again: "
        f"all {row['key_limit']} slots of its concurrency key {key!r} are taken{holders}",
        f"wait, or raise the limit: `weft queues limit {quote(row['queue'])} --max N --key {quote(key)}`",
        ids,
    )


def _waiting(row: Record) -> Why:
    """Of a task that holds nobody: a person, an event or a job has to answer it."""
    until = f", until {_moment(row['expires_at'])}" if row["expires_at"] is not None else ""
    job, node = row["job_id"], quote(row["node"] or "")
    if row["awaited_kind"] == "approval":
        asked = "".join(f" --set {quote(name)}=…" for name in orjson.loads(row["awaited_form"]))
        return Why(
            Cause.APPROVAL,
            f"it has waited for a person since {_moment(row['awaited_since'])}{until}",
            f"answer it: `weft jobs approve {job} {node}{asked}`, or with --reject",
        )
    if row["awaited_kind"] == "event":
        name, match = row["awaited_event"], orjson.loads(row["awaited_match"])
        like = f" that matches {orjson.dumps(match).decode()}" if match else ""
        return Why(
            Cause.EVENT,
            f"it has waited for the event {name!r}{like} since {_moment(row['awaited_since'])}{until}",
            f"send one: `weft events send {quote(name)}" + (" --payload JSON`" if match else "`"),
        )
    if row["child_id"] is not None:
        child = row["child_id"]
        return Why(
            Cause.WORKFLOW, f"it waits for job {child}, which is {row['child_state']}", f"see `weft jobs why {child}`"
        )
    if row["made"]:
        return Why(Cause.DEPENDENCIES, f"it waits for {row['made']:,} tasks that it has made")
    return Why(Cause.ANSWER, f"it waits for an answer{until}")


def _of_job(row: Record, state: TaskState) -> Why | None:
    """Return what keeps the whole job of a task that is not waiting for others, if anything."""
    job, of = row["job_id"], row["job_state"]
    if of == "cancelling" and row["node"] is not None:
        return Why(Cause.CANCELLING, f"job {job} is being ended, and nothing of it begins any more")
    waits_for_job = state is not TaskState.PENDING or row["reason"] == "job_paused"
    if of == "paused" and waits_for_job and not row["is_early"]:
        return Why(Cause.JOB_PAUSED, f"job {job} is paused", f"resume it: `weft jobs resume {job}`")
    return None


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S %Z}"


def _others(text: str | None) -> list[dict[str, Any]]:
    return orjson.loads(text) if text else []


def _ids(others: list[dict[str, Any]]) -> tuple[int, ...]:
    return tuple(int(other["id"]) for other in others)


def _holders(row: Record) -> tuple[str, tuple[int, ...]]:
    """Return who holds what a task waits for, in words and as ids."""
    others = _others(row["holding"])
    named = [
        f"{other['node']} of job {other['job_id']}" if other["node"] else f"task {other['id']}" for other in others[:3]
    ]
    return (f" ({', '.join(named)}" + (" and others)" if len(others) > 3 else ")") if named else ""), _ids(others)


def _dependencies(row: Record) -> Why:
    others = _others(row["before"])
    if not others:
        return Why(Cause.DEPENDENCIES, f"it waits for {row['waiting_on']} other tasks to end")
    named = [
        f"{other['name']} ({other['state']}" + (f", {other['count']:,} items left)" if other["count"] else ")")
        for other in others[:5]
    ]
    more = f" and {row['waiting_on'] - 5} more" if len(others) > 5 else ""
    return Why(Cause.DEPENDENCIES, f"it waits for {', '.join(named)}{more}", None, _ids(others))


def _pending(row: Record) -> Why:
    if row["reason"] == "outcome_refused":
        return Why(
            Cause.OUTCOME_REFUSED,
            f"PostgreSQL refused every outcome of attempt {row['attempt']}, as if another task had the same id",
            "see the log of the worker that ran it; enqueue it anew when what it did is not enough",
        )
    if row["reason"] == "concurrency_key" and row["key_limit"] is not None and row["key_held"] < row["key_limit"]:
        return _nobody(row) or Why(
            Cause.CONCURRENCY_KEY,
            f"its concurrency key {row['concurrency_key']!r} has a free slot, which it gets in a moment",
        )
    if row["reason"] == "concurrency_key":
        holders, ids = _holders(row)
        if row["concurrency_key"] == f"@{row['parent_id']}":
            return _nobody(row) or Why(
                Cause.MAX_PARALLEL,
                f"{row['key_limit']} items of its fan_out run, as many as its max_parallel",
                None,
                ids,
            )
        # Whoever has the slots may wait for the same.
        return _nobody(row) or Why(
            Cause.CONCURRENCY_KEY,
            f"all {row['key_limit']} slots of its concurrency key {row['concurrency_key']!r} are taken{holders}",
            f"wait, or raise the limit: `weft queues limit {quote(row['queue'])} --max N --per-key`",
            ids,
        )
    return _dependencies(row)


def _early(row: Record) -> Why:
    due = f"due at {row['due_at']:%Y-%m-%d %H:%M:%S %Z}"
    reason = row["reason"]
    if reason is None:
        return Why(Cause.LATER, f"its time has not come: it is {due}")
    if reason == "snooze":
        return Why(Cause.SNOOZE, f"its handler asked for a later time: it is {due}")
    if reason == "no_handler":
        return _no_handler(row, f"; it is offered again when it is {due}")
    return Why(Cause.RETRY, f"attempt {row['attempt']} failed ({reason}), and the next is {due}")


def _nobody(row: Record) -> Why | None:
    """Return why no worker takes anything from the queue, if so."""
    queue = row["queue"]
    if row["paused_at"] is not None:
        return Why(Cause.PAUSED, f"queue {queue!r} is paused", f"resume it: `weft queues resume {quote(queue)}`")
    if row["serving"]:
        return None
    if queue.startswith("@"):
        if row["orchestrators"]:
            return Why(
                Cause.WORKER_LOST, "the owner of its job is lost: another orchestrator takes it over in a moment"
            )
        return Why(Cause.NO_ORCHESTRATOR, "no orchestrator is alive", "start one: `weft orchestrator`")
    others = f"; {row['workers']} serve other queues" if row["workers"] else ""
    return Why(
        Cause.NO_WORKER,
        f"no live worker serves queue {queue!r}{others}",
        f"start one: `weft worker --app MODULE --queues {quote(queue)}`",
    )


def _no_handler(row: Record, then: str = "") -> Why:
    if row["knowing"]:
        return Why(
            Cause.NO_HANDLER, f"a worker without the handler {row['handler']!r} had it; one that knows it lives{then}"
        )
    return Why(
        Cause.NO_HANDLER,
        f"no live worker of queue {row['queue']!r} knows the handler {row['handler']!r}{then}",
        "start a worker with the module that has it: `weft worker --app MODULE`."
        + did_you_mean(row["handler"], row["handlers"]),
    )


def _unclaimed(row: Record) -> Why:
    """Ready, or due: whatever stands between the task and a worker."""
    queue, most, ahead = row["queue"], row["max_running"], row["ahead"]
    if (nobody := _nobody(row)) is not None:
        return nobody
    if not row["knowing"]:
        return _no_handler(row)
    if most is not None and row["running"] >= most:
        holders, ids = _holders(row)
        return Why(
            Cause.LIMIT,
            f"{row['running']} tasks of queue {queue!r} run{holders}, and its limit is {most}",
            f"wait, or raise the limit: `weft queues limit {quote(queue)} --max N`",
            ids,
        )
    if ahead:
        count = f"{ahead} or more" if ahead == _MANY else f"{ahead}"
        return Why(
            Cause.OTHERS_FIRST,
            f"{count} ready tasks of queue {queue!r} come first, by priority and age;"
            f" {row['running']} run on {row['serving']} workers",
            "wait, or add workers",
        )
    return Why(Cause.NEXT, f"it is the next of queue {queue!r}; {row['running']} run on {row['serving']} workers", None)
