"""What the statements read when a million tasks wait and a million have ended: which indexes, and how many pages.

One test builds the database and asks everything, because building it takes longer than asking. A bound is about
twice what was measured; what matters is that it does not grow with the tables.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from guard import ONE_PASS, Guard, check
from million import FILL, HELD_EACH, IDLE_STATISTICS, LIVE, NO_STATISTICS, STATE_STATISTICS, UNLOGGED, cost_of

from weft.db.statements import Statements

TASK, WORKER = Statements("weft.queue", "sql/task.sql"), Statements("weft.queue", "sql/worker.sql")
UPKEEP, QUEUE = Statements("weft.queue", "sql/upkeep.sql"), Statements("weft.queue", "sql/queue.sql")
AUDIT = Statements("weft.queue", "sql/audit.sql")
RERUN = Statements("weft.jobs", "sql/rerun.sql")
OUTBOX, BLOB = Statements("weft.queue", "sql/outbox.sql"), Statements("weft.queue", "sql/blob.sql")
ENDED = """select weft.ended_after(
  'task_done_' || to_char(weft.now() at time zone 'UTC' - interval '1 day', 'YYYYMMDD'), weft.now() - $1::interval)"""
RATES = "select queue_id, ended from weft.ended_since(weft.now() - $1::interval)"
NEWEST = 2**63 - 1
HOUR = timedelta(hours=1)


def _claim(
    worker: int, wanted: int, queues: tuple[int, ...] = (1,), finished: list[int] | None = None,
    mark: tuple[int, int, int] = (-32768, 0, 0), from_head: bool = True,
) -> tuple[Any, ...]:  # fmt: skip
    ids, count = finished or [], len(queues)
    marks = [[part] * count for part in mark]
    return (
        worker, ids, [1] * len(ids), ["null"] * len(ids), list(queues), [-1] * count, *marks, wanted, from_head, None,
    )  # fmt: skip


def _hot(held: list[int], mark: tuple[int, int, int]) -> list[Guard]:
    """The statements of the hot path, which must be bounded whatever the statistics say."""
    n = len(held)
    batch = 25 * n + 150
    return [
        Guard("claim 1", TASK.finish_and_claim, _claim(1, 1), 80, {"task_ready": 2}, 1),
        Guard("claim 100", TASK.finish_and_claim, _claim(1, 100), 2500, {"task_ready": 110}, 100),
        Guard("claim above a mark", TASK.finish_and_claim, _claim(1, 10, mark=mark), 400, {"task_ready": 20}, 10),
        Guard(
            "claim above a mark only", TASK.finish_and_claim, _claim(1, 10, mark=mark, from_head=False), 400,
            {"task_ready": 20}, 10,
        ),
        Guard("claim of 3 queues", TASK.finish_and_claim, _claim(1, 100, (1, 3, 4)), 3000, {"task_ready": 500}, 100),
        Guard("claim nothing", TASK.finish_and_claim, _claim(1, 0), 20, {}, 0),
        Guard("finish", TASK.finish_and_claim, _claim(1, 0, finished=held), batch, {"task_pkey": 2 * n + 20}, 0),
        Guard("finish and claim", TASK.finish_and_claim, _claim(1, n, finished=held), 2 * batch, {"task_ready": 2 * n}, n),
        Guard("a lost outcome", TASK.finish_and_claim, _claim(7, 0, finished=held), batch, {"task_pkey": 2 * n + 20}, n),
        Guard("params", TASK.params_of, (held,), 6 * n),
    ]  # fmt: skip


def _others(held: list[int], dead: list[int]) -> list[Guard]:
    n = len(held)
    many = (1, held, [1] * n)
    batch = 25 * n + 150
    return [
        Guard("what a worker holds", TASK.held_by, (1,), 10 * n, {"task_worker": 20 * n}, n),
        Guard("what a lost worker holds", WORKER.held_by_lost, (1,), 10 * n, {"task_worker": 20 * n}, n),
        Guard("rescue", WORKER.rescue, (1, held), batch, {"task_pkey": 3 * n}, n),
        Guard("bury", WORKER.bury_crashed, (1, held, "{}"), batch, {"task_pkey": 3 * n}, n),
        Guard("rescued", WORKER.rescued, (1,), 20),
        Guard("lost", WORKER.lost, (), 200),
        Guard("mark lost", WORKER.mark_lost, (), 20),
        Guard("expired", WORKER.expired, (), 20, {"task_expiry": 0}),
        Guard("heartbeat", WORKER.heartbeat, (1, HOUR, True, 0, 0, HOUR, False), 250, {"task_due": 2}, 1),
        Guard("hand back", TASK.hand_back, many, batch, {"task_pkey": 3 * n}, n),
        Guard("hand back all", TASK.hand_back_all, (1,), batch, {"task_worker": 20 * n}, n),
        Guard(
            "postpone", TASK.postpone, (*many, ["1 h"] * n, ["f"] * n, ["r"] * n, ["{}"] * n, [True] * n), batch,
            {"task_pkey": 3 * n}, n,
        ),
        Guard(
            "end", TASK.end_unsuccessfully, (*many, ["dead"] * n, ["f"] * n, ["r"] * n, ["{}"] * n), batch,
            {"task_pkey": 3 * n}, n,
        ),
        Guard("heartbeat of tasks", TASK.extend_expiry, many, batch, {"task_pkey": 4 * n}, n),
        Guard("stage", UPKEEP.stage, (1000,), 20, {"task_due": 5}, 0),
        Guard("next due", UPKEEP.next_due, (), 20, {"task_due": 5}),
        Guard("cancel", TASK.cancel, (1, held[:1], "why"), 40, {"task_pkey": 2}, 1),
        Guard("lock before cancel", TASK.lock_live, (held[:1],), 20, {"task_pkey": 2}, 1),
        Guard("lock before replay", TASK.lock_done, (dead,), 1000, {}, len(dead)),
        Guard("replay", TASK.replay, (1, dead, ["failed", "dead"]), 3000, {"edge_next": 50}, len(dead)),
        Guard("show what waits", TASK.show, (1, held[0]), 40, {"task_pkey": 2}, 1),
        Guard("show what ended", TASK.show, (1, dead[0]), 40, {}, 1),
        Guard("attempts", TASK.attempts, (1, dead[0], "h"), 60, {}, 1),
        Guard("code of workers", RERUN.codes, ([5, 7],), 60, {}, 40),
        Guard("code of handlers", RERUN.current_codes, (1, ["h 3", "h 4", "unknown"]), 200, {}, 3),
        Guard("code of workers that are gone", WORKER.leave_codes, (), 12_000),
        Guard("code that is forgotten", WORKER.prune_codes, (timedelta(hours=1),), 40),
        Guard("which have ended", TASK.ended_among, (held,), 6 * n, {"task_pkey": n}),
        Guard("states", TASK.states_of, (1, held + dead), 2000),
        Guard("purge", TASK.purge, (1, timedelta(0), None, 1000), 20_000, {}, 1000),
        Guard("purge of ids", TASK.purge_ids, (1, timedelta(0), None, dead[:10], 1000), 400, {}, 10),
        Guard("prune keys", UPKEEP.prune_keys, (timedelta(0), 0), 30_000, {"idempotency_key_task": 3000}),
        Guard("rest of a purge", TASK.purge_rest, (dead, [datetime.now(UTC)] * len(dead)), 3000),
        # It reads the catalog: about 120 pages for each of the six tables that have partitions.
        Guard("old partitions", UPKEEP.old_partitions, (timedelta(days=30),), 900),
        Guard("a day from which nothing is old", ENDED, (timedelta(days=2),), 30, {}, 1),
        Guard("a day from which all is old", ENDED, (timedelta(0),), ONE_PASS, {}, 1),
        Guard("rates", QUEUE.rates, (1,), 400),
        Guard("rates, as many as there are", RATES, (timedelta(days=2),), 2 * ONE_PASS, {}, 5),
        Guard("references of tasks that are gone", BLOB.forget_references, (0,), 20_000),
        Guard("whether an org uses a blob", BLOB.is_used_by, (1, "0" * 64), 60, {}, 1),
        Guard("blobs that nobody needs", BLOB.unused, (timedelta(0),), 3000),
        Guard("keys with room", QUEUE.waiting_keys, (None,), 1000, {"task_key": 300}),
        Guard("admit", QUEUE.admit, ([1] * 5, [f"key {key}" for key in range(1, 6)]), 500, {"task_key": 10}),
        Guard("lease slots", QUEUE.acquire_slots, (1, 1, 10, 100, 50), 1500, {"task_worker": 2500}),
        Guard("idle keys", QUEUE.forget_idle_keys, (), 100),
        Guard("outbox, claim", OUTBOX.claim, (1, ["callback"], 100), 4000, {"outbox_due": 300}),
        Guard("outbox, rescue", OUTBOX.rescue, (), 50),
        *_acts(AUDIT.list_newest),
        *_acts(AUDIT.list_oldest),
    ]  # fmt: skip


def _acts(statement: str) -> list[Guard]:
    whole, none = (0, NEWEST, None, None, 50), (None,) * 5
    now = datetime.now(UTC) + timedelta(days=1)
    return [
        Guard("audit", statement, (1, *none, *whole), 60, {"audit_org": 60}, 50),
        Guard("audit of an org of no acts", statement, (2, *none, *whole), 20, {"audit_org": 5}, 0),
        Guard("audit of a verb that nobody did", statement, (1, "x", *none[1:], *whole), 20, {"audit_verb": 5}, 0),
        Guard("audit of a queue", statement, (1, *none[2:], "queue 7", None, *whole), 20, {"audit_name": 5}, 1),
        Guard("audit of a task", statement, (1, None, 7, *none[2:], *whole), 60, {"audit_subject": 5}, 1),
        Guard("audit of a job of no acts", statement, (1, None, None, 7, None, None, *whole), 20, {"audit_job": 5}, 0),
        Guard("audit of somebody who did nothing", statement, (1, *none[1:], "x", *whole), 20, {"audit_actor": 5}, 0),
        Guard("audit of no time", statement, (1, *none, 0, NEWEST, now, None, 50), 20, {"audit_org": 5}, 0),
    ]


def _lists() -> list[Guard]:
    """Pages of lists: of many, of few, of none; a page is answered after a bounded look, however few pass."""
    tasks: dict[str, tuple[Any, ...]] = {
        "all": (),
        "of a queue": (None, 1),
        "of a rare queue": (None, 4),
        "of a rare handler": (None, None, "seldom"),
        "of an unknown handler": (None, None, "nobody"),
        "ready": (["ready"],),
        "running": (["running"],),
        "waiting": (["waiting"],),
        "completed": (["completed"],),
        "dead letters": (["failed", "dead"],),
        "dead letters of a rare queue": (["failed", "dead"], 4),
        "dead letters of an unknown handler": (["failed", "dead"], None, "nobody"),
        "cancelled": (["cancelled"],),
        "skipped": (["skipped"],),
        "steps": (None, 2),
    }
    effects: dict[str, tuple[Any, ...]] = {
        "all": (None, None),
        "done": (["done"], None),
        "failed": (["failed"], None),
        "of a rare kind": (None, "route_event"),
        "of a kind that is not there": (["pending"], "enqueue_task"),
    }
    found = []
    # Nearly all is the first org's, the second has little, and the third nothing.
    for org, is_newest in ((1, True), (1, False), (2, True), (2, False), (3, True)):
        for name, filters in tasks.items():
            page = org, *filters, *[None] * (3 - len(filters)), 0, NEWEST, is_newest, 50, 1000
            found.append(Guard(f"{name} of org {org}, {is_newest}", TASK.list, page, 3000))
        for name, filters in effects.items():
            statement = OUTBOX.list_newest if is_newest else OUTBOX.list_oldest
            page = org, *filters, 0, NEWEST, 50
            found.append(Guard(f"effects, {name} of org {org}", statement, page, 120, {"outbox_org": 220}))
    return found


async def _lone_calls(conn: asyncpg.Connection[asyncpg.Record], guards: list[Guard], count: int) -> None:
    """Use a session as a worker does that has little to do: many calls, each for one task or none."""
    for guard in guards:
        await cost_of(conn, guard.statement, *guard.arguments)
    transaction = conn.transaction()
    await transaction.start()
    for _ in range(count):
        await conn.fetch(TASK.finish_and_claim, *_claim(1, 1))
    await transaction.rollback()


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_no_statement_reads_more_when_there_are_more_tasks(own_url: str) -> None:
    # A session that has planned everything while the tables were empty, and has used it often.
    early = await asyncpg.connect(own_url)
    hot, others = _hot([1], (0, 0, 0)), _others([1], [1])
    await _lone_calls(early, hot + others, 100)
    conn = await asyncpg.connect(own_url)
    # As many partitions as there are with a month of retention.
    await conn.execute("select weft.ensure_partitions(31)")
    await conn.execute(UNLOGGED)
    await conn.execute(FILL)
    held = [row[0] for row in await conn.fetch("select id from weft.task where worker_id = 1 order by id")]
    dead = [
        row[0]
        for row in await conn.fetch("select id from weft.task_done where state = 'dead' order by id desc limit 100")
    ]
    assert len(held) == HELD_EACH
    assert await conn.fetchval("select count(*) from weft.task") == LIVE
    middle = await conn.fetchrow(
        "select rank, order_id, id from weft.task where state = 'ready' and queue_id = 1 order by 1, 2 offset 400000 limit 1"
    )
    assert middle is not None
    hot = _hot(held, tuple(middle))
    broken = await check(early, hot, "planned on empty tables")
    await conn.execute("vacuum weft.task")
    await conn.execute("analyze")
    for when, statistics in [
        ("with true statistics", None),
        ("nothing held by the statistics", IDLE_STATISTICS),
        ("without statistics", NO_STATISTICS),
        ("all pending by the statistics", STATE_STATISTICS.format(state="pending")),
        ("all ready by the statistics", STATE_STATISTICS.format(state="ready")),
    ]:
        if statistics is not None:
            await conn.execute(statistics)
        fresh = await asyncpg.connect(own_url)
        broken += await check(fresh, hot, when)
        if statistics is None:
            # Once as first planned, and again after so many calls that a generic plan may have taken over.
            for turn in ("first", "second", "third", "fourth"):
                broken += await check(fresh, _others(held, dead) + _lists(), f"{turn} time")
        if statistics is IDLE_STATISTICS:
            broken += await check(fresh, _others(held, dead), when)
        await _lone_calls(fresh, [], 100)
        broken += await check(fresh, hot, f"{when}, after 100 lone calls")
        await fresh.close()
    await asyncio.gather(early.close(), conn.close())
    assert not broken, "\n".join(broken)
