"""Claims: never more than asked for, never twice, never what may not be taken."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import asyncpg
import pytest
from store_scene import DEFAULT_QUEUE, Store

from weft.queue import queues, work
from weft.queue.work import HEAD, Lane


async def test_many_claimers_at_once_get_each_task_once_and_never_more_than_they_asked_for(
    store: Store, url: str
) -> None:
    total, claimers = 600, 8
    await store.conn.execute("select weft.enqueue('h') from generate_series(1, $1::int)", total)

    async def claim_all(n: int) -> list[int]:
        own = Store(await asyncpg.connect(url))
        worker = await own.worker()
        chance = random.Random(n)
        got: list[int] = []
        while True:
            wanted = chance.choice([1, 2, 7, 30])
            claims = await own.claim(worker, wanted)
            assert len(claims) <= wanted
            if not claims:
                break
            got += [claim.id for claim in claims]
        await own.conn.close()
        return got

    found = await asyncio.gather(*(claim_all(n) for n in range(claimers)))
    everything = [id for got in found for id in got]
    assert len(everything) == len(set(everything)) == total


async def test_finishing_and_claiming_at_once_by_many_loses_nothing(store: Store, url: str) -> None:
    await store.conn.execute("select weft.enqueue('h') from generate_series(1, 400)")

    async def work_off() -> int:
        conn = await asyncpg.connect(url)
        own, done = Store(conn), 0
        worker = await own.worker()
        finished: list[work.Completed] = []
        while True:
            claims, lost = await work.finish_and_claim(conn, worker, finished, [Lane(DEFAULT_QUEUE)], 10)
            assert not lost
            done += len(finished)
            if not claims:
                break
            finished = [work.Completed(claim.id, claim.attempt, "null") for claim in claims]
        await conn.close()
        return done

    assert sum(await asyncio.gather(*(work_off() for _ in range(6)))) == 400
    assert await store.conn.fetchval("select count(*) from weft.task_done where state = 'completed'") == 400
    assert await store.conn.fetchval("select count(*) from weft.task") == 0


async def test_a_claim_passes_over_what_another_is_taking_without_waiting(store: Store, other: Store) -> None:
    one, two = await store.worker(), await store.worker()
    ids = [await store.enqueue() for _ in range(4)]
    transaction = store.conn.transaction()
    await transaction.start()
    assert [claim.id for claim in await store.claim(one, 2)] == ids[:2]
    claiming = asyncio.create_task(other.claim(two, 3))
    assert not await other.settled(claiming, ahead=store)
    assert [claim.id for claim in await claiming] == ids[2:]
    await transaction.commit()


async def test_only_ready_tasks_are_claimed(store: Store) -> None:
    worker = await store.worker()
    ids = {}
    for state in ("pending", "scheduled", "dispatched", "claimed", "running", "waiting", "ready"):
        ids[state] = await store.enqueue()
        await store.conn.execute(
            "update weft.task set state = $1::text::weft.task_state where id = $2", state, ids[state]
        )
    for from_head, mark in [(False, HEAD), (True, (32767, 2**62, 2**62))]:
        async with _undone(store):
            claims = await store.claim(worker, 10, Lane(DEFAULT_QUEUE, mark=mark), from_head=from_head)
            assert [claim.id for claim in claims] == [ids["ready"]]


class _undone:
    """A transaction that is always rolled back."""

    def __init__(self, store: Store) -> None:
        self._transaction = store.conn.transaction()

    async def __aenter__(self) -> None:
        await self._transaction.start()

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()


async def test_a_claim_above_a_mark_leaves_what_lies_below_unless_it_comes_up_short(store: Store) -> None:
    worker = await store.worker()
    urgent = await store.enqueue(priority=5)
    first, second, third = [await store.enqueue() for _ in range(3)]
    mark = (0, first, first)
    async with _undone(store):
        claims = await store.claim(worker, 2, Lane(DEFAULT_QUEUE, mark=mark))
        assert [claim.id for claim in claims] == [second, third]
    async with _undone(store):
        claims = await store.claim(worker, 4, Lane(DEFAULT_QUEUE, mark=mark), from_head=False)
        assert sorted(claim.id for claim in claims) == [second, third]
    claims = await store.claim(worker, 4, Lane(DEFAULT_QUEUE, mark=mark))
    assert sorted(claim.id for claim in claims) == [urgent, first, second, third]


async def test_a_room_bounds_a_claim_above_and_below_the_mark(store: Store) -> None:
    worker = await store.worker()
    ids = [await store.enqueue() for _ in range(6)]
    for n in (0, 3, 6):
        mark = (0, ids[n - 1], ids[n - 1]) if n else HEAD
        async with _undone(store):
            assert len(await store.claim(worker, 10, Lane(DEFAULT_QUEUE, room=2, mark=mark))) == 2
    async with _undone(store):
        assert await store.claim(worker, 10, Lane(DEFAULT_QUEUE, room=0)) == []


async def test_a_room_bounds_each_of_several_queues(store: Store) -> None:
    a, b = await store.create_queue("a"), await store.create_queue("b")
    worker = await store.worker(a, b)
    for queue in ("a", "b"):
        for _ in range(5):
            await store.enqueue(queue=queue)
    claims = await store.claim(worker, 10, Lane(a, room=1), Lane(b, room=3))
    counts = {queue: [claim.queue_id for claim in claims].count(queue) for queue in (a, b)}
    assert counts == {a: 1, b: 3}


async def test_the_best_of_several_queues_come_first(store: Store) -> None:
    a, b = await store.create_queue("a"), await store.create_queue("b")
    worker = await store.worker(a, b)
    ids = [await store.enqueue(queue=queue, priority=priority)
           for queue, priority in [("a", 0), ("b", 1), ("a", 2), ("b", 0), ("a", 1)]]  # fmt: skip
    order = [ids[2], ids[1], ids[4], ids[0], ids[3]]
    for wanted in range(1, 6):
        async with _undone(store):
            claims = await store.claim(worker, wanted, Lane(a), Lane(b))
            assert sorted(claim.id for claim in claims) == sorted(order[:wanted])


async def test_a_paused_queue_gives_nothing(store: Store) -> None:
    worker = await store.worker()
    ids = [await store.enqueue() for _ in range(2)]
    await store.run(queues.pause, 1, "default")
    for mark in (HEAD, (0, ids[0], ids[0])):
        assert await store.claim(worker, 5, Lane(DEFAULT_QUEUE, mark=mark)) == []
    await store.run(queues.resume, 1, "default")
    assert len(await store.claim(worker, 5)) == 2


async def test_a_limited_queue_gives_nothing_to_a_worker_that_knows_of_no_limit(store: Store) -> None:
    worker = await store.worker()
    await store.enqueue()
    await store.limit(5)
    assert await store.claim(worker, 5, Lane(DEFAULT_QUEUE)) == []
    assert len(await store.claim(worker, 5, Lane(DEFAULT_QUEUE, room=1))) == 1


@pytest.mark.parametrize("state", ["lost", "stopped"])
async def test_a_worker_that_is_gone_claims_nothing(store: Store, state: str) -> None:
    worker, id = await store.worker(), await store.enqueue()
    await store.conn.execute("update weft.worker set state = $1::text::weft.worker_state", state)
    assert await store.claim(worker, 5) == []
    assert await store.state(id) == "ready"
    assert await store.claim(worker + 1, 5) == []


async def test_a_gone_worker_may_still_finish_what_nobody_has_taken_from_it(store: Store) -> None:
    worker, id = await store.worker(), await store.enqueue()
    claim = await store.claim_one(worker)
    await store.conn.execute("update weft.worker set state = 'lost'")
    outcomes = [work.Completed(claim.id, claim.attempt, "1")]
    claims, lost = await work.finish_and_claim(store.conn, worker, outcomes, [Lane(DEFAULT_QUEUE)], 5)
    assert (claims, lost, await store.state(id)) == ([], [], "completed")


async def test_a_worker_that_is_being_given_up_cannot_claim_meanwhile(store: Store, other: Store) -> None:
    """Marking and claiming at once: whichever is first, no task stays with a worker whose tasks were all rescued."""
    worker = await store.worker()
    await store.enqueue()
    transaction = store.conn.transaction()
    await transaction.start()
    await store.conn.execute("update weft.worker set state = 'lost' where id = $1", worker)
    claiming = asyncio.create_task(other.claim(worker, 1))
    await other.settled(claiming, ahead=store)
    await transaction.commit()
    assert await claiming == []
    worker = await store.worker()
    transaction = store.conn.transaction()
    await transaction.start()
    assert len(await store.claim(worker, 1)) == 1
    marking = asyncio.create_task(other.conn.execute("update weft.worker set state = 'lost' where id = $1", worker))
    assert await other.settled(marking, ahead=store)
    await transaction.commit()
    await marking


async def test_a_claim_raises_the_attempt_and_names_its_worker(store: Store) -> None:
    worker, id = await store.worker(), await store.enqueue(timeout=None)
    claim = await store.claim_one(worker)
    row = await store.task(id)
    assert (row["state"], row["attempt"], row["worker_id"], row["reason"]) == ("running", 1, worker, None)
    assert row["claimed_at"] >= row["created_at"]
    await store.hand_back(worker, claim)
    row = await store.task(id)
    assert (row["state"], row["attempt"], row["worker_id"], row["failures"], row["crashes"]) == ("ready", 1, None, 0, 0)


async def test_a_claim_sets_the_expiry_of_tasks_that_must_beat_and_of_no_others(store: Store) -> None:
    worker = await store.worker()
    beating, calm = await store.enqueue(heartbeat_timeout=timedelta(minutes=1)), await store.enqueue()
    await store.claim(worker, 2)
    look = "select expires_at - claimed_at from weft.task where id = $1"
    assert await store.conn.fetchval(look, beating) == timedelta(minutes=1)
    assert await store.conn.fetchval(look, calm) is None


async def test_what_a_worker_holds_is_told_by_the_database(store: Store) -> None:
    worker, neighbour = await store.worker(), await store.worker()
    for _ in range(4):
        await store.enqueue()
    mine = await store.claim(worker, 2)
    await store.claim(neighbour, 1)
    assert sorted(await work.held_by(store.conn, worker)) == sorted(mine)
    await store.complete(worker, mine[0])
    assert await work.held_by(store.conn, worker) == [mine[1]]


async def test_a_task_is_not_claimed_before_it_was_created(store: Store, other: Store) -> None:
    """A claim that had to wait takes a task that came meanwhile: it is later than that, not as old as its call."""
    worker = await store.worker()
    holding = store.conn.transaction()
    await holding.start()
    await store.conn.execute("select 1 from weft.worker where id = $1 for update", worker)
    claiming = asyncio.create_task(other.claim(worker))
    assert await other.settled(claiming, ahead=store)
    id = await store.enqueue()
    await holding.commit()
    assert [claim.id for claim in await claiming] == [id]
    row = await store.task(id)
    assert row["created_at"] <= row["claimed_at"]


async def test_what_lies_below_a_mark_gives_its_queue_no_share(store: Store) -> None:
    """Else a task above the mark would come before a more urgent one of another queue."""
    other_queue = await store.create_queue("other")
    worker = await store.worker(DEFAULT_QUEUE, other_queue)
    await store.enqueue(priority=9)
    mark = (-9, 2**62, 2**62)
    await store.enqueue(priority=1)
    better = await store.enqueue(queue="other", priority=5)
    claims = await store.claim(worker, 1, Lane(DEFAULT_QUEUE, mark=mark), Lane(other_queue), from_head=False)
    assert [claim.id for claim in claims] == [better]


async def test_a_look_below_the_mark_stays_in_its_own_queues(store: Store) -> None:
    """The other queue has what would come first, and is not asked for."""
    await store.conn.execute("insert into weft.queue (org_id, name) values (1, 'other')")
    worker = await store.worker()
    await store.enqueue(queue="other", priority=5)
    late = Lane(DEFAULT_QUEUE, mark=(32767, 2**62, 2**62))
    assert await store.claim(worker, 10, late) == []
    mine = await store.enqueue()
    assert [claim.id for claim in await store.claim(worker, 10, late)] == [mine]
