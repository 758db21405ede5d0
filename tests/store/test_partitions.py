"""Partitions of what has ended: made ahead of time, dropped when nothing in them is needed."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from store_scene import Store

from moments import first_id_at, time_of
from weft.core.settings import Settings
from weft.db.database import Database, ensure_partitions
from weft.queue import operate, upkeep, work
from weft.queue.services import Pruner
from weft.queue.work import Completed

pytestmark = pytest.mark.own_database

PARENTS = ("attempt", "job_done", "job_event", "job_label", "step", "task_done", "task_params")
LONG = '{"text": "' + "x" * 300 + '"}'


async def _days(store: Store, parent: str) -> list[str]:
    rows = await store.conn.fetch(
        """select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
           where i.inhparent = $1::regclass order by 1""",
        f"weft.{parent}",
    )
    return [row[0][-8:] for row in rows]


def _names(first: datetime, count: int) -> list[str]:
    return [(first + timedelta(days=n)).strftime("%Y%m%d") for n in range(count)]


async def test_partitions_are_made_from_yesterday_to_a_week_ahead(store: Store) -> None:
    today = await store.conn.fetchval("select date_trunc('day', weft.now(), 'UTC')")
    for parent in PARENTS:
        assert await _days(store, parent) == _names(today - timedelta(days=1), 10)
    assert await store.run(ensure_partitions) == 0
    await store.advance(days=3)
    assert await store.run(ensure_partitions) == 21
    for parent in PARENTS:
        assert await _days(store, parent) == _names(today - timedelta(days=1), 13)


async def test_many_who_make_partitions_at_once_make_each_once(store: Store, url: str) -> None:
    await store.advance(days=5)

    async def make() -> int:
        conn = await asyncpg.connect(url)
        try:
            return await Store(conn).run(ensure_partitions)
        finally:
            await conn.close()

    assert sum(await asyncio.gather(*(make() for _ in range(5)))) == 35


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "America/New_York"])
async def test_a_partition_is_old_only_when_its_whole_day_is(store: Store, database: Database, zone: str) -> None:
    """Whatever the session's time zone: the days are those of UTC."""
    await store.conn.execute(f"set timezone = '{zone}'")
    today: datetime = await store.conn.fetchval("select date_trunc('day', weft.now(), 'UTC')")

    async def old() -> set[str]:
        rows = await store.conn.fetch(upkeep.SQL.old_partitions, timedelta(days=30))
        assert {row["parent"] for row in rows} <= set(PARENTS)
        return {row["child"][-8:] for row in rows}

    name = today.strftime("%Y%m%d")
    end = today + timedelta(days=31) - datetime.now(UTC)
    await store.advance(seconds=end.total_seconds() - 60)
    assert name not in await old()
    await store.advance(seconds=120)
    assert name in await old()
    # A task that has not ended keeps the partition of its day, to its last moment, and all later ones.
    for moment in (today, today + timedelta(hours=23, minutes=59, seconds=59)):
        await store.conn.execute(
            """insert into weft.task (id, org_id, queue_id, order_id, state, handler)
               values ($1, 1, 1, $1, 'ready', 'h')""",
            first_id_at(moment),
        )
        assert name not in await old()
        await store.conn.execute("delete from weft.task")
    await store.advance(days=9)
    assert await old() == set(_names(today - timedelta(days=1), 10))


async def test_what_an_open_job_keeps_outputs_of_is_not_dropped(store: Store, database: Database) -> None:
    today: datetime = await store.conn.fetchval("select date_trunc('day', weft.now(), 'UTC')")
    await store.advance(days=60)
    await store.run(ensure_partitions)
    await store.conn.execute(
        """insert into weft.job (id, org_id, end_id, workflow_id, base_kind, inputs, kept_from)
           values (weft.next_id(), 1, 1, 'w', 'version', '{}', $1)""",
        first_id_at(today + timedelta(hours=1)),
    )
    dropped = {name[-8:] for name in await upkeep.drop_partitions(database, timedelta(days=30))}
    assert dropped == set(_names(today - timedelta(days=1), 1))
    await store.conn.execute("delete from weft.job")
    assert today.strftime("%Y%m%d") in {
        name[-8:] for name in await upkeep.drop_partitions(database, timedelta(days=30))
    }


async def test_old_partitions_are_dropped_and_what_is_needed_stays(store: Store, database: Database) -> None:
    worker = await store.worker(lease=timedelta(days=100))
    ended, dead = await store.enqueue(), await store.enqueue()
    first, second = await store.claim(worker, 2)
    await store.complete(worker, first)
    await store.end(worker, second)
    pruner = Pruner(database, Settings.load(environ={}, retention="30d"))
    await pruner.run_once()
    assert (await store.state(ended), await store.state(dead)) == ("completed", "dead")
    await store.advance(days=25)
    await store.run(ensure_partitions)
    waiting = await store.enqueue()
    await store.advance(days=10)
    dropped = await upkeep.drop_partitions(database, timedelta(days=30))
    assert len(dropped) >= 3
    assert await store.conn.fetchval("select count(*) from weft.tasks where id = any ($1)", [ended, dead]) == 0
    assert await store.state(waiting) == "ready"
    assert await upkeep.drop_partitions(database, timedelta(days=30)) == []


@pytest.mark.parametrize("days", [-1, 1], ids=["the oldest", "a later one"])
async def test_a_drop_that_was_interrupted_is_finished_by_the_next(
    store: Store, other: Store, database: Database, days: int
) -> None:
    """A reader holds the detach up, the process dies: the partition is left pending and must not stay so.

    PostgreSQL detaches no other before it.
    """
    today = await store.conn.fetchval("select date_trunc('day', weft.now(), 'UTC')")
    await store.advance(days=60)
    child = f"attempt_{(today + timedelta(days=days)).strftime('%Y%m%d')}"
    reader = store.conn.transaction(isolation="repeatable_read")
    await reader.start()
    await store.conn.fetchval("select count(*) from weft.attempt")
    detaching = asyncio.create_task(
        other.conn.execute(f"alter table weft.attempt detach partition weft.{child} concurrently")
    )
    async with database.acquire() as looker:
        assert await other.settled(detaching, ahead=Store(looker))
        await looker.execute("select pg_terminate_backend($1, 10000)", other.conn.get_server_pid())
    await asyncio.gather(detaching, return_exceptions=True)
    await reader.rollback()
    pending = "select count(*) from pg_inherits where inhdetachpending"
    assert await store.conn.fetchval(pending) == 1
    await upkeep.drop_partitions(database, timedelta(days=30))
    assert await store.conn.fetchval(pending) == 0
    assert await store.conn.fetchval("select to_regclass($1)", f"weft.{child}") is None


async def test_a_partition_that_was_detached_but_not_dropped_is_dropped_by_the_next(
    store: Store, database: Database
) -> None:
    today = await store.conn.fetchval("select date_trunc('day', weft.now(), 'UTC')")
    await store.advance(days=60)
    child = f"attempt_{(today - timedelta(days=1)).strftime('%Y%m%d')}"
    await store.conn.execute(f"alter table weft.attempt detach partition weft.{child} concurrently")
    # Nobody sees it any more, whatever is open: it would only stand in the way of a new one.
    await store.conn.execute(
        "insert into weft.task (id, org_id, queue_id, order_id, state, handler) values ($1, 1, 1, $1, 'ready', 'h')",
        first_id_at(today - timedelta(hours=1)),
    )
    dropped = await upkeep.drop_partitions(database, timedelta(days=30))
    assert [name for name in dropped if name.endswith(child[-8:])] == [child]
    await store.run(ensure_partitions)
    assert await store.conn.fetchval("select relispartition from pg_class where relname = $1", child)


async def test_a_task_is_kept_for_the_retention_from_its_end_however_long_it_waited(
    store: Store, database: Database
) -> None:
    worker = await store.worker(lease=timedelta(days=200))
    done, dead = [await store.enqueue(params=LONG, delay=timedelta(days=40)) for _ in range(2)]
    await store.advance(days=41)
    await store.run(ensure_partitions)
    assert await store.stage() == 2
    first, second = await store.claim(worker, 2)
    await store.complete(worker, first)
    await store.end(worker, second)
    # What was made together with them and ended at once may not take them along, nor be kept from going later.
    for wait, states in ((0, ["completed", "dead"]), (29, ["completed", "dead"]), (2, [])):
        await store.advance(days=wait)
        dropped = await upkeep.drop_partitions(database, timedelta(days=30))
        rows = await store.conn.fetch("select state, params::text from weft.tasks where id = any ($1)", [done, dead])
        assert sorted(row["state"] for row in rows) == states
        assert all(row["params"] == LONG for row in rows)
    created = time_of(done).strftime("%Y%m%d")
    assert {f"{parent}_{created}" for parent in PARENTS} <= set(dropped)


async def test_a_task_that_is_replayed_while_its_day_is_dropped_keeps_its_params(
    store: Store, other: Store, database: Database
) -> None:
    worker = await store.worker(lease=timedelta(days=200))
    id = await store.enqueue(params=LONG)
    await store.end(worker, await store.claim_one(worker))
    await store.advance(days=40)
    await store.run(ensure_partitions)
    transaction = other.conn.transaction()
    await transaction.start()
    assert list(await operate.replay(other.conn, 1, [id], None)) == [id]
    dropping = asyncio.create_task(upkeep.drop_partitions(database, timedelta(days=30)))
    waits = "select 1 from pg_stat_activity where query like 'alter table%' and wait_event_type = 'Lock'"
    async with asyncio.timeout(60):
        while await store.conn.fetchval(waits) is None:  # noqa: ASYNC110  only the database knows
            await asyncio.sleep(0.005)
    await transaction.commit()
    dropped = await dropping
    assert any(child.startswith("task_done") for child in dropped)
    row = await store.task(id)
    assert (row["state"], json.loads(row["params"])) == ("ready", json.loads(LONG))
    # Its outcome finds no partition any more, and whoever meets that makes it.
    claim = await store.claim_one(worker)
    await database.run(lambda conn: work.finish_and_claim(conn, worker, [Completed(id, claim.attempt, "1")], [], 0))
    assert await store.state(id) == "completed"


async def test_whoever_finds_no_partition_makes_it(store: Store, database: Database) -> None:
    """Nobody has worked for a fortnight: long params, outcomes and cancellations find no partition for their day."""
    before = await store.enqueue()
    await store.advance(days=12)
    between = await store.enqueue()
    await store.advance(days=8)
    long = await store.enqueue(params=LONG)
    assert (await store.task(long))["params"] == LONG
    # Those of the day between, for which nobody was there to make them, are made too.
    assert await database.run(lambda conn: operate.cancel(conn, 1, [before, between, long], "why", None)) == {
        before,
        between,
        long,
    }
    assert await store.conn.fetchval("select count(*) from weft.task_done") == 3


async def test_another_broken_check_is_not_taken_for_a_missing_partition(store: Store, database: Database) -> None:
    tries = []

    async def break_it(conn: asyncpg.Connection[asyncpg.Record]) -> None:
        tries.append(1)
        await conn.execute("update weft.queue set max_running = -1")

    with pytest.raises(asyncpg.CheckViolationError, match="max_running"):
        await database.run(break_it)
    assert len(tries) == 1


async def test_a_worker_that_finds_no_partition_for_an_outcome_makes_it(store: Store) -> None:
    """Everybody slept for a fortnight: the day has no partition yet when the first task ends."""
    await store.advance(days=20)
    worker = await store.worker()
    id = await store.enqueue()
    claim = await store.claim_one(worker)
    with pytest.raises(asyncpg.CheckViolationError):
        await store.complete(worker, claim)
    assert await store.state(id) == "running"
    await store.run(ensure_partitions)
    assert await store.complete(worker, claim) == []


async def test_a_task_far_ahead_keeps_its_own_day_and_no_other(store: Store, database: Database) -> None:
    far = await store.enqueue(delay=timedelta(days=900), params=LONG)
    worker = await store.worker(lease=timedelta(days=1000))
    ends = []
    for _ in range(3):
        await store.advance(days=5)
        await store.run(ensure_partitions)
        ends.append(await store.enqueue())
        await store.complete(worker, await store.claim_one(worker))
    await store.advance(days=100)
    await upkeep.drop_partitions(database, timedelta(days=30))
    assert await store.conn.fetchval("select count(*) from weft.tasks where id = any ($1)", ends) == 0
    assert json.loads((await store.task(far))["params"]) == json.loads(LONG)


async def test_what_ended_since_the_oldest_open_job_began_stays(store: Store, database: Database) -> None:
    worker = await store.worker(lease=timedelta(days=1000))
    job = await store.enqueue(delay=timedelta(days=900))
    await store.conn.execute("update weft.task set job_id = id")
    await store.advance(days=5)
    await store.run(ensure_partitions)
    ended = await store.enqueue()
    await store.complete(worker, await store.claim_one(worker))
    await store.advance(days=100)
    await upkeep.drop_partitions(database, timedelta(days=30))
    assert await store.state(ended) == "completed"
    assert await store.state(job) == "scheduled"
