"""Workers without a database of their own: by which token each acts, and what is held in its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from weft.db.statements import Statements
from weft.queue.steps import Fence
from weft.queue.work import Claim

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/remote_worker.sql")


@dataclass(frozen=True, slots=True)
class Registered:
    """A worker as it was registered; ``queues`` are its queues' names by their ids, in its order."""

    worker_id: int
    org_id: int
    token_id: int
    is_live: bool
    concurrency: int
    queues: dict[int, str]


class Share(NamedTuple):
    """Of a queue with a limit: how many slots a worker has, and how many of its tasks take one."""

    limit: int
    held: int
    used: int


async def bind(conn: type_Connection, worker_id: int, token_id: int) -> None:
    """Let a worker that has just registered act by one token alone."""
    await conn.execute(SQL.bind, worker_id, token_id)


async def registered(conn: type_Connection, worker_id: int, org_id: int, token_id: int) -> Registered | None:
    """Return a worker of a token; None when there is none, and none of anybody else's."""
    row = await conn.fetchrow(SQL.seat, worker_id, org_id, token_id)
    if row is None:
        return None
    is_live = row["state"] in ("active", "idle")
    queues = dict(zip(row["ids"], row["names"], strict=True))
    return Registered(worker_id, org_id, token_id, is_live, row["concurrency"], queues)


async def is_live(conn: type_Connection, worker_id: int) -> bool:
    """Whether a worker has not left, and was not given up for lost."""
    return bool(await conn.fetchval(SQL.is_live, worker_id))


async def is_beat_due(conn: type_Connection, worker_id: int, interval: timedelta) -> bool:
    """Whether no heartbeat of a worker came for so long, wherever it sends them."""
    return bool(await conn.fetchval(SQL.is_beat_due, worker_id, interval))


async def rest(conn: type_Connection, fence: Fence) -> None:
    """Let an attempt take no slot of its queue until it goes on; one that is not the worker's own stays as it is."""
    await conn.execute(SQL.rest, *fence)


async def rests(conn: type_Connection, fence: Fence) -> bool:
    """Whether an attempt that the worker holds rests."""
    return bool(await conn.fetchval(SQL.rests, *fence))


async def end_rest(conn: type_Connection, fence: Fence) -> None:
    """Let an attempt that rests go on; whoever calls has seen to it that there is a slot for it."""
    await conn.execute(SQL.end_rest, *fence)


async def lock_share(conn: type_Connection, worker_id: int) -> None:
    """Let nobody else count or take slots for a worker until the transaction ends; what is read after this is so."""
    await conn.execute(SQL.lock_share, worker_id)


async def shares(
    conn: type_Connection, worker_id: int, queue_ids: Sequence[int], ending: Sequence[tuple[int, int]] = ()
) -> dict[int, Share]:
    """Return a worker's share of those of the queues that have a limit; attempts in ``ending`` count no more."""
    ids, attempts = [id for id, _ in ending], [attempt for _, attempt in ending]
    rows = await conn.fetch(SQL.shares, worker_id, list(queue_ids), ids, attempts)
    return {row[0]: Share(row[1], row[2], row[3]) for row in rows}


async def held_among(conn: type_Connection, worker_id: int, leases: Sequence[tuple[int, int]]) -> dict[int, Claim]:
    """Return those of the attempts that the worker holds, by task."""
    rows = await conn.fetch(SQL.held_among, worker_id, [id for id, _ in leases], [attempt for _, attempt in leases])
    return {row[0]: Claim._make(tuple(row)) for row in rows}


async def settled_among(conn: type_Connection, worker_id: int, leases: Sequence[tuple[int, int]]) -> set[int]:
    """Return the tasks whose attempts the worker has ended without success before."""
    rows = await conn.fetch(SQL.settled_among, worker_id, [id for id, _ in leases], [attempt for _, attempt in leases])
    return {row[0] for row in rows}


async def had_among(conn: type_Connection, worker_id: int, leases: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return those of the attempts that are or were the worker's own."""
    rows = await conn.fetch(SQL.had_among, worker_id, [id for id, _ in leases], [attempt for _, attempt in leases])
    return {(row[0], row[1]) for row in rows}


async def refers_to(
    conn: type_Connection, org_id: int, digest: str, queues: Sequence[str] | None = None, token_id: int | None = None
) -> bool:
    """Whether something of an org refers to a blob, that a token of some ``queues`` has to do with, if not of all."""
    named = None if queues is None else list(queues)
    return bool(await conn.fetchval(SQL.refers_to, org_id, digest, named, token_id))


async def task_refers_to(conn: type_Connection, org_id: int, references: Sequence[tuple[int, str]]) -> set[int]:
    """Return those of the tasks of an org that refer to the blob beside them."""
    ids, digests = [id for id, _ in references], [digest for _, digest in references]
    return {row[0] for row in await conn.fetch(SQL.task_refers_to, org_id, ids, digests)}


async def of_org(
    conn: type_Connection, org_id: int, task_ids: Sequence[int], queue_ids: Sequence[int] | None, parent_id: int
) -> set[int]:
    """Return those of the tasks that are an org's own, and in some queues, if not all, or made by a task."""
    chosen = None if queue_ids is None else list(queue_ids)
    return {row[0] for row in await conn.fetch(SQL.of_org, org_id, list(task_ids), chosen, parent_id)}
