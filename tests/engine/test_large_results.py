"""Outputs of tasks of jobs, and results of jobs, that are too long for their rows."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from storages import Storage
from weft.db.blobs import open_blobs
from weft.queue.blobs import Collector
from weft.worker.registry import Registry

LIMITS = {"inline_limit": 1000, "value_limit": 50_000}
BIG = 3000


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.task(name="make", retry=0)
    async def make(size: int, letter: str = "x") -> dict[str, Any]:
        return {"text": letter * size, "items": [letter * size] * 2}

    @registry.task(name="measure", retry=0)
    async def measure(value: Any) -> int:
        return len(value)

    @registry.task(name="grow", retry=0)
    async def grow(letter: str) -> str:
        return letter * BIG

    return registry


@pytest.fixture
async def client(make_client: MakeClient, storage: Storage) -> weft.Client:
    return await make_client(**LIMITS, blob_url=storage.url)


async def executed(client: weft.Client, registry: Registry, output: Any, **nodes: Any) -> weft.Job:
    first = next(iter(nodes))
    definition = {
        "workflow_id": "large",
        "nodes": {"START": {"type": "start", "next": first}, **nodes, "END": {"type": "end", "output": output}},
    }
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        handle = await client.jobs.submit(definition)
        return await client.jobs.wait(handle.id, timeout=30)


async def inline_rows(conn: asyncpg.Connection[asyncpg.Record]) -> int:
    """Return how many values stand in rows though they are above the limit."""
    return int(
        await conn.fetchval(
            "select (select count(*) from weft.task_done where length(output::text) > 1000)"
            " + (select count(*) from weft.task_params where length(params::text) > 1000)"
            " + (select count(*) from weft.job_done where length(result::text) > 1000)"
        )
    )


async def test_an_expression_uses_an_output_and_the_job_gives_a_result_that_are_in_the_blob_storage(
    client: weft.Client, registry: Registry, storage: Storage, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    job = await executed(
        client, registry, "{{ nodes.make.output }}",
        make={"handler": "make", "params": {"size": BIG}, "next": "measure"},
        measure={"handler": "measure", "params": {"value": "{{ nodes.make.output.text }}"}, "next": "END"},
    )  # fmt: skip
    assert (job.state, job.result) == ("completed", {"text": "x" * BIG, "items": ["x" * BIG] * 2})
    outputs = {node.node: (await client.get_task(node.id)).output for node in await client.jobs.nodes(job.id)}
    assert outputs["measure"] == BIG
    assert len(storage.digests()) == 1, "the output and the result are the same bytes"
    assert await inline_rows(conn) == 0
    used = await conn.fetch("select user_id from weft.blob_use where used_by = 'task'")
    assert {row[0] for row in used} == {node.id for node in await client.jobs.nodes(job.id) if node.node != "measure"}


async def test_a_branch_goes_by_a_large_output(client: weft.Client, registry: Registry) -> None:
    job = await executed(
        client, registry, {"a": "{{ nodes.a.output }}", "b": "{{ nodes.b.output }}"},
        make={"handler": "make", "params": {"size": BIG}, "next": "route"},
        route={
            "type": "conditional", "condition_field": "{{ nodes.make.output.text | length }}",
            "branches": [{"condition": "< 100", "next": "a"}, {"default": True, "next": "b"}],
        },
        a={"handler": "measure", "params": {"value": "a"}, "next": "END"},
        b={"handler": "measure", "params": {"value": "bb"}, "next": "END"},
    )  # fmt: skip
    assert job.result == {"a": None, "b": 2}


async def test_a_fan_out_of_a_large_output_and_a_fan_in_of_large_outputs(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Each item is above the limit too, and so are the params that are made of it."""
    job = await executed(
        client, registry, "{{ nodes.all.output.results }}",
        make={"handler": "make", "params": {"size": BIG}, "next": "each"},
        each={
            "type": "fan_out", "items": "{{ nodes.make.output['items'] }}",
            "task": {"handler": "make", "params": {"letter": "{{ item }}", "size": 2}}, "next": "all",
        },
        all={"type": "fan_in", "next": "END"},
    )  # fmt: skip
    assert job.result == [{"text": "x" * 2 * BIG, "items": ["x" * 2 * BIG] * 2}] * 2
    assert await inline_rows(conn) == 0
    children = await conn.fetch("select id from weft.task_done where parent_id is not null")
    held = {row[0] for row in await conn.fetch("select user_id from weft.blob_use")}
    assert {row[0] for row in children} <= held
    await Collector(client.database, open_blobs(client.settings)).run_once()
    params = [(await client.get_task(row[0])).params for row in children]
    assert params == [{"letter": "x" * BIG, "size": 2}] * 2


async def test_a_fan_in_of_a_fan_in_has_both_small_and_large_outputs(client: weft.Client, registry: Registry) -> None:
    reference = {"$blob": "0" * 64, "size": 1}

    @registry.task(name="quote", retry=0)
    async def quote() -> dict[str, Any]:
        return {"results": [reference], "quoted": {"$gathered": [reference]}}

    job = await executed(
        client, registry,
        ["{{ nodes.inner.output.results }}", "{{ nodes.quote.output }}", "{{ nodes.join.output.results }}"],
        each={
            "type": "fan_out", "items": ["a", "b"], "task": {"handler": "grow", "params": {"letter": "{{ item }}"}},
            "next": "inner",
        },
        inner={"type": "fan_in", "next": ["quote", "join"]},
        quote={"handler": "quote", "next": "join"},
        join={"type": "fan_in", "next": "END"},
    )  # fmt: skip
    grown = ["a" * BIG, "b" * BIG]
    quoted = {"results": [reference], "quoted": {"$gathered": [reference]}}
    assert job.result[0] == grown
    assert job.result[1] == quoted, "what only looks like a reference is left as it is"
    assert sorted(job.result[2], key=len) == sorted([{"results": grown}, quoted], key=len)


async def test_a_fan_in_of_more_than_a_value_may_have_is_told(client: weft.Client, registry: Registry) -> None:
    job = await executed(
        client, registry, "{{ nodes.all.output.results | length }}",
        each={
            "type": "fan_out", "items": list("abcdefghijklmnopqrst"),
            "task": {"handler": "grow", "params": {"letter": "{{ item }}"}}, "next": "all",
        },
        all={"type": "fan_in", "next": "END"},
    )  # fmt: skip
    assert job.state == "failed"
    assert job.error is not None
    assert "nodes.all.output: has 60040 bytes in all, and values may have 50000" in job.error["message"]


async def test_the_large_result_of_another_workflow_is_the_output_of_its_node(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.workflows.push(
        {
            "workflow_id": "inner",
            "nodes": {
                "START": {"type": "start", "next": "grow"},
                "grow": {"handler": "grow", "params": {"letter": "y"}, "next": "END"},
                "END": {"type": "end", "output": "{{ nodes.grow.output }}"},
            },
        }
    )
    job = await executed(
        client,
        registry,
        "{{ nodes.sub.output | length }}",
        sub={"type": "workflow", "workflow": "inner", "next": "END"},
    )
    assert job.result == BIG
    (sub,) = [node.id for node in await client.jobs.nodes(job.id) if node.node == "sub"]
    assert (await client.get_task(sub)).output == "y" * BIG
    assert sub in {row[0] for row in await conn.fetch("select user_id from weft.blob_use")}
    assert await inline_rows(conn) == 0


async def test_a_result_that_is_lost_is_told_and_the_job_is_shown_all_the_same(
    client: weft.Client, registry: Registry, storage: Storage
) -> None:
    job = await executed(
        client, registry, "{{ nodes.grow.output }}",
        grow={"handler": "grow", "params": {"letter": "z"}, "next": "END"},
    )  # fmt: skip
    for digest in storage.digests():
        storage.delete(digest)
    shown = await client.jobs.show(job.id)
    assert (shown.state, shown.result) == ("completed", None)
    assert "is missing" in str(shown.unavailable["result"])
    with pytest.raises(weft.BlobUnavailable):
        await client.jobs.wait(job.id, timeout=60)


async def test_inputs_that_are_too_large_are_refused_and_large_ones_are_taken(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    client = await make_client(**LIMITS)
    definition = {
        "workflow_id": "fed",
        "inputs": {"text": {"type": "string", "required": True}},
        "nodes": {
            "START": {"type": "start", "next": "measure"},
            "measure": {"handler": "measure", "params": {"value": "{{ inputs.text }}"}, "next": "END"},
            "END": {"type": "end", "output": "{{ nodes.measure.output }}"},
        },
    }
    with pytest.raises(weft.InvalidInput, match="has 60011 bytes, and may have 50000") as told:
        await client.jobs.submit(definition, {"text": "x" * 60_000})
    assert told.value.field == "inputs"
    assert await conn.fetchval("select count(*) from weft.job") == 0
    handle = await client.jobs.submit(definition, {"text": "x" * 40_000})
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        assert (await client.jobs.wait(handle.id, timeout=30)).result == 40_000


@pytest.mark.parametrize("key", ["$blob", "$gathered", "$cached"])
async def test_a_key_that_is_reserved_is_refused_in_an_output(
    make_client: MakeClient, registry: Registry, key: str
) -> None:
    client = await make_client()

    @registry.task(name="odd", retry=0)
    async def odd() -> dict[str, Any]:
        return {key: []}

    handle = await client.enqueue("odd")
    async with weft.Worker(client=client, registry=registry):
        with pytest.raises(weft.TaskFailed, match="is reserved for"):
            await client.wait(handle.id, timeout=30)
