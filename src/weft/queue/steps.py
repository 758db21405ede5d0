"""What the attempts of a task have saved on their way, so that a later one need not do it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from weft.db.statements import Statements
from weft.queue import blobs

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/step.sql")
_METRICS, _ADDITION = "@metrics ", "@addition "


class Fence(NamedTuple):
    """The worker, task and attempt in whose name something is written."""

    worker_id: int
    task_id: int
    attempt: int


class SavedStep(NamedTuple):
    """A step as it was saved: its data are JSON text, or a reference to the blob storage."""

    name: str
    attempt: int
    saved_at: datetime
    data: str


@dataclass(frozen=True, slots=True)
class TaskStep:
    """A step or checkpoint that a task has saved; ``took`` is None for a checkpoint."""

    name: str
    attempt: int
    saved_at: datetime
    took: timedelta | None
    bytes: int


def metrics_name(attempt: int) -> str:
    """Return the name under which is kept what an attempt has measured; no step of a handler has such a name."""
    return f"{_METRICS}{attempt}"


def addition_name(number: int) -> str:
    """Return the name under which is kept what a task has added to its job by one of its calls."""
    return f"{_ADDITION}{number}"


async def save(
    conn: type_Connection, fence: Fence, name: str, took: timedelta | None, size: int, data: str
) -> datetime | None:
    """Save a step in the name of the attempt that holds the task, over an earlier one; None when it does not.

    What refers to a blob needs a transaction: the reference is noted first.
    """
    await blobs.keep(conn, [(fence.task_id, data)])
    saved_at: datetime | None = await conn.fetchval(SQL.save, *fence, name, took, size, data)
    return saved_at


async def drop(conn: type_Connection, fence: Fence, name: str) -> bool:
    """Drop a step in the name of the attempt that holds the task; False when it does not, or there is no such step."""
    return await conn.fetchval(SQL.drop, *fence, name) is not None


async def load(conn: type_Connection, task_id: int, name: str | None) -> SavedStep | None:
    """Return a step by its name, else the one that was saved last."""
    row = await (conn.fetchrow(SQL.last, task_id) if name is None else conn.fetchrow(SQL.load, task_id, name))
    return None if row is None else SavedStep(*row)


async def of_task(
    conn: type_Connection, org_id: int, task_id: int
) -> tuple[tuple[TaskStep, ...], dict[int, Mapping[str, Any]]]:
    """Return the steps of a task in the order in which they were saved, and by attempt what was measured."""
    steps: list[TaskStep] = []
    metrics: dict[int, Mapping[str, Any]] = {}
    for row in await conn.fetch(SQL.list, org_id, task_id):
        if row["data"] is not None:
            metrics[row["attempt"]] = orjson.loads(row["data"])
        else:
            steps.append(TaskStep(row["name"], row["attempt"], row["saved_at"], row["took"], row["bytes"]))
    return tuple(steps), metrics
