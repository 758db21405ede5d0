"""The outbox under kills: what was committed is carried out, at least once, and its effect is there once."""

from __future__ import annotations

import random

import asyncpg

import weft
from crash.checker import check_outcomes
from crash.harness import Crew, until, until_settled
from weft.queue import outbox

EFFECTS = 200


async def test_every_committed_effect_is_carried_out_though_drainers_are_killed(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    kills = 5 if campaign == "short" else 40
    draw = random.Random(8)
    workers = await crew.workers(2, worker_crash_limit=1000)
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
        workers.append(await crew.worker(worker_crash_limit=1000))

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
