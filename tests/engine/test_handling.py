"""Handlers that are given a context and return a result."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import asyncpg
import process_handlers
import pytest
from engine_scene import MakeClient

import weft
from weft import handlers
from weft.worker.registry import Registry

SOON = weft.Retry(3, initial_delay=0)


async def finished(client: weft.Client, registry: Registry | None, name: str, params: dict[str, Any]) -> weft.Task:
    handle = await client.enqueue(name, params)
    chosen = {} if registry is None else {"registry": registry}
    async with weft.Worker(client=client, **chosen):  # type: ignore[arg-type]
        with contextlib.suppress(weft.TaskFailed):
            await client.wait(handle.id, timeout=30)
    return await client.get_task(handle.id)


async def test_a_handler_is_given_its_params_whatever_they_are_called(client: weft.Client, registry: Registry) -> None:
    seen: list[weft.HandlerContext] = []

    @weft.register_handler("read", registry=registry, timeout_seconds=60)
    async def read(ctx: weft.HandlerContext) -> weft.HandlerResult:
        seen.append(ctx)
        return weft.HandlerResult(success=True, output={"size": len(ctx.params)})

    params = {"ctx": 1, "params": 2, "self": 3, "context": {"deep": [None]}}
    task = await finished(client, registry, "read", params)
    assert (task.state, task.output) == ("completed", {"size": 4})
    (ctx,) = seen
    assert (ctx.task_id, ctx.job_id, ctx.node_id, ctx.params) == (str(task.id), None, None, params)
    assert ctx.logger.name == "weft.task.read"
    known = registry.get("read")
    assert known is not None
    assert known.timeout is not None


async def test_a_handler_of_a_job_is_told_its_job_and_node(client: weft.Client, registry: Registry) -> None:
    @weft.register_handler("tell", registry=registry)
    async def tell(ctx: weft.HandlerContext) -> weft.HandlerResult:
        return weft.HandlerResult(success=True, output={"job": ctx.job_id, "node": ctx.node_id})

    definition = {
        "workflow_id": "telling",
        "nodes": {
            "START": {"type": "start", "next": "here"},
            "here": {"handler": "tell", "next": "END"},
            "END": {"type": "end", "output": "{{ nodes.here.output }}"},
        },
    }
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        handle = await client.jobs.submit(definition)
        job = await client.jobs.wait(handle.id, timeout=30)
    assert job.result == {"job": str(job.id), "node": "here"}


async def test_no_success_is_a_failed_attempt_and_metrics_are_kept_of_each(
    client: weft.Client, registry: Registry
) -> None:
    @weft.register_handler("measure", registry=registry, retry=SOON)
    async def measure(ctx: weft.HandlerContext) -> weft.HandlerResult:
        metrics = {"rows": ctx.attempt * 10}
        if ctx.attempt < 3:
            return weft.HandlerResult(success=False, error_message=f"too few: {metrics['rows']}", metrics=metrics)
        return weft.HandlerResult(success=True, output={"ok": True}, metrics=metrics)

    task = await finished(client, registry, "measure", {})
    assert (task.state, task.output, task.metrics) == ("completed", {"ok": True}, {"rows": 30})
    assert [(attempt.outcome, attempt.metrics) for attempt in task.attempts] == [
        ("failed", {"rows": 10}),
        ("failed", {"rows": 20}),
    ]
    assert [attempt.error and attempt.error["message"] for attempt in task.attempts] == ["too few: 10", "too few: 20"]
    assert task.steps == ()


@pytest.mark.parametrize("way", ["none", "silent", "metrics"])
async def test_a_result_that_is_none_is_told(client: weft.Client, registry: Registry, way: str) -> None:
    @weft.register_handler("odd", registry=registry, retry=0)
    async def odd(ctx: weft.HandlerContext) -> Any:
        match way:
            case "none":
                return {"ok": True}
            case "silent":
                return weft.HandlerResult(success=False)
            case _:
                return weft.HandlerResult(success=True, metrics={"at": object()})

    task = await finished(client, registry, "odd", {})
    told = {
        "none": "odd must return a weft.HandlerResult, not dict",
        "silent": "success=False",
        "metrics": "metrics.at: is of type object",
    }
    assert task.state in ("dead", "failed")
    assert task.error is not None
    assert told[way] in task.error["message"]


async def test_a_sync_handler_runs_in_a_thread_and_its_verbs_block(client: weft.Client, registry: Registry) -> None:
    @weft.register_handler("sync", registry=registry, retry=SOON)
    def sync(ctx: weft.HandlerContext) -> weft.HandlerResult:
        assert ctx.pool is None
        assert ctx.blob_repository is not None
        digest = ctx.step("put", ctx.blob_repository.put, b"data")
        if ctx.attempt == 1:
            return weft.HandlerResult(success=False, error_message="again")
        name = threading.current_thread().name
        return weft.HandlerResult(
            success=True, output={"thread": name, "data": ctx.blob_repository.get(digest).decode()}, metrics={"n": 1}
        )

    task = await finished(client, registry, "sync", {})
    assert (task.output, task.metrics) == ({"thread": f"weft-task-{task.id}", "data": "data"}, {"n": 1})


async def test_a_handler_in_a_process_has_the_same_verbs(client: weft.Client) -> None:
    task = await finished(client, None, "process:of params", {})
    assert (task.output, task.metrics) == ({"found": b"\x00kept".hex(), "has_pool": False}, {"attempt": 2})
    assert [attempt.metrics for attempt in task.attempts] == [{"attempt": 1}]
    assert process_handlers.of_params.__name__ == "of_params", "the function stays as it is"


async def test_a_pool_and_a_blob_repository_are_there_when_asked_for(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client(value_limit=1000)

    @weft.register_handler("ask", registry=registry, retry=0)
    async def ask(ctx: weft.HandlerContext) -> weft.HandlerResult:
        assert ctx.pool is not None
        assert ctx.blob_repository is not None
        async with ctx.pool.connection() as own:
            one = await own.fetchval("select 1")
        digest = await ctx.blob_repository.put(b"x" * ctx.params["size"])
        data = await ctx.blob_repository.get(digest)
        return weft.HandlerResult(success=True, output={"one": one, "size": len(data), "digest": digest})

    task = await finished(client, registry, "ask", {"size": 1000})
    assert (task.output["one"], task.output["size"]) == (1, 1000)
    used = "select user_id from weft.blob_use where digest = $1"
    assert await conn.fetchval(used, task.output["digest"]) == task.id
    task = await finished(client, registry, "ask", {"size": 1001})
    assert task.error is not None
    assert "data: has 1001 bytes, and may have 1000" in task.error["message"]


async def test_a_handler_is_tested_without_a_worker() -> None:
    ctx = weft.HandlerContext(task_id="1", job_id="2", node_id="n", params={"phases": 2})
    result = await handlers.multi_phase(ctx)
    assert (result.success, result.output) == (True, {"phases": 2, "resumed_after": 0})


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "echo": ({"a": [1]}, {"a": [1]}),
    "hello_world": ({"name": "Ada"}, {"message": "Hello, Ada!"}),
    "sleep": ({"seconds": 0}, {"slept_seconds": 0}),
    "fail": ({"times": 1}, {"attempt": 2}),
    "multi_phase": ({"phases": 3, "fail_after": 2}, {"phases": 3, "resumed_after": 2}),
    "size_check": ({"size_mb": 150}, {"size_mb": 150, "threshold_mb": 100, "is_large": True}),
    "chunk_processor": ({"chunk": [1, 2.5, "x"], "chunk_index": 4}, {"chunk_index": 4, "count": 3, "sum": 3.5}),
}


async def test_the_handlers_to_try_things_with(client: weft.Client) -> None:
    ids = {name: (await client.enqueue(name, params, retry=SOON)).id for name, (params, _) in CASES.items()}
    bad = await client.enqueue("sleep", {"seconds": "long"})
    always = await client.enqueue("fail", {"message": "as asked"}, max_attempts=1)
    async with weft.Worker(client=client):
        for name, (_, output) in CASES.items():
            assert await client.wait(ids[name], timeout=30) == output, name
        with pytest.raises(weft.TaskFailed, match=r"params\.seconds: must be a number"):
            await client.wait(bad.id, timeout=30)
        with pytest.raises(weft.TaskFailed, match="as asked"):
            await client.wait(always.id, timeout=30)
    assert (await client.get_task(ids["multi_phase"])).metrics == {"ran": 1}
