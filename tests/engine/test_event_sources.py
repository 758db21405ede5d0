"""Sources of events: each event is one unit of each that listens, in the order of its lane, while there is room."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeAlias

import asyncpg
import pytest
from job_scene import Handlers, at_work, flow

import weft
from live_scene import make_dag, make_job, until
from weft.live.router import Router
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
NewEvent = weft.NewEvent


async def _listening(conn: Conn, name: str = "orders", **more: Any) -> int:
    source = {"kind": "event", "event": "order.created", "lane": ["symbol"]}
    source |= {key: more.pop(key) for key in ("event", "match") if key in more}
    dag = await conn.fetchval("select id from weft.live_dag where name = 'market'") or await make_dag(conn)
    return await make_job(conn, dag, name, "note", source=source, **more)


async def _units(conn: Conn, job_id: int) -> list[Any]:
    rows = await conn.fetch("select said from weft.live_unit where live_job_id = $1 order by id", job_id)
    return [json.loads(row["said"])["payload"] for row in rows]


async def test_many_events_are_sent_at_once_each_once_for_its_key(client: weft.Client, conn: Conn) -> None:
    job = await _listening(conn)
    events = [NewEvent("order.created", {"symbol": "a", "n": n}, f"key-{n}") for n in range(1000)]
    sent = await client.jobs.send_events(events)
    assert all(each.created for each in sent)
    assert len({each.id for each in sent}) == 1000
    again = await client.jobs.send_events([*events[:3], NewEvent("other", {"x": 1}), events[3]])
    assert [each.created for each in again] == [False, False, False, True, False]
    assert [each.id for each in again[:3]] == [each.id for each in sent[:3]]
    assert [each["n"] for each in await _units(conn, job)] == list(range(1000))
    # One key twice in one call is one event.
    twins = await client.jobs.send_events([NewEvent("order.created", {"n": 1}, "twin")] * 2)
    assert [each.created for each in twins] == [True, False]
    assert twins[0].id == twins[1].id
    acts = await conn.fetch("select subject_name, detail from weft.audit where subject_kind = 'event' order by id")
    assert [(act["subject_name"], json.loads(act["detail"])["count"]) for act in acts] == [
        ("order.created", 1000), ("other", 1), ("order.created", 1),
    ]  # fmt: skip
    assert await conn.fetchval("select count(*) from weft.outbox where state = 'done'") == 1002


async def test_of_events_that_are_sent_together_all_are_or_none(client: weft.Client, conn: Conn) -> None:
    job = await _listening(conn)
    await client.jobs.send_event("order.created", {"n": 0}, idempotency_key="taken")
    good = NewEvent("order.created", {"n": 1}, "fresh")
    with pytest.raises(weft.KeyReused, match="taken"):
        await client.jobs.send_events([good, NewEvent("order.created", {"n": 2}, "taken")])
    for events, field in [
        ([], "events"),
        ([good] * 1001, "events"),
        ([good, NewEvent("", {})], "events.1.name"),
        ([good, NewEvent("x", [1])], "events.1.payload"),  # type: ignore[arg-type]
        ([good, NewEvent("x", {"a": "\0"})], "events.1.payload"),
        ([NewEvent("x", None, "k" * 501)], "events.0.idempotency_key"),
        ([good, NewEvent("x", {"a": "x" * 300_000})], "events.1.payload"),
    ]:
        with pytest.raises(weft.InvalidInput) as caught:
            await client.jobs.send_events(events)
        assert caught.value.field.startswith(field)
    assert await _units(conn, job) == [{"n": 0}]
    assert await conn.fetchval("select count(*) from weft.event") == 1


async def test_those_who_wait_are_answered_by_many_as_by_one(client: weft.Client, conn: Conn) -> None:
    listening = flow(ask={"type": "wait", "for": "event", "event": "go", "match": {"day": 2}})
    async with at_work(client, Handlers()):
        job_id = (await client.jobs.submit(listening)).id
        await until(lambda: conn.fetchval("select exists (select 1 from weft.awaited)"))
        sent = await client.jobs.send_events([NewEvent("go", {"day": day}) for day in (1, 2, 3)])
        assert [each.answered for each in sent] == [0, 1, 0]
        assert (await client.jobs.wait(job_id, timeout=30)).state == "completed"
    assert await conn.fetchval("select answered from weft.event where id = $1", sent[1].id) == 1


async def test_who_sends_is_told_how_many_sources_took_it(client: weft.Client, conn: Conn) -> None:
    for name, match in (("all", None), ("big", '{"kind": "big"}')):
        await _listening(conn, name, match=match)
    sent = await client.jobs.send_event("order.created", {"kind": "big"}, idempotency_key="k")
    assert (sent.sources, sent.answered, sent.created) == (2, 0, True)
    # What the first was told, whatever has become of the sources since.
    await conn.execute("update weft.live_source set is_listening = false")
    again = await client.jobs.send_event("order.created", {"kind": "big"}, idempotency_key="k")
    assert (again.id, again.sources, again.created) == (sent.id, 2, False)
    await conn.execute("update weft.live_source set is_listening = true")
    several = [NewEvent("order.created", {"kind": kind}) for kind in ("small", "big")] + [NewEvent("x", {})]
    assert [each.sources for each in await client.jobs.send_events(several)] == [1, 2, 0]
    told = await conn.fetchval("select detail ->> 'sources' from weft.audit where verb = 'send' order by id limit 1")
    assert told == "2"


async def test_a_source_that_is_full_takes_no_event_and_nothing_is_written(client: weft.Client, conn: Conn) -> None:
    full = await _listening(conn, "full", match='{"kind": "big"}', max_backlog=3)
    other = await _listening(conn, "other", max_backlog=100)
    for number in range(3):
        await client.jobs.send_event("order.created", {"kind": "big", "symbol": "a", "n": number})
    for events in (
        [NewEvent("order.created", {"kind": "big"})],
        [NewEvent("x"), NewEvent("order.created", {"kind": "big"})],
    ):
        with pytest.raises(weft.SourceFull, match="market/full"):
            await client.jobs.send_events(events)
    # What it does not match is another's.
    await client.jobs.send_event("order.created", {"kind": "small"})
    assert [len(await _units(conn, job)) for job in (full, other)] == [3, 4]
    assert await conn.fetchval("select count(*) from weft.event") == 4
    # The same when a router has looked at them, whatever it has made of them.
    await Router(client.database).run_once()
    assert await conn.fetchval("select backlog from weft.live_source where live_job_id = $1", full) == 3
    with pytest.raises(weft.SourceFull):
        await client.jobs.send_event("order.created", {"kind": "big"})
    await conn.execute("update weft.live_unit set state = 'done' where live_job_id = $1 and state = 'running'", full)
    await Router(client.database).run_once()
    await client.jobs.send_event("order.created", {"kind": "big"})
    assert len(await _units(conn, full)) == 3


async def test_events_keep_the_order_of_their_lane_and_others_go_on_beside(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}
    goes_on = asyncio.Event()

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        symbol, number = live.unit.payload["symbol"], live.unit.payload["n"]
        if symbol == "a":
            await goes_on.wait()
        seen[symbol].append(number)

    await _listening(conn, max_concurrency=5)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.jobs.send_events(
            [NewEvent("order.created", {"symbol": symbol, "n": n}) for n in range(20) for symbol in ("a", "b")]
        )
        await until(lambda: len(seen["b"]) == 20)
        assert seen["a"] == []
        goes_on.set()
        await until(lambda: len(seen["a"]) == 20)
    assert seen == {"a": list(range(20)), "b": list(range(20))}


async def test_an_event_is_of_its_own_org_only(client: weft.Client, conn: Conn) -> None:
    job = await _listening(conn)
    await client.orgs.create("acme", name="Acme")
    acme = client.of_org(await conn.fetchval("select id from weft.org where slug = 'acme'"), "acme")
    await acme.jobs.send_events([NewEvent("order.created", {"n": 1}, "same"), NewEvent("order.created")])
    assert await _units(conn, job) == []
    mine = await client.jobs.send_event("order.created", {"n": 2}, idempotency_key="same")
    assert mine.created
    again = await client.jobs.send_event("order.created", {"n": 2}, idempotency_key="same")
    assert (again.id, again.created) == (mine.id, False)
    assert await _units(conn, job) == [{"n": 2}]


async def test_who_sends_the_same_events_in_another_order_does_not_stand_in_the_way(
    client: weft.Client, conn: Conn
) -> None:
    names = [f"e{number}" for number in range(10)]

    async def send(order: list[str]) -> None:
        for _ in range(10):
            await client.jobs.send_events([NewEvent(name) for name in order])

    await asyncio.gather(send(names), send(names[::-1]), send(names[5:] + names[:5]))
    assert await conn.fetchval("select count(*) from weft.event") == 300
