"""Why a job does not go on: each cause is brought about, and told for the node that it keeps."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg
import pytest
from engine_scene import Clock, claimed_by_a_ghost, until
from job_scene import Handlers, at_work, flow

import weft

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
CONTROL = 2


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


async def _register(conn: Connection, *handlers: str, queue_id: int = 1) -> None:
    await conn.execute(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 5, 1, 'here', '0', array[$1::bigint], $2)""",
        queue_id, handlers,
    )  # fmt: skip


async def _told(client: weft.Client, job_id: int, node: str | None = None) -> list[tuple[str | None, str]]:
    return [(each.node, each.cause) for each in await client.jobs.why(job_id, node)]


async def test_only_what_keeps_the_others_is_told(client: weft.Client, conn: Connection) -> None:
    definition = flow(
        a={"handler": "say", "next": "both"}, b={"handler": "say", "next": "both"}, both={"handler": "say"}
    )
    definition["nodes"]["START"]["next"] = ["a", "b"]
    handle = await client.jobs.submit(definition)
    assert await _told(client, handle.id) == [("a", "no_worker"), ("b", "no_worker")]
    await _register(conn, "say")
    assert await _told(client, handle.id) == [("a", "next"), ("b", "others_first")]
    (both,) = await client.jobs.why(handle.id, "both")
    assert (both.cause, both.text, len(both.task_ids)) == ("dependencies", "it waits for a (ready), b (ready)", 2)
    with pytest.raises(weft.NotFound, match=r"'bothh' in job .* Did you mean 'both'"):
        await client.jobs.why(handle.id, "bothh")


async def test_a_control_node_waits_for_an_orchestrator(client: weft.Client, conn: Connection) -> None:
    each = {"type": "fan_out", "items": [1], "task": {"handler": "say"}, "next": "END"}
    handle = await client.jobs.submit(flow(each=each, END={"type": "end"}))
    (told,) = await client.jobs.why(handle.id)
    assert (told.node, told.cause, told.advice) == ("each", "no_orchestrator", "start one: `weft orchestrator`")
    await _register(conn, "@fan_out", queue_id=CONTROL)
    assert await _told(client, handle.id) == [("each", "next")]
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'other', 'Other')")
    await conn.execute("update weft.worker set org_id = 2")
    assert await _told(client, handle.id) == [("each", "next")], "orchestrators are there for every org"


async def test_a_paused_job_says_how_to_resume_it(client: weft.Client, conn: Connection) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "say", "next": "then"}, then={"handler": "say"}))
    await client.jobs.pause(handle.id)
    (told,) = await client.jobs.why(handle.id)
    assert (told.cause, told.advice) == ("job_paused", f"resume it: `weft jobs resume {handle.id}`")
    await conn.execute("update weft.task set state = 'pending', reason = 'job_paused' where node = 'first'")
    assert await _told(client, handle.id) == [("first", "job_paused")]
    assert await _told(client, handle.id, "then") == [("then", "dependencies")]
    await conn.execute("update weft.job set state = 'cancelling'")
    assert await _told(client, handle.id) == [("first", "cancelling")]


async def test_what_waits_for_a_person_or_an_event_says_how_to_answer(
    client: weft.Client, handlers: Handlers, conn: Connection
) -> None:
    review = {
        "type": "wait",
        "for": "approval",
        "form": {"limit": {"type": "integer"}},
        "timeout_seconds": 3600,
        "next": "END",
    }
    file = {"type": "wait", "for": "event", "event": "file.arrived", "match": {"day": 3}, "next": "END"}
    definition = flow(review=review, file=file, END={"type": "end"})
    definition["nodes"]["START"]["next"] = ["review", "file"]
    handle = await client.jobs.submit(definition)
    async with at_work(client, handlers):
        await until(lambda: conn.fetchval("select count(*) from weft.awaited"), lambda count: count == 2)
    found = {each.node: each for each in await client.jobs.why(handle.id)}
    assert found["review"].cause == "approval"
    assert (
        found["review"].advice == f"answer it: `weft jobs approve {handle.id} review --set limit=…`, or with --reject"
    )
    assert ", until 2" in found["review"].text
    assert found["file"].cause == "event"
    assert """the event 'file.arrived' that matches {"day":3}""" in found["file"].text
    assert found["file"].advice == "send one: `weft events send file.arrived --payload JSON`"


async def test_a_node_that_is_a_workflow_waits_for_its_job(
    client: weft.Client, handlers: Handlers, conn: Connection
) -> None:
    child = flow(first={"handler": "hold"})
    await client.workflows.push({**child, "workflow_id": "child"})
    handle = await client.jobs.submit(flow(sub={"type": "workflow", "workflow": "child/main"}))
    async with at_work(client, handlers):
        await handlers.begun.wait()
        (told,) = await client.jobs.why(handle.id)
        other = await conn.fetchval("select id from weft.job where parent_id is not null")
        assert (told.node, told.cause, told.advice) == ("sub", "workflow", f"see `weft jobs why {other}`")
        handlers.leave.set()
        await client.jobs.wait(handle.id, timeout=30)
    assert [each.text for each in await client.jobs.why(handle.id)] == ["the job has ended: completed"]
    assert [each.text for each in await client.jobs.why(handle.id, "sub")] == ["it has ended: completed"]


async def test_items_beyond_max_parallel_wait_for_those_that_run(
    client: weft.Client, handlers: Handlers, conn: Connection
) -> None:
    each = {"type": "fan_out", "items": [1, 2, 3], "task": {"handler": "hold"}, "max_parallel": 1, "next": "all"}
    handle = await client.jobs.submit(flow(each=each, all={"type": "fan_in", "next": "END"}, END={"type": "end"}))
    async with at_work(client, handlers):
        await handlers.begun.wait()
        running, waiting = await client.jobs.why(handle.id, "each")
        assert (running.cause, waiting.cause, waiting.count) == ("running", "max_parallel", 2)
        assert not any(queue.key_limits for queue in await client.queues()), "nobody has set a limit for a key"
        assert waiting.task_ids == (running.task_id,)
        (all_,) = await client.jobs.why(handle.id, "all")
        assert all_.text == "it waits for each (running, 3 items left)"
        await client.jobs.cancel(handle.id)
        await client.jobs.wait(handle.id, timeout=30)


async def test_a_limit_says_who_holds_it(client: weft.Client, conn: Connection) -> None:
    await client.limit_queue("default", 1)
    first, second = [await client.jobs.submit(flow(only={"handler": "say"})) for _ in range(2)]
    await _register(conn, "say")
    _, task_id = await claimed_by_a_ghost(conn, room=1)
    (told,) = await client.jobs.why(second.id)
    assert (told.cause, told.task_ids) == ("limit", (task_id,))
    assert f"(only of job {first.id})" in told.text


async def test_a_full_key_says_who_holds_it(client: weft.Client, conn: Connection) -> None:
    await client.limit_queue("default", 1, per_key=True)
    node = {"handler": "say", "concurrency_key": "tenant"}
    first, second = [await client.jobs.submit(flow(only=node)) for _ in range(2)]
    await _register(conn, "say")
    _, task_id = await claimed_by_a_ghost(conn)
    (told,) = await client.jobs.why(second.id)
    assert (told.cause, told.task_ids) == ("concurrency_key", (task_id,))
    assert f"'tenant' are taken (only of job {first.id})" in told.text


async def test_a_retry_that_is_due_later_is_told_with_its_time(
    client: weft.Client, handlers: Handlers, clock: Clock, conn: Connection
) -> None:
    node = {"handler": "fail", "retry": {"max_attempts": 3, "initial_delay_seconds": 600}}
    handle = await client.jobs.submit(flow(first=node))
    async with at_work(client, handlers):
        await until(lambda: conn.fetchval("select exists (select 1 from weft.task where state = 'scheduled')"))
    (told,) = await client.jobs.why(handle.id)
    assert (told.cause, told.state) == ("retry", "scheduled")
    assert told.text.startswith("attempt 1 failed (error), and the next is due at")


async def test_what_the_engine_has_to_do_about_a_job_is_told_too(
    client: weft.Client, handlers: Handlers, conn: Connection
) -> None:
    node = {"handler": "fail", "retry": {"max_attempts": 1}, "next": "then"}
    handle = await client.jobs.submit(flow(first=node, then={"handler": "say"}))
    async with weft.Worker(client=client, registry=handlers.registry):
        await until(lambda: conn.fetchval("select exists (select 1 from weft.task where handler = '@fail')"))
    assert await _told(client, handle.id) == [(None, "no_orchestrator")]


async def test_a_job_of_another_org_is_not_told_of(client: weft.Client, conn: Connection) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "say"}))
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'other', 'Other')")
    await conn.execute("update weft.job set org_id = 2")
    with pytest.raises(weft.NotFound):
        await client.jobs.why(handle.id)


async def test_a_step_of_an_owner_that_is_lost_waits_for_another(client: weft.Client, conn: Connection) -> None:
    each = {"type": "fan_out", "items": [1], "task": {"handler": "say"}, "next": "END"}
    handle = await client.jobs.submit(flow(each=each, END={"type": "end"}))
    await conn.execute("insert into weft.queue (id, org_id, name) values (-7, 1, '@control/7')")
    await conn.execute("update weft.task set queue_id = -7 where node = 'each'")
    assert await _told(client, handle.id) == [("each", "no_orchestrator")]
    await _register(conn, "@fan_out", queue_id=CONTROL)
    assert await _told(client, handle.id) == [("each", "worker_lost")]
