"""What is due becomes ready, once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from store_scene import Store

from weft.queue import upkeep


async def test_only_what_is_scheduled_and_due_is_staged(store: Store) -> None:
    soon, later = await store.enqueue(delay=timedelta(minutes=1)), await store.enqueue(delay=timedelta(hours=1))
    assert await store.stage() == 0
    await store.advance(minutes=2)
    assert await store.stage() == 1
    assert [await store.state(id) for id in (soon, later)] == ["ready", "scheduled"]
    assert (await store.task(soon))["due_at"] is None
    for state in ("pending", "running", "claimed", "dispatched", "waiting"):
        await store.conn.execute(
            """update weft.task set state = $1::text::weft.task_state, due_at = weft.now() - interval '1 day'
               where id = $2""",
            state,
            soon,
        )
        assert await store.stage() == 0
        assert await store.state(soon) == state


async def test_a_batch_is_bounded_and_the_earliest_due_comes_first(store: Store) -> None:
    await store.conn.execute(
        "select weft.enqueue('h', delay => make_interval(secs => 3000 - n)) from generate_series(1, $1::int) n",
        upkeep.STAGE_BATCH + 5,
    )
    await store.advance(hours=1)
    assert await store.stage() == upkeep.STAGE_BATCH
    left = await store.conn.fetchval("select count(*) from weft.task where state = 'scheduled'")
    assert left == 5
    assert await store.conn.fetchval("select min(due_at) from weft.task where state = 'scheduled'") is not None
    assert await store.stage() == 5


async def test_two_who_stage_at_once_do_not_wait_for_each_other_nor_stage_twice(store: Store, other: Store) -> None:
    for _ in range(3):
        await store.enqueue(delay=timedelta(minutes=1))
    await store.advance(minutes=2)
    transaction = store.conn.transaction()
    await transaction.start()
    assert (await upkeep.stage(store.conn))[0] == 3
    staging = asyncio.create_task(other.stage())
    assert not await other.settled(staging, ahead=store)
    assert await staging == 0
    await transaction.commit()


async def test_a_task_cancelled_while_it_is_staged_stays_cancelled(store: Store, other: Store) -> None:
    id = await store.enqueue(delay=timedelta(minutes=1))
    await store.advance(minutes=2)
    transaction = store.conn.transaction()
    await transaction.start()
    await store.cancel(id)
    staging = asyncio.create_task(other.stage())
    await other.settled(staging, ahead=store)
    await transaction.commit()
    assert await staging == 0
    assert await store.state(id) == "cancelled"


async def test_the_time_until_the_next_is_told(store: Store) -> None:
    assert await upkeep.next_due(store.conn) is None
    await store.enqueue(delay=timedelta(minutes=10))
    await store.enqueue(delay=timedelta(minutes=5))
    await store.enqueue()
    due = await upkeep.next_due(store.conn)
    assert due is not None
    assert timedelta(minutes=4, seconds=50) < due <= timedelta(minutes=5)
    await store.advance(minutes=6)
    due = await upkeep.next_due(store.conn)
    assert due is not None
    assert due < timedelta(0)
