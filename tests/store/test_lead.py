"""The lead: one holder at a time, with a fencing number that only grows."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from store_scene import LEASE, Store

from weft.queue import outbox, upkeep, workers


async def _leads(store: Store, worker: int) -> tuple[bool, int | None]:
    pulse = await store.beat(worker)
    assert pulse is not None
    return pulse.leader, pulse.token


async def test_the_first_leads_and_keeps_the_lead_while_it_beats(store: Store) -> None:
    a, b = await store.worker(), await store.worker(lease=timedelta(hours=1))
    assert await _leads(store, a) == (True, 1)
    assert await _leads(store, b) == (False, None)
    for _ in range(3):
        await store.advance(seconds=20)
        assert await _leads(store, b) == (False, None)
        assert await _leads(store, a) == (True, 1)


async def test_another_leads_when_the_lease_has_lapsed_with_a_higher_number(store: Store) -> None:
    a, b = await store.worker(lease=timedelta(hours=1)), await store.worker(lease=timedelta(hours=1))
    assert await _leads(store, a) == (True, 1)
    await store.advance(seconds=29)
    assert await _leads(store, b) == (False, None)
    await store.advance(seconds=2)
    assert await _leads(store, b) == (True, 2)
    assert await _leads(store, a) == (False, None)
    await store.advance(seconds=31)
    assert await _leads(store, a) == (True, 3)


async def test_the_number_grows_when_a_leader_leaves(store: Store) -> None:
    numbers = []
    for _ in range(3):
        worker = await store.worker()
        leads, token = await _leads(store, worker)
        assert leads
        numbers.append(token)
        await store.run(workers.deregister, worker)
    assert numbers == sorted(set(numbers))


async def test_whoever_leaves_takes_nobody_elses_lead(store: Store) -> None:
    a, b = await store.worker(), await store.worker()
    await _leads(store, a)
    await store.run(workers.deregister, b)
    c = await store.worker()
    assert await _leads(store, c) == (False, None)


async def test_of_two_who_reach_for_a_lapsed_lead_one_gets_it_and_none_waits(store: Store, other: Store) -> None:
    old, a, b = [await store.worker(lease=timedelta(hours=1)) for _ in range(3)]
    await _leads(store, old)
    await store.advance(minutes=5)
    transaction = store.conn.transaction()
    await transaction.start()
    first = await workers.heartbeat(store.conn, a, lease=LEASE, busy=True, completed=0, failed=0)
    async with asyncio.timeout(60):
        second = await other.beat(b)
    await transaction.commit()
    assert first is not None
    assert second is not None
    assert (first.leader, second.leader) == (True, False)


async def test_a_leader_whose_lead_is_being_taken_over_knows_that_it_has_lapsed(store: Store, other: Store) -> None:
    old, next = await store.worker(lease=timedelta(hours=1)), await store.worker(lease=timedelta(hours=1))
    await _leads(store, old)
    await store.advance(minutes=5)
    transaction = store.conn.transaction()
    await transaction.start()
    pulse = await workers.heartbeat(store.conn, next, lease=LEASE, busy=True, completed=0, failed=0)
    assert pulse is not None
    assert pulse.leader
    assert await _leads(other, old) == (False, None)
    await transaction.commit()
    assert await _leads(other, old) == (False, None)


async def test_a_worker_that_is_gone_does_not_lead(store: Store) -> None:
    a, b = await store.worker(), await store.worker()
    await store.conn.execute("update weft.worker set state = 'lost' where id = $1", a)
    assert await store.beat(a) is None
    assert await _leads(store, b) == (True, 1)


async def test_a_blocked_leader_keeps_its_tasks_and_gives_the_lead_up_at_once(store: Store) -> None:
    a, b = await store.worker(), await store.worker(lease=timedelta(hours=1))
    assert await _leads(store, a) == (True, 1)
    await store.advance(seconds=20)
    pulse = await store.beat(a, is_blocked=True)
    assert pulse is not None
    assert (pulse.leader, pulse.token) == (False, None)
    assert await _leads(store, b) == (True, 2)
    await store.advance(seconds=20)
    assert await store.run(upkeep.mark_lost) == [], "its lease was extended"
    assert await _leads(store, b) == (True, 2)
    assert await _leads(store, a) == (False, None), "it answers again, and another leads"


async def test_a_blocked_worker_takes_no_lead_and_takes_nobody_elses(store: Store) -> None:
    a, b, c = [await store.worker() for _ in range(3)]
    for blocked in (a, b):
        pulse = await store.beat(blocked, is_blocked=True)
        assert pulse is not None
        assert not pulse.leader
    assert await _leads(store, a) == (True, 1)
    await store.beat(b, is_blocked=True)
    assert await _leads(store, c) == (False, None)
    assert await _leads(store, a) == (True, 1)
    await store.beat(a, is_blocked=True)
    await store.beat(b, is_blocked=True)
    assert await _leads(store, a) == (True, 1), "nobody led in between"


async def test_a_heartbeat_tells_the_leader_what_there_is_to_do(store: Store) -> None:
    a, b = await store.worker(lease=timedelta(hours=1)), await store.worker(lease=timedelta(minutes=1))
    pulse = await store.beat(a)
    assert pulse is not None
    assert (pulse.held, pulse.next_due_at, pulse.has_outbox, pulse.lapsed, pulse.limited) == (
        0,
        None,
        False,
        False,
        False,
    )
    await store.enqueue(heartbeat_timeout=timedelta(hours=5))
    await store.enqueue(delay=timedelta(hours=3))
    await store.claim_one(a)
    await outbox.add(store.conn, 1, "callback", {})
    await store.limit(3)
    pulse = await store.beat(a)
    assert pulse is not None
    assert (pulse.held, pulse.has_outbox, pulse.lapsed, pulse.limited) == (1, True, False, True)
    assert pulse.next_due_at == await store.conn.fetchval("select min(due_at) from weft.task")
    await store.advance(minutes=2)
    pulse = await store.beat(a, lease=timedelta(hours=9))
    assert pulse is not None
    assert pulse.lapsed, "another worker's lease has lapsed"
    await store.lose()
    assert (await store.beat(a, lease=timedelta(hours=9)) or pulse).lapsed is False
    await store.advance(hours=6)
    pulse = await store.beat(a, lease=timedelta(hours=9))
    assert pulse is not None
    assert pulse.lapsed, "an attempt has missed its heartbeat"
    assert b != a


async def test_a_heartbeat_adds_to_the_counts_of_its_worker(store: Store) -> None:
    worker = await store.worker()
    for completed, failed, busy in [(3, 1, True), (2, 0, False)]:
        await store.run(workers.heartbeat, worker, lease=LEASE, busy=busy, completed=completed, failed=failed)
    (info,) = await workers.list_workers(store.conn, 1)
    assert (info.tasks_completed, info.tasks_failed, info.state, info.is_leader) == (5, 1, "idle", True)
    assert await workers.list_workers(store.conn, 1, ["active"]) == []
    assert await workers.list_workers(store.conn, 2) == []


async def test_a_handler_is_missing_when_no_live_worker_has_known_it_for_long(store: Store) -> None:
    patience = timedelta(minutes=10)

    async def missing(name: str) -> bool:
        return await store.run(workers.handler_is_missing, 1, name, patience)

    worker = await store.worker(handlers=["known"], lease=timedelta(hours=1))
    assert not await missing("unknown"), "the first question starts the clock"
    await store.advance(minutes=9)
    assert not await missing("unknown")
    await store.advance(minutes=2)
    assert await missing("unknown")
    assert not await missing("known"), "a live worker knows it"
    await store.conn.execute("update weft.worker set state = 'stopped' where id = $1", worker)
    assert await missing("known"), "known eleven minutes ago, and not since"
    await store.worker(handlers=["known", "unknown"])
    assert not await missing("unknown")
    await store.advance(minutes=5)
    assert not await missing("unknown"), "its worker's lease has lapsed, but that was not long ago"
    await store.advance(minutes=6)
    assert await missing("unknown")


async def test_what_another_org_knows_of_a_handler_says_nothing_here(store: Store) -> None:
    patience = timedelta(minutes=10)
    await store.conn.execute("insert into weft.org (id, slug, name) values (2, 'two', 'Two')")
    assert not await store.run(workers.handler_is_missing, 1, "h", patience)
    await store.advance(minutes=11)
    assert await store.run(workers.handler_is_missing, 1, "h", patience)
    # It is known there, now and by a worker that lives.
    await store.conn.execute("insert into weft.handler (org_id, name) values (2, 'h')")
    worker = await store.worker(handlers=["h"])
    await store.conn.execute("update weft.worker set org_id = 2 where id = $1", worker)
    await store.conn.execute("update weft.handler set known_at = weft.now() - interval '1 hour' where org_id = 1")
    assert await store.run(workers.handler_is_missing, 1, "h", patience)
    assert not await store.run(workers.handler_is_missing, 2, "h", patience)


async def test_a_heartbeat_counts_what_is_held_only_when_nothing_has_ended_since_the_last(store: Store) -> None:
    worker = await store.worker()
    for _ in range(2):
        await store.enqueue()
    await store.claim(worker, 2)
    pulses = [
        await store.run(
            workers.heartbeat, worker, lease=LEASE, busy=True, completed=done, failed=failed, is_blocked=False
        )
        for done, failed in ((0, 0), (1, 0), (0, 1))
    ]
    assert [pulse and pulse.held for pulse in pulses] == [2, None, None]
