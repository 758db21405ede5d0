"""Cancel, replay and purge: from which states, in which org, and once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from store_scene import Store

from weft.core.checks import WHOLE
from weft.core.errors import NotFound, StateConflict
from weft.core.states import LIVE, TaskState, sources_of
from weft.queue import look, operate

ENDED = ("completed", "failed", "dead", "skipped", "cancelled")


async def _ended(store: Store, state: str) -> int:
    worker, id = await store.worker(), await store.enqueue()
    await store.end(worker, await store.claim_one(worker))
    await store.conn.execute("update weft.task_done set state = $1::text::weft.task_state where id = $2", state, id)
    return id


@pytest.mark.parametrize("state", sorted(LIVE))
async def test_every_state_that_is_not_final_can_be_cancelled(store: Store, state: TaskState) -> None:
    id = await store.enqueue()
    await store.conn.execute("update weft.task set state = $1::text::weft.task_state where id = $2", state, id)
    assert await store.cancel(id) == {id}
    assert await store.state(id) == "cancelled"


@pytest.mark.parametrize("state", ENDED)
async def test_replay_leads_out_of_failed_dead_and_cancelled_only(store: Store, state: str) -> None:
    id = await _ended(store, state)
    landed = await store.replay(id)
    assert (id in landed) == (TaskState(state) in sources_of("replay"))
    assert await store.state(id) == ("ready" if landed else state)
    assert await store.cancel(id) == ({id} if landed else set())


async def test_what_belongs_to_another_org_is_not_touched_and_not_told(store: Store) -> None:
    dead, live = await _ended(store, "dead"), await store.enqueue()
    assert await store.run(operate.cancel, 2, [live], "no", None) == set()
    assert await store.run(operate.replay, 2, [dead], None) == {}
    assert await store.run(operate.purge, 2, timedelta(0), None, None, 10) == []
    assert (await store.state(live), await store.state(dead)) == ("ready", "dead")
    for id in (live, dead):
        with pytest.raises(NotFound):
            await look.show(store.conn, 2, id)
        assert isinstance(await operate.explain_refusal(store.conn, 2, "cancel", id), NotFound)
    assert isinstance(await operate.explain_refusal(store.conn, 1, "cancel", dead), StateConflict)
    page = await look.list_tasks(store.conn, 2, WHOLE, queue_id=None, handler=None, states=frozenset(), limit=10)
    assert page.tasks == ()


async def test_two_who_replay_at_once_replay_once(store: Store, other: Store) -> None:
    id = await _ended(store, "dead")
    transaction = store.conn.transaction()
    await transaction.start()
    assert list(await operate.replay(store.conn, 1, [id], None)) == [id]
    replaying = asyncio.create_task(other.replay(id))
    assert await other.settled(replaying, ahead=store)
    await transaction.commit()
    assert await replaying == {}
    assert (await store.task(id))["generation"] == 1


async def test_two_who_cancel_at_once_cancel_once(store: Store, other: Store) -> None:
    id = await store.enqueue()
    transaction = store.conn.transaction()
    await transaction.start()
    assert await operate.cancel(store.conn, 1, [id], "first", None) == {id}
    cancelling = asyncio.create_task(other.cancel(id))
    assert await other.settled(cancelling, ahead=store)
    await transaction.commit()
    assert await cancelling == set()
    assert (await store.task(id))["reason"] == "first"


async def test_purge_takes_failed_and_dead_of_the_right_age_queue_and_ids(store: Store) -> None:
    ids = {state: await _ended(store, state) for state in ENDED}
    live = await store.enqueue()
    queue = await store.create_queue("b")
    for arguments in ((timedelta(hours=1), None, None), (timedelta(0), queue, None), (timedelta(0), None, [live])):
        assert await store.run(operate.purge, 1, *arguments, 10) == []
    assert len(await store.run(operate.purge, 1, timedelta(0), None, None, 1)) == 1
    assert len(await store.run(operate.purge, 1, timedelta(0), None, None, 10)) == 1
    left = {row[0] for row in await store.conn.fetch("select id from weft.task_done")}
    assert left == {ids["completed"], ids["skipped"], ids["cancelled"]}


async def test_who_enqueued_a_task_stays_whoever_acts_on_it(store: Store) -> None:
    id = await store.enqueue(actor="ann")
    await store.run(operate.cancel, 1, [id], "why", "bob")
    row = await store.task(id)
    assert (row["actor"], row["reason"]) == ("ann", "why")
    await store.run(operate.replay, 1, [id], "cid")
    assert (await store.task(id))["actor"] == "ann"


async def test_a_replayed_task_is_what_it_was(store: Store) -> None:
    worker = await store.worker()
    fields = {
        "params": '{"a": 1}', "priority": 4, "max_attempts": 7, "retry": '{"backoff":"fixed"}',
        "timeout": timedelta(seconds=9), "heartbeat_timeout": timedelta(seconds=8), "concurrency_key": "k",
    }  # fmt: skip
    id = await store.enqueue(**fields)
    before = await store.task(id)
    await store.end(worker, await store.claim_one(worker))
    await store.replay(id)
    after = await store.task(id)
    changed = {name for name, value in before.items() if after[name] != value}
    assert changed == {"attempt", "generation"}
