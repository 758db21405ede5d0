"""Reads tasks: one with its attempts, or pages of a list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.core.checks import Stretch
from weft.core.errors import NotFound
from weft.core.json import readable
from weft.core.states import TaskState
from weft.db.statements import Statements
from weft.queue import audit, steps
from weft.queue.model import Attempt, Page, Task, TaskSummary

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection
    from weft.queue.audit import AuditEntry

SQL = Statements("weft.queue", "sql/task.sql")
# How many ended tasks a page looks at: when few of many pass, it is answered before it is full.
ROOM = 1000
_SUMMARY = (
    "id state reason queue handler priority attempt failures max_attempts worker_id created_at due_at claimed_at"
    " ended_at error"
).split()
_DETAIL = "crashes generation concurrency_key waiting_on job_id actor code_version".split()


async def show(conn: type_Connection, org_id: int, task_id: int) -> tuple[Task, str, str | None]:
    """Return a task with its attempts, and the JSON text of its params and output, which may be references."""
    row = await conn.fetchrow(SQL.show, org_id, task_id)
    if row is None:
        raise NotFound("task", task_id)
    saved, metrics = await steps.of_task(conn, org_id, task_id)
    attempts = tuple(
        Attempt(
            attempt=a["attempt"], outcome=a["outcome"], reason=a["reason"], worker_id=a["worker_id"],
            started_at=_moment(a["started_at"]), ended_at=_moment(a["ended_at"]), error=_error(a["error"]),
            code_version=a["code_version"], metrics=metrics.get(a["attempt"], {}),
        )
        for a in await conn.fetch(SQL.attempts, org_id, task_id, row["handler"])
    )  # fmt: skip
    task = Task(
        **_summary_fields(row), **{name: row[name] for name in _DETAIL},
        params=None, output=None, attempts=attempts, steps=saved, metrics=metrics.get(row["attempt"], {}),
        audit=await _audit(conn, org_id, row),
    )  # fmt: skip
    return task, row["params"], row["output"]


async def _audit(conn: type_Connection, org_id: int, row: Record) -> tuple[AuditEntry, ...]:
    """Return what was done to a task, oldest first; its row tells whether there is anything to look for."""
    if not row["generation"] and row["state"] != TaskState.CANCELLED:
        return ()
    return tuple(reversed(await audit.list_entries(conn, org_id, task_id=row["id"])))


async def list_tasks(
    conn: type_Connection, org_id: int, part: Stretch, *, queue_id: int | None, handler: str | None,
    states: frozenset[TaskState], limit: int,
) -> Page:  # fmt: skip
    """Return a page of tasks, of those that live and those that ended, and where the next one begins."""
    asked = org_id, sorted(states) or None, queue_id, handler, *part, limit, ROOM
    rows = await conn.fetch(SQL.list, *asked)
    tasks = tuple(TaskSummary(**_summary_fields(row)) for row in rows if row["id"] is not None)
    return Page(tasks, rows[0]["rest"] if rows else None)


async def add_log(conn: type_Connection, task_id: int, attempt: int, digest: str, size: int) -> None:
    """Note where the log of an attempt was copied to."""
    await conn.execute(SQL.add_log, task_id, attempt, digest, size)


class CopiedLog(NamedTuple):
    """What one attempt has printed, copied to the blob storage, with the line above it."""

    attempt: int
    digest: str
    bytes: int


async def logs(conn: type_Connection, org_id: int, task_id: int, attempt: int | None) -> list[CopiedLog]:
    """Return the copies of a task's log, one an attempt, of all or of one."""
    return [CopiedLog(*row) for row in await conn.fetch(SQL.logs, org_id, task_id, attempt)]


async def log_marks(conn: type_Connection, org_id: int, task_ids: Sequence[int]) -> dict[int, tuple[TaskState, int]]:
    """Return of each task its state, and how many bytes of what it printed were copied."""
    rows = await conn.fetch(SQL.log_marks, org_id, list(task_ids))
    return {id: (TaskState(state), size) for id, state, size in rows}


async def ask_for_logs(conn: type_Connection, org_id: int, task_ids: Sequence[int]) -> None:
    """Tell the workers of running tasks that somebody follows what these print, on another machine."""
    await conn.execute(SQL.ask_for_logs, org_id, list(task_ids))


async def ended_among(conn: type_Connection, task_ids: Sequence[int]) -> set[int]:
    """Return those of the tasks that have ended, or do not exist any more."""
    return {row[0] for row in await conn.fetch(SQL.ended_among, list(task_ids))}


def _summary_fields(row: Record) -> dict[str, Any]:
    fields = {name: _moment(row[name]) for name in _SUMMARY}
    fields["state"] = TaskState(fields["state"])
    fields["error"] = _error(fields["error"])
    return fields


def _moment(value: Any) -> Any:
    """Return a value as it is, but a moment always with its zone: asyncpg gives infinity none."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _error(text: str | None) -> Any:
    """Return an error as a mapping, also one that was written by other means."""
    error = None if text is None else readable(text)
    return error if error is None or isinstance(error, dict) else {"type": "", "message": str(error), "traceback": ""}
