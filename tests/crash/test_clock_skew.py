"""Hosts whose own clocks are wrong: leases, due times, ids and rescue follow the clock of the database alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import weft
from crash.checker import check_outcomes
from crash.harness import Crew, until, until_settled
from moments import time_of

LEASE = timedelta(seconds=2)


async def beats(conn: asyncpg.Connection[asyncpg.Record], count: int) -> None:
    """Return when every live worker has beaten so often from now on, each time with a lease of the right length."""
    seen: dict[int, set[Any]] = {}

    async def have_beaten() -> bool:
        rows = await conn.fetch("select id, until, heartbeat_at, weft.now() as now from weft.worker")
        for row in rows:
            assert abs(row["until"] - row["heartbeat_at"] - LEASE) < LEASE / 2
            assert row["heartbeat_at"] <= row["now"], "a heartbeat lies in the future"
            seen.setdefault(row["id"], set()).add(row["heartbeat_at"])
        return bool(seen) and all(len(moments) > count for moments in seen.values())

    await until(have_beaten, f"all workers beat {count} times")


# The clocks of the worker that is killed, of the one that takes over, and of who submits.
MIXTURES = [("erratic", "ahead", "erratic"), ("ahead", "behind", "behind"), ("behind", "erratic", "ahead")]


@pytest.mark.parametrize("clocks", MIXTURES, ids=" ".join)
async def test_leases_ids_due_times_and_rescue_follow_the_clock_of_the_database(
    crew: Crew,
    conn: asyncpg.Connection[asyncpg.Record],
    client: weft.Client,
    clocks: tuple[str, str, str],
    campaign: str,
) -> None:
    if campaign == "short" and clocks != MIXTURES[0]:
        pytest.skip("one mixture of clocks is enough for every day")
    before = await conn.fetchval("select weft.now()")
    victim = await crew.worker(skew=clocks[0], concurrency=1)
    held = (await client.enqueue("gated", {"folder": str(crew.folder)})).id
    await crew.until_started(held)
    other = await crew.worker(skew=clocks[1])
    # Two leases long, whoever leads: nobody takes another for lost, or itself.
    await beats(conn, 8)
    assert await conn.fetchval("select count(*) from weft.worker where state = 'lost'") == 0

    submitter = await crew.submitter(7, skew=clocks[2])

    await until(lambda: conn.fetchval("select count(*) >= 100 from weft.task_done"), "a hundred tasks have ended")
    assert await submitter.finish() == 0
    rows = await conn.fetch("select id, created_at, claimed_at, ended_at from weft.task_done")
    after = await conn.fetchval("select weft.now()")
    for row in rows:
        # Far more than a slow machine needs, and far less than the clocks are wrong by.
        assert abs(time_of(row["id"]) - row["created_at"]) < timedelta(minutes=2)
        assert before <= row["created_at"] <= row["claimed_at"] <= row["ended_at"] <= after

    delayed = await client.enqueue("work", {"folder": str(crew.folder)}, delay=1)
    await client.wait(delayed.id, timeout=60)
    row = await conn.fetchrow("select created_at, claimed_at from weft.task_done where id = $1", delayed.id)
    assert row is not None
    assert row["claimed_at"] - row["created_at"] >= timedelta(seconds=1)

    await victim.kill()
    (again,) = await crew.until_started(held, attempt=2)
    assert again.worker == other.pid
    lapsed = await conn.fetchval("select until from weft.worker where pid = $1", victim.pid)
    claimed = await conn.fetchval("select claimed_at from weft.task where id = $1", held)
    assert claimed > lapsed, "taken before its lease was over"
    (crew.folder / "open").touch()
    await until_settled(conn)
    await check_outcomes(conn, crew.ledger())
