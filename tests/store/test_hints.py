"""A hint goes to one worker that can use it, and to none when there is none."""

from __future__ import annotations

from datetime import timedelta

import pytest
from store_scene import DEFAULT_QUEUE, Ears, Store

from weft.queue import queues, workers

LONG = timedelta(hours=1)


async def test_one_worker_of_the_queue_is_told(store: Store, ears: Ears) -> None:
    elsewhere = await store.create_queue("elsewhere")
    one, two, foreign = await store.worker(), await store.worker(), await store.worker(elsewhere)
    await ears.lend(one, two, foreign)
    told = []
    for _ in range(20):
        await queues.hint(store.conn, [DEFAULT_QUEUE])
        told += await ears.told()
    assert len(told) == 20
    assert set(told) == {one, two}
    await queues.hint(store.conn, [DEFAULT_QUEUE, elsewhere])
    told = await ears.told()
    assert (len(told), foreign in told) == (2, True)


@pytest.mark.parametrize("why", ["saturated", "stopped", "lost", "lapsed", "oneself"])
async def test_who_cannot_use_it_is_not_told(store: Store, ears: Ears, why: str) -> None:
    fit, unfit = await store.worker(lease=LONG), await store.worker(lease=timedelta(seconds=30))
    await ears.lend(fit, unfit)
    match why:
        case "saturated":
            await workers.set_saturated(store.conn, unfit, True)
        case "lapsed":
            await store.advance(seconds=31)
        case "stopped" | "lost":
            sql = "update weft.worker set state = $2::text::weft.worker_state where id = $1"
            await store.conn.execute(sql, unfit, why)
    spared = unfit if why == "oneself" else 0
    for _ in range(20):
        await queues.hint(store.conn, [DEFAULT_QUEUE], except_worker=spared)
    assert await ears.told() == [fit] * 20
    await workers.set_saturated(store.conn, fit, True)
    await queues.hint(store.conn, [DEFAULT_QUEUE], except_worker=spared)
    assert await ears.told() == []


async def test_a_blocked_worker_is_told_only_when_there_is_no_other(store: Store, ears: Ears) -> None:
    blocked, free = await store.worker(lease=LONG), await store.worker(lease=LONG)
    await ears.lend(blocked, free)
    await store.beat(blocked, is_blocked=True)
    for _ in range(20):
        await queues.hint(store.conn, [DEFAULT_QUEUE])
    assert await ears.told() == [free] * 20
    await workers.set_saturated(store.conn, free, True)
    await queues.hint(store.conn, [DEFAULT_QUEUE])
    assert await ears.told() == [blocked]
    await workers.set_saturated(store.conn, free, False)
    await store.beat(blocked)
    told: list[int] = []
    while blocked not in told:
        await queues.hint(store.conn, [DEFAULT_QUEUE])
        told += await ears.told()


async def test_queues_in_which_something_could_be_claimed(store: Store) -> None:
    names = ("ready", "paused", "scheduled", "empty")
    ids = {name: await store.create_queue(name) for name in names}
    await store.enqueue(queue="ready")
    await store.enqueue(queue="paused")
    await store.enqueue(queue="scheduled", delay=timedelta(hours=1))
    await store.run(queues.pause, 1, "paused", "tester")
    assert await queues.with_ready(store.conn, ids.values()) == [ids["ready"]]
    assert await queues.with_ready(store.conn, [ids["empty"]]) == []


async def test_who_may_have_a_slot_that_was_freed_is_told(store: Store, ears: Ears) -> None:
    """Whoever freed it need not have room for the task that waits for it."""
    await store.limit(1, per_key=True)
    freeing, idle = await store.worker(lease=LONG), await store.worker(lease=LONG)
    first = await store.enqueue(concurrency_key="k")
    await store.enqueue(concurrency_key="k")
    claim = await store.claim_one(freeing)
    assert claim.id == first
    await workers.set_saturated(store.conn, freeing, True)
    await ears.lend(freeing, idle)
    await store.postpone(freeing, claim)
    assert await ears.told() == [idle]
