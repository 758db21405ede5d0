"""Every outcome names the state it leads from, the worker and the attempt; whoever comes late writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from store_scene import Store

from weft.queue import steps, work
from weft.queue.steps import Fence
from weft.queue.work import Claim

Verb = Callable[[Store, int, Claim], Awaitable[bool]]


async def _complete(store: Store, worker: int, claim: Claim) -> bool:
    return await store.complete(worker, claim) == []


async def _postpone(store: Store, worker: int, claim: Claim) -> bool:
    return await store.postpone(worker, claim) == {claim.id}


async def _end(store: Store, worker: int, claim: Claim) -> bool:
    return await store.end(worker, claim) == {claim.id}


async def _decline(store: Store, worker: int, claim: Claim) -> bool:
    return await store.decline(worker, claim) is not None


async def _hand_back(store: Store, worker: int, claim: Claim) -> bool:
    return await store.hand_back(worker, claim) != {}


async def _save_step(store: Store, worker: int, claim: Claim) -> bool:
    fence = Fence(worker, claim.id, claim.attempt)
    return await store.run(steps.save, fence, "step", None, 2, "{}") is not None


async def _drop_step(store: Store, worker: int, claim: Claim) -> bool:
    await store.conn.execute(
        "insert into weft.step (task_id, name, org_id, attempt, bytes, data) values ($1, 'old', 1, 1, 2, '{}')"
        " on conflict do nothing",
        claim.id,
    )
    return await store.run(steps.drop, Fence(worker, claim.id, claim.attempt), "old")


async def _extend(store: Store, worker: int, claim: Claim) -> bool:
    return bool(await work.extend_expiry(store.conn, worker, [(claim.id, claim.attempt)]))


VERBS: dict[str, Verb] = {
    "complete": _complete, "postpone": _postpone, "end": _end, "decline": _decline, "hand back": _hand_back,
    "extend": _extend, "save step": _save_step, "drop step": _drop_step,
}  # fmt: skip
# A heartbeat waits for nobody.
WAITING = [name for name in VERBS if name != "extend"]
AFTER = {
    "complete": "completed", "postpone": "scheduled", "end": "dead", "decline": "scheduled", "hand back": "ready",
    "extend": "running", "save step": "running", "drop step": "running",
}  # fmt: skip


@pytest.fixture(params=VERBS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_the_holder_of_the_current_attempt_writes_its_outcome(store: Store, name: str) -> None:
    worker, id = await store.worker(), await store.enqueue()
    assert await VERBS[name](store, worker, await store.claim_one(worker))
    assert await store.state(id) == AFTER[name]


async def test_another_worker_writes_nothing(store: Store, name: str) -> None:
    worker, thief, id = await store.worker(), await store.worker(), await store.enqueue()
    claim = await store.claim_one(worker)
    assert not await VERBS[name](store, thief, claim)
    assert (await store.state(id), (await store.task(id))["worker_id"]) == ("running", worker)
    assert await store.attempts(id) == []


async def test_an_earlier_attempt_of_the_same_worker_writes_nothing(store: Store, name: str) -> None:
    worker, id = await store.worker(), await store.enqueue()
    early = await store.claim_one(worker)
    await store.hand_back(worker, early)
    late = await store.claim_one(worker)
    assert (early.attempt, late.attempt) == (1, 2)
    assert not await VERBS[name](store, worker, early)
    assert await store.state(id) == "running"
    assert await VERBS[name](store, worker, late)


async def test_a_rescued_task_takes_no_outcome_of_the_worker_that_was_lost(store: Store, name: str) -> None:
    late, id = await store.worker(), await store.enqueue()
    claim = await store.claim_one(late)
    await store.advance(minutes=5)
    assert await store.lose() == 1
    assert not await VERBS[name](store, late, claim)
    next = await store.worker()
    again = await store.claim_one(next)
    assert not await VERBS[name](store, late, claim)
    assert (await store.state(id), again.attempt, again.crashes) == ("running", 2, 1)
    assert await VERBS[name](store, next, again)


async def test_a_task_that_is_not_running_takes_no_outcome(store: Store, name: str) -> None:
    """Each state in turn, with worker and attempt as they were: only the from-state of the verb stands in the way."""
    worker, id = await store.worker(), await store.enqueue()
    claim = await store.claim_one(worker)
    allowed = {
        "complete": {"running"}, "postpone": {"running", "dispatched"}, "end": {"running", "dispatched"},
        "decline": {"running"}, "hand back": {"running", "claimed"}, "extend": {"running"},
        "save step": {"running"}, "drop step": {"running"},
    }[name]  # fmt: skip
    for state in {"pending", "scheduled", "ready", "dispatched", "claimed", "waiting"} - allowed:
        await store.conn.execute("update weft.task set state = $1::text::weft.task_state where id = $2", state, id)
        assert not await VERBS[name](store, worker, claim), state
        assert await store.state(id) == state
    for state in allowed:
        transaction = store.conn.transaction()
        await transaction.start()
        await store.conn.execute("update weft.task set state = $1::text::weft.task_state where id = $2", state, id)
        assert await VERBS[name](store, worker, claim), state
        await transaction.rollback()


async def test_an_ended_task_takes_no_further_outcome(store: Store, name: str) -> None:
    for ending in (_complete, _end):
        worker, id = await store.worker(), await store.enqueue()
        claim = await store.claim_one(worker)
        assert await ending(store, worker, claim)
        before = await store.task(id)
        landed = await VERBS[name](store, worker, claim)
        # A repeated completion by the same worker and attempt has landed before; it changes nothing.
        assert landed == (name == "complete" and ending is _complete)
        assert await store.task(id) == before


async def test_a_cancelled_task_takes_no_outcome(store: Store, name: str) -> None:
    worker, id = await store.worker(), await store.enqueue()
    claim = await store.claim_one(worker)
    assert await store.cancel(id) == {id}
    assert not await VERBS[name](store, worker, claim)
    assert await store.state(id) == "cancelled"


async def test_a_replayed_task_takes_no_outcome_of_its_former_generation(store: Store, name: str) -> None:
    worker, id = await store.worker(), await store.enqueue()
    early = await store.claim_one(worker)
    await store.end(worker, early)
    assert list(await store.replay(id)) == [id]
    assert not await VERBS[name](store, worker, early)
    late = await store.claim_one(worker)
    assert late.attempt == 2
    assert not await VERBS[name](store, worker, early)
    assert await VERBS[name](store, worker, late)


@pytest.mark.parametrize("name", WAITING)
async def test_an_outcome_that_waits_for_a_cancel_writes_nothing(store: Store, other: Store, name: str) -> None:
    """Both at once: whoever has the row first decides, the other sees what it left."""
    worker, id = await store.worker(), await store.enqueue()
    claim = await store.claim_one(worker)
    transaction = other.conn.transaction()
    await transaction.start()
    await other.cancel(id)
    outcome = asyncio.create_task(VERBS[name](store, worker, claim))
    assert await store.settled(outcome, ahead=other)
    await transaction.commit()
    assert not await outcome
    assert await store.state(id) == "cancelled"


@pytest.mark.parametrize("name", WAITING)
async def test_a_cancel_that_waits_for_an_outcome_finds_what_it_left(store: Store, other: Store, name: str) -> None:
    worker, id = await store.worker(), await store.enqueue()
    claim = await store.claim_one(worker)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await VERBS[name](store, worker, claim)
    cancelling = asyncio.create_task(other.cancel(id))
    assert await other.settled(cancelling, ahead=store)
    await transaction.commit()
    landed = await cancelling
    assert landed == (set() if AFTER[name] in ("completed", "dead") else {id})
    assert await store.state(id) == (AFTER[name] if not landed else "cancelled")


async def test_two_outcomes_of_one_attempt_at_once_land_once(store: Store, other: Store) -> None:
    for first, second in [(_complete, _postpone), (_postpone, _complete), (_end, _hand_back), (_hand_back, _end)]:
        worker, id = await store.worker(), await store.enqueue()
        (claim,) = [claim for claim in await store.claim(worker, 10) if claim.id == id]
        transaction = store.conn.transaction()
        await transaction.start()
        assert await first(store, worker, claim)
        late = asyncio.create_task(second(other, worker, claim))
        assert await other.settled(late, ahead=store)
        await transaction.commit()
        assert not await late
        await store.conn.execute("delete from weft.task")


async def test_of_a_batch_only_what_is_held_lands_and_each_keeps_its_own_output(store: Store) -> None:
    worker, thief = await store.worker(), await store.worker()
    ids = [await store.enqueue() for _ in range(5)]
    claims = await store.claim(worker, 5)
    await store.cancel(ids[1])
    await store.hand_back(worker, claims[3])
    (stolen,) = await store.claim(thief, 1)
    assert stolen.id == ids[3]
    outcomes = [work.Completed(claim.id, claim.attempt, str(n)) for n, claim in enumerate(claims)]
    _, lost = await work.finish_and_claim(store.conn, worker, outcomes[::-1], [], 0)
    assert sorted(lost) == [ids[1], ids[3]]
    found = [((await store.task(id))["state"], (await store.task(id))["output"]) for id in ids]
    assert found == [
        ("completed", "0"), ("cancelled", None), ("completed", "2"), ("running", None), ("completed", "4"),
    ]  # fmt: skip


async def test_a_repeated_finish_has_landed_only_for_the_same_worker_attempt_and_success(store: Store) -> None:
    worker, thief = await store.worker(), await store.worker()
    id = await store.enqueue()
    claim = await store.claim_one(worker)
    assert await store.complete(worker, claim, output="1") == []
    assert await store.complete(worker, claim, output="2") == []
    assert (await store.task(id))["output"] == "1"
    assert await store.complete(thief, claim) == [id]
    assert await store.complete(worker, claim._replace(attempt=2)) == [id]
    dead = await store.enqueue()
    claim = await store.claim_one(worker)
    await store.end(worker, claim)
    assert await store.complete(worker, claim) == [dead]


async def test_what_is_recorded_of_an_attempt_is_recorded_once(store: Store) -> None:
    worker, id = await store.worker(), await store.enqueue()
    await store.postpone(worker, await store.claim_one(worker), delay=0)
    await store.stage()
    await store.postpone(worker, await store.claim_one(worker), delay=0, counted=False)
    await store.stage()
    third = await store.claim_one(worker)
    assert (third.attempt, third.failures) == (3, 1)
    await store.end(worker, third)
    assert await store.attempts(id) == [(1, "failed"), (2, "snoozed"), (3, "failed")]
    row = await store.task(id)
    assert (row["failures"], row["attempt"], row["worker_id"]) == (2, 3, worker)


async def test_hand_back_of_everything_takes_only_what_the_worker_holds(store: Store) -> None:
    worker, neighbour = await store.worker(), await store.worker()
    ids = [await store.enqueue() for _ in range(4)]
    await store.claim(worker, 2)
    await store.claim(neighbour, 1)
    await store.conn.execute("update weft.task set state = 'dispatched' where id = $1", ids[0])
    await store.run(work.hand_back_all, worker)
    assert [await store.state(id) for id in ids] == ["dispatched", "ready", "running", "ready"]
    assert await work.held_by(store.conn, worker) == []


async def test_who_hands_everything_back_waits_for_no_outcome_that_is_on_its_way(store: Store, other: Store) -> None:
    worker, ids = await store.worker(), [await store.enqueue() for _ in range(2)]
    claims = {claim.id: claim for claim in await store.claim(worker, 2)}
    transaction = other.conn.transaction()
    await transaction.start()
    assert await other.complete(worker, claims[ids[0]]) == []
    await store.run(work.hand_back_all, worker)
    assert [await store.state(id) for id in ids] == ["running", "ready"]
    await transaction.commit()
    assert [await store.state(id) for id in ids] == ["completed", "ready"]


async def test_heartbeats_wait_for_no_transaction_that_has_a_task_locked(store: Store, other: Store) -> None:
    worker = await store.worker()
    ids = [await store.enqueue(heartbeat_timeout=timedelta(minutes=1)) for _ in range(2)]
    claims = await store.claim(worker, 2)
    leases = [(claim.id, claim.attempt) for claim in claims]
    expiry = "select id, expires_at from weft.task order by id"
    transaction = other.conn.transaction()
    await transaction.start()
    assert await other.complete(worker, claims[0]) == []
    before = await store.conn.fetch(expiry)
    await store.advance(seconds=5)
    assert await asyncio.wait_for(store.run(work.extend_expiry, worker, leases), 20) == set(ids), "both go on"
    after = await store.conn.fetch(expiry)
    await transaction.rollback()
    assert [one != other for one, other in zip(before, after, strict=True)] == [False, True]
