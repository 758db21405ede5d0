"""Streams: what happens is told as it happens, once, to all who look, for as long as they may."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime

import asyncpg
import httpx
import pytest

import weft
from engine.job_scene import Handlers, at_work, flow
from streams import Stream, streamed
from weft.core.server_errors import ProviderUnavailable, Unauthenticated
from weft.jobs import events
from weft.jobs.events import JobEvents
from weft.sdk import job_lists
from weft.server.live import job_list_feed
from weft.server.live.guest import Guest
from weft.server.serving import Server
from weft.worker.registry import Registry

MakeRemote = Callable[..., Awaitable[weft.RemoteClient]]
MakeHttp = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def handlers(client: weft.Client) -> AsyncIterator[Handlers]:
    made = Handlers()
    async with at_work(client, made):
        yield made
        made.leave.set()


HELD = flow(first={"handler": "say", "next": "then"}, then={"handler": "hold"})


async def test_a_job_is_told_from_its_beginning_to_its_end_as_its_events_are(
    http: httpx.AsyncClient, client: weft.Client, handlers: Handlers
) -> None:
    job = await client.jobs.submit(HELD)
    async with streamed(http, f"/jobs/{job.id}/stream") as stream:
        begun = await stream.until("job.started")
        handlers.leave.set()
        rest = await stream.until("end")
        assert await stream.next() is None
    told = [*begun, *rest]
    assert (told[-1].name, told[-1].data["state"]) == ("end", "completed")
    page = await http.get(f"/api/v1/jobs/{job.id}/events")
    assert [each.data for each in told[:-1]] == page.json()["events"]


async def test_whoever_comes_again_is_told_what_he_has_missed_and_nothing_twice(
    http: httpx.AsyncClient, client: weft.Client, handlers: Handlers
) -> None:
    job = await client.jobs.submit(HELD)
    path = f"/jobs/{job.id}/stream"
    async with streamed(http, path) as stream:
        first = await stream.until("task.completed")
        place = stream.last_id
    handlers.leave.set()
    await client.jobs.wait(job.id, timeout=60)
    async with streamed(http, path, place) as stream:
        rest = await stream.until("end")
    had = [each.data["id"] for each in [*first, *rest[:-1]]]
    assert had == [event.id for event in (await client.jobs.events(job.id)).events]
    again = await http.get(f"/api/v1{path}", headers={"last-event-id": rest[-1].last_id or ""})
    assert again.status_code == 204


async def test_a_thousand_events_that_were_before_come_before_those_that_come(
    http: httpx.AsyncClient, client: weft.Client, handlers: Handlers
) -> None:
    each = {"type": "fan_out", "items": list(range(600)), "task": {"handler": "say"}, "next": "then"}
    job = await client.jobs.submit(flow(each=each, then={"handler": "hold"}))
    await asyncio.wait_for(handlers.begun.wait(), 60)
    path = f"/jobs/{job.id}/stream"
    async with streamed(http, path) as one, streamed(http, path) as other:
        handlers.leave.set()
        told = [await one.until("end"), await other.until("end")]
    wanted = sorted(event.id for event in (await client.jobs.events(job.id, limit=10_000)).events)
    assert len(wanted) > 1200
    for found in told:
        assert sorted(each.data["id"] for each in found[:-1]) == wanted


async def test_many_streams_of_one_job_ask_the_database_no_more_than_one(
    make_http: MakeHttp, client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    http = await make_http()
    job = await client.jobs.submit(HELD)
    await asyncio.wait_for(handlers.begun.wait(), 60)
    path = f"/jobs/{job.id}/stream"
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(streamed(http, path)) for _ in range(50)]
        for stream in streams:
            await stream.until("task.completed")
        listening = await conn.fetchval("select count(*) from pg_stat_activity where query ilike 'listen%'")
        handlers.leave.set()
        ends = await asyncio.gather(*(stream.until("end") for stream in streams))
    assert {end[-1].data["state"] for end in ends} == {"completed"}
    # The worker and the orchestrator have one each.
    assert listening <= 3


async def test_streams_of_many_things_ask_the_database_no_more_than_one_of_each_kind(
    make_http: MakeHttp, client: weft.Client, server: Server, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    http, count, rounds = await make_http(), 30, 10
    jobs = [(await client.jobs.submit({**HELD, "workflow_id": f"w{n}"})).id for n in range(count)]
    tasks = [(await client.enqueue("say")).id for _ in range(count)]
    async with AsyncExitStack() as stack:

        async def opened(*paths: str) -> list[Stream]:
            return [await stack.enter_async_context(streamed(http, path)) for path in paths]

        told = await opened(*(f"/jobs/{id}/stream" for id in jobs))
        listed = await opened(*(f"/jobs/stream?workflow_id=w{n}" for n in range(count)))
        logged = await opened(*(f"/tasks/{id}/log/stream" for id in tasks))
        await asyncio.gather(*(stream.until("job.submitted") for stream in told))
        await asyncio.gather(*(stream.until("list") for stream in listed))
        before = looks(server)
        for n in range(1, rounds + 1):
            await conn.execute(f"update weft.job set rank = {-n}")
            await conn.execute("select weft.note_event(org_id, id, 'job.noted', 'pending') from weft.job")
            await asyncio.gather(*(stream.until("job.noted") for stream in told), *(each.next() for each in listed))
        during = looks(server)
        await asyncio.gather(*(client.cancel(id) for id in tasks))
        ends = await asyncio.gather(*(stream.until("end") for stream in logged))
    assert {end[-1].data["state"] for end in ends} == {"cancelled"}
    asked = during - before
    # Each list that is looked at is another page: it is read when a job of the org has changed, and not otherwise.
    assert asked.pop("job list page") <= 2 * count * rounds
    # Were each asked for by itself, it would be `count` times `rounds`.
    assert {kind: number for kind, number in asked.items() if number > count * rounds / 4} == {}


def looks(server: Server) -> Counter[str]:
    """Return how often the database was asked what is new, by the kind of stream."""
    (counted,) = (metric for metric in server.state.live.metrics() if metric.name == "streams_looks_total")
    return Counter({sample.labels["kind"]: int(sample.value) for sample in counted.samples})


async def test_a_feed_that_cannot_tell_keeps_no_other_from_telling(
    make_http: MakeHttp, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], caplog: pytest.LogCaptureFixture
) -> None:
    http = await make_http()
    bad, good = await client.enqueue("say"), await client.enqueue("say")
    paths = (f"/tasks/{bad.id}/log/stream", f"/tasks/{good.id}/log/stream")
    async with streamed(http, paths[0]), streamed(http, paths[1]) as stream:
        # A copy that the storage does not have.
        digest = "0" * 64
        await conn.execute("insert into weft.blob (digest, bytes) values ($1, 9)", digest)
        lost = "insert into weft.task_log (org_id, task_id, attempt, digest, bytes) values (1, $1, 1, $2, 9)"
        await conn.execute(lost, bad.id, digest)
        async with asyncio.timeout(60):
            while "cannot tell" not in caplog.text:  # noqa: ASYNC110  nobody else says so
                await asyncio.sleep(0.01)
        await client.cancel(good.id)
        assert (await stream.until("end"))[-1].data["state"] == "cancelled"


async def test_a_job_of_another_org_is_not_there(make_http: MakeHttp, client: weft.Client, server: Server) -> None:
    job = await client.jobs.submit(HELD)
    task = await client.enqueue("say")
    await client.orgs.create("acme")
    acme = client.of_org((await client.orgs.show("acme")).id, "acme")
    made = await acme.tokens.create("theirs", role="admin")
    http = await make_http(role=None)
    http.headers["authorization"] = f"Bearer {made.secret}"
    own = await make_http()
    async with streamed(own, f"/jobs/{job.id}/stream") as stream:
        await stream.until("job.submitted")
        place = stream.last_id or ""
        for path in (f"/jobs/{job.id}/stream", f"/tasks/{task.id}/log/stream"):
            assert (await http.get(f"/api/v1{path}")).status_code == 404
        forged = await http.get(f"/api/v1/jobs/{job.id}/stream", headers={"last-event-id": place})
        assert forged.status_code == 404
    async with streamed(http, "/jobs/stream") as stream:
        told = await stream.next()
        assert told is not None
        assert told.data == {"items": []}


async def test_what_is_no_place_is_refused_before_anything_is_sent(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    job, task = await client.jobs.submit(HELD), await client.enqueue("say")
    for path in (f"/jobs/{job.id}/stream", f"/tasks/{task.id}/log/stream"):
        answer = await http.get(f"/api/v1{path}", headers={"last-event-id": "x1"})
        assert (answer.status_code, answer.json()["field"]) == (422, "after")
    assert (await http.get("/api/v1/jobs/stream", params={"state": "runing"})).json()["field"] == "state"


async def test_a_credential_of_which_nobody_can_say_keeps_no_other_from_being_looked_at(
    make_http: MakeHttp, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, unknown, bad = server.state.live, await make_http(), await make_http()

    async def admit(guest: Guest) -> None:
        if guest.request.headers["authorization"] == unknown.headers["authorization"]:
            raise ProviderUnavailable("https://id.example.com", "it is away")
        raise Unauthenticated("the token is past its time")

    async with streamed(unknown, "/jobs/stream") as stays, streamed(bad, "/jobs/stream") as leaves:
        assert [(await each.next()) is None for each in (stays, leaves)] == [False, False]
        monkeypatch.setattr(hub, "_admit", admit)
        assert await hub.run_once() == 1
        assert [told.name for told in await leaves.until("closed")] == ["closed"]


async def test_a_revoked_token_ends_its_streams_and_no_others(make_http: MakeHttp, client: weft.Client) -> None:
    job = await client.jobs.submit(HELD)
    kept, lost = await make_http(), await make_http(role="reader")
    path = f"/jobs/{job.id}/stream"
    async with streamed(kept, path) as staying, streamed(lost, path) as leaving:
        await staying.until("job.submitted")
        await leaving.until("job.submitted")
        newest = (await client.tokens.list(limit=1))[0]
        await client.tokens.revoke(newest.id)
        told = await leaving.next()
        assert told is not None
        assert (told.name, told.data["code"]) == ("closed", "unauthenticated")
        assert await leaving.next() is None
        await client.jobs.cancel(job.id)
        assert (await staying.until("job.cancelling"))[-1].data["type"] == "job.cancelling"


async def test_a_deactivated_user_has_no_streams(make_http: MakeHttp, client: weft.Client) -> None:
    await client.users.add("ada", role="writer")
    job = await client.jobs.submit(HELD)
    http = await make_http(role="reader", user="ada")
    async with streamed(http, f"/jobs/{job.id}/stream") as stream:
        await stream.until("job.submitted")
        await client.users.deactivate("ada")
        assert [each.name for each in await stream.until("closed")] == ["closed"]


async def test_a_token_past_its_time_is_found_by_looking(
    make_http: MakeHttp, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], server: Server
) -> None:
    job = await client.jobs.submit(HELD)
    http = await make_http(role="reader")
    async with streamed(http, f"/jobs/{job.id}/stream") as stream:
        await stream.until("job.submitted")
        await conn.execute("update weft.token set expires_at = weft.now()")
        assert await server.state.live.run_once() == 1
        assert [each.name for each in await stream.until("closed")] == ["closed"]


async def test_an_org_has_so_many_streams_and_a_server_so_many_of_all(
    settings: weft.Settings, client: weft.Client
) -> None:
    await client.orgs.create("rival")
    rival = client.of_org((await client.orgs.show("rival")).id, "rival")
    tight = dataclasses.replace(settings, server_streams=3, server_org_streams=2)
    async with Server(tight, port=0) as server, AsyncExitStack() as stack:

        async def enter(owner: weft.Client) -> httpx.AsyncClient:
            headers = {"authorization": f"Bearer {(await owner.tokens.create('a', role='reader')).secret}"}
            return await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, headers=headers, timeout=20))

        mine, theirs = await enter(client), await enter(rival)
        async with streamed(mine, "/jobs/stream"), streamed(theirs, "/jobs/stream"):
            async with streamed(mine, "/jobs/stream"):
                for http, status, code in ((mine, 429, "too_many_streams"), (theirs, 503, "server_full")):
                    refused = await http.get("/api/v1/jobs/stream")
                    assert (refused.status_code, refused.json()["code"]) == (status, code)
                    assert int(refused.headers["retry-after"]) > 0
                    assert str(refused.json()["about"]["limit"]) in refused.json()["detail"]
                numbers = (await mine.get("/metrics")).text.splitlines()
                assert "weft_streams_open 3" in numbers
                for limit in ("org", "server"):
                    assert f'weft_streams_refused_total{{limit="{limit}"}} 1' in numbers
                assert "weft_streams" not in (await theirs.get("/metrics")).text
            # Whoever has gone makes room, as soon as it is seen that he has.
            async with asyncio.timeout(20):
                while "weft_streams_open 2" not in (await mine.get("/metrics")).text:
                    pass
            async with streamed(mine, "/jobs/stream"):
                pass


async def test_a_server_that_stops_ends_its_streams_with_a_word(settings: weft.Settings, client: weft.Client) -> None:
    job = await client.jobs.submit(HELD)
    made = await client.tokens.create("tester", role="reader")
    headers = {"authorization": f"Bearer {made.secret}"}
    async with AsyncExitStack() as stack:
        serving = await stack.enter_async_context(Server(settings, port=0))
        async with (
            httpx.AsyncClient(base_url=serving.url, headers=headers, timeout=30) as http,
            streamed(http, f"/jobs/{job.id}/stream") as stream,
        ):
            await stream.until("job.submitted")
            stopping = asyncio.create_task(stack.aclose())
            told = await stream.until("closed")
            assert told[-1].data["code"] == "server_stopping"
            assert await stream.next() is None
            async with asyncio.timeout(9):
                await stopping


async def test_a_restart_of_the_listener_loses_nothing(
    http: httpx.AsyncClient, client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    job = await client.jobs.submit(HELD)
    async with streamed(http, f"/jobs/{job.id}/stream") as stream:
        await stream.until("task.completed")
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and datname = current_database() and query ilike 'listen%'"
        )
        handlers.leave.set()
        assert (await stream.until("end"))[-1].data["state"] == "completed"


async def test_the_list_of_jobs_tells_what_is_new_what_changes_and_what_is_gone(
    http: httpx.AsyncClient, client: weft.Client, handlers: Handlers
) -> None:
    old = await client.jobs.submit(HELD, labels={"day": "1"})
    await asyncio.wait_for(handlers.begun.wait(), 60)
    path = "/jobs/stream?labels=day=1&state=running&state=pending"
    async with streamed(http, path) as stream:
        first = await stream.next()
        assert first is not None
        assert (first.name, [job["id"] for job in first.data["items"]]) == ("list", [str(old.id)])
        await client.jobs.submit(HELD, labels={"day": "2"})
        new = await client.jobs.submit(HELD, labels={"day": "1"})
        told = await stream.next()
        assert told is not None
        assert (told.name, told.data["id"], told.data["workflow_id"]) == ("message", str(new.id), "tried")
        place = stream.last_id
        handlers.leave.set()
        gone = {each.data["id"] for _ in range(2) for each in await stream.until("gone") if each.name == "gone"}
        assert gone == {str(old.id), str(new.id)}
        async with streamed(http, path, place) as again:
            assert {each.data["id"] for each in await again.until("gone") if each.name == "gone"} <= gone
    async with streamed(http, path, place) as late:
        told = await late.next()
        assert told is not None
        assert (told.name, told.data) == ("list", {"items": []})


# The oldest has both labels, all others one of them.
_ENDED = """
  with f as (
    select b.id + n * 4194304 as id, case when n = 1 then '{"a": "1", "b": "1"}' when n % 2 = 0 then '{"a": "1"}'
      else '{"b": "1"}' end::json as labels
    from generate_series(1::bigint, 4000) n, (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC')) as id) b
  ), labelled as (
    insert into weft.job_label (job_id, org_id, name, value, ending)
    select f.id, 1, l.key, l.value, 'completed' from f, json_each_text(f.labels) l
  )
  insert into weft.job_done (id, org_id, end_id, created_at, ended_at, state, rank, finishes_independent, workflow_id,
    base_kind, inputs, actor, labels)
  select f.id, 1, f.id + 1, weft.now(), weft.now(), 'completed', 0, false, 'etl', 'tag', '{}', 'ada', f.labels from f
  returning id
"""


async def test_a_list_keeps_jobs_that_a_page_does_not_reach(
    http: httpx.AsyncClient, client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(job_lists, "ROOM", 10)
    monkeypatch.setattr(job_list_feed, "PAGES", 1)
    oldest = min(row["id"] for row in await conn.fetch(_ENDED))
    both = {"a": "1", "b": "1"}
    page, pages = await client.jobs.page(labels=both), 1
    while not page.jobs:
        assert page.next is not None
        page, pages = await client.jobs.page(labels=both, before=page.next), pages + 1
    assert pages > 2
    async with streamed(http, "/jobs/stream?labels=a=1&labels=b=1") as stream:
        first = await stream.next()
        assert first is not None
        assert (first.name, first.data) == ("list", {"items": []}), "nobody waits for all pages"
        found = await stream.next()
        assert found is not None
        assert (found.name, found.data["id"]) == ("message", str(oldest)), "it is found by and by"
        new = await client.jobs.submit(flow(first={"handler": "say"}), labels=both)
        told = await stream.next()
        assert told is not None
        assert (told.name, told.data["id"]) == ("message", str(new.id)), "and none is gone"


def _talking(registry: Registry) -> tuple[asyncio.Event, asyncio.Event]:
    """Return when a task of the handler ``talk`` has said something, and what lets it say the rest."""
    said, leave = asyncio.Event(), asyncio.Event()

    @registry.task(name="talk")
    async def talk() -> None:
        print("zwölf")
        said.set()
        await leave.wait()
        print("dreizehn")

    return said, leave


async def test_a_log_is_told_from_any_byte_on_until_the_task_has_ended(
    http: httpx.AsyncClient, client: weft.Client, registry: Registry
) -> None:
    said, leave = _talking(registry)
    task = await client.enqueue("talk")
    path = f"/tasks/{task.id}/log/stream"
    async with weft.Worker(client=client, registry=registry), streamed(http, path) as stream:
        await said.wait()
        told = await stream.next()
        assert told == ("message", {"offset": 0, "text": "zwölf\n"}, "7")
        async with streamed(http, path, "5") as middle, streamed(http, path, "9") as ahead:
            leave.set()
            assert [each.data.get("text") for each in await stream.until("end")] == ["dreizehn\n", None]
            assert [each.data.get("text") for each in await middle.until("end")] == ["f\n", "dreizehn\n", None]
            assert [each.data.get("text") for each in await ahead.until("end")] == ["eizehn\n", None]
    async with streamed(http, path) as stream:
        told = await stream.next()
        assert told is not None
        assert told.data["text"] == "zwölf\ndreizehn\n"
    assert (await http.get(f"/api/v1{path}", headers={"last-event-id": "16"})).status_code == 204


async def test_what_one_says_that_he_has_had_of_a_log_takes_nothing_from_others(
    http: httpx.AsyncClient, client: weft.Client, registry: Registry
) -> None:
    said, leave = _talking(registry)
    task = await client.enqueue("talk")
    path = f"/tasks/{task.id}/log/stream"
    async with weft.Worker(client=client, registry=registry):
        await said.wait()
        for forged in ("1000000", "3"):  # beyond all that there is, and amid a letter
            async with streamed(http, path, forged), streamed(http, path) as honest:
                told = await honest.next()
                assert told is not None
                assert told.data["text"] == "zwölf\n"
        async with streamed(http, path, "1000000") as beyond, streamed(http, path) as honest:
            leave.set()
            assert "".join(each.data.get("text", "") for each in await honest.until("end")) == "zwölf\ndreizehn\n"
            assert [each.name for each in await beyond.until("end")] == ["end"]


async def test_what_one_says_that_he_has_had_of_a_job_takes_nothing_from_others(
    http: httpx.AsyncClient, client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    job = await client.jobs.submit(HELD)
    await asyncio.wait_for(handlers.begun.wait(), 60)
    path = f"/jobs/{job.id}/stream"
    forged = events.place_at(job.id, datetime(2089, 1, 1, tzinfo=UTC))
    async with streamed(http, path, forged) as beyond, streamed(http, path) as honest:
        told = await honest.until("task.completed")
        # The first he may still find by himself, where he catches up.
        for _ in range(2):
            await conn.execute("select weft.note_event(org_id, id, 'job.noted', 'running') from weft.job")
            told += await honest.until("job.noted")
        handlers.leave.set()
        told += await honest.until("end")
        await beyond.until("end")
    wanted = [event.id for event in (await client.jobs.events(job.id)).events]
    assert [each.data["id"] for each in told[:-1]] == wanted


async def test_a_feed_that_cannot_be_looked_for_costs_no_other_its_look(
    http: httpx.AsyncClient, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    bad, good = await client.jobs.submit(HELD), await client.jobs.submit(HELD)
    read = events.pages

    async def spoiled(
        conn: asyncpg.Connection[asyncpg.Record], org_id: int, asked: Sequence[tuple[int, str | None]], limit: int
    ) -> list[JobEvents]:
        if any(job_id == bad.id for job_id, _ in asked):
            raise OverflowError("date value out of range")
        return await read(conn, org_id, asked, limit)

    async with streamed(http, f"/jobs/{bad.id}/stream"), streamed(http, f"/jobs/{good.id}/stream") as stream:
        await stream.until("job.submitted")
        monkeypatch.setattr(events, "pages", spoiled)
        async with asyncio.timeout(60):
            while "cannot look: OverflowError" not in caplog.text:  # noqa: ASYNC110  nobody else says so
                await asyncio.sleep(0.01)
        await conn.execute("select weft.note_event(org_id, id, 'job.noted', 'pending') from weft.job")
        assert (await stream.until("job.noted"))[-1].data["job_id"] == str(good.id)


async def test_a_remote_client_follows_on_when_its_connection_breaks_after_a_long_quiet(
    server: Server, client: weft.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it had been quiet for longer than a server is waited for that never was there.
    monkeypatch.setattr("weft.remote.streams._FIRST", -1.0)
    made, task = await client.tokens.create("tester", role="reader"), await client.enqueue("say")
    host, _, port = server.url.removeprefix("http://").partition(":")
    begun, writers = asyncio.Queue[None](), list[asyncio.StreamWriter]()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                while data := await reader.read(65536):
                    writer.write(data)
                    if b"retry:" in data:
                        begun.put_nowait(None)
        finally:
            writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        writers.append(writer)
        await asyncio.gather(carry(reader, back), carry(there, writer))

    async with await asyncio.start_server(pass_on, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with weft.RemoteClient(url, made.secret, settings=weft.Settings.load(environ={})) as remote:

            async def followed() -> bytes:
                return b"".join([data async for data in remote.follow_log(task.id)])

            following = asyncio.create_task(followed())
            await asyncio.wait_for(begun.get(), 30)
            for writer in writers:
                writer.transport.abort()
            again = asyncio.create_task(begun.get())
            await asyncio.wait([again, following], timeout=30, return_when=asyncio.FIRST_COMPLETED)
            assert again.done(), "it connects again"
            await client.cancel(task.id)
            assert await asyncio.wait_for(following, 30) == b""


async def test_a_remote_client_follows_a_job_over_a_restart_of_its_server(
    settings: weft.Settings, client: weft.Client, handlers: Handlers
) -> None:
    made = await client.tokens.create("tester", role="reader")
    job = await client.jobs.submit(HELD)
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        serving = await first.enter_async_context(Server(settings, port=0))
        port = int(serving.url.rpartition(":")[2])
        remote = await second.enter_async_context(weft.RemoteClient(serving.url, made.secret, settings=settings))
        told = []
        async for event in remote.jobs.follow(job.id):
            told.append(event)
            if event.type == "task.completed" and event.node == "first":
                await asyncio.wait_for(handlers.begun.wait(), 60)
                await first.aclose()
                await second.enter_async_context(Server(settings, port=port))
                handlers.leave.set()
    assert told == list((await client.jobs.events(job.id)).events)


async def test_a_remote_client_follows_a_log(make_remote: MakeRemote, client: weft.Client, registry: Registry) -> None:
    remote, said = await make_remote(role="reader"), asyncio.Event()

    @registry.task(name="talk")
    async def talk() -> None:
        print("one\u2028line")
        await said.wait()
        print("two")
        raise ValueError("told too")

    task = await client.enqueue("talk", max_attempts=1)
    found = b""
    async with weft.Worker(client=client, registry=registry):
        async for text in remote.follow_log(task.id):
            found += text
            said.set()
    assert found == await client.read_log(task.id)
    assert [text async for text in remote.follow_log(task.id, 8)] == [found[8:]]
    with pytest.raises(weft.NotFound):
        await anext(remote.follow_log(12))
    with pytest.raises(weft.NotFound):
        await anext(remote.jobs.follow(12))


async def test_a_client_follows_a_log_until_its_task_has_ended(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="talk")
    async def talk() -> None:
        print("one")

    task = await client.enqueue("talk")
    async with weft.Worker(client=client, registry=registry):
        assert b"".join([text async for text in client.follow_log(task.id)]) == b"one\n"
