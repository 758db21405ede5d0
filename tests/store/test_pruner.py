"""What the pruner forgets in one round."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest
from store_scene import DEFAULT_QUEUE, ORG, Store

from weft.core.settings import Settings
from weft.db.database import Database, ensure_partitions
from weft.queue import audit, outbox
from weft.queue.services import Pruner

pytestmark = pytest.mark.own_database

LONG = timedelta(days=1000)
# Where to look for the name of what is left.
NOUNS = {
    "keys": "select key from weft.idempotency_key",
    "workers": "select hostname from weft.worker",
    "acts": "select actor from weft.audit",
    "effects": "select payload #>> '{}' from weft.outbox",
    "logs": "select digest from weft.task_log",
}
DAYS = r"""
  select right(c.relname, 8) as day, count(*) from pg_class c join pg_inherits i on i.inhrelid = c.oid
  where c.relnamespace = 'weft'::regnamespace
    and c.relname ~ '^(task_done|task_params|attempt|job_done|step|job_event|job_label)_\d{8}$'
  group by 1
"""


class Leavings:
    """One row of everything that is forgotten some day, told apart by a name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._conn: asyncpg.Connection[asyncpg.Record] = store.conn

    async def leave(self, name: str) -> None:
        await self._store.enqueue(idempotency_key=name)
        worker = await self._store.worker(lease=LONG)
        (claim,) = await self._store.claim(worker)
        await self._store.complete(worker, claim)
        await self._conn.execute(
            "update weft.worker set state = 'stopped', until = weft.now(), hostname = $2 where id = $1", worker, name
        )
        await self._store.run(audit.record_queue, ORG, name, audit.AuditVerb.PAUSE, "default")
        effect = await self._store.run(outbox.add, ORG, "callback", name)
        done = "update weft.outbox set state = 'done', processed_at = weft.now() where id = $1"
        await self._conn.execute(done, effect)
        await self._conn.execute("insert into weft.blob (digest, bytes) values ($1, 1)", name)
        await self._conn.execute(
            "insert into weft.task_log (task_id, org_id, attempt, digest, bytes) values ($1, 1, 1, $2, 1)",
            claim.id,
            name,
        )

    async def left(self) -> dict[str, set[str]]:
        return {noun: {row[0] for row in await self._conn.fetch(sql)} for noun, sql in NOUNS.items()}


async def _days(store: Store) -> dict[str, int]:
    return {row["day"]: row["count"] for row in await store.conn.fetch(DAYS)}


async def _day(store: Store, ahead: int = 0) -> str:
    return str(
        await store.conn.fetchval(
            "select to_char((weft.now() at time zone 'UTC') + $1 * interval '1 day', 'YYYYMMDD')", ahead
        )
    )


async def test_a_round_forgets_all_that_is_past_its_time_and_nothing_else(store: Store, database: Database) -> None:
    leavings = Leavings(store)
    await leavings.leave("old")
    first_day = await _day(store)
    await store.advance(days=40)
    await store.run(ensure_partitions)
    await leavings.leave("young")
    assert set(map(frozenset, (await leavings.left()).values())) == {frozenset({"old", "young"})}
    days = await _days(store)
    settings = Settings.load(environ={}, retention="30d", idempotency_ttl="35d")
    gone = await Pruner(database, settings).run_once()
    assert await leavings.left() == {noun: {"young"} for noun in NOUNS}
    dropped = days.keys() - (await _days(store)).keys()
    assert first_day in dropped
    assert gone == 5 + sum(days[day] for day in dropped)


async def test_each_limit_is_that_of_its_own_setting(store: Store, database: Database) -> None:
    leavings = Leavings(store)
    await leavings.leave("old")
    await store.advance(days=10)
    await Pruner(database, Settings.load(environ={}, retention="30d", idempotency_ttl="7d")).run_once()
    kept = {"acts": {"old"}, "effects": {"old"}, "logs": {"old"}}
    assert await leavings.left() == {"keys": set(), "workers": set(), **kept}
    assert await store.conn.fetchval("select count(*) from weft.task_done") == 1


async def test_partitions_are_renewed_in_the_first_of_ten_rounds(store: Store, database: Database) -> None:
    pruner = Pruner(database, Settings.load(environ={}))
    await pruner.run_once()
    await store.advance(days=1)
    for _ in range(9):
        assert await _day(store, 8) not in await _days(store)
        await pruner.run_once()
    assert await _day(store, 8) not in await _days(store)
    await pruner.run_once()
    assert (await _days(store))[await _day(store, 8)] == 7


async def test_a_round_frees_what_nobody_holds(store: Store, database: Database) -> None:
    alive = await store.worker()
    for worker in (alive, alive + 1):
        await store.conn.execute("insert into weft.queue_slot values ($1, $2, 1, 1)", DEFAULT_QUEUE, worker)
    await store.enqueue(concurrency_key="held")
    await store.limit(3, key="limited")
    await store.conn.execute("insert into weft.key_slot (queue_id, org_id, key) values (1, 1, 'idle')")
    assert await Pruner(database, Settings.load(environ={})).run_once() == 2
    assert [row[0] for row in await store.conn.fetch("select worker_id from weft.queue_slot")] == [alive]
    keys = {row[0] for row in await store.conn.fetch("select key from weft.key_slot")}
    assert keys == {"held", "limited"}


async def test_a_round_notes_which_handlers_are_known(store: Store, database: Database) -> None:
    await store.worker(handlers=["known"], lease=LONG)
    gone = await store.worker(handlers=["unknown"])
    await store.conn.execute("update weft.worker set state = 'stopped' where id = $1", gone)
    await store.advance(hours=1)
    await Pruner(database, Settings.load(environ={})).run_once()
    recent = "select name from weft.handler where known_at > weft.now() - interval '1 minute'"
    assert [row[0] for row in await store.conn.fetch(recent)] == ["known"]
