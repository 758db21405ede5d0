"""The whole host is suspended past every lease, and wakes up again: nothing is lost, and nothing ends twice."""

from __future__ import annotations

import asyncpg
import pytest

import weft
from crash.checker import check, check_outcomes
from crash.harness import Crew, until, until_settled

BEATING = "select count(distinct pid) from weft.worker where state in ('active', 'idle') and until > weft.now()"


@pytest.mark.parametrize("waking", ["all at once", "one before the others"])
async def test_workers_that_were_all_suspended_past_their_lease_work_on(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], waking: str
) -> None:
    workers = await crew.workers(3, concurrency=4)
    params = {"folder": str(crew.folder)}
    handlers = ("gated", "gated_in_thread")
    held = [(await client.enqueue(handlers[n % 2], params)).id for n in range(12)]
    spans = await crew.until_started(*held)
    for worker in workers:
        worker.pause()
    more = [handle.id for handle in await client.enqueue_many([weft.NewTask("work", params) for _ in range(30)])]
    await until(lambda: conn.fetchval("select bool_and(until < weft.now()) from weft.worker"), "every lease has lapsed")
    await check(conn)

    first, *others = workers
    first.resume()
    if waking == "one before the others":
        # It takes everything that the others held, of which it has room for some.
        await until(
            lambda: conn.fetchval("select count(*) = 2 from weft.worker where rescued_at is not null"),
            "both others are rescued",
        )
    for worker in others:
        worker.resume()
    (crew.folder / "open").touch()
    await until_settled(conn)

    async def all_beat() -> bool:
        return bool(await conn.fetchval(BEATING) == 3)

    await until(all_beat, "all of them beat again")
    ledger = crew.ledger()
    counts = await check_outcomes(conn, ledger)
    assert counts == {"completed": len(held) + len(more)}
    if waking == "one before the others":
        theirs = {span.task_id for span in spans if span.worker != first.pid}
        accepted = await conn.fetch("select id, attempt from weft.task_done where id = any ($1)", held)
        assert {row["id"] for row in accepted if row["attempt"] == 2} == theirs
        # The gate let the first attempts run to their end too, and nobody took their outcomes.
        assert {span.task_id for span in ledger.spans if span.attempt == 1 and span.ended} & theirs
    for worker in workers:
        worker.terminate()
        assert await worker.wait() == 0
    await check_outcomes(conn, crew.ledger())
