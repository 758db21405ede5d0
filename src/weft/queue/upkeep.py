"""The bounded steps that keep the queue going, each safe to be run by any number of processes at once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import asyncpg
import orjson

from weft.core.errors import PermissionDenied
from weft.db.statements import Statements
from weft.queue import loans, work
from weft.queue.retry import Retry

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database, type_Connection

SQL = Statements("weft.queue", "sql/upkeep.sql")
WORKER = Statements("weft.queue", "sql/worker.sql")
TASK = Statements("weft.queue", "sql/task.sql")
QUEUE = Statements("weft.queue", "sql/queue.sql")
STAGE_BATCH = 1000
# How many rows the statements that prune take at once.
PAGE = 1000
# All of a day is read once before it is dropped.
SCAN_LIMIT = 600.0


async def stage(conn: type_Connection) -> tuple[int, set[int]]:
    """Make due tasks ready; return how many were due, and the queues that have work now."""
    rows = await conn.fetch(SQL.stage, STAGE_BATCH)
    keyed = sorted(row["id"] for row in rows if row["concurrency_key"] is not None)
    if keyed:
        await conn.execute(TASK.take_slots, keyed)
    return len(rows), {row["queue_id"] for row in rows}


async def next_due(conn: type_Connection) -> timedelta | None:
    """Return the time until the next task is due; None when nothing is scheduled."""
    return await _time_until(conn, SQL.next_due)


async def next_late(conn: type_Connection) -> timedelta | None:
    """Return the time until something runs out of time; None when nothing does."""
    return await _time_until(conn, SQL.next_late)


async def _time_until(conn: type_Connection, statement: str) -> timedelta | None:
    row = await conn.fetchrow(statement)
    assert row is not None
    due_at: datetime | None = row["due_at"]
    return None if due_at is None else due_at - row["now"]


async def mark_lost(conn: type_Connection) -> list[int]:
    """Mark workers whose lease lapsed; from then on their heartbeats do not land."""
    return [row[0] for row in await conn.fetch(WORKER.mark_lost)]


async def lost_workers(conn: type_Connection) -> list[int]:
    """Return lost workers whose tasks are not rescued yet."""
    return [row[0] for row in await conn.fetch(WORKER.lost)]


async def rescue(conn: type_Connection, worker_id: int, loss_limit: int) -> tuple[int, set[int]]:
    """Take at most 1,000 tasks from a lost worker; return how many, and the queues that have work now."""
    held = await conn.fetch(WORKER.held_by_lost, worker_id)
    buried = [row["id"] for row in held if row["crashes"] + 1 >= loss_limit]
    rescued = [row["id"] for row in held if row["crashes"] + 1 < loss_limit]
    woken: set[int] = set()
    if rescued:
        moved = await conn.fetch(WORKER.rescue, worker_id, rescued)
        await loans.end(conn, moved)
        woken = {row["queue_id"] for row in moved}
    if buried:
        message = f"running {loss_limit} times when its worker or process died"
        error = orjson.dumps({"type": "Crashed", "message": message, "traceback": ""}).decode()
        rows = [row for row in await conn.fetch(WORKER.bury_crashed, worker_id, buried, error)]
        await work.note_failed(conn, rows)
        keyed = [row for row in rows if row["concurrency_key"] is not None]
        if keyed:
            await conn.execute(TASK.free_slots, [r["queue_id"] for r in keyed], [r["concurrency_key"] for r in keyed])
    if len(held) < 1000:
        await conn.execute(WORKER.give_up_slots, worker_id)
        await conn.execute(WORKER.give_up_lead, worker_id)
        # The last hint may have gone to it, and been heard by nobody.
        woken.update(await conn.fetchval(WORKER.rescued, worker_id) or ())
    return len(held), woken


async def expire(conn: type_Connection) -> int:
    """End attempts that missed their heartbeat timeout, as failures; return how many."""
    count = 0
    for row in await conn.fetch(WORKER.expired):
        # Where only the handler's worker knows how often it is tried, that worker counts before the next attempt.
        most = row["max_attempts"]
        policy = Retry() if most is None else Retry.from_json(row["retry"], most)
        failures = row["failures"] + 1
        if most is not None and failures >= most:
            ended = work.Ended(row["id"], row["attempt"], "dead", "failed", "heartbeat_timeout", work.NO_HEARTBEAT)
            count += len(await work.end_unsuccessfully(conn, row["worker_id"], [ended]))
        else:
            again = work.Postponed(
                row["id"],
                row["attempt"],
                policy.delay(failures),
                "failed",
                "heartbeat_timeout",
                work.NO_HEARTBEAT,
                True,
            )
            count += len(await work.postpone(conn, row["worker_id"], [again]))
        await conn.execute(TASK.tell_cancelled, row["worker_id"], row["id"], row["attempt"])
    return count


async def end_late_jobs(conn: type_Connection) -> int:
    """Let jobs fail that have run out of time; return how many."""
    return int(await conn.fetchval(SQL.end_late_jobs))


async def refresh_handlers(conn: type_Connection) -> None:
    """Note which handlers live workers know now."""
    await conn.execute(WORKER.refresh_handlers)


async def prune_workers(conn: type_Connection, older_than: timedelta) -> int:
    """Forget workers that stopped or were lost long ago; return how many."""
    return len(await conn.fetch(WORKER.prune, older_than))


async def prune_codes(conn: type_Connection, retention: timedelta) -> int:
    """Forget which code workers had that are gone for longer than what they ran is remembered; return how many."""
    await conn.execute(WORKER.leave_codes)
    return len(await conn.fetch(WORKER.prune_codes, retention))


async def prune_idle_keys(conn: type_Connection) -> int:
    """Forget concurrency keys that nobody holds; return how many."""
    return len(await conn.fetch(QUEUE.forget_idle_keys))


async def forget_slots(conn: type_Connection) -> int:
    """Free slots of workers that are gone and hold nothing; return how many."""
    return len(await conn.fetch(QUEUE.forget_slots))


async def prune_keys(conn: type_Connection, ttl: timedelta, after: int) -> tuple[int, int | None]:
    """Forget a page of idempotency keys whose tasks ended long ago; return how many, and where the next page begins.

    Pages go on past keys that must stay, so these never hide what comes after them.
    """
    row = await conn.fetchrow(SQL.prune_keys, ttl, after)
    assert row is not None
    return row["gone"], row["last"] if row["seen"] == PAGE else None


async def prune_edges(conn: type_Connection, retention: timedelta, after: int) -> tuple[int, int | None]:
    """Forget a page of edges whose tasks are gone; return how many, and where the next page begins."""
    row = await conn.fetchrow(SQL.prune_edges, retention, after)
    assert row is not None
    return row["gone"], row["last"] if row["seen"] == PAGE else None


async def prune_inputs(conn: type_Connection, retention: timedelta) -> int:
    """Forget what tasks that are gone have read of datasets; return how much."""
    return len(await conn.fetch(SQL.prune_inputs, retention))


async def prune_events(conn: type_Connection, older_than: timedelta) -> int:
    """Forget events that were sent long ago, before all jobs that are open; return how many."""
    return len(await conn.fetch(SQL.prune_events, older_than))


async def prune_answers(conn: type_Connection, older_than: timedelta) -> int:
    """Forget a page of answers to requests with a key that were given long ago; return how many."""
    return len(await conn.fetch(SQL.prune_answers, older_than))


async def add_up(conn: type_Connection) -> None:
    """Bring the totals up to date that outlive what they count."""
    await conn.execute(SQL.fold_tallies)
    await conn.execute(SQL.count_made, timeout=SCAN_LIMIT)


async def prune_logs(conn: type_Connection, older_than: timedelta) -> int:
    """Forget where logs were copied to long ago; return how many."""
    return len(await conn.fetch(SQL.prune_logs, older_than))


async def drop_partitions(database: Database, retention: timedelta) -> list[str]:
    """Drop the days of the past in which nothing ended within the retention and nothing is open; return the tables.

    DETACH CONCURRENTLY waits for readers without making claims queue behind it, but cannot stand in a transaction. Of a
    day, what has ended goes first and the rest only after another look: until then a task could be replayed.
    """
    dropped: list[str] = []
    tried = set[str]()
    while True:
        async with database.acquire() as conn:
            old = [row for row in await conn.fetch(SQL.old_partitions, retention) if row["child"] not in tried]
        if not old:
            return dropped
        # What somebody began to detach comes first: PostgreSQL begins with no other before that is finished.
        chosen = next((row for row in old if row["is_pending"]), old[0])
        tried.add(chosen["child"])
        if not await _is_needed(database, chosen, retention) and await _drop(database, chosen):
            dropped.append(chosen["child"])


async def _is_needed(database: Database, row: Record, retention: timedelta) -> bool:
    """Whether a partition of what has ended holds anything that ended within the retention."""
    if row["parent"] != "task_done" or row["is_pending"] or not row["is_attached"]:
        return False
    async with database.acquire() as conn:
        return bool(await conn.fetchval(SQL.ended_within, row["child"], retention, timeout=SCAN_LIMIT))


async def _drop(database: Database, row: Record) -> bool:
    """Detach a partition, if that was not done before, and drop it; False when somebody else is about to."""
    parent, child = row["parent"], row["child"]
    if parent == "task_done" and row["is_attached"]:
        await database.run(lambda conn: conn.execute(SQL.note_ends, child[-8:]))
    conn = await database.connect(database.listen_url or database.url, command_timeout=SCAN_LIMIT)
    try:
        if row["is_attached"]:
            how = "finalize" if row["is_pending"] else "concurrently"
            await conn.execute(f'alter table weft."{parent}" detach partition weft."{child}" {how}')
        await conn.execute(f'drop table weft."{child}"')
    except (asyncpg.ObjectInUseError, asyncpg.UndefinedTableError):
        return False
    except asyncpg.InsufficientPrivilegeError as problem:
        raise PermissionDenied(str(problem)) from problem
    finally:
        await conn.close()
    return True
