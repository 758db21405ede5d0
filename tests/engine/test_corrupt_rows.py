"""Rows that somebody changed by hand: the task ends or is parked for all to see, and nothing else stands still.

Every column that a worker reads is set to something odd that its type allows. Beside each such task waits an innocent
one, and after it comes another: both must complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from engine_scene import MakeClient, until

import weft
from weft.worker.registry import Registry

# No attempt comes sooner than this after one that failed, so a loop without end would show in the count.
MOST_ATTEMPTS = 5
PATIENCE = 60
SOON = weft.Retry(3, initial_delay=0.01, jitter=0)
ODD = {
    "params is a list": "params = '[1]'",
    "params is null": "params = 'null'",
    "params is a text": "params = '\"x\"'",
    "params is a number beyond a double": "params = '1e999'",
    "params has a lone surrogate": """params = '{"n":"\\ud800"}'""",
    "params has a NUL": """params = '{"n":"\\u0000"}'""",
    "params is a blob that is not there": f"""params = '{{"$blob":"{"0" * 64}","size":1}}'""",
    "params is half a reference to a blob": """params = '{"$blob":1}'""",
    "params is nested 10,000 levels deep": "params = (repeat('[', 5000) || repeat(']', 5000))::json",
    "params is gone": "params = null",
    "retry is a list": "retry = '[1, 2]'",
    "retry is null": "retry = 'null'",
    "retry has an unknown key": """retry = '{"patience": 3}'""",
    "retry has a delay of a century": """retry = '{"initial_delay": 1e300, "max_delay": 1e300}'""",
    "retry has a negative delay": """retry = '{"backoff": "fixed", "initial_delay": -5}'""",
    "retry has a count of its own": """retry = '{"backoff": "fixed", "initial_delay": 0, "max_attempts": 9}'""",
    "retry has types of its own": """retry = '{"non_retryable": "ValueError"}'""",
    "retry is an unknown backoff": """retry = '{"backoff": {"a": 1}}'""",
    "handler is unknown": "handler = 'nobody'",
    "handler is empty": "handler = ''",
    "timeout is nothing": "timeout = '0'",
    "timeout is a month and a bit": "timeout = '1 month 3 days'",
    "heartbeat_timeout is nothing": "heartbeat_timeout = '0'",
    "heartbeat_timeout is nothing and no attempt is allowed": "heartbeat_timeout = '0', max_attempts = 0",
    "max_attempts is 0": "max_attempts = 0",
    "max_attempts is negative": "max_attempts = -32768",
    "failures and max_attempts are at their end": "failures = 32766, max_attempts = 32767",
    "crashes is at its end": "crashes = 32767",
    "crashes is negative": "crashes = -5",
    "generation is at its end": "generation = 32767",
    "rank is at its end": "rank = 32767",
    "order is before everything": "order_id = -1",
    "order is at its end": "order_id = 9223372036854775807",
    "job is unknown": "job_id = 42",
    "key has no slot": "concurrency_key = 'k'",
    "a task that is ready has a time": "due_at = 'infinity'",
    "a task that is ready expires": "expires_at = '-infinity'",
    "a task that is ready has a holder": "worker_id = 42",
    "a task that is ready was claimed long ago": "claimed_at = '-infinity'",
    "created before time": "created_at = '-infinity'",
    "reason is odd": "reason = 'because'",
}


# What no worker could get over: the table refuses it, whoever writes it.
REFUSED = {
    "timeout is beyond any clock": "timeout = '170000000 years'",
    "timeout is infinite": "timeout = 'infinity'",
    "timeout is negative": "timeout = '-1 hour'",
    "heartbeat_timeout is negative": "heartbeat_timeout = '-1 hour'",
    "heartbeat_timeout is beyond any clock": "heartbeat_timeout = '170000000 years'",
    "heartbeat_timeout is infinite": "heartbeat_timeout = 'infinity'",
    "attempt is at its end": "attempt = 2147483647",
    "attempt is just below its end": "attempt = 2147483646",
    "attempt is negative": "attempt = -7",
    "rank is before everything": "rank = -32768",
    "failures is at its end": "failures = 32767",
    "failures is negative": "failures = -1",
    "handler is a megabyte": "handler = repeat('x', 1000000)",
}


@asynccontextmanager
async def ended_at_once(worker: weft.Worker) -> AsyncIterator[None]:
    """Run a worker, and wait for none of its tasks at the end."""
    await worker.start()
    try:
        yield
    finally:
        await worker.stop(grace=0)


async def test_rows_that_no_worker_could_read_are_refused(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task_id = (await client.enqueue("odd")).id
    # Before PostgreSQL 17 there is no such span at all.
    knows_infinity = conn.get_server_version().major >= 17
    for odd, change in REFUSED.items():
        is_unknown = "infinity" in change and not knows_infinity
        with pytest.raises(asyncpg.InvalidDatetimeFormatError if is_unknown else asyncpg.CheckViolationError):
            print(odd, await conn.execute(f"update weft.task set {change} where id = $1", task_id))


async def test_odd_rows_end_or_are_parked_and_hold_up_nobody(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    runs: Counter[int] = Counter()

    @registry.task(name="odd", retry=SOON)
    async def fails(n: int, ctx: weft.Context) -> None:
        runs[ctx.task_id] += 1
        raise ValueError("always")

    @registry.task(name="innocent")
    async def innocent() -> str:
        return "done"

    client = await make_client(worker_poll_interval=0.2)
    ids, beside = {}, []
    for odd, change in ODD.items():
        ids[(await client.enqueue(fails, {"n": 1})).id] = odd
        await conn.execute(f"update weft.task set {change} where id = $1", max(ids))
        beside.append(await client.enqueue("innocent"))

    async def unsettled() -> list[str]:
        rows = await conn.fetch(
            "select id from weft.tasks where id = any ($1)"
            " and not (state in ('failed', 'dead') or state in ('scheduled', 'pending') and attempt <> 0)",
            list(ids),
        )
        return [ids[row["id"]] for row in rows]

    async with ended_at_once(weft.Worker(client=client, registry=registry, concurrency=4)):
        for handle in beside:
            assert await client.wait(handle.id, timeout=PATIENCE) == "done"
        left = await until(unsettled, lambda found: not found, within=PATIENCE)
        assert left == []
        after = await client.enqueue("innocent")
        assert await client.wait(after.id, timeout=PATIENCE) == "done"
    assert {ids[id]: count for id, count in runs.items() if count > MOST_ATTEMPTS} == {}
    for task_id in ids:
        assert (await client.get_task(task_id)).id == task_id
    assert len((await client.list_tasks(limit=1000)).tasks) == 2 * len(ids) + 1
