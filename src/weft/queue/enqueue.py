"""Puts tasks into the queue, one by a call of the public SQL function, many by COPY."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.errors import InvalidInput, UnknownQueue
from weft.core.json import BLOB_MARK
from weft.db.copying import copy_rows
from weft.db.database import in_transaction
from weft.db.statements import Statements
from weft.queue import blobs
from weft.queue.asking import asked_by
from weft.queue.model import TaskHandle

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/task.sql")
INLINE_PARAMS = 256
_COLUMNS = (
    "id org_id queue_id order_id state rank max_attempts handler params due_at timeout heartbeat_timeout retry"
    " concurrency_key actor"
).split()


@dataclass(frozen=True, slots=True)
class Form:
    """What many tasks of one call may have in common, checked and encoded."""

    handler: str
    queue: str
    priority: int
    run_at: datetime | None
    delay: timedelta | None
    max_attempts: int | None
    retry: str | None
    timeout: timedelta | None
    heartbeat_timeout: timedelta | None


@dataclass(slots=True)
class Draft:
    """A task ready to be written."""

    form: Form
    params: str
    idempotency_key: str | None = None
    concurrency_key: str | None = None

    def arguments(self, org: str, actor: str | None) -> tuple[Any, ...]:
        """Return the arguments of ``weft.enqueue``, in their order."""
        form = self.form
        return (
            form.handler, self.params, form.queue, form.priority, self.idempotency_key, form.run_at, form.delay,
            form.max_attempts, form.retry, form.timeout, form.heartbeat_timeout, self.concurrency_key, org, actor,
        )  # fmt: skip


async def enqueue(
    conn: type_Connection, draft: Draft, org: str, actor: str | None, *, hint: bool = False
) -> TaskHandle:
    """Create the task, or return the one that its key names; with ``hint`` a worker is told by the commit.

    Raises `KeyReused` when the key is that of a request, and was sent with another one.
    """
    key = draft.idempotency_key
    request = None if key is None else asked_by()
    said = (*draft.arguments(org, actor), hint)
    try:
        if request is None:
            row = await conn.fetchrow(SQL.enqueue, *said)
        else:
            row = await conn.fetchrow(SQL.enqueue_by_request, request.digest, *said)
    except asyncpg.PostgresError as error:
        raise translated(error, draft.form.queue) from error
    assert row is not None
    if request is None or key is None or row["created"]:
        return TaskHandle(row["id"], row["created"])
    return TaskHandle(row["id"], request.made(key, row["known"]))


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
    conn: type_Connection, drafts: Collection[Draft], ids: Sequence[int], org_id: int, queues: dict[str, int],
    actor: str | None, *, has_keys: bool, has_times: bool,
) -> list[TaskHandle]:  # fmt: skip
    """Create the tasks in the order given, in the caller's transaction; keys that are known create nothing.

    The drafts may be made as they are written: PostgreSQL has the first rows, unless there are keys, before the last.
    """
    named = await _claim_keys(conn, org_id, drafts, ids) if has_keys else {}
    now = await conn.fetchval(SQL.now) if has_times else None

    both = zip(ids, drafts, strict=True)
    new = ((id, draft) for id, draft in both if id not in named) if named else both
    beside = _Beside()
    await copy_rows(conn, "task", _COLUMNS, _rows(new, beside, org_id, queues, now, actor), len(ids))
    if beside.long_params:
        await copy_rows(conn, "task_params", ("id", "org_id", "params"), beside.long_params, len(beside.long_params))
    await blobs.keep(conn, beside.references)
    if beside.keyed:
        await conn.execute(SQL.take_slots, beside.keyed)
    return [TaskHandle(named[id], False) if id in named else TaskHandle(id, True) for id in ids]


def _due_at(form: Form, now: datetime | None) -> datetime | None:
    """Return when a task is due, or None when that is now; ``now`` is needed for forms with a time only."""
    if now is None or (form.run_at is None and form.delay is None):
        return None
    due_at = form.run_at if form.delay is None else now + form.delay
    return due_at if due_at is not None and due_at > now else None


@dataclass(slots=True)
class _Beside:
    """What some tasks need beside their rows: room for long params, a note of their blob, a slot of their key."""

    long_params: list[tuple[int, int, str]] = field(default_factory=list)
    references: list[tuple[int, str]] = field(default_factory=list)
    keyed: list[int] = field(default_factory=list)


def _rows(
    new: Iterable[tuple[int, Draft]], beside: _Beside, org_id: int, queues: dict[str, int], now: datetime | None,
    actor: str | None,
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    """Yield the rows one by one, so that PostgreSQL writes the first while the last are still made."""
    form: Form | None = None
    for id, draft in new:
        if draft.form is not form:
            form = draft.form
            queue_id, rank = queues[form.queue], -form.priority
            due_at = _due_at(form, now)
            after = (due_at, form.timeout, form.heartbeat_timeout, form.retry)
            state = "ready" if due_at is None else "scheduled"
        params: str | None = draft.params
        if len(draft.params) > INLINE_PARAMS:
            beside.long_params.append((id, org_id, draft.params))
            params = None
        elif draft.params.startswith(BLOB_MARK):
            beside.references.append((id, draft.params))
        is_admitted_later = draft.concurrency_key is not None and due_at is None
        if is_admitted_later:
            beside.keyed.append(id)
        yield (
            id, org_id, queue_id, id, "pending" if is_admitted_later else state, rank, form.max_attempts, form.handler,
            params, *after, draft.concurrency_key, actor,
        )  # fmt: skip


async def _claim_keys(
    conn: type_Connection, org_id: int, drafts: Iterable[Draft], ids: Sequence[int]
) -> dict[int, int]:
    """Insert the idempotency keys that are new; return, for each id that is not to be used, the id its key names."""
    first: dict[tuple[str, str], int] = {}
    named: dict[int, tuple[str, str]] = {}
    for id, draft in zip(ids, drafts, strict=True):
        if draft.idempotency_key is not None:
            name = (draft.form.handler, draft.idempotency_key)
            if first.setdefault(name, id) != id:
                named[id] = name
    if not first:
        return {}
    # In one order everywhere, so that two callers with the same keys never wait for each other.
    rows = sorted((handler, key, id) for (handler, key), id in first.items())
    try:
        async with in_transaction(conn):
            columns = ("org_id", "handler", "key", "task_id")
            await copy_rows(conn, "idempotency_key", columns, ((org_id, *row) for row in rows), len(rows))
    except asyncpg.UniqueViolationError:
        # A key that is known when it is inserted may be forgotten when it is looked up: then it is free after all.
        while rows:
            arrays = [list(column) for column in zip(*rows, strict=True)]
            made = {(row[0], row[1]) for row in await conn.fetch(SQL.claim_keys, org_id, *arrays)}
            rows = [row for row in rows if row[:2] not in made]
            for handler, key, task_id in await conn.fetch(SQL.known_keys, org_id, *_names_of(rows)):
                name = (handler, key)
                named[first[name]], first[name] = name, task_id
            rows = [row for row in rows if first[row[:2]] == row[2]]
    return {id: first[name] for id, name in named.items()}


def _names_of(rows: Sequence[tuple[str, str, int]]) -> tuple[list[str], list[str]]:
    return [row[0] for row in rows], [row[1] for row in rows]
