"""Slots of keys that tasks lend while they wait for tasks that they made: counted whatever becomes of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from store_scene import Store

from weft.queue import loans, upkeep, work
from weft.queue.steps import Fence

WRONG = """
  select s.key, s.held, n.n from weft.key_slot s
  full join (select t.queue_id, t.concurrency_key as key, count(*) as n from weft.task t
             where t.concurrency_key is not null and t.state in ('ready', 'running') group by 1, 2) n
    on n.queue_id = s.queue_id and n.key = s.key
  where coalesce(s.held, 0) <> coalesce(n.n, 0) or s.held > s.max_running
"""


class Loan:
    """A task of a job that runs with the only slot of its key, and lends it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def begin(self, key: str = "k", **fields: object) -> Loan:
        store = self.store
        await store.limit(1, key=key)
        self.worker = await store.worker()
        await store.enqueue(concurrency_key=key, **fields)
        self.claim = await store.claim_one(self.worker)
        # Of a job, as all that make others are; the store does not look at the rest of it.
        await store.conn.execute("update weft.task set job_id = 1 where id = $1", self.claim.id)
        self.fence = Fence(self.worker, self.claim.id, self.claim.attempt)
        return self

    async def lend(self) -> bool:
        return await self.store.run(loans.lend, self.fence)

    async def take(self) -> bool | None:
        return await self.store.run(loans.take, self.fence)

    async def key(self) -> str | None:
        return await self.store.conn.fetchval("select concurrency_key from weft.task where id = $1", self.claim.id)

    async def is_right(self) -> bool:
        return await self.store.conn.fetch(WRONG) == []


@pytest.fixture
async def loan(store: Store) -> Loan:
    return await Loan(store).begin()


async def test_what_is_lent_comes_back_before_others_begin(loan: Loan) -> None:
    store = loan.store
    first, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    assert await loan.lend()
    assert await loan.is_right()
    assert [await store.state(id) for id in (first, second)] == ["ready", "pending"]
    assert await loan.take() is False
    (claim,) = await store.claim(loan.worker, 5)
    assert await loan.key() is None
    await store.complete(loan.worker, claim)
    assert (await loan.key(), await store.state(second)) == ("k", "pending")
    assert await loan.take() is True
    assert await loan.is_right()
    await store.complete(loan.worker, loan.claim)
    assert await store.state(second) == "ready"
    assert await loan.is_right()


async def test_of_those_that_would_go_on_the_oldest_does_and_no_other_key_is_meant(loan: Loan) -> None:
    store = loan.store
    assert await loan.lend()
    younger, stranger = await Loan(store).begin(), await Loan(store).begin("other")
    assert await younger.lend()
    assert await stranger.lend()
    for key in ("k", "other"):
        await store.enqueue(concurrency_key=key)
    assert [await each.take() for each in (younger, stranger, loan)] == [False] * 3
    blocking, other = await store.claim(loan.worker, 2)
    await store.complete(loan.worker, blocking)
    assert [await each.key() for each in (loan, younger, stranger)] == ["k", None, None]
    await store.complete(loan.worker, other)
    assert [await each.key() for each in (loan, younger, stranger)] == ["k", None, "other"]
    assert await loan.is_right()


async def test_what_rests_gets_no_slot_that_is_free(loan: Loan) -> None:
    """Only who would go on is given one: else it would hold what its own tasks wait for."""
    store = loan.store
    child = await store.enqueue(concurrency_key="k")
    assert await loan.lend()
    await store.complete(loan.worker, await store.claim_one(loan.worker))
    assert (await loan.key(), await store.state(child)) == (None, "completed")
    assert await store.run(loans.forget) == 0
    assert await loan.take() is True
    assert await loan.is_right()
    assert await store.conn.fetchval("select count(*) from weft.key_loan") == 0


@pytest.mark.parametrize("ending", ["complete", "end", "cancel", "bury"])
async def test_a_task_that_ends_while_it_rests_frees_no_slot_of_another(loan: Loan, ending: str) -> None:
    store = loan.store
    first, second = [await store.enqueue(concurrency_key="k") for _ in range(2)]
    assert await loan.lend()
    assert await loan.take() is False
    match ending:
        case "complete":
            await store.complete(loan.worker, loan.claim)
        case "end":
            await store.end(loan.worker, loan.claim)
        case "cancel":
            await store.cancel(loan.claim.id)
        case "bury":
            await store.advance(minutes=5)
            await store.lose(loss_limit=1)
    assert [await store.state(id) for id in (first, second)] == ["ready", "pending"]
    assert await loan.is_right()
    assert await loan.take() is None
    # What it has left behind gets no slot, and is forgotten.
    worker = await store.worker()
    await store.complete(worker, await store.claim_one(worker))
    assert await store.state(second) == "ready"
    assert await loan.is_right()
    assert await store.run(loans.forget) == 1


@pytest.mark.parametrize("going", ["postpone", "expire", "rescue", "hand back", "hand back all", "set aside"])
@pytest.mark.parametrize("is_free", [True, False], ids=["free", "taken"])
async def test_a_task_that_goes_back_while_it_rests_asks_for_its_key_anew(
    store: Store, going: str, is_free: bool
) -> None:
    loan = await Loan(store).begin(heartbeat_timeout=timedelta(seconds=30))
    if not is_free:
        await store.enqueue(concurrency_key="k")
    assert await loan.lend()
    match going:
        case "postpone":
            await store.postpone(loan.worker, loan.claim, delay=1)
        case "expire":
            await store.advance(seconds=31)
            assert await store.run(upkeep.expire) == 1
        case "rescue":
            await store.advance(minutes=5)
            await store.lose()
        case "hand back":
            await store.hand_back(loan.worker, loan.claim)
        case "hand back all":
            await store.run(work.hand_back_all, loan.worker)
        case "set aside":
            await store.run(work.set_aside, loan.worker, loan.claim.id, loan.claim.attempt)
    assert await loan.key() == "k"
    assert await loan.is_right()
    assert await store.conn.fetchval("select count(*) from weft.key_loan") == 0
    if going in ("postpone", "expire"):
        await store.advance(hours=2)
        await store.stage()
    row = await store.task(loan.claim.id)
    if going == "set aside":
        assert (row["state"], row["reason"]) == ("pending", "outcome_refused")
    else:
        assert (row["state"], row["reason"]) == (("ready", None) if is_free else ("pending", "concurrency_key"))
    assert await loan.is_right()


async def test_a_task_that_goes_back_while_it_lends_keeps_its_key(loan: Loan, other: Store) -> None:
    """Whoever moves it waits for the lending, and must see what came of it."""
    async with loan.store.conn.transaction():
        assert await loans.lend(loan.store.conn, loan.fence)
        moving = asyncio.create_task(other.postpone(loan.worker, loan.claim))
        assert await other.settled(moving, ahead=loan.store)
    assert await moving == {loan.claim.id}
    assert await loan.key() == "k"
    assert await loan.is_right()


async def test_whoever_frees_a_slot_does_not_wait_for_a_task_that_would_go_on(loan: Loan, other: Store) -> None:
    """The key is locked by then: who has the task locked may wait for that."""
    store = loan.store
    await store.enqueue(concurrency_key="k")
    assert await loan.lend()
    assert await loan.take() is False
    claim = await store.claim_one(loan.worker)
    async with store.conn.transaction():
        await store.conn.execute("select from weft.task where id = $1 for update", loan.claim.id)
        await asyncio.wait_for(other.complete(loan.worker, claim), 10)
    assert await loan.key() is None
    assert await loan.take() is True
    assert await loan.is_right()


@pytest.mark.parametrize("wrong", [{"worker_id": 1}, {"attempt": 7}])
async def test_only_the_attempt_that_has_a_key_lends_and_takes_it(loan: Loan, wrong: dict[str, int]) -> None:
    fence = loan.fence._replace(**wrong)
    assert not await loan.store.run(loans.lend, fence)
    assert await loan.lend()
    assert await loan.store.run(loans.take, fence) is None
    assert await loan.key() is None
    assert await loan.is_right()


async def test_a_task_that_does_not_run_lends_nothing(loan: Loan) -> None:
    await loan.store.conn.execute("update weft.task set state = 'waiting' where id = $1", loan.claim.id)
    assert not await loan.lend()
    assert await loan.take() is None


async def test_an_item_of_a_fan_out_keeps_its_turn(loan: Loan) -> None:
    """Nothing that it makes has that key, and others of the fan_out would begin before it has ended."""
    await loan.store.conn.execute("update weft.task set parent_id = 5, concurrency_key = '@5'")
    assert not await loan.lend()


async def test_a_limit_that_is_raised_lets_it_go_on(loan: Loan) -> None:
    await loan.store.enqueue(concurrency_key="k")
    assert await loan.lend()
    assert await loan.take() is False
    await loan.store.limit(2, key="k")
    assert await loan.take() is True
    assert await loan.is_right()


async def test_a_limit_that_is_raised_lets_others_begin_as_well(loan: Loan) -> None:
    _, second, third = [await loan.store.enqueue(concurrency_key="k") for _ in range(3)]
    assert await loan.lend()
    assert await loan.take() is False
    await loan.store.limit(3, key="k")
    assert (await loan.key(), await loan.store.state(second), await loan.store.state(third)) == (
        "k",
        "ready",
        "pending",
    )
    assert await loan.is_right()


async def test_a_key_that_was_forgotten_meanwhile_is_taken_all_the_same(store: Store) -> None:
    loan = await Loan(store).begin()
    await store.limit(None, key="k")
    assert await loan.lend()
    assert await store.run(upkeep.prune_idle_keys) == 1
    assert await loan.take() is True
    assert await loan.is_right()
