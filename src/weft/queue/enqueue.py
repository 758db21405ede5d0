"""Puts tasks into the queue, one by a call of the public SQL function, many by COPY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.errors import InvalidInput, UnknownQueue
from weft.core.ids import time_of
from weft.db.statements import Statements
from weft.queue.model import TaskHandle

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/task.sql")
INLINE_PARAMS = 256
CHUNK = 10_000
_COLUMNS = (
    "id org_id queue_id order_id state rank max_attempts handler params due_at timeout heartbeat_timeout retry"
    " concurrency_key actor"
).split()


@dataclass(slots=True)
class Draft:
    """A task whose fields are checked and encoded, ready to be written."""

    handler: str
    params: str
    queue: str
    priority: int
    idempotency_key: str | None
    run_at: datetime | None
    delay: timedelta | None
    max_attempts: int
    retry: str | None
    timeout: timedelta | None
    heartbeat_timeout: timedelta | None
    concurrency_key: str | None

    def arguments(self, org: str, actor: str | None) -> tuple[Any, ...]:
        """Return the arguments of ``weft.put_task`` and ``weft.enqueue``, in their order."""
        return (
            self.handler, self.params, self.queue, self.priority, self.idempotency_key, self.run_at, self.delay,
            self.max_attempts, self.retry, self.timeout, self.heartbeat_timeout, self.concurrency_key, org, actor,
        )  # fmt: skip


async def enqueue(
    conn: type_Connection, draft: Draft, org: str, actor: str | None, *, hint: bool = False
) -> TaskHandle:
    """Create the task, or return the one that its key names; with ``hint`` a worker is told by the commit."""
    try:
        row = await conn.fetchrow(SQL.enqueue_and_hint if hint else SQL.enqueue, *draft.arguments(org, actor))
    except asyncpg.PostgresError as error:
        raise translated(error, draft.queue) from error
    assert row is not None
    return TaskHandle(row[0], row[1])


def translated(error: Exception, queue: str) -> Exception:
    """Return the error of `weft.core.errors` for what ``weft.put_task`` raised, or the error itself."""
    code, message = getattr(error, "sqlstate", None), str(error).splitlines()[0] if str(error) else ""
    if code == "WF001":
        return UnknownQueue(queue)
    if code == "WF002":
        field, _, problem = message.partition(": ")
        return InvalidInput(field, problem)
    return error


async def enqueue_many(
    conn: type_Connection, drafts: Sequence[Draft], ids: Sequence[int], org_id: int, queues: dict[str, int],
    actor: str | None,
) -> list[TaskHandle]:  # fmt: skip
    """Create the tasks in the order given, in the caller's transaction; keys that are known create nothing."""
    keyed = [
        (draft.handler, draft.idempotency_key, index) for index, draft in enumerate(drafts) if draft.idempotency_key
    ]
    known = await _claim_keys(conn, org_id, keyed, ids) if keyed else {}
    now = time_of(ids[0])
    rows: list[tuple[Any, ...]] = []
    long_params: list[tuple[int, str]] = []
    wants_slot: list[int] = []
    handles: list[TaskHandle] = []
    for index, draft in enumerate(drafts):
        id = ids[index]
        if index in known and known[index] != id:
            handles.append(TaskHandle(known[index], False))
            continue
        params: str | None = draft.params
        if len(draft.params) > INLINE_PARAMS:
            long_params.append((id, draft.params))
            params = None
        state = "ready"
        due_at = draft.run_at if draft.delay is None else now + draft.delay
        if due_at is not None and due_at > now:
            state = "scheduled"
        elif draft.concurrency_key is not None:
            state = "pending"
            wants_slot.append(id)
        rows.append((
            id, org_id, queues[draft.queue], id, state, -draft.priority, draft.max_attempts, draft.handler, params,
            due_at if state == "scheduled" else None, draft.timeout, draft.heartbeat_timeout, draft.retry,
            draft.concurrency_key, actor,
        ))  # fmt: skip
        handles.append(TaskHandle(id, True))
    await conn.copy_records_to_table("task", schema_name="weft", columns=_COLUMNS, records=rows)
    if long_params:
        await conn.copy_records_to_table(
            "task_params", schema_name="weft", columns=["id", "params"], records=long_params
        )
    if wants_slot:
        await conn.execute(SQL.take_slots, wants_slot)
    return handles


async def _claim_keys(
    conn: type_Connection, org_id: int, keyed: Sequence[tuple[str, str | None, int]], ids: Sequence[int]
) -> dict[int, int]:
    """Insert the idempotency keys that are new; return for each index the id of the task that its key names."""
    first: dict[tuple[str, str | None], int] = {}
    for handler, key, index in keyed:
        first.setdefault((handler, key), ids[index])
    handlers, keys = [name[0] for name in first], [name[1] for name in first]
    won = {row[0] for row in await conn.fetch(SQL.insert_keys, org_id, handlers, keys, list(first.values()))}
    known = [(handler, key, id) for (handler, key), id in first.items() if id not in won]
    if known:
        columns = [list(column) for column in zip(*known, strict=True)]
        for handler, key, task_id in await conn.fetch(SQL.claim_keys, org_id, *columns):
            first[handler, key] = task_id
    return {index: first[handler, key] for handler, key, index in keyed}
