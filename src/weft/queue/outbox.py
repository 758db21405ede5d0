"""The outbox: effects that are committed with what caused them, and carried out afterwards at least once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.checks import Stretch, check_word
from weft.core.errors import InvalidInput
from weft.core.json import encode, readable
from weft.core.states import OutboxKind
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database, type_Connection

SQL = Statements("weft.queue", "sql/outbox.sql")
MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One effect and how far it has come; without ``has_sink`` it waits for a release that carries out its kind."""

    id: int
    kind: str
    ordering_key: str | None
    payload: Any
    state: str
    available_at: datetime
    attempts: int
    last_error: str | None
    created_at: datetime
    processed_at: datetime | None
    has_sink: bool


@dataclass(frozen=True, slots=True)
class Effect:
    """What a sink is given to carry out; it may come twice, with the same id."""

    id: int
    org: str
    kind: str
    payload: Any
    attempt: int
    actor: str | None


Sink = Callable[[Effect], Awaitable[None]]


async def add(
    conn: type_Connection, org_id: int, kind: str, payload: Any, *, ordering_key: str | None = None,
    actor: str | None = None,
) -> int:  # fmt: skip
    """Add an effect in the caller's transaction; effects of one ordering key are carried out in order."""
    check_word(kind, "kind", OutboxKind)
    return int(await conn.fetchval(SQL.add, org_id, kind, encode(payload, "payload"), ordering_key, actor))


async def drain(
    database: Database, worker_id: int, sinks: Mapping[str, Sink], limit: int = 100, *, at_once: int = 1
) -> int:
    """Carry out at most ``limit`` due effects of the kinds that have a sink; return how many were tried.

    They are carried out in the order of their ids, so many ``at_once``.
    """
    if not sinks:
        return 0
    kinds = sorted(sinks)
    # Only one drain of a kind runs in a worker: what is still in its hands was left behind by one that broke off.
    await database.run(lambda conn: give_back(conn, worker_id, kinds))
    rows = await database.run(lambda conn: conn.fetch(SQL.claim, worker_id, kinds, limit))
    turn = asyncio.Semaphore(at_once)

    async def carry_out(row: Record) -> None:
        async with turn:
            await _carry_out(database, worker_id, sinks, row)

    try:
        async with asyncio.TaskGroup() as together:
            for row in sorted(rows, key=lambda row: row["id"]):
                together.create_task(carry_out(row))
    except ExceptionGroup as problems:
        # What keeps one from being settled, such as a lost connection, keeps all.
        raise problems.exceptions[0] from None
    return len(rows)


async def _carry_out(database: Database, worker_id: int, sinks: Mapping[str, Sink], row: Record) -> None:
    effect = Effect(row["id"], row["org"], row["kind"], None, row["attempts"], row["actor"])
    try:
        effect = replace(effect, payload=orjson.loads(row["payload"]))
        await sinks[effect.kind](effect)
    except Exception as problem:  # noqa: BLE001  the boundary to a sink's code: recorded with the row
        await _failed(database, worker_id, effect, problem)
    else:
        await database.run(lambda conn: conn.execute(SQL.done, effect.id, worker_id))


async def give_back(conn: type_Connection, worker_id: int, kinds: Sequence[str]) -> int:
    """Give back what a worker took of these kinds and did not finish; return how many."""
    return len(await conn.fetch(SQL.give_back, worker_id, kinds))


async def rescue(conn: type_Connection) -> int:
    """Give back effects that a worker took and did not finish; return how many."""
    return len(await conn.fetch(SQL.rescue))


async def replay(conn: type_Connection, org_id: int, ids: list[int] | None, actor: str | None = None) -> int:
    """Send failed effects round again; return how many."""
    landed = [row["id"] for row in await conn.fetch(SQL.replay, org_id, ids)]
    await audit.record_many(conn, org_id, actor, AuditVerb.REPLAY, "effect", landed)
    return len(landed)


async def purge(conn: type_Connection, org_id: int, ids: list[int] | None, actor: str | None = None) -> int:
    """Forget failed effects for good; return how many."""
    landed = [row["id"] for row in await conn.fetch(SQL.purge, org_id, ids)]
    await audit.record_many(conn, org_id, actor, AuditVerb.PURGE, "effect", landed)
    return len(landed)


async def prune(conn: type_Connection, older_than: timedelta) -> int:
    """Forget effects that were carried out or given up long ago, and what waits behind these; return how many."""
    return len(await conn.fetch(SQL.prune, older_than))


async def list_rows(
    conn: type_Connection, org_id: int, part: Stretch, *, state: str | None, kind: str | None, limit: int
) -> list[OutboxRow]:
    """Return effects, the newest first or the oldest."""
    statement = SQL.list_newest if part.is_newest else SQL.list_oldest
    states = None if state is None else [state]
    rows = await conn.fetch(statement, org_id, states, kind, part.above, part.below, limit)
    return [
        OutboxRow(
            **{**dict(row), "payload": readable(row["payload"])},
            has_sink=row["kind"] in list(OutboxKind),
        )
        for row in rows
    ]


async def _failed(database: Database, worker_id: int, effect: Effect, problem: Exception) -> None:
    error = f"{type(problem).__name__}: {problem}"[:2000]
    # What is wrong with the effect itself does not pass.
    if effect.attempt >= MAX_ATTEMPTS or isinstance(problem, InvalidInput):
        await database.run(lambda conn: conn.execute(SQL.fail, effect.id, worker_id, error))
        return
    delay = timedelta(seconds=min(3600.0, 2.0 ** min(effect.attempt - 1, 12)) * random.uniform(0.8, 1.0))
    await database.run(lambda conn: conn.execute(SQL.retry_later, effect.id, worker_id, delay, error))
