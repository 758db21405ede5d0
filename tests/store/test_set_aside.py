"""What is set aside: a task whose outcome cannot be written, the lease of a worker that something ended."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from store_scene import ORG, Store

from weft.queue import queues, upkeep, work, workers
from weft.queue.work import Claim


async def _set_aside(store: Store, worker: int, claim: Claim) -> set[int]:
    return await store.run(work.set_aside, worker, claim.id, claim.attempt)


# --- tasks ---


async def test_a_task_that_is_set_aside_is_held_by_nobody_and_says_why(store: Store) -> None:
    worker, id = await store.worker(), await store.enqueue(heartbeat_timeout=timedelta(minutes=1))
    claim = await store.claim_one(worker)
    assert await _set_aside(store, worker, claim) == {id}
    row = await store.task(id)
    assert (row["state"], row["reason"], row["worker_id"]) == ("pending", "outcome_refused", None)
    assert await store.attempts(id) == []
    await store.advance(hours=1)
    assert await store.run(upkeep.expire) == 0


async def test_only_the_worker_that_holds_a_task_sets_it_aside(store: Store) -> None:
    worker, thief, id = await store.worker(), await store.worker(), await store.enqueue()
    claim = await store.claim_one(worker)
    assert await _set_aside(store, thief, claim) == set()
    assert (await store.state(id), (await store.task(id))["worker_id"]) == ("running", worker)


async def test_an_earlier_attempt_of_the_same_worker_sets_nothing_aside(store: Store) -> None:
    worker, id = await store.worker(), await store.enqueue()
    early = await store.claim_one(worker)
    await store.hand_back(worker, early)
    late = await store.claim_one(worker)
    assert await _set_aside(store, worker, early) == set()
    assert await store.state(id) == "running"
    assert await _set_aside(store, worker, late) == {id}


async def test_only_a_task_that_runs_is_set_aside(store: Store) -> None:
    """Each state in turn, with worker and attempt as they were."""
    worker, id = await store.worker(), await store.enqueue()
    claim = await store.claim_one(worker)
    move = "update weft.task set state = $1::text::weft.task_state where id = $2"
    for state in ("pending", "scheduled", "ready", "claimed", "waiting"):
        await store.conn.execute(move, state, id)
        assert await _set_aside(store, worker, claim) == set(), state
        assert await store.state(id) == state
    await store.conn.execute(move, "dispatched", id)
    assert await _set_aside(store, worker, claim) == {id}


async def test_a_task_that_is_set_aside_gives_its_slot_to_the_next_of_its_key(store: Store) -> None:
    await store.limit(1, per_key=True)
    worker = await store.worker()
    first, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    await _set_aside(store, worker, await store.claim_one(worker))
    assert (await store.state(first), await store.state(second)) == ("pending", "ready")
    assert await store.held_slots("k") == 1


async def test_nobody_but_an_operator_moves_what_is_set_aside(store: Store) -> None:
    worker = await store.worker()
    ids = [await store.enqueue(concurrency_key=key) for key in (None, "k")]
    for claim in await store.claim(worker, 2):
        await _set_aside(store, worker, claim)
    await store.advance(days=1)
    await store.stage()
    await store.lose()
    assert await store.run(queues.admit) == set()
    await store.run(queues.limit, ORG, "default", 5, per_key=True)
    assert [await store.state(id) for id in ids] == ["pending", "pending"]
    assert await store.cancel(*ids) == set(ids)


@pytest.mark.parametrize("before", [1, 2], ids=["not crowded yet", "crowded"])
async def test_whoever_lowers_a_limit_waits_for_one_who_puts_a_task_of_the_key_in(
    store: Store, other: Store, before: int
) -> None:
    ids = [await store.enqueue(concurrency_key="k") for _ in range(before)]
    async with other.conn.transaction():
        ids.append(await other.enqueue(concurrency_key="k"))
        limiting = asyncio.create_task(store.limit(1, per_key=True))
        assert await store.settled(limiting, ahead=other)
    await limiting
    assert [await store.state(id) for id in ids] == ["ready", *["pending"] * before]
    assert await store.held_slots("k") == 1


async def test_a_transaction_that_stays_open_holds_up_no_limit(store: Store, other: Store) -> None:
    ids = [await store.enqueue(concurrency_key="k") for _ in range(3)]
    free = [await store.enqueue(concurrency_key="free") for _ in range(3)]
    async with other.conn.transaction():
        await other.enqueue(concurrency_key="k")
        await store.limit(1, per_key=True)
        assert [await store.state(id) for id in [*ids, *free]] == ["ready"] * 4 + ["pending"] * 2


# --- workers ---


async def _lease(store: Store, worker: int) -> timedelta:
    return await store.conn.fetchval("select until - weft.now() from weft.worker where id = $1", worker)  # type: ignore[no-any-return]


async def test_what_an_abandoned_worker_held_is_rescued_at_once(store: Store) -> None:
    worker, other, id = await store.worker(), await store.worker(), await store.enqueue()
    await store.claim_one(worker)
    assert await store.lose() == 0
    await store.run(workers.abandon, worker)
    assert await store.lose() == 1
    again = await store.claim_one(other)
    assert (again.id, again.attempt, again.crashes) == (id, 2, 1)
    assert await store.beat(worker) is None


async def test_to_abandon_one_worker_leaves_the_lease_of_others(store: Store) -> None:
    worker, other = await store.worker(), await store.worker()
    await store.run(workers.abandon, worker)
    assert await _lease(store, worker) <= timedelta(0) < await _lease(store, other)


async def test_a_lease_that_has_lapsed_is_not_made_to_end_later(store: Store) -> None:
    """How long a worker is gone tells when its row may be forgotten."""
    worker = await store.worker(lease=timedelta(seconds=30))
    await store.advance(hours=2)
    await store.run(workers.abandon, worker)
    assert await _lease(store, worker) < timedelta(hours=-1)


async def test_a_worker_that_has_stopped_or_is_lost_has_no_lease_to_abandon(store: Store) -> None:
    for state in ("stopped", "lost"):
        worker = await store.worker(lease=timedelta(hours=1))
        await store.conn.execute(
            "update weft.worker set state = $1::text::weft.worker_state where id = $2", state, worker
        )
        await store.run(workers.abandon, worker)
        assert await _lease(store, worker) > timedelta(minutes=30), state
