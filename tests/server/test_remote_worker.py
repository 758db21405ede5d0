"""A worker through a server: whatever one with a database can do, it can."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import far_handlers
import pytest

import weft
from weft.orchestration import Group, Task
from weft.server.serving import Server
from weft.worker.registry import Registry

MakeRemote = Callable[..., Awaitable[weft.RemoteClient]]
Working = Callable[..., Any]


@pytest.fixture
def server(walled_server: Server) -> Server:
    """The one that is held to the org that it acts for: a worker needs nothing beyond that."""
    return walled_server


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def working(make_remote: MakeRemote, registry: Registry) -> Working:
    """Runs a worker that knows nothing but the server's address and a token."""

    @asynccontextmanager
    async def run(**more: Any) -> AsyncIterator[weft.Worker]:
        remote = await make_remote(role="worker")
        async with weft.Worker(client=remote, registry=registry, **more) as worker:
            yield worker

    return run


async def test_tasks_run_and_their_outputs_logs_and_failures_are_kept(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    @registry.task(name="add")
    async def add(a: int, b: int, ctx: weft.Context) -> int:
        print(f"adds {a} and {b}")
        ctx.logger.info("attempt %s", ctx.attempt)
        return a + b

    @registry.task(name="sync")
    def sync(text: str) -> str:
        return text.upper()

    @registry.task(name="bad", retry=weft.Retry(max_attempts=2, backoff="fixed", initial_delay=0))
    async def bad() -> None:
        raise ValueError("no good")

    @registry.task(name="late")
    async def late(ctx: weft.Context) -> str:
        if ctx.attempt == 1:
            raise weft.Snooze(0)
        return "in the end"

    made = [
        await client.enqueue("add", {"a": 1, "b": 2}),
        await client.enqueue("sync", {"text": "x"}),
        await client.enqueue("late"),
    ]
    failing = await client.enqueue("bad")
    async with working() as worker:
        assert [await client.wait(each.id, 30) for each in made] == [3, "X", "in the end"]
        with pytest.raises(weft.TaskFailed, match="no good"):
            await client.wait(failing.id, 30)
        assert [each.hostname for each in await client.workers() if each.id == worker.process.id] != [""]
    found = await client.get_task(failing.id)
    assert (found.state, len(found.attempts)) == ("dead", 2)
    assert b"adds 1 and 2" in (await client.read_log(made[0].id) or b"")
    assert {each.state for each in await client.workers()} == {"stopped"}


async def test_a_function_beside_the_handlers_of_a_module_runs_when_a_task_names_it(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    registry.task(name=far_handlers.complete.name)(far_handlers.complete.function)
    registry.admit([far_handlers.__name__])
    assert "far_handlers.double" in registry.code_versions().keys() - registry.names()
    async with working():
        assert await client.wait((await client.enqueue("far_handlers.double", {"n": 2})).id, 30) == 4


async def test_a_flood_is_batched_and_each_task_runs_once(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    seen: list[int] = []

    @registry.task(name="note")
    async def note(n: int) -> int:
        seen.append(n)
        return n

    made = await client.enqueue_many([weft.NewTask("note", {"n": n}) for n in range(500)])
    async with working(concurrency=100) as worker:
        assert [await client.wait(each.id, 60) for each in made] == list(range(500))
    assert worker.process.completed == 500
    assert sorted(seen) == list(range(500))


async def test_steps_checkpoints_and_metrics_outlast_an_attempt(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    calls: list[str] = []

    @registry.task(name="order", retry=weft.Retry(max_attempts=3, backoff="fixed", initial_delay=0))
    async def order(ctx: weft.Context) -> Any:
        def charge() -> dict[str, int]:
            calls.append("charge")
            return {"id": 7}

        charged = await ctx.step("charge", charge)
        found = await ctx.checkpoint.load("copy")
        if found is None:
            await ctx.checkpoint.save("copy", {"blocks": 3})
            await ctx.save_metrics({"rows": 1})
            raise RuntimeError("once more")
        return [charged, found.data, found.attempt]

    made = await client.enqueue("order")
    async with working():
        assert await client.wait(made.id, 30) == [{"id": 7}, {"blocks": 3}, 1]
    assert calls == ["charge"]
    assert (await client.get_task(made.id)).attempts[0].metrics == {"rows": 1}


async def test_a_job_is_rendered_spawns_gathers_and_reuses_outputs(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    runs: list[int] = []

    @registry.task(name="parent")
    async def parent(top: int, ctx: weft.Context) -> Any:
        parts = [await ctx.spawn("child", {"n": n}, key=str(n)) for n in range(top)]
        return await ctx.gather(*parts)

    @registry.task(name="child", cache=True)
    async def child(n: int) -> list[Any]:
        runs.append(n)
        return [n * n, "x" * (client.settings.inline_limit if n == 2 else 0)]

    @registry.task(name="total")
    async def total(parts: list[Any]) -> int:
        return sum(part[0] for part in parts)

    nodes = {
        "START": {"type": "start", "next": "spread"},
        "spread": {"type": "task", "handler": "parent", "params": {"top": "{{ inputs.top }}"}, "next": "add"},
        "add": {"type": "task", "handler": "total", "params": {"parts": "{{ nodes.spread.output }}"}, "next": "END"},
        "END": {"type": "end"},
    }
    definition = {"workflow_id": "w", "inputs": {"top": {"type": "integer"}}, "nodes": nodes}
    async with weft.Orchestrator(client=client), working(concurrency=2):
        for _ in range(2):
            job = await client.jobs.submit(definition, {"top": 3})
            assert (await client.jobs.wait(job.id, 60)).state == "completed"
            assert await client.jobs.nodes(job.id)
    assert sorted(runs) == [0, 1, 2], "the second job took what the first had made"


async def test_large_values_and_blobs_need_no_storage(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    large = "x" * (client.settings.inline_limit + 1)

    @registry.task(name="echo")
    async def echo(text: str) -> str:
        return text

    made = await client.enqueue("echo", {"text": large})
    async with working():
        assert await client.wait(made.id, 30) == large


async def test_a_cancelled_task_is_told_and_one_that_times_out_fails(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @registry.task(name="hang")
    async def hang() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    @registry.task(name="slow", timeout=0.05, retry=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    made, timed = await client.enqueue("hang"), await client.enqueue("slow")
    async with working(concurrency=2):
        await began.wait()
        await client.cancel(made.id)
        await asyncio.wait_for(ended.wait(), 60)
        with pytest.raises(weft.TaskFailed, match="timeout"):
            await client.wait(timed.id, 30)
    assert (await client.get_task(made.id)).state == "cancelled"


async def test_a_lost_lease_ends_the_attempt_and_the_worker_registers_anew(
    client: weft.Client, working: Working, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    began: asyncio.Queue[int] = asyncio.Queue()
    go = asyncio.Event()

    @registry.task(name="long")
    async def long(ctx: weft.Context) -> int:
        began.put_nowait(ctx.worker_id)
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        await go.wait()
        return ctx.attempt

    made = await client.enqueue("long")
    async with working() as worker:
        first = await began.get()
        await conn.execute("update weft.worker set state = 'lost' where id = $1", first)
        again = await asyncio.wait_for(began.get(), 60)
        go.set()
        assert await client.wait(made.id, 30) == 2
        assert (worker.process.id, again != first) == (again, True)


async def test_a_worker_that_stops_gives_back_what_runs(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    began = asyncio.Event()

    @registry.task(name="hang")
    async def hang() -> None:
        began.set()
        await asyncio.sleep(60)

    made = await client.enqueue("hang")
    async with working() as worker:
        await began.wait()
        await worker.stop(timedelta(0))
    found = await client.get_task(made.id)
    assert (found.state, found.failures) == ("ready", 0)


async def test_the_server_may_go_and_come_back_amid_the_work(
    settings: weft.Settings, client: weft.Client, registry: Registry
) -> None:
    """What is completed while the server is away is told when it is back, and counts once."""
    go, began = asyncio.Event(), asyncio.Event()

    @registry.task(name="wait")
    async def wait(ctx: weft.Context) -> int:
        began.set()
        await go.wait()
        await ctx.step("after", lambda: 1)
        return ctx.attempt

    token = (await client.tokens.create("w", role="worker")).secret
    server = await Server(settings, port=0).__aenter__()
    port = int(server.url.rpartition(":")[2])
    remote = weft.RemoteClient(server.url, token, settings=weft.Settings.load(environ={}))
    made = await client.enqueue("wait")
    async with remote, weft.Worker(client=remote, registry=registry):
        await began.wait()
        await server.__aexit__(None, None, None)
        go.set()
        async with Server(settings, port=port):
            assert await client.wait(made.id, 60) == 1
            next_one = await client.enqueue("wait")
            assert await client.wait(next_one.id, 60) == 1


async def test_outputs_and_steps_larger_than_a_request_are_sent_apart(
    settings: weft.Settings, client: weft.Client, registry: Registry
) -> None:
    """A server that takes little at once."""
    token = (await client.tokens.create("w", role="worker")).secret

    @registry.task(name="long")
    async def long(ctx: weft.Context) -> str:
        await ctx.step("text", lambda: "y" * 30_000)
        return "x" * 15_000

    made = await client.enqueue_many([weft.NewTask("long") for _ in range(20)])
    small = dataclasses.replace(settings, server_body_limit=100_000)
    async with Server(small, port=0) as server:
        remote = weft.RemoteClient(server.url, token, settings=weft.Settings.load(environ={}))
        async with remote, weft.Worker(client=remote, registry=registry, concurrency=20) as worker:
            assert {len(await client.wait(each.id, 60)) for each in made} == {15_000}
    assert worker.process.completed == 20
    assert (await client.get_task(made[0].id)).steps[0].bytes == 30_002


async def test_a_task_adds_to_its_job_once_over_its_attempts(
    client: weft.Client, server: Server, working: Working, registry: Registry
) -> None:
    """Tasks, groups, and what waits for what; the token of the client matters not, but the worker's."""
    seen: list[str] = []
    token = (await client.tokens.create("other", role="reader")).secret

    @registry.task(name="grow", retry=weft.Retry(max_attempts=3, backoff="fixed", initial_delay=0))
    async def grow(ctx: weft.Context) -> Any:
        group = Group("parts")
        parts = [Task("note", {"text": f"part {n}"}, group=group, timeout=30) for n in range(2)]
        last = Task("note", {"text": "last"}, name="last", retry=weft.Retry(max_attempts=2)).depends_on(group)
        assert ctx.job_id is not None
        async with weft.RemoteClient(server.url, token, settings=weft.Settings.load(environ={})) as remote:
            await remote.jobs.add(ctx.job_id, last)
            await remote.jobs.add(ctx.job_id, Task("note", {"text": "after"}).depends_on(last))
        if ctx.attempt < 3:
            raise RuntimeError("once more")
        return [str(item.id) for item in (*parts, group, last)]

    @registry.task(name="note")
    async def note(text: str) -> None:
        seen.append(text)

    async with working(concurrency=2), weft.Orchestrator(client=client):
        job = await client.jobs.submit_graph("w", Task("grow", name="grow"))
        assert (await client.jobs.wait(job.id, 60)).state == "completed"
    assert (sorted(seen[:2]), seen[2:]) == (["part 0", "part 1"], ["last", "after"])
    nodes = {node.node: node for node in await client.jobs.nodes(job.id)}
    assert nodes["last"].state == "completed"


async def test_what_needs_the_database_fails_at_once_and_says_what_to_do(
    client: weft.Client, working: Working, registry: Registry
) -> None:
    @registry.task(name="pool")
    async def pool(ctx: weft.Context) -> None:
        async with ctx.pool.connection():
            pass

    @registry.task(name="complete")
    async def complete(ctx: weft.Context) -> None:
        await ctx.complete_in(object(), {"ok": True})

    registry.task(name=far_handlers.complete.name, executor="process")(far_handlers.complete.function)
    advice = {
        "pool": "connect to your own database", "complete": "return the output", "far:complete": "return the output"
    }  # fmt: skip
    made = {name: await client.enqueue(name) for name in advice}
    async with working():
        for name, said in advice.items():
            with pytest.raises(weft.TaskFailed, match=said):
                await client.wait(made[name].id, 30)
            assert [each.outcome for each in (await client.get_task(made[name].id)).attempts] == ["failed"]
