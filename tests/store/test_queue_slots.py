"""Slots of limited queues, leased to workers in blocks."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from store_scene import DEFAULT_QUEUE, Store

from weft.queue import queues, upkeep
from weft.queue.work import Lane


async def _lease(store: Store, worker: int, wanted: int, running: int = 0) -> int | None:
    return await store.run(queues.lease_slots, DEFAULT_QUEUE, worker, wanted, running)


async def test_all_workers_together_never_get_more_than_the_limit(store: Store) -> None:
    await store.limit(5)
    a, b, c = [await store.worker() for _ in range(3)]
    assert [await _lease(store, a, 2), await _lease(store, b, 9), await _lease(store, c, 1)] == [2, 3, 0]
    assert await _lease(store, a, 0) == 0
    assert await _lease(store, c, 9) == 2
    assert await _lease(store, b, 4) == 3


async def test_a_worker_keeps_what_it_uses_whatever_the_limit_says_now(store: Store) -> None:
    await store.limit(5)
    a, b = [await store.worker() for _ in range(2)]
    assert await _lease(store, a, 5) == 5
    await store.limit(2)
    assert await _lease(store, a, 5, running=4) == 4
    assert await _lease(store, b, 1) == 0
    assert await _lease(store, a, 1, running=1) == 1
    assert await _lease(store, b, 1) == 1


async def test_without_a_limit_there_is_nothing_to_lease(store: Store) -> None:
    worker = await store.worker()
    assert await _lease(store, worker, 5) is None
    assert await store.conn.fetchval("select count(*) from weft.queue_slot") == 0


async def test_what_ran_before_there_was_a_limit_counts(store: Store) -> None:
    a, b = await store.worker(), await store.worker()
    for _ in range(9):
        await store.enqueue()
    await store.claim(a, 5)
    await store.limit(7)
    assert await _lease(store, b, 5) == 2
    assert await _lease(store, a, 9, running=5) == 5
    await store.limit(3)
    assert await _lease(store, b, 5) == 0


async def test_two_who_lease_at_once_do_not_both_get_the_last(store: Store, other: Store) -> None:
    await store.limit(3)
    a, b = [await store.worker() for _ in range(2)]
    transaction = store.conn.transaction()
    await transaction.start()
    assert await queues.lease_slots(store.conn, DEFAULT_QUEUE, a, 2, 0) == 2
    asking = asyncio.create_task(_lease(other, b, 2))
    assert await other.settled(asking, ahead=store)
    await transaction.commit()
    assert await asking == 1


async def test_many_who_lease_claim_and_finish_at_once_never_run_more_than_the_limit(store: Store, url: str) -> None:
    limit, most = 3, 0
    await store.limit(limit)
    await store.conn.execute("select weft.enqueue('h') from generate_series(1, 120)")
    left = 120

    async def work() -> None:
        nonlocal left, most
        conn = await asyncpg.connect(url)
        own = Store(conn)
        worker = await own.worker()
        while left:
            slots = await _lease(own, worker, 2) or 0
            claims = await own.claim(worker, 5, Lane(DEFAULT_QUEUE, room=slots))
            running = await conn.fetchval("select count(*) from weft.task where state = 'running'")
            most = max(most, running)
            await own.complete(worker, *claims)
            left -= len(claims)
            await _lease(own, worker, 0)
        await conn.close()

    await asyncio.gather(*(work() for _ in range(5)))
    assert 1 <= most <= limit


@pytest.mark.parametrize("state", ["lost", "stopped"])
async def test_a_worker_that_is_gone_leases_nothing(store: Store, state: str) -> None:
    await store.limit(3)
    worker, next = await store.worker(), await store.worker()
    await store.conn.execute("update weft.worker set state = $1::text::weft.worker_state where id = $2", state, worker)
    assert await _lease(store, worker, 3) == 0
    assert await _lease(store, next, 3) == 3


async def test_slots_of_a_lost_worker_come_back_when_its_tasks_are_rescued_not_before(store: Store) -> None:
    await store.limit(2)
    lost = await store.worker()
    for _ in range(3):
        await store.enqueue()
    assert await _lease(store, lost, 2) == 2
    await store.claim(lost, 2, Lane(DEFAULT_QUEUE, room=2))
    await store.advance(minutes=5)
    next = await store.worker()
    assert await _lease(store, next, 2) == 0
    await store.run(upkeep.mark_lost)
    assert await _lease(store, next, 2) == 0
    await store.run(upkeep.forget_slots)
    assert await _lease(store, next, 2) == 0
    assert await store.lose() == 2
    assert await _lease(store, next, 2) == 2


async def test_slots_of_workers_that_are_gone_and_hold_nothing_are_forgotten(store: Store) -> None:
    await store.limit(9)
    gone, live = await store.worker(), await store.worker()
    await _lease(store, gone, 4)
    await _lease(store, live, 4)
    await store.conn.execute("update weft.worker set state = 'stopped' where id = $1", gone)
    assert await store.run(upkeep.forget_slots) == 1
    assert [row[0] for row in await store.conn.fetch("select worker_id from weft.queue_slot")] == [live]


async def test_the_rescue_of_one_worker_leaves_the_slots_of_others(store: Store) -> None:
    await store.limit(5)
    lost, alive = await store.worker(), await store.worker(lease=timedelta(hours=9))
    assert [await _lease(store, lost, 2), await _lease(store, alive, 3)] == [2, 3]
    await store.advance(minutes=5)
    await store.lose()
    rows = await store.conn.fetch("select worker_id, slots from weft.queue_slot")
    assert [tuple(row) for row in rows] == [(alive, 3)]


async def test_what_a_worker_runs_itself_leaves_it_all_that_others_do_not_use(store: Store) -> None:
    await store.limit(5)
    worker = await store.worker()
    for _ in range(3):
        await store.enqueue()
    assert await _lease(store, worker, 3) == 3
    assert len(await store.claim(worker, 3, Lane(DEFAULT_QUEUE, room=3))) == 3
    assert await _lease(store, worker, 5, running=3) == 5


async def test_slots_of_a_worker_that_is_gone_and_holds_tasks_are_not_forgotten(store: Store) -> None:
    await store.limit(5)
    worker, _ = await store.worker(), await store.enqueue()
    assert await _lease(store, worker, 2) == 2
    await store.claim(worker, 1, Lane(DEFAULT_QUEUE, room=2))
    await store.conn.execute("update weft.worker set state = 'lost'")
    assert await store.run(upkeep.forget_slots) == 0
    await store.conn.execute("update weft.task set worker_id = null, state = 'ready'")
    assert await store.run(upkeep.forget_slots) == 1
