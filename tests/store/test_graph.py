"""Edges: a task starts only after everything it waits for has completed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from store_scene import Store

from weft.core.errors import StateConflict
from weft.queue import graph, operate


async def _waiting(store: Store) -> str:
    """What `waiting_on` of each live task should be and is, where they differ."""
    return str(
        await store.conn.fetchval(
            """select coalesce(string_agg(format('%s: %s is %s', t.id, n.n, t.waiting_on), ', '), 'right')
               from weft.task t cross join lateral (
                 select count(*) as n from weft.edge e where e.next = t.id and not exists (
                   select 1 from weft.task_done d where d.id = e.prev and d.state = 'completed')) n
               where n.n <> t.waiting_on"""
        )
    )


async def test_a_task_waits_for_all_and_only_its_predecessors(store: Store) -> None:
    worker = await store.worker()
    a, b, c, free = [await store.enqueue() for _ in range(4)]
    assert await store.edge(a, c)
    assert await store.edge(b, c)
    claims = {claim.id: claim for claim in await store.claim(worker, 10)}
    assert set(claims) == {a, b, free}
    await store.complete(worker, claims[free])
    await store.complete(worker, claims[a])
    row = await store.task(c)
    assert (row["state"], row["waiting_on"], row["reason"]) == ("pending", 1, "dependencies")
    await store.complete(worker, claims[b])
    row = await store.task(c)
    assert (row["state"], row["waiting_on"], row["reason"]) == ("ready", 0, None)
    assert [claim.id for claim in await store.claim(worker, 10)] == [c]


async def test_predecessors_that_end_in_one_call_are_all_counted(store: Store) -> None:
    worker = await store.worker()
    before = [await store.enqueue() for _ in range(5)]
    after = [await store.enqueue() for _ in range(3)]
    for next in after:
        for prev in before[: 3 + after.index(next)]:
            await store.edge(prev, next)
    claims = await store.claim(worker, 10)
    assert sorted(claim.id for claim in claims) == before
    await store.complete(worker, *claims[:4])
    assert [await store.state(id) for id in after] == ["ready", "ready", "pending"]
    await store.complete(worker, claims[4])
    assert [await store.state(id) for id in after] == ["ready"] * 3
    assert await _waiting(store) == "right"


@pytest.mark.parametrize("ending", ["dead", "cancelled", "postponed", "handed back", "rescued"])
async def test_only_success_releases(store: Store, ending: str) -> None:
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await store.edge(a, b)
    claim = await store.claim_one(worker)
    match ending:
        case "dead":
            await store.end(worker, claim)
        case "cancelled":
            await store.cancel(a)
        case "postponed":
            await store.postpone(worker, claim)
        case "handed back":
            await store.hand_back(worker, claim)
        case "rescued":
            await store.advance(minutes=5)
            await store.lose()
    row = await store.task(b)
    assert (row["state"], row["waiting_on"]) == ("pending", 1)
    assert await _waiting(store) == "right"


async def test_an_outcome_that_is_refused_releases_nothing(store: Store) -> None:
    worker, thief = await store.worker(), await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await store.edge(a, b)
    claim = await store.claim_one(worker)
    assert await store.complete(thief, claim) == [a]
    assert await store.state(b) == "pending"
    assert await store.complete(worker, claim) == []
    assert await store.complete(worker, claim) == []
    assert (await store.state(b), (await store.task(b))["waiting_on"]) == ("ready", 0)


async def test_an_edge_counts_once_however_often_it_is_added(store: Store) -> None:
    a, b = await store.enqueue(), await store.enqueue()
    for _ in range(3):
        assert await store.edge(a, b)
    assert (await store.task(b))["waiting_on"] == 1


async def test_there_is_no_edge_from_what_has_ended(store: Store) -> None:
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await store.complete(worker, await store.claim_one(worker))
    assert not await store.edge(a, b)
    assert (await store.task(b))["waiting_on"] == 0
    assert await graph.release(store.conn, b)
    assert await store.state(b) == "ready"


async def test_a_task_that_is_not_held_takes_no_edge(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    running, scheduled, holder, parked, ready, prev = [
        await store.enqueue(**fields)
        for fields in ({"priority": 9}, {"run_at": None}, {"concurrency_key": "k"}, {"concurrency_key": "k"}, {}, {})
    ]
    await store.claim_one(worker)
    await store.conn.execute("update weft.task set state = 'scheduled', due_at = 'infinity' where id = $1", scheduled)
    for id in (running, scheduled, parked, ready):
        with pytest.raises(StateConflict, match="not held"):
            await store.run(graph.add_edge, prev, id)
    assert await store.conn.fetchval("select count(*) from weft.edge") == 0
    assert await store.conn.fetchval("select sum(waiting_on) from weft.task") == 0
    assert await store.state(holder) == "ready"


async def test_a_task_that_has_begun_cannot_be_held(store: Store) -> None:
    worker, id = await store.worker(), await store.enqueue()
    await store.claim_one(worker)
    assert not await graph.hold(store.conn, id)
    assert await store.state(id) == "running"
    later = await store.enqueue()
    assert await graph.hold(store.conn, later)
    assert await store.claim(worker, 5) == []
    assert await graph.release(store.conn, later)
    assert not await graph.release(store.conn, later)
    assert len(await store.claim(worker, 5)) == 1


async def test_a_task_that_waits_is_not_released_by_hand(store: Store) -> None:
    a, b = await store.enqueue(), await store.enqueue()
    await store.edge(a, b)
    assert not await graph.release(store.conn, b)
    assert await store.state(b) == "pending"
    await store.limit(1, per_key=True)
    await store.enqueue(concurrency_key="k")
    parked = await store.enqueue(concurrency_key="k")
    assert not await graph.release(store.conn, parked)
    assert await store.state(parked) == "pending"


async def test_a_predecessor_that_finishes_while_an_edge_is_being_added_releases_the_task(
    store: Store, other: Store
) -> None:
    """The edge comes first: the finish waits for it and then sees it."""
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await graph.hold(store.conn, b)
    claim = await store.claim_one(worker)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await graph.add_edge(store.conn, a, b)
    finishing = asyncio.create_task(other.complete(worker, claim))
    assert await other.settled(finishing, ahead=store)
    await transaction.commit()
    assert await finishing == []
    assert (await store.state(b), (await store.task(b))["waiting_on"]) == ("ready", 0)


async def test_an_edge_that_is_added_while_its_predecessor_finishes_is_no_edge(store: Store, other: Store) -> None:
    """The finish comes first: whoever adds the edge waits for it and then knows."""
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await graph.hold(store.conn, b)
    claim = await store.claim_one(worker)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await store.complete(worker, claim) == []
    adding = asyncio.create_task(other.run(graph.add_edge, a, b))
    assert await other.settled(adding, ahead=store)
    await transaction.commit()
    assert not await adding
    assert (await store.task(b))["waiting_on"] == 0
    assert await store.conn.fetchval("select count(*) from weft.edge") == 0


async def test_predecessors_that_finish_at_once_release_the_task_once(store: Store, other: Store) -> None:
    one, two = await store.worker(), await store.worker()
    a, b, c = [await store.enqueue() for _ in range(3)]
    await store.edge(a, c)
    await store.edge(b, c)
    first, second = await store.claim_one(one), await store.claim_one(two)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await store.complete(one, first) == []
    finishing = asyncio.create_task(other.complete(two, second))
    assert await other.settled(finishing, ahead=store)
    await transaction.commit()
    assert await finishing == []
    assert (await store.state(c), (await store.task(c))["waiting_on"]) == ("ready", 0)


async def test_a_replayed_task_still_waits_for_what_has_not_completed(store: Store) -> None:
    worker = await store.worker()
    a, b, c = [await store.enqueue() for _ in range(3)]
    await store.edge(a, c)
    await store.edge(b, c)
    claims = {claim.id: claim for claim in await store.claim(worker, 10)}
    await store.complete(worker, claims[a])
    await store.cancel(c)
    await store.replay(c)
    row = await store.task(c)
    assert (row["state"], row["waiting_on"], row["generation"]) == ("pending", 1, 1)
    assert await _waiting(store) == "right"
    assert await store.complete(worker, claims[b]) == []
    assert await store.state(c) == "ready"


async def test_a_task_replayed_after_all_have_completed_waits_for_nothing(store: Store) -> None:
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await store.edge(a, b)
    claim = await store.claim_one(worker)
    await store.cancel(b)
    await store.complete(worker, claim)
    await store.replay(b)
    assert (await store.state(b), (await store.task(b))["waiting_on"]) == ("ready", 0)


async def test_a_predecessor_that_is_gone_altogether_is_waited_for_no_more(store: Store) -> None:
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await store.edge(a, b)
    await store.end(worker, await store.claim_one(worker))
    await store.cancel(b)
    assert await store.run(operate.purge, 1, timedelta(0), None, [a], 10) == [a]
    await store.replay(b)
    assert await store.state(b) == "ready"


async def test_a_predecessor_that_completes_during_a_replay_is_not_missed(store: Store, other: Store) -> None:
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await store.edge(a, b)
    await store.cancel(b)
    claim = await store.claim_one(worker)
    transaction = store.conn.transaction()
    await transaction.start()
    await operate.replay(store.conn, 1, [b], None)
    finishing = asyncio.create_task(other.complete(worker, claim))
    await other.settled(finishing, ahead=store)
    await transaction.commit()
    assert await finishing == []
    assert (await store.state(b), (await store.task(b))["waiting_on"]) == ("ready", 0)


async def test_a_predecessor_that_goes_round_again_during_a_replay_is_not_missed(store: Store, other: Store) -> None:
    """It had failed: others send it round and complete it while this replay is not committed yet."""
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await store.edge(a, b)
    await store.end(worker, await store.claim_one(worker))
    await store.cancel(b)
    transaction = store.conn.transaction()
    await transaction.start()
    await operate.replay(store.conn, 1, [b], None)

    async def go_round() -> None:
        await other.replay(a)
        await other.complete(worker, await other.claim_one(worker))

    going = asyncio.create_task(go_round())
    await other.settled(going, ahead=store)
    await transaction.commit()
    await going
    assert (await store.state(b), (await store.task(b))["waiting_on"]) == ("ready", 0)


async def test_a_predecessor_may_itself_go_round_again(store: Store) -> None:
    worker = await store.worker()
    a, b = await store.enqueue(), await store.enqueue()
    await store.edge(a, b)
    await store.end(worker, await store.claim_one(worker))
    assert await store.state(b) == "pending"
    await store.replay(a)
    await store.complete(worker, await store.claim_one(worker))
    assert await store.state(b) == "ready"


async def test_a_released_task_with_a_key_takes_its_slot_then_and_not_before(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    a = await store.enqueue()
    b = await store.enqueue(concurrency_key="k")
    await store.edge(a, b)
    assert await store.held_slots("k") == 0
    c = await store.enqueue(concurrency_key="k")
    assert await store.state(c) == "ready"
    claims = {claim.id: claim for claim in await store.claim(worker, 10)}
    assert set(claims) == {a, c}
    await store.complete(worker, claims[a])
    row = await store.task(b)
    assert (row["state"], row["reason"], await store.held_slots("k")) == ("pending", "concurrency_key", 1)
    await store.complete(worker, claims[c])
    assert (await store.state(b), await store.held_slots("k")) == ("ready", 1)


async def test_a_task_with_a_key_takes_its_slot_only_when_the_last_of_its_predecessors_has_ended(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    first, second = await store.enqueue(), await store.enqueue()
    last = await store.enqueue(concurrency_key="k")
    await store.edge(first, last)
    await store.edge(second, last)
    claims = {claim.id: claim for claim in await store.claim(worker, 10)}
    await store.complete(worker, claims[first])
    row = await store.task(last)
    assert (row["state"], row["reason"], await store.held_slots("k")) == ("pending", "dependencies", 0)
    await store.complete(worker, claims[second])
    assert (await store.state(last), await store.held_slots("k")) == ("ready", 1)


async def test_a_free_slot_does_not_admit_what_waits_for_something_else(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    a = await store.enqueue()
    b = await store.enqueue(concurrency_key="k")
    await store.edge(a, b)
    c = await store.enqueue(concurrency_key="k")
    (claim,) = [claim for claim in await store.claim(worker, 10) if claim.id == c]
    await store.complete(worker, claim)
    row = await store.task(b)
    assert (row["state"], row["reason"], await store.held_slots("k")) == ("pending", "dependencies", 0)


async def test_a_held_task_gives_its_slot_back_and_takes_one_when_released(store: Store) -> None:
    await store.limit(1, per_key=True)
    a, b = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    assert await store.run(graph.hold, a)
    assert [await store.state(id) for id in (a, b)] == ["pending", "ready"]
    assert await store.run(graph.hold, b)
    assert await store.held_slots("k") == 0
    assert await store.run(graph.release, a)
    assert await store.run(graph.release, b)
    assert [await store.state(id) for id in (a, b)] == ["ready", "pending"]
    assert await store.held_slots("k") == 1


async def test_a_replayed_task_that_still_waits_for_another_takes_no_slot_of_its_key(store: Store) -> None:
    await store.limit(1, per_key=True)
    first, second = await store.enqueue(), await store.enqueue(concurrency_key="k")
    await store.edge(first, second)
    await store.cancel(second)
    await store.replay(second)
    task = await store.task(second)
    assert (task["state"], task["reason"], await store.held_slots("k")) == ("pending", "dependencies", 0)


async def test_a_task_that_waits_for_its_key_and_then_for_another_gives_no_slot_back(store: Store) -> None:
    await store.limit(1, per_key=True)
    other, _, parked = await store.enqueue(), *[await store.enqueue(concurrency_key="k") for _ in range(2)]
    await store.edge(other, parked)
    assert ((await store.task(parked))["reason"], await store.held_slots("k")) == ("dependencies", 1)


async def test_a_slot_that_is_given_back_goes_to_the_first_in_line_before_what_is_let_go_with_it(store: Store) -> None:
    worker = await store.worker()
    await store.limit(1, per_key=True)
    holder, first, next = [await store.enqueue(concurrency_key="k") for _ in range(3)]
    claim = await store.claim_one(worker)
    assert await store.edge(holder, next)
    await store.complete(worker, claim)
    assert (await store.state(first), await store.state(next)) == ("ready", "pending")
    assert (await store.task(next))["reason"] == "concurrency_key"
