"""Why a task does not run: each cause is brought about, told by its word, and gone when it is mended."""

from __future__ import annotations

import asyncpg
import pytest
from engine_scene import Clock, claimed_by_a_ghost

import weft
from weft.queue.services import Admitter
from weft.worker.registry import Registry


async def _register(
    conn: asyncpg.Connection[asyncpg.Record], *handlers: str, queue: str = "default", lease: str = "1 hour"
) -> int:
    """Add the row of a worker that never claims."""
    found = await conn.fetchval(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           select 1, weft.now() + $3::text::interval, 5, 1, 'here', '0', array[q.id], $1
           from weft.queue q where q.name = $2 and q.org_id = 1 returning id""",
        handlers, queue, lease,
    )  # fmt: skip
    return int(found)


async def _cause(client: weft.Client, task_id: int) -> str:
    return (await client.why(task_id)).cause


async def test_from_no_worker_to_a_worker_that_knows_it(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task = await client.enqueue("known")
    nobody = await client.why(task.id)
    assert (nobody.cause, nobody.text) == ("no_worker", "no live worker serves queue 'default'")
    assert nobody.advice == "start one: `weft worker --app MODULE --queues default`"
    await client.create_queue("other")
    await _register(conn, "known", queue="other")
    assert (await client.why(task.id)).text == "no live worker serves queue 'default'; 1 serve other queues"
    await _register(conn, "known", lease="-1 second")
    assert await _cause(client, task.id) == "no_worker", "one whose lease has lapsed is not alive"
    await _register(conn, "another")
    unknown = await client.why(task.id)
    assert (unknown.cause, unknown.text) == (
        "no_handler", "no live worker of queue 'default' knows the handler 'known'",
    )  # fmt: skip
    await _register(conn, "known")
    assert await _cause(client, task.id) == "next"


async def test_those_that_come_first_are_counted_by_priority_and_age(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await _register(conn, "known")
    older = await client.enqueue("known")
    task = await client.enqueue("known")
    younger = await client.enqueue("known")
    assert (await client.why(task.id)).text.startswith("1 ready tasks of queue 'default' come first")
    await client.enqueue_many([weft.NewTask("known", priority=1)] * 1000)
    assert (await client.why(task.id)).text.startswith("1000 or more ready tasks")
    assert [await _cause(client, other.id) for other in (older, younger)] == ["others_first"] * 2


async def test_a_paused_queue_and_a_limit_that_is_used_up(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await _register(conn, "known")
    running = await client.enqueue("known")
    task = await client.enqueue("known")
    await client.pause_queue("default")
    assert await _cause(client, task.id) == "paused"
    await client.resume_queue("default")
    await claimed_by_a_ghost(conn)
    await client.limit_queue("default", 2)
    assert await _cause(client, task.id) == "next"
    await client.limit_queue("default", 1)
    limited = await client.why(task.id)
    assert (limited.cause, limited.text) == (
        "limit",
        f"1 tasks of queue 'default' run (task {running.id}), and its limit is 1",
    )
    assert await _cause(client, running.id) == "running"


async def test_a_concurrency_key_whose_slots_are_taken(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.limit_queue("default", 1, per_key=True)
    await client.enqueue("known", concurrency_key="k")
    task = await client.enqueue("known", concurrency_key="k")
    assert await _cause(client, task.id) == "no_worker", "whoever has the slot does not run either"
    await _register(conn, "known")
    found = await client.why(task.id)
    assert (found.cause, found.text) == ("concurrency_key", "all 1 slots of its concurrency key 'k' are taken")
    await client.pause_queue("default")
    assert await _cause(client, task.id) == "paused"


async def test_advice_can_be_pasted_into_a_shell_and_names_what_is_close(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.create_queue("a b; $(id)")
    task = await client.enqueue("plain", queue="a b; $(id)")
    assert (await client.why(task.id)).advice == "start one: `weft worker --app MODULE --queues 'a b; $(id)'`"
    await _register(conn, "app.plain", queue="a b; $(id)")
    assert (await client.why(task.id)).advice.endswith("Did you mean 'app.plain'?")  # type: ignore[union-attr]


async def test_a_task_whose_workers_row_is_gone_waits_for_somebody_to_take_it_over(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task = await client.enqueue("known")
    await claimed_by_a_ghost(conn)
    await conn.execute("delete from weft.worker")
    assert await _cause(client, task.id) == "worker_lost"


async def test_a_task_that_is_not_due_or_was_put_off(client: weft.Client, registry: Registry, clock: Clock) -> None:
    @registry.task(name="fails", retry=weft.Retry(max_attempts=2, initial_delay=60))
    async def fails() -> None:
        raise ValueError("not today")

    @registry.task(name="sleeps")
    async def sleeps() -> None:
        raise weft.Snooze(60)

    handlers = ("fails", "sleeps", "elsewhere")
    later = await client.enqueue("fails", delay=60)
    put_off = [await client.enqueue(handler, retry=weft.Retry(2, initial_delay=60)) for handler in handlers]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [await _cause(client, task.id) for task in (later, *put_off)] == ["later", "retry", "snooze", "no_handler"]
    assert "attempt 1 failed (error), and the next is due at" in (await client.why(put_off[0].id)).text
    await clock.advance(minutes=2)
    assert await _cause(client, put_off[0].id) == "no_worker"


async def test_a_task_of_a_worker_that_is_lost_waits_for_somebody_to_take_it_over(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task = await client.enqueue("known")
    ghost, _ = await claimed_by_a_ghost(conn)
    assert await _cause(client, task.id) == "running"
    await conn.execute("update weft.worker set until = weft.now() - interval '1 second' where id = $1", ghost)
    alone = await client.why(task.id)
    assert (alone.cause, alone.advice) == ("worker_lost", "start one: `weft worker --app MODULE --queues default`")
    await _register(conn, "known")
    assert (await client.why(task.id)).advice is None


async def test_a_row_that_was_made_by_hand_is_explained_as_far_as_it_can_be(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task = await client.enqueue("known")
    for columns in (
        "'running', null, null, null", "'running', 7, null, null", "'scheduled', null, null, null",
        "'scheduled', null, 'infinity', null", "'pending', null, null, null",
        "'pending', null, null, 'concurrency_key'", "'waiting', null, null, null",
    ):  # fmt: skip
        await conn.execute(f"update weft.task set (state, worker_id, due_at, reason) = row ({columns})")
        assert (await client.why(task.id)).text


async def test_a_task_that_waits_for_others(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> None:
    task = await client.enqueue("known")
    await conn.execute("update weft.task set state = 'pending', reason = 'dependencies', waiting_on = 2")
    assert (await client.why(task.id)).text == "it waits for 2 other tasks to end"


async def test_one_that_has_ended_one_that_never_was_and_one_of_another_org(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task = await client.enqueue("known")
    await client.cancel(task.id, reason="no need")
    assert (await client.why(task.id)).text == "it has ended: cancelled (no need)"
    with pytest.raises(weft.NotFound):
        await client.why(77)
    other = await client.enqueue("known")
    await conn.execute("update weft.task set org_id = 2")
    with pytest.raises(weft.NotFound):
        await client.why(other.id)


async def test_a_key_with_room_is_not_told_as_full(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], url: str
) -> None:
    """The limit is raised while an enqueue is open: what that parks finds its slot soon after."""
    await client.limit_queue("default", 1, per_key=True)
    await client.enqueue("known", concurrency_key="k")
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            task_id = await other.fetchval("select id from weft.enqueue('known', concurrency_key => 'k')")
            await client.limit_queue("default", 5, per_key=True)
    finally:
        await other.close()
    await conn.execute(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 1, 1, 'here', '0', '{1}', '{known}')"""
    )
    assert "has a free slot" in (await client.why(task_id)).text
    assert await Admitter(client.database).run_once() == 1
    assert (await client.get_task(task_id)).state == "ready"


async def test_a_task_whose_outcome_was_refused_says_so(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task = await client.enqueue("known")
    await conn.execute("update weft.task set state = 'pending', reason = 'outcome_refused'")
    assert (await client.why(task.id)).cause == "outcome_refused"
