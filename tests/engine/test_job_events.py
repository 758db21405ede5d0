"""What happened in a job: told in order, never skipped, never changed, and followed until its end."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import WAITING, until
from job_scene import Handlers, at_work, flow

import weft
from weft.jobs import events
from weft.sdk.submitted import SubmittedJob

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


async def _all(client: weft.Client, job_id: int, limit: int = 1000) -> list[weft.JobEvent]:
    found, page = [], await client.jobs.events(job_id, limit=limit)
    while True:
        found += page.events
        if page.is_last:
            return found
        assert page.events
        page = await client.jobs.events(job_id, after=page.cursor, limit=limit)


def _told(events: list[weft.JobEvent]) -> list[tuple[str | None, str]]:
    return [(event.node, event.type) for event in events]


async def test_all_that_happens_in_a_job_is_told_in_order(client: weft.Client, handlers: Handlers) -> None:
    definition = flow(
        first={"handler": "say", "next": "each"},
        each={"type": "fan_out", "items": [1, 2], "task": {"handler": "say"}, "next": "all"},
        all={"type": "fan_in", "next": "END"},
        END={"type": "end"},
    )
    async with at_work(client, handlers):
        handle = await client.jobs.submit(definition)
        await client.jobs.wait(handle.id, timeout=30)
    events = await _all(client, handle.id)
    told = _told(events)
    assert told[:4] == [
        (None, "job.submitted"),
        (None, "job.started"),
        ("first", "task.claimed"),
        ("first", "task.completed"),
    ]
    assert told[-3:] == [("END", "task.claimed"), ("END", "task.completed"), (None, "job.completed")]
    items = [(event.item, event.type) for event in events if event.item is not None]
    assert sorted(items) == [(n, f"task.{verb}") for n in (0, 1) for verb in ("claimed", "completed")]
    (expanded,) = [
        event for event in events if (event.node, event.type, event.item) == ("each", "task.completed", None)
    ]
    assert expanded.data == {"items": 2}
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert len({event.id for event in events}) == len(events)
    assert events[0].data == {"by": client.actor}


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_pages_of_any_size_tell_the_same(client: weft.Client, handlers: Handlers, limit: int) -> None:
    each = {"type": "fan_out", "items": list(range(5)), "task": {"handler": "say"}, "next": "END"}
    async with at_work(client, handlers):
        handle = await client.jobs.submit(flow(each=each, END={"type": "end"}))
        await client.jobs.wait(handle.id, timeout=30)
    assert await _all(client, handle.id, limit) == list((await client.jobs.events(handle.id)).events)


async def test_attempts_that_failed_are_told_with_why(client: weft.Client, handlers: Handlers) -> None:
    first = {"handler": "fail_once", "retry": {"max_attempts": 3, "initial_delay_seconds": 0.001}}
    async with at_work(client, handlers):
        handle = await client.jobs.submit(flow(first=first))
        await client.jobs.wait(handle.id, timeout=30)
    events = [event for event in await _all(client, handle.id) if event.node == "first"]
    assert [(event.attempt, event.type) for event in events] == [
        (1, "task.claimed"), (1, "attempt.failed"), (2, "task.claimed"), (2, "task.completed"),
    ]  # fmt: skip
    assert events[1].data["message"] == "not yet"


async def test_a_step_that_is_saved_is_told_by_its_name(client: weft.Client, handlers: Handlers) -> None:
    async with at_work(client, handlers):
        handle = await client.jobs.submit(flow(long={"handler": "stepwise"}))
        await client.jobs.wait(handle.id, timeout=30)
    told = [(event.type, event.checkpoint) for event in await _all(client, handle.id) if event.node == "long"]
    assert told == [("task.claimed", None), ("task.saved", "first"), ("task.completed", None)]


async def test_a_job_that_fails_says_what_failed(client: weft.Client, handlers: Handlers) -> None:
    async with at_work(client, handlers):
        handle = await client.jobs.submit(
            flow(first={"handler": "fail", "retry": {"max_attempts": 1}, "next": "then"}, then={"handler": "say"})
        )
        await client.jobs.wait(handle.id, timeout=30)
    events = {(event.node, event.type): event for event in await _all(client, handle.id)}
    assert events[(None, "job.failed")].data["message"] == "never"
    assert ("then", "task.skipped") in events
    assert ("first", "task.dead") in events


async def test_who_did_something_to_a_job_is_told(client: weft.Client, handlers: Handlers) -> None:
    definition = flow(review={"type": "wait", "for": "approval", "next": "later"}, later={"handler": "hold"})
    async with at_work(client, handlers):
        handle = await client.jobs.submit(definition)
        following = client.jobs.follow(handle.id)
        await _next(following, "task.claimed")
        await client.jobs.pause(handle.id)
        await client.jobs.resume(handle.id)
        await client.jobs.approve(handle.id, message="good")
        await handlers.begun.wait()
        await client.jobs.cancel(handle.id)
        await client.jobs.wait(handle.id, timeout=30)
        await following.aclose()
    said = [event for event in await _all(client, handle.id) if event.data.get("by")]
    assert [(event.type, event.data["by"]) for event in said] == [
        (type, client.actor)
        for type in ("job.submitted", "job.paused", "job.resumed", "task.approved", "job.cancelling")
    ]
    (approved,) = [event for event in said if event.type == "task.approved"]
    assert (approved.node, approved.data["message"]) == ("review", "good")


async def test_an_event_from_outside_is_told_where_it_was_waited_for(client: weft.Client, handlers: Handlers) -> None:
    definition = flow(early={"type": "wait", "for": "event", "event": "file.arrived"})
    async with at_work(client, handlers):
        late = await client.jobs.submit(definition)
        await client.jobs.send_event("file.arrived", {"path": "a"})
        assert (await client.jobs.wait(late.id, timeout=30)).state == "completed"
        early = await client.jobs.submit(definition)
        following = client.jobs.follow(early.id)
        await _next(following, "task.claimed")

        async def answered() -> int:
            return (await client.jobs.send_event("file.arrived", {"path": "b"})).answered

        await until(answered)
        assert (await client.jobs.wait(early.id, timeout=30)).state == "completed"
        await following.aclose()
    for handle in (late, early):
        (received,) = [event for event in await _all(client, handle.id) if event.type == "task.received"]
        assert (received.node, received.data["event"]) == ("early", "file.arrived")


async def _next(events: Any, type: str) -> weft.JobEvent:
    async with asyncio.timeout(60):
        while True:
            event = await anext(events)
            if event.type == type:
                return event


async def test_a_job_is_followed_until_it_ends(client: weft.Client, handlers: Handlers) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "hold", "next": "then"}, then={"handler": "say"}))
    async with at_work(client, handlers):
        following = client.jobs.follow(handle.id)
        found = [await _next(following, "task.claimed")]
        handlers.leave.set()
        async with asyncio.timeout(60):
            found += [event async for event in following]
    assert found == [
        event for event in await _all(client, handle.id) if event.type not in ("job.submitted", "job.started")
    ]
    assert [event.id async for event in client.jobs.follow(handle.id)] == [
        event.id for event in await _all(client, handle.id)
    ]


async def test_whoever_follows_is_woken_by_what_somebody_does(
    client: weft.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.sdk.job_looking._SHORTEST", 3600.0)
    monkeypatch.setattr("weft.sdk.job_looking._LONGEST", 3600.0)
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    following = client.jobs.follow(handle.id)
    assert (await anext(following)).type == "job.submitted"
    waiting = asyncio.ensure_future(anext(following))
    for _ in range(5):
        await asyncio.sleep(0)
    await client.jobs.pause(handle.id)
    assert (await asyncio.wait_for(waiting, 60)).type == "job.paused"
    await following.aclose()


async def test_whoever_watches_is_woken_by_what_somebody_does(
    client: weft.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await client.jobs.submit(
        flow(ask={"type": "wait", "for": "approval", "next": "then"}, then={"handler": "say"})
    )
    async with weft.Orchestrator(client=client):
        await until(lambda: client.jobs.approvals(handle.id))
        monkeypatch.setattr("weft.sdk.submitted._SHORTEST", 3600.0)
        monkeypatch.setattr("weft.sdk.submitted._LONGEST", 3600.0)
        watching = SubmittedJob(handle.id, settings=client.settings).watch()
        seen = {node.node: str(node.state) for node in [await anext(watching) for _ in range(3)]}
        assert seen == {"ask": "waiting", "then": "pending", "END": "pending"}
        waiting = asyncio.ensure_future(anext(watching))
        for _ in range(5):
            await asyncio.sleep(0)
        await client.jobs.approve(handle.id)
        node = await asyncio.wait_for(waiting, 60)
        assert (node.node, node.state) == ("ask", "completed")
        await watching.aclose()


async def test_whoever_watches_goes_on_when_the_connection_breaks(
    client: weft.Client, conn: Connection, url: str
) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    watching = SubmittedJob(handle.id, settings=client.settings).watch()
    holder = await asyncpg.connect(url)
    try:
        await holder.execute("begin; lock table weft.worker_code")
        waiting = asyncio.ensure_future(anext(watching))
        for _ in range(3):  # a look is repeated once by itself
            await until(lambda: conn.fetchval(WAITING, "%with tasks as%"))
            await conn.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where wait_event_type = 'Lock'"
            )
    finally:
        await holder.close()
    assert (await asyncio.wait_for(waiting, 60)).node == "first"
    await watching.aclose()


async def test_an_event_that_commits_late_is_not_skipped(client: weft.Client, conn: Connection, url: str) -> None:
    """Its time is that of its transaction, which others have overtaken."""
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    late = await asyncpg.connect(url)
    try:
        open_ = late.transaction()
        await open_.start()
        await late.fetchval("select weft.note_event(1, $1, 'job.late')", handle.id)
        await client.jobs.pause(handle.id)
        page = await client.jobs.events(handle.id)
        assert [event.type for event in page.events] == ["job.submitted", "job.paused"]
        for _ in range(3):
            page = await client.jobs.events(handle.id, after=page.cursor)
            assert page.events == ()
        await conn.execute(
            "create or replace function weft.now() returns timestamptz language sql volatile "
            "return clock_timestamp() + interval '1 minute'"
        )
        page = await client.jobs.events(handle.id, after=page.cursor)
        await open_.commit()
        page = await client.jobs.events(handle.id, after=page.cursor)
        assert [event.type for event in page.events] == ["job.late"]
        for _ in range(3):
            page = await client.jobs.events(handle.id, after=page.cursor)
            assert page.events == ()
    finally:
        await late.close()


async def test_what_is_settled_leaves_the_cursor(client: weft.Client, conn: Connection) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    for _ in range(50):
        await conn.execute("select weft.note_event(1, $1, 'job.tried')", handle.id)
    page = await client.jobs.events(handle.id)
    assert len(page.events) == 51
    full = len(page.cursor)
    await conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile "
        "return clock_timestamp() + interval '1 minute'"
    )
    for _ in range(3):
        page = await client.jobs.events(handle.id, after=page.cursor)
        assert page.events == ()
    assert len(page.cursor) < full / 4


async def test_while_a_transaction_is_open_the_cursor_does_not_grow_without_end(
    client: weft.Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.jobs.events._MOST_AHEAD", 3)
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute("select pg_current_xact_id()")
            for _ in range(3):
                await client.jobs.pause(handle.id)
                await client.jobs.resume(handle.id)
            page = await client.jobs.events(handle.id)
            assert len(page.events) == 3
            page = await client.jobs.events(handle.id, after=page.cursor)
            assert page.events == ()
        found, after = list[weft.JobEvent](), page.cursor
        while len(found) < 4:
            page = await client.jobs.events(handle.id, after=after)
            found, after = [*found, *page.events], page.cursor
        assert [event.type for event in found] == ["job.resumed", "job.paused", "job.resumed", "job.paused"][
            -4:
        ] or found
        assert len({event.id for event in found}) == 4
    finally:
        await other.close()


@pytest.mark.parametrize("verb", ["update weft.job_event set type = 'job.other'", "delete from weft.job_event"])
async def test_what_is_noted_is_never_changed(client: weft.Client, conn: Connection, verb: str) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    await client.jobs.pause(handle.id)
    for statement in (verb, "truncate weft.job_event"):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="never changed"):
            await conn.execute(statement)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="read-only"):
        await conn.execute("delete from weft.job_events")
    part = await conn.fetchval("select tableoid::regclass::text from weft.job_event")
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="never changed"):
        await conn.execute(verb.replace("weft.job_event", part))


async def test_a_cursor_that_is_none_is_refused(client: weft.Client) -> None:
    one, two = [await client.jobs.submit(flow(first={"handler": "say"})) for _ in range(2)]
    other = (await client.jobs.events(two.id)).cursor
    for cursor in ("", "nonsense", "e30=", "bnVsbA==", other):
        with pytest.raises(weft.InvalidInput, match="after"):
            await client.jobs.events(one.id, after=cursor)
    with pytest.raises(weft.NotFound):
        await client.jobs.events(77)


async def test_events_of_another_org_are_not_told(client: weft.Client, conn: Connection) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    await client.jobs.pause(handle.id)
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'other', 'Other')")
    await conn.execute("update weft.job set org_id = 2")
    with pytest.raises(weft.NotFound):
        await client.jobs.events(handle.id)


async def test_a_job_that_is_taken_over_says_by_whom_and_from_whom(client: weft.Client, conn: Connection) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    await conn.execute("update weft.job set owner_id = 7")
    await conn.fetchval("select weft.hand_over(7, 8, 100)")
    (adopted,) = [event for event in (await client.jobs.events(handle.id)).events if event.type == "job.adopted"]
    assert adopted.data == {"owner_id": "8", "former_id": "7"}


async def test_the_mark_of_an_orgs_jobs_is_another_whenever_one_was_made_changed_or_ended(
    client: weft.Client, handlers: Handlers, conn: Connection
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    others, marks = await events.mark_of_jobs(conn, 2), [await events.mark_of_jobs(conn, 1)]
    async with at_work(client, handlers):
        # It comes and goes between two looks: of those that go on there are as many as before.
        await client.jobs.wait((await client.jobs.submit(flow(one={"handler": "say"}))).id, timeout=60)
        marks.append(await events.mark_of_jobs(conn, 1))
    held = await client.jobs.submit(flow(one={"handler": "say"}))
    marks.append(await events.mark_of_jobs(conn, 1))
    await client.jobs.pause(held.id)
    marks.append(await events.mark_of_jobs(conn, 1))
    assert len(set(marks)) == 4
    assert await events.mark_of_jobs(conn, 2) == others
