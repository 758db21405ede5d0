"""A task whose handler its worker does not know: one record tells how long that has been so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_scene import Store

from weft.queue import work
from weft.queue.work import Claim

PATIENCE = timedelta(minutes=10)


async def _claim_again(store: Store, worker: int, **span: float) -> Claim:
    await store.advance(**span)
    await store.stage()
    return await store.claim_one(worker)


async def _long(store: Store, claim: Claim) -> bool:
    return await work.has_been_declined_for(store.conn, claim, PATIENCE)


async def test_declines_that_follow_one_another_are_one_record(store: Store) -> None:
    worker, id = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    claim = await store.claim_one(worker)
    first = await store.conn.fetchval("select claimed_at from weft.task")
    for _ in range(5):
        assert await store.decline(worker, claim) is not None
        claim = await _claim_again(store, worker, seconds=31)
    (row,) = await store.conn.fetch("select * from weft.attempts where task_id = $1", id)
    assert (row["attempt"], row["outcome"], row["reason"], row["started_at"]) == (5, "declined", "no_handler", first)
    assert row["ended_at"] - first >= timedelta(seconds=4 * 31)
    task = await store.task(id)
    assert (task["attempt"], task["failures"], task["crashes"]) == (6, 0, 0)


async def test_a_task_comes_back_the_more_rarely_the_longer_nobody_has_known_its_handler(store: Store) -> None:
    """Others stand behind it."""
    worker, _ = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    claim, pauses = await store.claim_one(worker), []
    for seconds in (8, 20, 60, 60):
        await store.decline(worker, claim)
        pauses.append(await store.conn.fetchval("select round(extract(epoch from due_at - weft.now())) from weft.task"))
        claim = await _claim_again(store, worker, seconds=seconds)
    assert pauses == [2, 4, 14, 30]


async def _pause(store: Store, id: int) -> int:
    return int(await store.conn.fetchval("select round(extract(epoch from due_at - weft.now())) from weft.task"
                                         " where id = $1", id))  # fmt: skip


async def test_the_declines_of_another_task_put_this_one_off_no_longer(store: Store) -> None:
    worker, other = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    await store.decline(worker, await store.claim_one(worker))
    await store.cancel(other)
    await store.advance(minutes=5)
    id = await store.enqueue()
    claim = await store.claim_one(worker)
    for _ in range(2):
        await store.decline(worker, claim)
        assert await _pause(store, id) == 2
        claim = await _claim_again(store, worker, seconds=3)


async def test_an_attempt_that_failed_long_ago_puts_a_task_off_no_longer(store: Store) -> None:
    worker, id = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    await store.postpone(worker, await store.claim_one(worker), delay=1)
    await store.decline(worker, await _claim_again(store, worker, minutes=5))
    assert await _pause(store, id) == 2


async def test_declines_before_another_attempt_put_a_task_off_no_longer(store: Store) -> None:
    worker, id = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    await store.decline(worker, await store.claim_one(worker))
    await store.postpone(worker, await _claim_again(store, worker, minutes=5), delay=1)
    await store.decline(worker, await _claim_again(store, worker, minutes=5))
    assert await _pause(store, id) == 2


async def test_a_decline_is_added_to_the_record_of_its_own_task(store: Store) -> None:
    """Both were declined once, a moment ago."""
    worker = await store.worker(lease=timedelta(hours=9))
    ids = [await store.enqueue(), await store.enqueue()]
    for claim in await store.claim(worker, 2):
        await store.decline(worker, claim)
    await store.advance(seconds=3)
    await store.stage()
    first, _ = await store.claim(worker, 2)
    await store.decline(worker, first)
    assert [await store.attempts(id) for id in ids] == [[(2, "declined")], [(1, "declined")]]


async def test_a_decline_is_not_added_to_the_record_of_a_failure(store: Store) -> None:
    worker, id = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    await store.postpone(worker, await store.claim_one(worker), delay=1)
    await store.decline(worker, await _claim_again(store, worker, seconds=2))
    assert await store.attempts(id) == [(1, "failed"), (2, "declined")]


async def test_a_task_is_long_declined_when_its_first_decline_is_long_ago(store: Store) -> None:
    worker, _ = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    claim = await store.claim_one(worker)
    for minutes in (5, 4.9):
        assert not await _long(store, claim)
        await store.decline(worker, claim)
        claim = await _claim_again(store, worker, minutes=minutes)
    assert not await _long(store, claim)
    await store.decline(worker, claim)
    assert await _long(store, await _claim_again(store, worker, minutes=1))


async def test_a_long_pause_between_declines_starts_the_time_anew(store: Store) -> None:
    worker, id = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    claim = await store.claim_one(worker)
    await store.decline(worker, claim)
    claim = await _claim_again(store, worker, hours=2)
    assert not await _long(store, claim)
    await store.decline(worker, claim)
    claim = await _claim_again(store, worker, minutes=1)
    assert not await _long(store, claim)
    assert await store.attempts(id) == [(1, "declined"), (2, "declined")]


async def test_another_attempt_between_declines_starts_the_time_anew(store: Store) -> None:
    worker, id = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    await store.decline(worker, await store.claim_one(worker))
    await store.postpone(worker, await _claim_again(store, worker, minutes=6), delay=1)
    await store.decline(worker, await _claim_again(store, worker, minutes=3))
    claim = await _claim_again(store, worker, minutes=3)
    assert not await _long(store, claim)
    await store.hand_back(worker, claim)
    await store.decline(worker, await store.claim_one(worker))
    assert await store.attempts(id) == [(1, "declined"), (2, "failed"), (3, "declined"), (5, "declined")]


async def test_the_declines_of_one_task_say_nothing_of_another(store: Store) -> None:
    worker, old = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    claim = await store.claim_one(worker)
    await store.decline(worker, claim)
    claim = await _claim_again(store, worker, minutes=6)
    await store.decline(worker, claim)
    new = await store.enqueue(priority=1)
    await store.decline(worker, await store.claim_one(worker))
    await store.advance(minutes=6)
    await store.stage()
    aged, young = sorted(await store.claim(worker, 2))
    assert (aged.id, young.id) == (old, new)
    assert (await _long(store, young), await _long(store, aged)) == (False, True)


async def test_a_decline_touches_the_record_of_its_own_task_only(store: Store) -> None:
    worker, ids = await store.worker(lease=timedelta(hours=9)), [await store.enqueue() for _ in range(2)]
    for claim in await store.claim(worker, 2):
        await store.decline(worker, claim)
    await store.advance(seconds=3)
    await store.stage()
    again, _ = sorted(await store.claim(worker, 2))
    await store.decline(worker, again)
    assert [await store.attempts(id) for id in ids] == [[(2, "declined")], [(1, "declined")]]


async def test_a_long_attempt_that_failed_is_no_decline(store: Store) -> None:
    worker, _ = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    claim = await store.claim_one(worker)
    await store.advance(minutes=11)
    await store.postpone(worker, claim, delay=1)
    assert not await _long(store, await _claim_again(store, worker, seconds=2))


async def test_a_long_run_of_declines_that_another_attempt_broke_off_does_not_count(store: Store) -> None:
    worker, _ = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    await store.decline(worker, await store.claim_one(worker))
    await store.decline(worker, await _claim_again(store, worker, minutes=9))
    await store.postpone(worker, await _claim_again(store, worker, minutes=1), delay=1)
    assert not await _long(store, await _claim_again(store, worker, minutes=1))


async def test_the_long_decline_of_a_task_is_not_that_of_another_with_as_many_attempts(store: Store) -> None:
    worker, old = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    slow = await store.claim_one(worker)
    await store.advance(minutes=6)
    await store.decline(worker, slow)
    new = await store.enqueue()
    await store.decline(worker, await store.claim_one(worker))
    await store.advance(minutes=5)
    await store.stage()
    claims = {claim.id: claim for claim in await store.claim(worker, 2)}
    assert (await _long(store, claims[old]), await _long(store, claims[new])) == (True, False)


async def _knowing(store: Store, *, handlers: list[str], queue: int = 1, **columns: object) -> None:
    worker = await store.worker(lease=timedelta(hours=9))
    said = {"handlers": handlers, "queues": [queue], **columns}
    settings = ", ".join(f"{name} = ${place}" for place, name in enumerate(said, 2))
    await store.conn.execute(f"update weft.worker set {settings} where id = $1", worker, *said.values())


async def test_a_task_comes_back_soon_while_somebody_of_its_queue_knows_its_handler(store: Store) -> None:
    worker, id = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    handler = (await store.task(id))["handler"]
    await _knowing(store, handlers=[handler])
    claim, pauses = await store.claim_one(worker), []
    for seconds in (1.2, 2.8, 60, 60):
        await store.decline(worker, claim)
        pauses.append(
            await store.conn.fetchval("select round(extract(epoch from due_at - weft.now()), 1) from weft.task")
        )
        claim = await _claim_again(store, worker, seconds=seconds)
    assert [float(pause) for pause in pauses] == [0.1, 0.3, 1.0, 2.0]


@pytest.mark.parametrize(
    "other",
    [
        {"handlers": ["another"]},
        {"queue": 77},
        {"state": "lost"},
        {"until": datetime(2020, 1, 1, tzinfo=UTC)},
        {"org_id": 2},
    ],
)
async def test_whoever_is_gone_or_elsewhere_or_knows_others_lets_no_task_come_back_soon(
    store: Store, other: dict[str, Any]
) -> None:
    worker, id = await store.worker(lease=timedelta(hours=9)), await store.enqueue()
    await store.conn.execute("insert into weft.org (id, name, slug) values (2, 'other', 'other')")
    await _knowing(store, **{"handlers": [(await store.task(id))["handler"]], **other})
    await store.decline(worker, await store.claim_one(worker))
    assert await _pause(store, id) == 2
