"""A program as users write it, which is type-checked and not run: what it asserts, and what it must not say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import asyncpg

import weft


@weft.task(name="email:send", retry=weft.Retry(max_attempts=3, initial_delay=0.5), timeout=60)
async def send(to: str, ctx: weft.Context, copies: int = 1) -> str:
    assert_type(ctx.task_id, int)
    assert_type(ctx.attempt, int)
    assert_type(ctx.is_cancelled, bool)
    assert_type(ctx.idempotency_key, str)
    assert_type(ctx.logger, logging.Logger)
    ctx.heartbeat()
    if ctx.attempt < copies:
        raise weft.Snooze(5)
    return to


@weft.task
def total(path: str) -> float:
    raise weft.NonRetryable(path)


@weft.task(name="book", queue="orders", retry=2, timeout=timedelta(minutes=1), executor="async")
async def book(order: int, ctx: weft.Context) -> None:
    conn = await asyncpg.connect("postgresql://")
    async with conn.transaction():
        landing = ctx.complete_in(conn, {"order": order})
        assert_type(landing, Awaitable[None])
        await landing


@weft.workflow
def report(path: str, factor: int = 2) -> float:
    for_each = total.using(max_parallel=4, retry=3).map([path, "y"])
    return total(path=weft.filtered(for_each, "join"))


@weft.workflow(timeout=timedelta(hours=1), defaults={"retry": 2})
async def mailing(to: str) -> str:
    found = await send.named("first")(to)
    assert_type(found, str)
    with weft.when(weft.filtered(found, "length") > 3) as is_long:
        assert_type(total(found), float)
    assert_type(report(found), float)
    with weft.group("end") as end:
        last = weft.wait_for_approval("ask")
    end >> last
    return str(is_long.value(found, "short"))


async def run_workflows() -> None:
    assert_type(report.to_yaml(), str)
    assert_type(report.definition, weft.WorkflowDefinition)
    job = await weft.submit(report, path="x")
    assert_type(job, weft.SubmittedJob)
    async for node in job.watch():
        assert_type(node, weft.JobNode)
    print(await job.result(timeout=3), weft.run(report, path="x"))


async def in_a_pool(pool: asyncpg.Pool[asyncpg.Record], client: weft.Client, ctx: weft.Context) -> None:
    async with pool.acquire() as conn, conn.transaction():
        assert_type(await client.enqueue(book, {"order": 1}, connection=conn), weft.TaskHandle)
        await ctx.complete_in(conn)


async def main(ctx: weft.Context) -> None:
    assert_type(await send("ada", ctx), str)
    assert_type(total(path="x"), float)
    settings = weft.Settings.load(retention="7d")
    async with weft.Client(settings=settings) as client, weft.Worker(client=client, concurrency=4) as worker:
        assert_type(client, weft.Client)
        assert_type(worker, weft.Worker)
        handle = await client.enqueue(send, {"to": "ada"}, delay=5, retry=weft.Retry(), idempotency_key="one")
        assert_type(handle, weft.TaskHandle)
        assert_type(handle.id, int)
        assert_type(handle.created, bool)
        many = [weft.NewTask(send, {"to": "ada"}), weft.NewTask("by name", run_at=datetime.now(UTC))]
        assert_type(await client.enqueue_many(many), list[weft.TaskHandle])
        try:
            assert_type(await client.wait(handle.id, timeout=timedelta(seconds=30)), Any)
        except (weft.TaskFailed, weft.WaitTimeout, weft.NotFound) as problem:
            assert_type(problem.code, str)
        task = await client.get_task(handle.id)
        assert_type(task, weft.Task)
        assert_type(task.state, weft.TaskState)
        assert_type(task.attempts, tuple[weft.Attempt, ...])
        assert_type(await client.why(handle.id), weft.Why)
        page = await client.list_tasks(state=["ready", weft.TaskState.RUNNING])
        assert_type(page, weft.Page)
        assert_type(await client.dead_letters(), weft.Page)
        assert_type(await client.queues(), list[weft.QueueInfo])
        assert_type(await client.workers(), list[weft.WorkerInfo])
        assert_type(await client.audit(), list[weft.AuditEntry])
        assert_type(await client.outbox(), list[weft.OutboxRow])
        assert_type(await client.replay_dead(), int)
        assert_type(await client.read_log(handle.id), bytes | None)
        await worker.run_until_idle()


async def of_definitions(client: weft.Client) -> None:
    try:
        await client.workflows.merge("etl/faster", into="etl")
    except weft.MergeConflict as problem:
        assert_type([conflict.node for conflict in problem.conflicts], list[str | None])
        assert_type(problem.conflicts[0].path, tuple[str | int, ...])
    except weft.InvalidDefinition as problem:
        assert_type([each.line for each in problem.problems], list[int | None])


async def what_is_wrong(client: weft.Client, ctx: weft.Context) -> None:
    """Each of these is an error of its kind, or the check finds that it needs no leave."""
    await send(3, ctx)  # type: ignore[arg-type]
    total()  # type: ignore[call-arg]
    await client.enqueue(send, {}, dealy=5)  # type: ignore[call-arg]
    await client.enqueue(total, {}, priority="high")  # type: ignore[arg-type]
    await client.wait("7")  # type: ignore[arg-type]
    weft.Retry(max_attempts="3")  # type: ignore[arg-type]
    _ = weft.Clinet  # type: ignore[attr-defined]
    (await client.get_task(1)).claimed_at.year  # type: ignore[union-attr]  # noqa: B018


if __name__ == "__main__":
    asyncio.run(main(weft.Context(task_id=1, attempt=1, handler="h", worker_id=1)))
