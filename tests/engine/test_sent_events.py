"""Events from outside: accepted once, kept in the outbox, and taken to all who wait, however many those are."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import asyncpg
import pytest
from engine_scene import until
from job_scene import Handlers, at_work, flow

import weft
from weft.jobs.routing import Routing
from weft.jobs.submit import SQL
from weft.queue.outbox import Effect

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
LISTENING = flow(ask={"type": "wait", "for": "event", "event": "go"})


async def _listening(client: weft.Client, conn: Connection, count: int) -> list[int]:
    """Return jobs of which all wait for an event."""
    jobs = [(await client.jobs.submit(LISTENING)).id for _ in range(count)]
    await until(lambda: conn.fetchval("select count(*) >= $1 from weft.awaited", count))
    return jobs


async def test_an_event_with_a_key_is_sent_once_and_answered_the_same(client: weft.Client, conn: Connection) -> None:
    async with at_work(client, Handlers()):
        (job_id,) = await _listening(client, conn, 1)
        sent = await asyncio.gather(*(client.jobs.send_event("go", {"n": 1}, idempotency_key="once") for _ in range(5)))
        assert {(each.id, each.answered) for each in sent} == {(sent[0].id, 1)}
        assert sorted(each.created for each in sent) == [False] * 4 + [True]
        assert (await client.jobs.wait(job_id, timeout=30)).state == "completed"
    for name, payload in (("other", {"n": 1}), ("go", {"n": 2})):
        with pytest.raises(weft.KeyReused, match="once"):
            await client.jobs.send_event(name, payload, idempotency_key="once")
    assert await conn.fetchval("select count(*) from weft.event") == 1
    (row,) = await client.outbox(kind="route_event")
    assert (row.state, row.payload["after"]) == ("done", None)
    with pytest.raises(weft.InvalidInput, match="idempotency_key"):
        await client.jobs.send_event("go", idempotency_key="x" * 501)


async def test_of_a_great_many_who_wait_the_last_are_answered_by_the_outbox(
    client: weft.Client, conn: Connection
) -> None:
    handlers = Handlers()
    async with weft.Orchestrator(client=client):
        jobs = await _listening(client, conn, 5)
    row = await conn.fetchrow(SQL.send_event, 1, "go", "{}", "ada", None, 2, None, None)
    assert row is not None
    assert row["answered"] == 5
    assert await conn.fetchval("select count(*) from weft.awaited") == 3, "so many at once"
    await conn.execute("update weft.outbox set available_at = available_at + interval '1 hour'")
    async with weft.Orchestrator(client=client):
        # Submitted later, and waiting by the time that the rest is answered: it does not mean this event.
        late = (await client.jobs.submit(LISTENING)).id
        await until(lambda: conn.fetchval("select exists (select 1 from weft.awaited where job_id = $1)", late))
    await conn.execute("update weft.outbox set available_at = weft.now() where state = 'pending'")
    async with at_work(client, handlers):
        for job_id in jobs:
            assert (await client.jobs.wait(job_id, timeout=30)).state == "completed"
        await until(lambda: client.outbox(kind="route_event", state="done"))
    assert await conn.fetchval("select array_agg(job_id) from weft.awaited") == [late]


async def test_an_event_that_is_gone_or_was_never_there_is_nobodys(client: weft.Client) -> None:
    route = Routing(client.database).route
    await route(Effect(1, "default", "route_event", {"event_id": "12"}, 1, None))
    with pytest.raises(weft.InvalidInput, match="event_id"):
        await route(Effect(1, "default", "route_event", {}, 1, None))
