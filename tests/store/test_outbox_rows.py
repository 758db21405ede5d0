"""The guards of the outbox's statements."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from store_scene import Store

from weft.core.checks import WHOLE
from weft.queue import outbox
from weft.queue.outbox import SQL


async def _add(store: Store, key: str | None = None, kind: str = "callback") -> int:
    return await store.run(outbox.add, 1, kind, {}, ordering_key=key)


async def _claim(store: Store, worker: int, limit: int = 100) -> list[int]:
    return sorted(row["id"] for row in await store.conn.fetch(SQL.claim, worker, ["callback"], limit))


async def _state(store: Store, id: int) -> str:
    return str(await store.conn.fetchval("select state::text from weft.outbox where id = $1", id))


async def _settle(store: Store, verb: str, id: int, worker: int) -> bool:
    arguments: dict[str, tuple[Any, ...]] = {"done": (), "retry_later": (timedelta(0), "e"), "fail": ("e",)}
    return await store.conn.fetchval(getattr(SQL, verb), id, worker, *arguments[verb]) is not None


async def test_only_what_is_pending_due_and_of_a_known_kind_is_claimed(store: Store) -> None:
    worker = await store.worker()
    due = await _add(store)
    await _add(store, kind="route_event")
    later = await _add(store)
    await store.conn.execute(
        "update weft.outbox set available_at = weft.now() + interval '1 hour' where id = $1", later
    )
    for state in ("processing", "done", "failed"):
        id = await _add(store)
        await store.conn.execute("update weft.outbox set state = $1::text::weft.outbox_state where id = $2", state, id)
    assert await _claim(store, worker) == [due]
    assert await _claim(store, worker) == []
    await store.advance(hours=2)
    assert await _claim(store, worker) == [later]


async def test_no_more_are_claimed_than_asked_for(store: Store) -> None:
    worker = await store.worker()
    ids = [await _add(store) for _ in range(5)]
    assert await _claim(store, worker, 2) == ids[:2]
    assert await _claim(store, worker, 2) == ids[2:4], "those that are taken hide none that is not"
    assert await _claim(store, worker, 9) == ids[4:]


async def test_a_key_belongs_to_its_org(store: Store) -> None:
    await store.conn.execute("insert into weft.org (id, slug, name) values (2, 'two', 'Two')")
    worker = await store.worker()
    theirs = await store.run(outbox.add, 2, "callback", {}, ordering_key="k")
    ours = await _add(store, "k")
    assert await _claim(store, worker) == [theirs, ours]


async def test_of_a_key_only_the_first_that_is_not_done_is_claimed(store: Store) -> None:
    worker = await store.worker()
    a1, a2, b1 = await _add(store, "a"), await _add(store, "a"), await _add(store, "b")
    assert await _claim(store, worker) == [a1, b1]
    for state in ("processing", "pending", "failed"):
        await store.conn.execute(
            "update weft.outbox set state = $1::text::weft.outbox_state, available_at = 'infinity' where id = $2",
            state,
            a1,
        )
        assert await _claim(store, worker) == [], state
    await store.conn.execute("update weft.outbox set state = 'done' where id = $1", a1)
    assert await _claim(store, worker) == [a2]


async def test_only_its_holder_settles_a_row_and_only_while_it_is_processing(store: Store) -> None:
    worker, thief = await store.worker(), await store.worker()
    for verb, after in [("done", "done"), ("retry_later", "pending"), ("fail", "failed")]:
        id = await _add(store)
        assert not await _settle(store, verb, id, worker), "not claimed"
        assert await _claim(store, worker) == [id]
        assert not await _settle(store, verb, id, thief)
        assert await _state(store, id) == "processing"
        for state in ("pending", "done", "failed"):
            await store.conn.execute(
                "update weft.outbox set state = $1::text::weft.outbox_state where id = $2", state, id
            )
            assert not await _settle(store, verb, id, worker), state
            assert await _state(store, id) == state
        await store.conn.execute("update weft.outbox set state = 'processing' where id = $1", id)
        assert await _settle(store, verb, id, worker)
        assert await _state(store, id) == after
        assert not await _settle(store, verb, id, worker)
        await store.conn.execute("delete from weft.outbox")


async def test_two_who_claim_at_once_get_different_rows(store: Store, other: Store) -> None:
    a, b = await store.worker(), await store.worker()
    ids = [await _add(store) for _ in range(3)]
    transaction = store.conn.transaction()
    await transaction.start()
    assert await _claim(store, a, 2) == ids[:2]
    claiming = asyncio.create_task(_claim(other, b))
    assert not await other.settled(claiming, ahead=store)
    assert await claiming == ids[2:]
    await transaction.commit()


async def test_rows_are_taken_only_from_workers_that_are_gone(store: Store) -> None:
    live, lapsed, stopped = await store.worker(lease=timedelta(hours=1)), await store.worker(), await store.worker()
    ids = {}
    for worker in (live, lapsed, stopped, 77):
        ids[worker] = await _add(store)
        await _claim(store, worker)
    await store.conn.execute("update weft.worker set state = 'stopped' where id = $1", stopped)
    settled = await _add(store)
    await _claim(store, stopped)
    await _settle(store, "done", settled, stopped)
    assert await store.run(outbox.rescue) == 2
    await store.advance(minutes=5)
    assert await store.run(outbox.rescue) == 1
    assert {worker: await _state(store, id) for worker, id in ids.items()} == {
        live: "processing", lapsed: "pending", stopped: "pending", 77: "pending",
    }  # fmt: skip
    assert await _state(store, settled) == "done"


async def test_only_failed_rows_of_the_org_are_replayed(store: Store) -> None:
    ids = {}
    for state in ("pending", "processing", "done", "failed"):
        ids[state] = await _add(store)
        await store.conn.execute(
            "update weft.outbox set state = $1::text::weft.outbox_state, attempts = 20 where id = $2", state, ids[state]
        )
    assert await store.run(outbox.replay, 2, None) == 0
    assert await store.run(outbox.replay, 1, [ids["done"], ids["pending"]]) == 0
    assert await store.run(outbox.replay, 1, None) == 1
    row = await store.conn.fetchrow("select state::text, attempts from weft.outbox where id = $1", ids["failed"])
    assert row is not None
    assert tuple(row) == ("pending", 0)
    assert await _state(store, ids["done"]) == "done"


async def test_only_failed_rows_of_the_org_are_purged(store: Store) -> None:
    ids = {}
    for state in ("pending", "processing", "done", "failed", "failed"):
        ids[state] = await _add(store)
        await store.conn.execute(
            "update weft.outbox set state = $1::text::weft.outbox_state where id = $2", state, ids[state]
        )
    assert await store.run(outbox.purge, 2, None) == 0
    assert await store.run(outbox.purge, 1, [ids["done"], ids["pending"], ids["processing"]]) == 0
    assert await store.run(outbox.purge, 1, [ids["failed"]]) == 1
    assert await store.run(outbox.purge, 1, None) == 1
    assert await store.conn.fetchval("select array_agg(state::text order by state) from weft.outbox") == [
        "pending", "processing", "done",
    ]  # fmt: skip


async def _left(store: Store) -> set[int]:
    return {row[0] for row in await store.conn.fetch("select id from weft.outbox")}


async def test_only_what_was_done_or_given_up_long_ago_is_forgotten(store: Store) -> None:
    worker = await store.worker()
    old, failed, pending = await _add(store), await _add(store), await _add(store)
    await _claim(store, worker, 2)
    await _settle(store, "done", old, worker)
    await _settle(store, "fail", failed, worker)
    assert await store.run(outbox.prune, timedelta(days=1)) == 0
    await store.advance(days=2)
    assert await store.run(outbox.prune, timedelta(days=1)) == 2
    assert await _left(store) == {pending}


async def test_what_waits_behind_one_that_failed_goes_a_day_later_unless_that_is_replayed(store: Store) -> None:
    month = timedelta(days=30)
    await store.conn.execute("insert into weft.org (id, slug, name) values (2, 'two', 'Two')")
    worker = await store.worker()
    first, alone = await _add(store, "a"), await _add(store, "b")
    second, third, work = await _add(store, "a"), await _add(store, "a"), await _add(store, "a", kind="enqueue_task")
    before, theirs = await _add(store, "c"), await store.run(outbox.add, 2, "callback", {}, ordering_key="c")
    later = await _add(store, "c")
    resting = [alone, before, theirs]
    await store.conn.execute("update weft.outbox set available_at = 'infinity' where id = any ($1)", resting)
    assert await _claim(store, worker) == [first]
    await _settle(store, "fail", first, worker)
    await store.advance(days=30, minutes=1)
    assert await store.run(outbox.prune, month) == 1
    # That which failed first is given up, and the next is tried.
    assert await _claim(store, worker) == [second]
    await _settle(store, "fail", second, worker)
    assert await store.run(outbox.prune, month) == 0
    await store.advance(days=1)
    last = await _add(store, "a")
    assert await store.run(outbox.prune, month) == 1
    # A task that is still to be is nobody's to give up.
    assert await _left(store) == {alone, before, theirs, later, second, work, last}, third
    # Of whatever age: only what is behind one that failed, of its org and its key.
    await store.conn.execute("update weft.outbox set state = 'failed', processed_at = weft.now() where id = $1", theirs)
    assert await store.run(outbox.prune, month) == 0
    await store.conn.execute("update weft.outbox set state = 'failed', processed_at = weft.now() where id = $1", later)
    assert await store.run(outbox.prune, month) == 0


async def test_what_is_replayed_while_it_is_forgotten_stays(store: Store, other: Store) -> None:
    worker = await store.worker()
    failed = await _add(store)
    await _claim(store, worker)
    await _settle(store, "fail", failed, worker)
    await store.advance(days=2)
    async with store.conn.transaction():
        assert await store.run(outbox.replay, 1, [failed]) == 1
        forgets = asyncio.create_task(other.run(outbox.prune, timedelta(days=1)))
        assert await other.settled(forgets, ahead=store)
    assert await forgets == 0
    assert await _state(store, failed) == "pending"


async def test_a_list_of_effects_is_filtered_and_paged(store: Store) -> None:
    ids = [await _add(store, kind=kind) for kind in ("callback", "route_event") * 2]
    await store.conn.execute("update weft.outbox set state = 'failed' where id = $1", ids[0])

    async def listed(**filters: Any) -> list[int]:
        options = {"state": None, "kind": None, "part": WHOLE, "limit": 10, **filters}
        return [row.id for row in await outbox.list_rows(store.conn, 1, **options)]

    assert await listed() == ids[::-1]
    assert await listed(kind="callback") == [ids[2], ids[0]]
    assert await listed(state="failed") == [ids[0]]
    assert await listed(part=WHOLE._replace(below=ids[2]), limit=1) == [ids[1]]
    assert await outbox.list_rows(store.conn, 2, WHOLE, state=None, kind=None, limit=10) == []


async def test_a_worker_gives_back_only_what_is_in_its_own_hands(store: Store) -> None:
    mine, theirs = await store.worker(), await store.worker()
    done, held = await _add(store), await _add(store)
    assert await _claim(store, mine) == [done, held]
    assert await _settle(store, "done", done, mine)
    others = await _add(store)
    assert await _claim(store, theirs) == [others]
    assert await store.run(outbox.give_back, mine, ["enqueue_task"]) == 0
    assert await store.run(outbox.give_back, mine, ["callback"]) == 1
    assert [await _state(store, id) for id in (done, held, others)] == ["done", "pending", "processing"]
