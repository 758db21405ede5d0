"""Reads tasks: one with its attempts, or pages of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.errors import NotFound
from weft.core.states import FINAL, LIVE, TaskState
from weft.db.statements import Statements
from weft.queue.model import Attempt, Page, Task, TaskSummary

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/task.sql")
FROM_NEWEST = 2**63 - 1
_SUMMARY = (
    "id state reason queue handler priority attempt failures max_attempts worker_id created_at due_at claimed_at"
    " ended_at error"
).split()
_DETAIL = "crashes generation concurrency_key waiting_on job_id actor".split()


async def show(conn: type_Connection, org_id: int, task_id: int) -> tuple[Task, str, str | None]:
    """Return a task with its attempts, and the JSON text of its params and output, which may be references."""
    row = await conn.fetchrow(SQL.show, org_id, task_id)
    if row is None:
        raise NotFound("task", task_id)
    attempts = tuple(
        Attempt(
            attempt=a["attempt"], outcome=a["outcome"], reason=a["reason"], worker_id=a["worker_id"],
            started_at=a["started_at"], ended_at=a["ended_at"], error=_error(a["error"]),
        )
        for a in await conn.fetch(SQL.attempts, org_id, task_id)
    )  # fmt: skip
    task = Task(
        **_summary_fields(row), **{name: row[name] for name in _DETAIL},
        params=None, output=None, attempts=attempts,
    )  # fmt: skip
    return task, row["params"], row["output"]


async def list_tasks(
    conn: type_Connection, org_id: int, *, before: int | None, queue_id: int | None, handler: str | None,
    states: frozenset[TaskState], limit: int,
) -> Page:  # fmt: skip
    """Return a page of tasks, newest first, merged from those that live and those that ended."""
    below = FROM_NEWEST if before is None else before
    found: list[Record] = []
    live, done = states & LIVE, states & FINAL
    if live or not states:
        found += await conn.fetch(SQL.list_live, org_id, below, queue_id, handler, _names(live), limit + 1)
    if done and TaskState.COMPLETED not in done:
        for state in done:
            found += await conn.fetch(SQL.list_unsuccessful, org_id, below, state, queue_id, handler, limit + 1)
    elif done or not states:
        if queue_id is None:
            found += await conn.fetch(SQL.list_done, org_id, below, handler, _names(done), limit + 1)
        else:
            found += await conn.fetch(SQL.list_done_of_queue, org_id, below, queue_id, handler, _names(done), limit + 1)
    found.sort(key=lambda row: -row["id"])
    tasks = tuple(TaskSummary(**_summary_fields(row)) for row in found[:limit])
    return Page(tasks, tasks[-1].id if len(found) > limit else None)


async def add_log(conn: type_Connection, task_id: int, attempt: int, digest: str, size: int) -> None:
    """Note where the log of an attempt was copied to."""
    await conn.execute(SQL.add_log, task_id, attempt, digest, size)


async def last_log(conn: type_Connection, task_id: int) -> str | None:
    """Return the blob of a task's log, if it was copied to the blob storage."""
    found: str | None = await conn.fetchval(SQL.last_log, task_id)
    return found


async def ended_among(conn: type_Connection, task_ids: Sequence[int]) -> set[int]:
    """Return those of the tasks that have ended, or do not exist any more."""
    return {row[0] for row in await conn.fetch(SQL.ended_among, list(task_ids))}


def _names(states: frozenset[TaskState]) -> list[str] | None:
    return sorted(states) or None


def _summary_fields(row: Record) -> dict[str, Any]:
    fields = {name: row[name] for name in _SUMMARY}
    fields["state"] = TaskState(fields["state"])
    fields["error"] = _error(fields["error"])
    return fields


def _error(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)
