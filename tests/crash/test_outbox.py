"""The outbox under kills: what was committed is carried out, at least once, and its effect is there once."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack

import asyncpg

import weft
from crash.checker import check_outcomes
from crash.harness import LIVENESS, Crew, until, until_settled
from weft.queue import outbox

EFFECTS = 200
WRITERS = 32
ORGS = {1: "default", 2: "two"}


async def test_every_committed_effect_is_carried_out_though_drainers_are_killed(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    kills = 5 if campaign == "short" else 40
    draw = random.Random(8)
    workers = await crew.workers(2, worker_loss_limit=1000)
    committed: set[int] = set()
    for _ in range(kills):
        for _ in range(EFFECTS // 5):
            transaction = conn.transaction()
            await transaction.start()
            payload = {"handler": "work", "params": {"folder": str(crew.folder)}}
            effect_id = await outbox.add(conn, 1, "enqueue_task", payload)
            if draw.random() < 0.1:
                await transaction.rollback()
            else:
                await transaction.commit()
                committed.add(effect_id)
        await until_draining(conn)
        leader = await conn.fetchval("select w.pid from weft.lease l join weft.worker w on w.id = l.holder")
        victim = next((worker for worker in workers if worker.pid == leader), workers[0])
        await victim.kill()
        workers.remove(victim)
        workers.append(await crew.worker(worker_loss_limit=1000))

    async def all_are_done() -> bool:
        return not await conn.fetchval("select exists (select 1 from weft.outbox where state <> 'done')")

    await until(all_are_done, "every effect is carried out")
    await until_settled(conn)
    rows = await conn.fetch("select id, attempts from weft.outbox")
    assert {row["id"] for row in rows} == committed
    keys = await conn.fetch("select key, task_id from weft.idempotency_key")
    assert {row["key"] for row in keys} == {f"outbox-{effect_id}" for effect_id in committed}
    assert await conn.fetchval("select count(*) from weft.task_done") == len(committed)
    print(f"outbox: {kills} kills, {len(committed)} effects, {sum(row['attempts'] > 1 for row in rows)} tried again")
    await check_outcomes(conn, crew.ledger())


async def until_draining(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Return when effects are being carried out, or all of them have been."""

    async def look() -> bool:
        return await conn.fetchval(
            "select exists (select 1 from weft.outbox where state = 'processing')"
            " or not exists (select 1 from weft.outbox where state = 'pending')"
        )

    await until(look, "effects are carried out")


async def two_orgs(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Make a second org with a queue of its own."""
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'two', 'Two')")
    await conn.execute("insert into weft.queue (id, org_id, name) values (3, 2, 'default')")


async def enqueued_by(conn: asyncpg.Connection[asyncpg.Record]) -> dict[int, tuple[int, int]]:
    """Return for each effect that is carried out its task and that task's org."""
    rows = await conn.fetch(
        "select k.key, k.task_id, t.org_id from weft.idempotency_key k join weft.tasks t on t.id = k.task_id"
    )
    return {int(row["key"].removeprefix("outbox-")): (row["task_id"], row["org_id"]) for row in rows}


async def test_effects_that_are_committed_in_any_order_are_all_carried_out_and_in_order_of_their_key(
    crew: Crew, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    """Each writer has a key of its own in its org, and the other org has writers with the same keys.

    In each round the first to write is the last to commit, when what was written after it is carried out: whoever
    remembers how far it has come misses it.
    """
    rounds = 4 if campaign == "short" else 60
    draw = random.Random(20)
    await two_orgs(conn)
    await crew.workers(2)
    await crew.worker(org="two")
    committed: dict[tuple[int, str | None], list[int]] = {}
    done = "select count(*) = 0 from weft.outbox where state <> 'done'"
    async with AsyncExitStack() as stack:
        writers = []
        for n in range(WRITERS):
            writer = await asyncpg.connect(crew.url)
            stack.push_async_callback(writer.close)
            writers.append((writer, n % 2 + 1, f"key-{n // 2}"))
        for _ in range(rounds):
            draw.shuffle(writers)
            opened = []
            for writer, org_id, key in writers:
                transaction = writer.transaction()
                await transaction.start()
                payload = {"handler": "work", "params": {"folder": str(crew.folder)}}
                keys = [key, None, key][: draw.randrange(1, 4)]
                ids = [(k, await outbox.add(writer, org_id, "enqueue_task", payload, ordering_key=k)) for k in keys]
                opened.append((transaction, org_id, ids))
            first, *rest = opened
            draw.shuffle(rest)
            for transaction, org_id, ids in [*rest, first]:
                if transaction is first[0]:
                    await until(lambda: conn.fetchval(done), "what came after is carried out")
                if draw.random() < 0.1:
                    await transaction.rollback()
                    continue
                await transaction.commit()
                for key, effect_id in ids:
                    committed.setdefault((org_id, key), []).append(effect_id)
    await until(lambda: conn.fetchval(done), "every effect is carried out")
    await until_settled(conn)
    tasks = await enqueued_by(conn)
    assert set(tasks) == {effect_id for ids in committed.values() for effect_id in ids}
    for (org_id, key), ids in committed.items():
        assert {tasks[effect_id][1] for effect_id in ids} == {org_id}
        if key is not None:
            assert sorted(ids, key=lambda effect_id: tasks[effect_id][0]) == ids, f"the order of {key} in org {org_id}"
    print(f"outbox: {rounds} rounds of {WRITERS} writers, {len(tasks)} effects, {len(committed)} keys")
    await check_outcomes(conn, crew.ledger())


async def test_an_effect_that_cannot_be_carried_out_holds_up_its_own_org_only(
    crew: Crew, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Both orgs use the same ordering key; in one of them its first effect names a queue that is not there."""
    await two_orgs(conn)
    params = {"handler": "work", "params": {"folder": str(crew.folder)}}
    stuck = await outbox.add(conn, 2, "enqueue_task", {**params, "queue": "nowhere"}, ordering_key="k")
    behind = await outbox.add(conn, 2, "enqueue_task", params, ordering_key="k")
    free = [await outbox.add(conn, 1, "enqueue_task", params, ordering_key="k") for _ in range(3)]
    await crew.worker()
    carried = "select count(*) = 3 from weft.outbox where org_id = 1 and state = 'done'"
    await until(lambda: conn.fetchval(carried), "the effects of the other org are carried out", LIVENESS / 6)
    await until_settled(conn)
    tasks = await enqueued_by(conn)
    assert sorted(free, key=lambda effect_id: tasks[effect_id][0]) == free
    assert set(tasks) == set(free)
    row = await conn.fetchrow("select state::text, attempts, last_error from weft.outbox where id = $1", stuck)
    assert row is not None
    assert row["state"] != "done"
    assert "nowhere" in row["last_error"]
    assert await conn.fetchval("select attempts from weft.outbox where id = $1", behind) == 0
    await check_outcomes(conn, crew.ledger())
