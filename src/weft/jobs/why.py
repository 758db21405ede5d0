"""Says what a job waits for, node by node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weft.core.errors import NotFound
from weft.core.states import TaskState
from weft.core.suggestions import did_you_mean
from weft.jobs.events import SQL
from weft.queue.why import Cause, Why, why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record

    from weft.db.database import type_Connection
    from weft.jobs.model import Job


@dataclass(frozen=True, slots=True)
class NodeWhy:
    """Why a node does not go on: ``count`` of its tasks are in that state, of which ``task_id`` is the first.

    ``node`` is None for what the engine does about the whole job; ``task_ids`` are tasks that it waits for.
    """

    node: str | None
    task_id: int | None
    state: str
    count: int
    cause: Cause
    text: str
    advice: str | None
    task_ids: tuple[int, ...] = ()


async def why_job(
    conn: type_Connection, org_id: int, job: Job, node: str | None, after: int = 0, limit: int = 1
) -> list[NodeWhy]:
    """Return what a job, or one node of it, waits for, after a task; raises `NotFound` when there is no such node.

    Of a job those nodes that do not merely wait for others that are told of.
    """
    if job.state.is_final and node is None:
        return [] if after else [_ended("the job", job.state, job.reason)]
    found: list[NodeWhy] = []
    place = after
    while rows := await conn.fetch(SQL.open_tasks, org_id, job.id, node, place, limit - len(found)):
        found += await _lines(conn, org_id, rows)
        place = rows[-1]["id"]
        if len(found) == limit:
            return found
    return found or ([] if after else [await _over(conn, org_id, job, node)])


async def _lines(conn: type_Connection, org_id: int, rows: Sequence[Record]) -> list[NodeWhy]:
    """Return a line for each of them that has not ended since."""
    found = []
    for row in rows:
        told = await _told(conn, org_id, row["id"])
        if told is not None:
            found.append(
                NodeWhy(
                    row["node"],
                    row["id"],
                    row["state"],
                    row["count"],
                    told.cause,
                    told.text,
                    told.advice,
                    told.task_ids,
                )
            )
    return found


async def _told(conn: type_Connection, org_id: int, task_id: int) -> Why | None:
    """Return why a task does not run; None when it has ended since."""
    try:
        found = await why(conn, org_id, task_id)
    except NotFound:
        return None
    return None if found.cause is Cause.ENDED else found


async def _over(conn: type_Connection, org_id: int, job: Job, node: str | None) -> NodeWhy:
    if node is None:
        return _ended("all that there was to do", TaskState.COMPLETED, None)
    row = await conn.fetchrow(SQL.ended_node, org_id, job.id, node)
    if row is None:
        names = [each[0] for each in await conn.fetch(SQL.node_names, org_id, job.id)]
        hint = did_you_mean(node, names)
        raise NotFound(
            "node", f"{node!r} in job {job.id}", f"see `weft jobs show {job.id}`" + (f".{hint}" if hint else "")
        )
    found = _ended("it", row["state"], row["reason"], node)
    return found if row["kept_id"] is None else replace(found, text=f"{found.text}, as task {row['kept_id']} gave it")


def _ended(what: str, state: str, reason: str | None, node: str | None = None) -> NodeWhy:
    return NodeWhy(
        node, None, state, 1, Cause.ENDED, f"{what} has ended: {state}" + (f" ({reason})" if reason else ""), None
    )
