"""What a lost worker held goes to others, once, and a task that was in too many crashes is buried."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from store_scene import DEFAULT_QUEUE, Store

from weft.queue import upkeep, work, workers


async def test_the_tasks_of_a_worker_whose_lease_lapsed_are_ready_again(store: Store) -> None:
    lost, live = await store.worker(), await store.worker(lease=timedelta(hours=1))
    ids = [await store.enqueue() for _ in range(3)]
    await store.claim(lost, 2)
    await store.claim(live, 1)
    assert await store.lose() == 0
    await store.advance(seconds=31)
    assert await store.lose() == 2
    assert [await store.state(id) for id in ids] == ["ready", "ready", "running"]
    row = await store.task(ids[0])
    assert (row["crashes"], row["failures"], row["attempt"], row["worker_id"]) == (1, 0, 1, None)
    assert await store.attempts(ids[0]) == [(1, "lost")]
    assert await store.lose() == 0


async def test_a_worker_that_beats_in_time_is_not_lost(store: Store) -> None:
    worker = await store.worker()
    for _ in range(3):
        await store.advance(seconds=20)
        assert await store.beat(worker) is not None
        assert await store.run(upkeep.mark_lost) == []
    await store.advance(seconds=31)
    assert await store.run(upkeep.mark_lost) == [worker]
    assert await store.run(upkeep.mark_lost) == []


@pytest.mark.parametrize("state", ["lost", "stopped"])
async def test_a_worker_that_was_given_up_cannot_beat_itself_back_to_life(store: Store, state: str) -> None:
    worker = await store.worker()
    await store.conn.execute("update weft.worker set state = $1::text::weft.worker_state", state)
    assert await store.beat(worker) is None
    row = await store.conn.fetchrow("select state::text, until <= weft.now() + interval '31 seconds' from weft.worker")
    assert row is not None
    assert tuple(row) == (state, True)
    assert await store.beat(worker + 1) is None


async def test_a_stopped_worker_is_not_marked_lost(store: Store) -> None:
    worker = await store.worker()
    assert await store.run(workers.deregister, worker)
    await store.advance(minutes=5)
    assert await store.run(upkeep.mark_lost) == []
    assert await store.conn.fetchval("select state::text from weft.worker") == "stopped"
    assert not await store.run(workers.deregister, worker)


async def test_a_lost_worker_does_not_become_a_stopped_one(store: Store) -> None:
    worker = await store.worker()
    await store.advance(minutes=5)
    await store.run(upkeep.mark_lost)
    assert not await store.run(workers.deregister, worker)
    assert await store.conn.fetchval("select state::text from weft.worker") == "lost"


async def test_a_heartbeat_that_comes_while_its_worker_is_being_given_up_does_not_land(
    store: Store, other: Store
) -> None:
    worker = await store.worker()
    await store.advance(minutes=5)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await upkeep.mark_lost(store.conn) == [worker]
    beating = asyncio.create_task(other.beat(worker))
    assert await other.settled(beating, ahead=store)
    await transaction.commit()
    assert await beating is None


async def test_a_worker_whose_heartbeat_is_on_its_way_is_not_given_up(store: Store, other: Store) -> None:
    worker = await store.worker()
    await store.advance(minutes=5)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await store.beat(worker) is not None
    marking = asyncio.create_task(other.run(upkeep.mark_lost))
    assert not await other.settled(marking, ahead=store)
    assert await marking == []
    await transaction.commit()
    assert await other.run(upkeep.mark_lost) == []


async def test_a_task_that_was_in_too_many_crashes_is_buried(store: Store) -> None:
    id, innocent = await store.enqueue(), await store.enqueue(priority=-1)
    for crash in range(1, 4):
        worker = await store.worker()
        await store.claim_one(worker)
        await store.advance(minutes=5)
        assert await store.lose(loss_limit=3) == 1
        assert (await store.task(id))["crashes"] == crash
    row = await store.task(id)
    assert (row["state"], row["reason"], row["failures"], row["attempt"]) == ("dead", "crashed", 0, 3)
    assert "running 3 times when its worker or process died" in row["error"]
    assert await store.attempts(id) == [(1, "lost"), (2, "lost"), (3, "lost")]
    assert await store.state(innocent) == "ready"


async def test_a_replayed_task_has_its_crashes_before_it_again(store: Store) -> None:
    id = await store.enqueue()
    await store.claim_one(await store.worker())
    await store.advance(minutes=5)
    await store.lose(loss_limit=1)
    await store.replay(id)
    row = await store.task(id)
    assert (row["state"], row["crashes"], row["failures"], row["attempt"]) == ("ready", 0, 0, 1)


async def test_claimed_tasks_are_rescued_and_others_of_a_lost_worker_are_not_touched(store: Store) -> None:
    worker = await store.worker()
    ids = [await store.enqueue() for _ in range(6)]
    await store.claim(worker, 6)
    states = ["claimed", "running", "dispatched", "waiting", "pending", "scheduled"]
    for id, state in zip(ids, states, strict=True):
        await store.conn.execute("update weft.task set state = $1::text::weft.task_state where id = $2", state, id)
    await store.advance(minutes=5)
    assert await store.lose() == 2
    assert [await store.state(id) for id in ids] == ["ready", "ready", *states[2:]]
    assert await store.lose(loss_limit=1) == 0


async def test_rescue_and_burial_write_only_what_the_lost_worker_still_holds(store: Store) -> None:
    """The ids were looked up before; meanwhile one went to another worker, one is ready, one has ended."""
    lost, next = await store.worker(), await store.worker()
    ids = [await store.enqueue() for _ in range(4)]
    claims = await store.claim(lost, 4)
    await store.hand_back(lost, claims[0])
    await store.hand_back(lost, claims[1])
    (taken,) = await store.claim(next, 1)
    assert taken.id == ids[0]
    await store.complete(lost, claims[2])
    for statement in (upkeep.WORKER.rescue, upkeep.WORKER.bury_crashed):
        transaction = store.conn.transaction()
        await transaction.start()
        extra = ["{}"] if statement is upkeep.WORKER.bury_crashed else []
        rows = await store.conn.fetch(statement, lost, ids, *extra)
        assert [row["id"] for row in rows] == [ids[3]]
        assert (await store.state(ids[0]), (await store.task(ids[0]))["worker_id"]) == ("running", next)
        assert [await store.state(id) for id in ids[1:3]] == ["ready", "completed"]
        await transaction.rollback()
        await store.conn.execute("update weft.task set state = 'dispatched' where id = $1", ids[3])
        assert await store.conn.fetch(statement, lost, ids, *extra) == []
        await store.conn.execute("update weft.task set state = 'running' where id = $1", ids[3])


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_a_rescue_waits_for_no_outcome_and_comes_back_for_it(store: Store, other: Store, commits: bool) -> None:
    worker = await store.worker()
    locked, free = await store.enqueue(), await store.enqueue()
    claims = {claim.id: claim for claim in await store.claim(worker, 2)}
    await store.advance(minutes=5)
    await store.run(upkeep.mark_lost)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await store.complete(worker, claims[locked]) == []
    await other.run(upkeep.rescue, worker, 3)
    assert (await other.state(locked), await other.state(free)) == ("running", "ready")
    assert await upkeep.lost_workers(other.conn) == [worker]
    await (transaction.commit() if commits else transaction.rollback())
    await other.run(upkeep.rescue, worker, 3)
    assert await store.state(locked) == ("completed" if commits else "ready")
    assert await upkeep.lost_workers(store.conn) == []


async def test_a_worker_counts_as_rescued_only_when_it_holds_nothing(store: Store) -> None:
    worker = await store.worker()
    await store.enqueue()
    await store.claim_one(worker)
    assert await store.conn.fetch(upkeep.WORKER.rescued, worker) == []
    await store.conn.execute("update weft.worker set state = 'lost'")
    assert await store.conn.fetch(upkeep.WORKER.rescued, worker) == []
    assert await upkeep.lost_workers(store.conn) == [worker]
    await store.run(upkeep.rescue, worker, 3)
    assert await upkeep.lost_workers(store.conn) == []
    assert await store.conn.fetchval("select rescued_at is not null from weft.worker")


async def test_more_tasks_than_a_batch_are_rescued_in_several(store: Store) -> None:
    await store.conn.execute("select weft.enqueue('h') from generate_series(1, 1500)")
    worker = await store.worker()
    assert len(await store.claim(worker, 1500)) == 1500
    await store.advance(minutes=5)
    assert await store.lose() == 1000
    assert await store.lose() == 500
    assert await store.conn.fetchval("select count(*) from weft.task where state = 'ready'") == 1500


@pytest.mark.parametrize("how", ["stopped", "rescued before", "forgotten"])
async def test_a_task_is_rescued_from_whatever_is_no_worker_any_more(store: Store, how: str) -> None:
    worker, id = await store.worker(), await store.enqueue()
    await store.claim_one(worker)
    match how:
        case "stopped":
            await store.conn.execute("update weft.worker set state = 'stopped'")
        case "rescued before":
            await store.conn.execute("update weft.worker set state = 'lost', rescued_at = weft.now()")
        case "forgotten":
            await store.conn.execute("delete from weft.worker")
    other = await store.worker()
    pulse = await store.beat(other)
    assert pulse is not None
    assert (pulse.leader, pulse.lapsed) == (True, True)
    assert await store.lose() == 1
    assert await store.state(id) == "ready"


async def test_only_workers_that_are_gone_for_long_and_hold_nothing_are_forgotten(store: Store) -> None:
    live, stopped, lost, unrescued, holding = [await store.worker() for _ in range(5)]
    await store.enqueue()
    await store.claim_one(holding)
    await store.conn.execute("update weft.worker set state = 'stopped' where id = any ($1)", [stopped, holding])
    await store.conn.execute("update weft.worker set state = 'lost' where id = any ($1)", [lost, unrescued])
    await store.conn.execute("update weft.worker set rescued_at = weft.now() where id = $1", lost)
    assert await store.run(upkeep.prune_workers, timedelta(hours=1)) == 0
    await store.advance(hours=2)
    assert await store.run(upkeep.prune_workers, timedelta(hours=1)) == 2
    left = {row[0] for row in await store.conn.fetch("select id from weft.worker")}
    assert left == {live, unrescued, holding}


async def test_which_code_a_worker_had_is_known_until_what_it_ran_is_forgotten(store: Store) -> None:
    live, gone = await store.worker(), await store.worker()
    for worker in (live, gone):
        await store.run(workers.note_codes, 1, worker, {"h": "aa", "other": "bb"})
    await store.run(workers.deregister, gone)
    await store.advance(hours=2)
    assert await store.run(upkeep.prune_codes, timedelta(days=30)) == 0
    await store.run(upkeep.prune_workers, timedelta(hours=1))
    assert await store.run(upkeep.prune_codes, timedelta(days=30)) == 0
    await store.advance(days=29)
    assert await store.run(upkeep.prune_codes, timedelta(days=30)) == 0
    await store.advance(days=2)
    assert await store.run(upkeep.prune_codes, timedelta(days=30)) == 2
    assert {row[0] for row in await store.conn.fetch("select worker_id from weft.worker_code")} == {live}


async def test_an_attempt_that_missed_its_heartbeat_fails_and_is_tried_again_or_dead(store: Store) -> None:
    worker = await store.worker()
    beat = timedelta(seconds=10)
    again = await store.enqueue(heartbeat_timeout=beat)
    last = await store.enqueue(heartbeat_timeout=beat, max_attempts=1)
    calm = await store.enqueue()
    not_begun = await store.enqueue(heartbeat_timeout=beat, priority=-1)
    await store.claim(worker, 3)
    assert await store.run(upkeep.expire) == 0
    await store.advance(seconds=11)
    assert await store.run(upkeep.expire) == 2
    assert [await store.state(id) for id in (again, last, calm, not_begun)] == ["scheduled", "dead", "running", "ready"]
    assert {(await store.task(id))["reason"] for id in (again, last)} == {"heartbeat_timeout"}
    assert await store.run(upkeep.expire) == 0


async def test_a_heartbeat_of_a_task_extends_its_expiry_and_only_then(store: Store) -> None:
    worker = await store.worker(lease=timedelta(hours=1))
    id = await store.enqueue(heartbeat_timeout=timedelta(seconds=10))
    claim = await store.claim_one(worker)
    for _ in range(3):
        await store.advance(seconds=8)
        assert await work.extend_expiry(store.conn, worker, [(claim.id, claim.attempt)])
        assert await store.run(upkeep.expire) == 0
    await store.advance(seconds=11)
    assert await store.run(upkeep.expire) == 1
    assert not await work.extend_expiry(store.conn, worker, [(claim.id, claim.attempt)])
    assert await store.state(id) == "scheduled"
    assert await store.conn.fetchval("select expires_at from weft.task") is None


async def test_a_heartbeat_of_a_task_that_is_on_its_way_is_in_time(store: Store, other: Store) -> None:
    worker = await store.worker(lease=timedelta(hours=1))
    id = await store.enqueue(heartbeat_timeout=timedelta(seconds=10))
    claim = await store.claim_one(worker)
    await store.advance(seconds=11)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await work.extend_expiry(store.conn, worker, [(claim.id, claim.attempt)])
    expiring = asyncio.create_task(other.run(upkeep.expire))
    await other.settled(expiring, ahead=store)
    await transaction.commit()
    assert await expiring == 0
    assert await store.state(id) == "running"


async def test_an_expiry_ends_with_its_attempt(store: Store) -> None:
    worker = await store.worker()
    for leave in ("hand back", "rescue"):
        await store.conn.execute("delete from weft.task")
        id = await store.enqueue(heartbeat_timeout=timedelta(seconds=10))
        claim = await store.claim_one(worker)
        if leave == "hand back":
            await store.hand_back(worker, claim)
        else:
            await store.advance(minutes=5)
            await store.lose()
        assert await store.conn.fetchval("select expires_at from weft.task where id = $1", id) is None


async def test_workers_that_are_long_gone_hide_none_whose_lease_lapsed(store: Store) -> None:
    """There are more of them than a batch takes."""
    gone = [await store.worker() for _ in range(101)]
    await store.conn.execute("update weft.worker set state = 'stopped' where id = any ($1)", gone[:50])
    await store.conn.execute("update weft.worker set state = 'lost' where id = any ($1)", gone[50:])
    lapsed = await store.worker()
    await store.advance(minutes=5)
    assert await store.run(upkeep.mark_lost) == [lapsed]


@pytest.mark.parametrize("state", ["active", "idle", "stopped"])
async def test_only_a_lost_worker_counts_as_rescued(store: Store, state: str) -> None:
    worker = await store.worker()
    await store.conn.execute("update weft.worker set state = $1::text::weft.worker_state", state)
    assert await store.conn.fetch(upkeep.WORKER.rescued, worker) == []
    await store.conn.execute("update weft.worker set state = 'lost'")
    assert await store.conn.fetchval(upkeep.WORKER.rescued, worker) == [DEFAULT_QUEUE]


async def test_the_queues_of_a_lost_worker_are_looked_at_though_it_held_nothing(store: Store) -> None:
    """The last hint may have gone to it."""
    gone = await store.worker(DEFAULT_QUEUE)
    await store.advance(seconds=31)
    assert await store.run(upkeep.mark_lost) == [gone]
    assert await store.run(upkeep.rescue, gone, 10) == (0, {DEFAULT_QUEUE})
