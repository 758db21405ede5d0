"""What becomes of a task whose attempt did not succeed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from engine_scene import Clock, MakeClient

import weft
from far import with_and_without_a_database
from weft.worker.registry import Registry


class Unreadable(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class NotFoundThere(LookupError):
    """An error of the program's own."""


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (weft.Retry(4, backoff="exponential", initial_delay=10, jitter=0), [10, 20, 40]),
        (weft.Retry(4, backoff="linear", initial_delay=10, jitter=0), [10, 20, 30]),
        (weft.Retry(4, backoff="fixed", initial_delay=10, jitter=0), [10, 10, 10]),
        (weft.Retry(4, backoff="exponential", initial_delay=10, max_delay=15, jitter=0), [10, 15, 15]),
    ],
    ids=["exponential", "linear", "fixed", "capped"],
)
async def test_a_failed_attempt_is_tried_again_after_the_delay_of_its_policy(
    client: weft.Client, clock: Clock, registry: Registry, policy: weft.Retry, delays: list[int]
) -> None:
    @registry.task(name="fail")
    async def fail() -> None:
        raise ValueError("again")

    handle = await client.enqueue("fail", retry=policy)
    for delay in delays:
        await weft.Worker(client=client, registry=registry).run_until_idle()
        task = await client.get_task(handle.id)
        assert (task.state, task.reason) == ("scheduled", "error")
        assert task.due_at is not None
        waits = task.due_at - task.attempts[-1].ended_at
        assert abs(waits - timedelta(seconds=delay)) < timedelta(seconds=1)
        await clock.advance(seconds=delay)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.get_task(handle.id)).state == "dead"


@with_and_without_a_database
async def test_each_failed_attempt_is_kept_with_error_traceback_worker_and_times(
    client: weft.Client, registry: Registry
) -> None:
    async def deep_inside() -> None:
        raise NotFoundThere("nothing\x00 here \ud800")

    @registry.task(name="fail")
    async def fail(ctx: weft.Context) -> None:
        workers.append(ctx.worker_id)
        await deep_inside()

    workers: list[int] = []
    began = datetime.now(UTC)
    handle = await client.enqueue("fail", max_attempts=2, retry=weft.Retry(2, initial_delay=0))
    async with weft.Worker(client=client, registry=registry):
        with pytest.raises(weft.TaskFailed, match="nothing"):
            await client.wait(handle.id, timeout=60)
    task = await client.get_task(handle.id)
    assert [(a.attempt, a.outcome, a.reason, a.worker_id) for a in task.attempts] == [
        (1, "failed", "error", workers[0]),
        (2, "failed", "error", workers[1]),
    ]
    for attempt in task.attempts:
        assert attempt.error is not None
        assert attempt.error["type"] == "NotFoundThere"
        assert attempt.error["message"].startswith("nothing")
        assert "deep_inside" in attempt.error["traceback"]
        assert attempt.started_at is not None
        assert began - timedelta(seconds=5) < attempt.started_at <= attempt.ended_at
    assert task.error == task.attempts[-1].error
    assert (task.failures, task.attempt, task.max_attempts) == (2, 2, 2)


async def test_the_default_is_three_attempts(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="fail")
    async def fail() -> None:
        raise ValueError("never")

    handle = await client.enqueue("fail", retry=weft.Retry(initial_delay=0))
    assert (await client.get_task((await client.enqueue(fail, delay=3600)).id)).max_attempts == 3
    async with weft.Worker(client=client, registry=registry):
        with pytest.raises(weft.TaskFailed):
            await client.wait(handle.id, timeout=60)
    assert len((await client.get_task(handle.id)).attempts) == 3


async def test_the_setting_decides_about_attempts_where_neither_task_nor_handler_does(
    make_client: MakeClient, registry: Registry
) -> None:
    @registry.task(name="plain")
    async def plain() -> None: ...

    @registry.task(name="decided", retry=1)
    async def decided() -> None: ...

    client = await make_client(worker_max_attempts=7)
    cases = [(plain, {}), ("unknown", {}), (decided, {}), (plain, {"max_attempts": 4}), (plain, {"retry": 0})]
    handles = [await client.enqueue(handler, **options) for handler, options in cases]  # type: ignore[arg-type]
    assert [(await client.get_task(handle.id)).max_attempts for handle in handles] == [7, None, 2, 4, 1]


async def test_the_setting_of_the_worker_decides_about_a_task_by_name_whose_handler_says_nothing(
    client: weft.Client, make_client: MakeClient, registry: Registry
) -> None:
    @registry.task(name="plain")
    async def plain() -> None:
        raise ValueError("no")

    handle = await client.enqueue("plain")
    worker = weft.Worker(client=await make_client(worker_max_attempts=1), registry=registry)
    await worker.run_until_idle()
    assert (await client.get_task(handle.id)).state == "dead"


async def test_a_policy_that_was_known_where_it_was_enqueued_holds_whatever_the_worker_says(
    client: weft.Client, registry: Registry
) -> None:
    """A rolling deploy: those who enqueue and those who work have different releases of a handler."""

    @Registry().task(name="moody", retry=0)
    async def known() -> None: ...

    @registry.task(name="moody", retry=5)
    async def moody() -> None:
        raise ValueError("no")

    handle = await client.enqueue(known)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.failures, task.max_attempts) == ("dead", 1, 1)


@with_and_without_a_database
async def test_a_missed_heartbeat_counts_against_the_policy_of_a_handler_that_only_its_worker_knows(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    calls = []

    @registry.task(name="once", retry=0)
    async def once() -> None:
        calls.append(1)

    handle = await client.enqueue("once")
    # As if an attempt had been given up by the leader, which knows no handlers.
    await conn.execute("update weft.task set failures = 1, attempt = 1 where id = $1", handle.id)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, calls) == ("dead", "heartbeat_timeout", [])


@with_and_without_a_database
async def test_the_handlers_policy_holds_unless_the_task_has_its_own(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="fail", retry=weft.Retry(2, backoff="fixed", initial_delay=500, jitter=0))
    async def fail() -> None:
        raise ValueError("no")

    by_handler = await client.enqueue(fail)
    by_task = await client.enqueue(fail, retry=weft.Retry(5, backoff="fixed", initial_delay=100, jitter=0))
    (by_many,) = await client.enqueue_many([weft.NewTask(fail)])
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for handle, attempts, delay in [(by_handler, 2, 500), (by_task, 5, 100), (by_many, 2, 500)]:
        task = await client.get_task(handle.id)
        assert task.max_attempts == attempts
        assert task.due_at is not None
        assert abs((task.due_at - task.attempts[0].ended_at).total_seconds() - delay) < 1


@pytest.mark.parametrize("executor", ["async", "thread"])
@with_and_without_a_database
async def test_an_error_that_no_retry_can_mend_fails_the_task_at_once(
    client: weft.Client, registry: Registry, executor: str
) -> None:
    if executor == "async":

        @registry.task(name="refuse", retry=weft.Retry(5, initial_delay=0, non_retryable=(LookupError,)))
        async def refuse(how: str) -> None:
            raise weft.NonRetryable("gone") if how == "signal" else NotFoundThere("gone")

    else:

        @registry.task(name="refuse", retry=weft.Retry(5, initial_delay=0, non_retryable=(LookupError,)))
        def refuse_in_thread(how: str) -> None:
            raise weft.NonRetryable("gone") if how == "signal" else NotFoundThere("gone")

    handles = [await client.enqueue("refuse", {"how": how}) for how in ("signal", "type")]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for handle in handles:
        task = await client.get_task(handle.id)
        assert (task.state, task.reason, len(task.attempts)) == ("failed", "non_retryable", 1)
        with pytest.raises(weft.TaskFailed, match=r"is failed: (NonRetryable|NotFoundThere): gone"):
            await client.wait(handle.id)


async def test_one_error_type_alone_may_be_non_retryable(client: weft.Client, registry: Registry) -> None:
    try:
        policy = weft.Retry(5, non_retryable=ValueError)  # type: ignore[arg-type]
    except weft.InvalidInput as refusal:
        assert refusal.field == "retry.non_retryable"  # noqa: PT017  (refusing it is as good as accepting it)
        return

    @registry.task(name="refuse", retry=policy)
    async def refuse() -> None:
        raise ValueError("no")

    handle = await client.enqueue("refuse")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.get_task(handle.id)).state == "failed"


@with_and_without_a_database
async def test_a_snooze_does_not_count_as_a_failure(client: weft.Client, clock: Clock, registry: Registry) -> None:
    calls = 0

    @registry.task(name="later")
    async def later() -> str:
        nonlocal calls
        calls += 1
        if calls <= 3:
            raise weft.Snooze(600)
        return "now"

    handle = await client.enqueue("later", max_attempts=1)
    for _ in range(3):
        await weft.Worker(client=client, registry=registry).run_until_idle()
        task = await client.get_task(handle.id)
        assert (task.state, task.reason, task.failures) == ("scheduled", "snooze", 0)
        assert task.due_at is not None
        assert abs((task.due_at - task.attempts[-1].ended_at).total_seconds() - 600) < 1
        await clock.advance(minutes=10)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.output, task.attempt) == ("completed", "now", 4)
    assert [a.outcome for a in task.attempts] == ["snoozed"] * 3


async def test_the_key_for_calls_to_the_outside_is_the_same_in_every_attempt(
    client: weft.Client, registry: Registry
) -> None:
    seen: list[tuple[int, str]] = []

    @registry.task(name="call")
    async def call(ctx: weft.Context) -> None:
        seen.append((ctx.attempt, ctx.idempotency_key))
        if ctx.attempt == 1:
            raise ValueError("once more")

    handle = await client.enqueue("call", retry=weft.Retry(initial_delay=0))
    async with weft.Worker(client=client, registry=registry):
        await client.wait(handle.id, timeout=60)
    (first, key), (second, same) = seen
    assert (first, second) == (1, 2)
    assert key == same
    assert str(handle.id) in key


@pytest.mark.parametrize(
    "problem",
    [
        StopIteration("done"), Unreadable(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(),
        BaseExceptionGroup("g", [ValueError("x")]),
    ],
    ids=lambda problem: type(problem).__name__,
)  # fmt: skip
async def test_whatever_a_handler_raises_ends_its_attempt(
    client: weft.Client, registry: Registry, problem: BaseException
) -> None:
    @registry.task(name="async")
    async def fail() -> None:
        raise problem

    @registry.task(name="thread")
    def fail_in_thread() -> None:
        raise problem

    handles = [await client.enqueue(name, max_attempts=1) for name in ("async", "thread")]
    async with weft.Worker(client=client, registry=registry):
        for handle in handles:
            with pytest.raises(weft.TaskFailed):
                await client.wait(handle.id, timeout=60)
    for handle in handles:
        assert (await client.get_task(handle.id)).state == "dead"


async def test_a_task_that_is_enqueued_by_name_is_retried_as_its_handler_says_unless_it_was_said(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="once", retry=0)
    async def once() -> None:
        raise ValueError("never again")

    by_name = await client.enqueue("once")
    by_sql = await conn.fetchval("select id from weft.enqueue('once')")
    said = await client.enqueue("once", max_attempts=3)
    said_in_sql = await conn.fetchval("select id from weft.enqueue('once', max_attempts => 3)")
    policy = await client.enqueue("once", retry=weft.Retry(max_attempts=3))
    await weft.Worker(client=client, registry=registry).run_until_idle()
    ids = (by_name.id, by_sql, said.id, said_in_sql, policy.id)
    assert [(await client.get_task(id)).state for id in ids] == ["dead", "dead", "scheduled", "scheduled", "scheduled"]


async def test_what_a_node_leaves_out_of_its_policy_comes_from_the_handler(
    client: weft.Client, clock: Clock, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="fail", retry=weft.Retry(2, backoff="linear", initial_delay=50, jitter=0))
    async def fail() -> None:
        raise ValueError("again")

    nodes = {"START": {"type": "start", "next": ["often", "soon"]}, "END": {"type": "end"}}
    nodes |= {"often": {"handler": "fail", "retry": {"max_attempts": 3}, "next": "END"}}
    nodes |= {"soon": {"handler": "fail", "retry": {"initial_delay_seconds": 10}, "next": "END"}}
    await client.jobs.submit({"workflow_id": "w", "on_failure": "finish_independent", "nodes": nodes})
    look = (
        "select node, round(extract(epoch from due_at - weft.now()))::int as due from weft.task where node = any ($1)"
    )
    for expected in ({"often": 50, "soon": 10}, {"often": 100}, {}):
        await weft.Worker(client=client, registry=registry).run_until_idle()
        assert {row[0]: row[1] for row in await conn.fetch(look, ["often", "soon"])} == expected
        await clock.advance(seconds=max(expected.values(), default=0))
