"""Slots of concurrency keys: held equals what is admitted, and never more than the limit."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from store_scene import DEFAULT_QUEUE, Store

from weft.queue import queues, upkeep, work

WRONG = """
  select s.key, s.held, coalesce(n.n, 0) as admitted from weft.key_slot s
  full join (select t.queue_id, t.concurrency_key as key, count(*) as n from weft.task t
             where t.concurrency_key is not null and t.state in ('ready', 'dispatched', 'claimed', 'running')
             group by 1, 2) n
    on n.queue_id = s.queue_id and n.key = s.key
  where s.held is distinct from coalesce(n.n, 0)
"""


async def _counts_are_right(store: Store) -> bool:
    return [tuple(row) for row in await store.conn.fetch(WRONG)] == []


async def _states(store: Store, ids: list[int]) -> list[str]:
    return [await store.state(id) for id in ids]


async def test_as_many_are_admitted_as_there_are_slots_and_the_rest_wait(store: Store) -> None:
    await store.limit(2, per_key=True)
    ids = [await store.enqueue(concurrency_key="k") for _ in range(4)]
    free = await store.enqueue(concurrency_key="other")
    assert await _states(store, [*ids, free]) == ["ready", "ready", "pending", "pending", "ready"]
    assert {(await store.task(id))["reason"] for id in ids[2:]} == {"concurrency_key"}
    assert await _counts_are_right(store)


@pytest.mark.parametrize("ending", ["complete", "end", "cancel", "postpone", "bury", "expire"])
async def test_whatever_ends_an_attempt_gives_its_slot_to_the_first_that_waits(store: Store, ending: str) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    first = await store.enqueue(concurrency_key="k", heartbeat_timeout=timedelta(seconds=30))
    others = [await store.enqueue(concurrency_key="k", priority=priority) for priority in (0, 0, 5, 0)]
    noise = [await store.enqueue() for _ in range(5)]
    (claim,) = [claim for claim in await store.claim(worker, 1)]
    assert claim.id == first
    match ending:
        case "complete":
            await store.complete(worker, claim)
        case "end":
            await store.end(worker, claim)
        case "cancel":
            await store.cancel(first)
        case "postpone":
            await store.postpone(worker, claim)
        case "bury":
            await store.advance(minutes=5)
            await store.lose(loss_limit=1)
        case "expire":
            await store.advance(seconds=31)
            assert await store.run(upkeep.expire) == 1
    assert await _states(store, others) == ["pending", "pending", "ready", "pending"]
    assert await _states(store, noise) == ["ready"] * 5
    assert await store.held_slots("k") == 1
    assert await _counts_are_right(store)


@pytest.mark.parametrize("going", ["hand back", "rescue"])
async def test_a_task_that_goes_back_keeps_its_slot(store: Store, going: str) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    first, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    claim = await store.claim_one(worker)
    if going == "hand back":
        await store.hand_back(worker, claim)
    else:
        await store.advance(minutes=5)
        await store.lose()
    assert await _states(store, [first, second]) == ["ready", "pending"]
    assert await _counts_are_right(store)


async def test_cancelling_what_waits_frees_nothing(store: Store) -> None:
    await store.limit(1, per_key=True)
    first, second, third = [await store.enqueue(concurrency_key="k") for _ in range(3)]
    await store.cancel(second)
    assert (await store.held_slots("k"), await store.state(third)) == (1, "pending")
    scheduled = await store.enqueue(concurrency_key="k", delay=timedelta(hours=1))
    await store.cancel(scheduled)
    assert await store.held_slots("k") == 1
    await store.cancel(first)
    assert (await store.held_slots("k"), await store.state(third)) == (1, "ready")
    assert await _counts_are_right(store)


async def test_several_of_a_key_that_end_in_one_call_give_back_as_many(store: Store) -> None:
    worker = await store.worker()
    await store.limit(3, per_key=True)
    ids = [await store.enqueue(concurrency_key="k") for _ in range(7)]
    claims = await store.claim(worker, 10)
    assert [claim.id for claim in claims] == ids[:3]
    await store.complete(worker, *claims[:2])
    assert await _states(store, ids[2:]) == ["running", "ready", "ready", "pending", "pending"]
    assert await _counts_are_right(store)


async def test_a_task_that_is_staged_or_replayed_asks_for_a_slot_anew(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    first, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    await store.postpone(worker, await store.claim_one(worker), delay=60)
    assert await _states(store, [first, second]) == ["scheduled", "ready"]
    await store.advance(seconds=61)
    await store.stage()
    row = await store.task(first)
    assert (row["state"], row["reason"]) == ("pending", "concurrency_key")
    await store.end(worker, await store.claim_one(worker))
    assert await store.state(first) == "ready"
    await store.replay(second)
    row = await store.task(second)
    assert (row["state"], row["reason"]) == ("pending", "concurrency_key")
    await store.cancel(first)
    assert await store.state(second) == "ready"
    assert await _counts_are_right(store)


async def test_a_limit_may_be_raised_lowered_and_lifted(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    ids = [await store.enqueue(concurrency_key="k") for _ in range(6)]
    await store.limit(3, per_key=True)
    assert (await _states(store, ids)).count("ready") == 3
    claims = await store.claim(worker, 10)
    assert len(claims) == 3
    await store.limit(1, per_key=True)
    await store.complete(worker, claims[0])
    await store.complete(worker, claims[1])
    assert (await _states(store, ids)).count("ready") == 0
    await store.complete(worker, claims[2])
    assert (await _states(store, ids)).count("ready") == 1
    await store.limit(2, key="k")
    assert (await _states(store, ids)).count("ready") == 2
    await store.limit(None, key="k")
    await store.limit(None, per_key=True)
    assert (await _states(store, ids)).count("ready") == 3
    assert await _counts_are_right(store)


async def test_a_key_without_a_limit_is_counted_for_the_day_it_gets_one(store: Store) -> None:
    worker = await store.worker()
    for _ in range(3):
        await store.enqueue(concurrency_key="k")
    assert await store.held_slots("k") == 3
    await store.limit(3, per_key=True)
    late = await store.enqueue(concurrency_key="k")
    assert await store.state(late) == "pending"
    await store.complete(worker, await store.claim_one(worker))
    assert await store.state(late) == "ready"


async def test_keys_of_different_queues_are_different_keys(store: Store) -> None:
    await store.create_queue("b")
    await store.limit(1, per_key=True)
    ids = [await store.enqueue(concurrency_key="k", queue=queue) for queue in ("default", "b", "b", "default")]
    assert await _states(store, ids) == ["ready", "ready", "ready", "pending"]


async def test_a_slot_of_one_queue_is_not_given_to_another(store: Store) -> None:
    await store.create_queue("b")
    for name in ("default", "b"):
        await store.run(queues.limit, 1, name, 1, per_key=True)
    ours, theirs = [
        [await store.enqueue(concurrency_key="k", queue=queue) for _ in range(3)] for queue in ("default", "b")
    ]
    await store.cancel(ours[0])
    assert await _states(store, ours[1:] + theirs) == ["ready", "pending", "ready", "pending", "pending"]
    await store.cancel(theirs[0])
    assert await _states(store, ours[1:] + theirs[1:]) == ["ready", "pending", "ready", "pending"]
    assert await _counts_are_right(store)


async def test_two_who_ask_for_the_last_slot_at_once_do_not_both_get_it(store: Store, other: Store) -> None:
    await store.limit(1, per_key=True)
    await other.enqueue(concurrency_key="warm")
    for key in ("fresh", "warm2"):
        transaction = store.conn.transaction()
        await transaction.start()
        first = await store.enqueue(concurrency_key=key)
        asking = asyncio.create_task(other.enqueue(concurrency_key=key))
        assert await other.settled(asking, ahead=store)
        await transaction.commit()
        second = await asking
        assert await _states(store, [first, second]) == ["ready", "pending"]
    assert await _counts_are_right(store)


async def test_a_slot_that_is_freed_while_another_asks_is_given_once(store: Store, other: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    first, waiting = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    claim = await store.claim_one(worker)
    transaction = store.conn.transaction()
    await transaction.start()
    await store.complete(worker, claim)
    asking = asyncio.create_task(other.enqueue(concurrency_key="k"))
    assert await other.settled(asking, ahead=store)
    await transaction.commit()
    assert await _states(store, [first, waiting, await asking]) == ["completed", "ready", "pending"]
    assert await _counts_are_right(store)


async def test_a_task_that_waits_and_is_cancelled_while_it_would_be_admitted_leaves_the_slot_to_the_next(
    store: Store, other: Store
) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    _, second, third = [await store.enqueue(concurrency_key="k") for _ in range(3)]
    claim = await store.claim_one(worker)
    transaction = store.conn.transaction()
    await transaction.start()
    await store.cancel(second)
    finishing = asyncio.create_task(other.complete(worker, claim))
    await other.settled(finishing, ahead=store)
    await transaction.commit()
    await finishing
    assert await _states(store, [second, third]) == ["cancelled", "ready"]
    assert await _counts_are_right(store)


async def test_an_idle_key_is_forgotten_and_a_busy_or_limited_one_is_not(store: Store) -> None:
    worker = await store.worker()
    await store.enqueue(concurrency_key="idle")
    await store.complete(worker, await store.claim_one(worker))
    await store.enqueue(concurrency_key="busy")
    await store.limit(4, key="own")
    assert await store.run(upkeep.prune_idle_keys) == 1
    assert [row[0] for row in await store.conn.fetch("select key from weft.key_slot order by 1")] == ["busy", "own"]


async def test_a_key_that_is_forgotten_while_a_task_asks_for_it_loses_no_task(store: Store, other: Store) -> None:
    """A pause is put after the insert of the key, where pruning could come between it and the count."""
    worker = await store.worker()
    await store.enqueue(concurrency_key="k")
    await store.complete(worker, await store.claim_one(worker))
    await store.conn.execute(
        """create function pause_after_insert() returns trigger language plpgsql as
             $$ begin perform pg_advisory_xact_lock(42); return null; end $$;
           create trigger pause_after_insert after insert on weft.key_slot
             for each statement execute function pause_after_insert()"""
    )
    try:
        await store.conn.execute("select pg_advisory_lock(42)")
        asking = asyncio.create_task(other.enqueue(concurrency_key="k"))
        assert await other.settled(asking, ahead=store)
        assert await store.run(upkeep.prune_idle_keys) == 0
        await store.conn.execute("select pg_advisory_unlock(42)")
        assert await store.state(await asking) == "ready"
        assert await _counts_are_right(store)
    finally:
        await store.conn.execute("drop function pause_after_insert cascade")


async def test_a_key_that_gets_a_task_while_it_is_forgotten_is_kept(store: Store, other: Store) -> None:
    """Pruning has chosen the key, and waits; whoever took a slot of it meanwhile keeps it."""
    worker = await store.worker()
    await store.enqueue(concurrency_key="k")
    await store.complete(worker, await store.claim_one(worker))
    transaction = store.conn.transaction()
    await transaction.start()
    id = await store.enqueue(concurrency_key="k")
    pruning = asyncio.create_task(other.run(upkeep.prune_idle_keys))
    await other.settled(pruning, ahead=store)
    await transaction.commit()
    assert await pruning == 0
    assert (await store.state(id), await store.held_slots("k")) == ("ready", 1)


async def test_what_waits_although_there_is_room_is_admitted_by_the_upkeep(store: Store) -> None:
    """As after a limit that was raised by hand."""
    await store.limit(1, per_key=True)
    ids = [await store.enqueue(concurrency_key=key) for key in ("a", "a", "b", "b", "b")]
    await store.conn.execute("update weft.queue set max_running_per_key = 2")
    assert await store.run(queues.admit) == {DEFAULT_QUEUE}
    assert await _states(store, ids) == ["ready", "ready", "ready", "ready", "pending"]
    assert await store.run(queues.admit) == set()
    assert await _counts_are_right(store)


async def test_an_admitted_task_is_claimed_in_its_turn(store: Store) -> None:
    """A finish that frees a slot may claim the next of the key at once, but not before what is ready already."""
    worker = await store.worker()
    await store.limit(1, per_key=True)
    first, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    urgent, late = await store.enqueue(priority=1), await store.enqueue()
    claims = {claim.id: claim for claim in await store.claim(worker, 2)}
    assert set(claims) == {urgent, first}
    got, _ = await _finish_and_claim(store, worker, claims[first], wanted=1)
    assert got == [second]
    got, _ = await _finish_and_claim(store, worker, claims[urgent], wanted=5)
    assert got == [late]
    await store.conn.execute("delete from weft.task; delete from weft.key_slot")
    first, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    (claim,) = await store.claim(worker, 1)
    ahead = await store.enqueue(priority=1)
    got, _ = await _finish_and_claim(store, worker, claim, wanted=1)
    assert got == [ahead]
    assert await store.state(second) == "ready"
    assert await _counts_are_right(store)


async def _finish_and_claim(store: Store, worker: int, claim: work.Claim, wanted: int) -> tuple[list[int], list[int]]:
    done = [work.Completed(claim.id, claim.attempt, "null")]
    claims, lost = await work.finish_and_claim(store.conn, worker, done, [work.Lane(DEFAULT_QUEUE)], wanted)
    return sorted(claim.id for claim in claims), lost


async def test_a_finish_that_claims_what_it_admits_claims_no_more_than_was_asked_for(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    _, second = [await store.enqueue(concurrency_key="k", priority=1) for _ in range(2)]
    claim = await store.claim_one(worker)
    later = [await store.enqueue() for _ in range(3)]
    done = [work.Completed(claim.id, claim.attempt, "null")]
    for mark in (work.HEAD, (0, later[1], later[1])):
        transaction = store.conn.transaction()
        await transaction.start()
        lane = work.Lane(DEFAULT_QUEUE, room=5, mark=mark)
        claims, _ = await work.finish_and_claim(store.conn, worker, done, [lane], 1)
        assert [claim.id for claim in claims] == [second]
        await transaction.rollback()


async def test_an_admitted_task_of_another_queue_is_not_claimed(store: Store) -> None:
    """The worker finishes what it took from one queue while it asks for work of another only."""
    other_queue = await store.create_queue("other")
    worker = await store.worker(DEFAULT_QUEUE, other_queue)
    await store.run(queues.limit, 1, "other", 1, per_key=True)
    first, second = [await store.enqueue(queue="other", concurrency_key="k") for _ in range(2)]
    (claim,) = await store.claim(worker, 1, work.Lane(other_queue))
    assert claim.id == first
    assert await _finish_and_claim(store, worker, claim, wanted=5) == ([], [])
    assert await store.state(second) == "ready"


@pytest.mark.parametrize("obstacle", ["paused", "no room", "limited", "lost"])
async def test_an_admitted_task_is_not_claimed_where_nothing_may_be_claimed(store: Store, obstacle: str) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    _, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    claim = await store.claim_one(worker)
    room = -1
    match obstacle:
        case "paused":
            await store.conn.execute("update weft.queue set paused_at = weft.now()")
        case "no room":
            room = 0
        case "limited":
            await store.limit(5)
        case "lost":
            await store.conn.execute("update weft.worker set state = 'lost'")
    done = [work.Completed(claim.id, claim.attempt, "null")]
    claims, _ = await work.finish_and_claim(store.conn, worker, done, [work.Lane(DEFAULT_QUEUE, room=room)], 5)
    assert claims == []
    assert await store.state(second) == "ready"
    assert await _counts_are_right(store)


async def test_an_admitted_task_and_what_is_claimed_with_it_share_the_room(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    _, second = [await store.enqueue(concurrency_key="k", priority=1) for _ in range(2)]
    claim = await store.claim_one(worker)
    later = [await store.enqueue() for _ in range(3)]
    done = [work.Completed(claim.id, claim.attempt, "null")]
    claims, _ = await work.finish_and_claim(store.conn, worker, done, [work.Lane(DEFAULT_QUEUE, room=2)], 5)
    assert sorted(claim.id for claim in claims) == [second, later[0]]


async def test_an_admitted_task_comes_after_what_is_more_urgent_in_another_queue(store: Store) -> None:
    other_queue = await store.create_queue("other")
    worker = await store.worker(DEFAULT_QUEUE, other_queue)
    await store.limit(1, per_key=True)
    _, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    claim = await store.claim_one(worker)
    urgent = await store.enqueue(queue="other", priority=5)
    done = [work.Completed(claim.id, claim.attempt, "null")]
    claims, _ = await work.finish_and_claim(
        store.conn, worker, done, [work.Lane(DEFAULT_QUEUE), work.Lane(other_queue)], 1
    )
    assert [claim.id for claim in claims] == [urgent]
    assert await store.state(second) == "ready"


async def test_keys_without_a_free_slot_are_not_looked_at(store: Store) -> None:
    """They would fill the batch in which one with room is looked for."""
    await store.limit(1, per_key=True)
    for key in ("full", "open"):
        for _ in range(2):
            await store.enqueue(concurrency_key=key)
    await store.conn.execute("update weft.key_slot set max_running = 2 where key = 'open'")
    rows = await store.conn.fetch(queues.SQL.waiting_keys, None)
    assert [row["key"] for row in rows] == ["open"]


async def test_a_limit_that_is_set_or_lowered_holds_for_what_is_ready_and_leaves_what_runs(store: Store) -> None:
    worker = await store.worker()
    ids = [await store.enqueue(concurrency_key="k", priority=priority) for priority in (0, 5, 0, 0, 0)]
    others = [await store.enqueue(concurrency_key="other") for _ in range(2)]
    plain = await store.enqueue()
    (running,) = await store.claim(worker, 1)
    assert running.id == ids[1]
    await store.limit(3, per_key=True)
    assert await _states(store, ids) == ["ready", "running", "ready", "pending", "pending"]
    await store.limit(1, key="k")
    assert await _states(store, [*ids, *others, plain]) == [
        "pending", "running", "pending", "pending", "pending", "ready", "ready", "ready",
    ]  # fmt: skip
    assert await _counts_are_right(store)
    await store.complete(worker, running)
    assert await _states(store, [ids[0], *ids[2:]]) == ["ready", "pending", "pending", "pending"]
    await store.limit(None, key="k")
    assert await _states(store, [ids[0], *ids[2:]]) == ["ready", "ready", "ready", "pending"]
    await store.limit(None, per_key=True)
    assert await _states(store, [ids[0], *ids[2:]]) == ["ready"] * 4
    assert await _counts_are_right(store)


async def test_what_is_being_claimed_is_not_parked_by_a_lower_limit(store: Store, other: Store) -> None:
    ids = [await store.enqueue(concurrency_key="k") for _ in range(3)]
    worker = await store.worker()
    async with other.conn.transaction():
        await other.claim(worker, 2)
        await store.limit(1, per_key=True)
    assert await _states(store, ids) == ["running", "running", "pending"]
    assert await _counts_are_right(store)
