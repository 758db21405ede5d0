"""Python workflows are executed as any other, and do what plain Python would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from engine_scene import until

import weft
from weft.sdk.submitted import SubmittedJob
from weft.worker.registry import Registry

registry = Registry()


@registry.task(name="add")
async def add(a: int, b: int = 1) -> int:
    return a + b


@registry.task(name="double")
def double(x: int) -> int:
    return 2 * x


@registry.task(name="total")
def total(xs: list[int]) -> int:
    return sum(xs)


@registry.task(name="count")
async def count(n: int) -> list[int]:
    return list(range(n))


@registry.task(name="keep")
async def keep(value: Any) -> Any:
    return value


@registry.task(name="refuse")
async def refuse(value: Any) -> Any:
    raise weft.NonRetryable(f"not {value}")


@asynccontextmanager
async def at_work(client: weft.Client) -> AsyncIterator[None]:
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        yield


async def executed(client: weft.Client, workflow: Any, **inputs: Any) -> weft.Job:
    async with at_work(client):
        handle = await client.jobs.submit(workflow, inputs)
        return await client.jobs.wait(handle.id, timeout=30)


@weft.workflow
def pipeline(n: int) -> int:
    return total(double.map(count(n)))


@weft.workflow
def branching(n: int) -> Any:
    found = add(n)
    with weft.when(found > 10) as large:
        halved = keep(found // 2)
        marked = keep(f"large {halved}")
    with large.otherwise:
        small = keep([found, n])
    both = keep({"what": large.value(marked, small)})
    return [
        both.what,
        weft.when(n == 3, lambda: add(1, 2), lambda: weft.when(n == 30, lambda: keep("thirty"), "other")),
    ]


@weft.workflow
def grouped(n: int) -> Any:
    with weft.group("first") as first:
        a = add(n)
        with weft.group("inner"):
            b = add(a)
    c = keep([n])
    first >> c
    return [a, b, c]


@weft.workflow
def outer(n: int) -> Any:
    inner = pipeline(n)
    return {"inner": inner, "sums": add.starmap([[inner, 1], [n, 2]]), "empty": keep.map([])}


@weft.workflow
def nothing(n: int = 7) -> int:
    return n


LAWS: list[tuple[Any, int, Any]] = [
    (pipeline, 4, 12),
    (pipeline, 0, 0),
    (branching, 3, [[4, 3], 3]),
    (branching, 30, ["large 15", "thirty"]),
    (branching, 31, ["large 16", "other"]),
    (grouped, 1, [2, 3, [1]]),
    (outer, 3, {"inner": 6, "sums": [7, 5], "empty": []}),
    (nothing, 2, 2),
]


@pytest.mark.parametrize(("workflow", "n", "expected"), LAWS)
async def test_a_python_workflow_gives_what_plain_python_would(
    client: weft.Client, workflow: Any, n: int, expected: Any
) -> None:
    job = await executed(client, workflow, n=n)
    assert (job.state, job.result) == ("completed", expected)
    assert job.version_hash == workflow.version_hash


async def test_what_is_in_a_branch_that_is_not_taken_does_not_run(client: weft.Client) -> None:
    @weft.workflow
    def skips(n: int) -> Any:
        found = add(n)
        with weft.when(n > 10):
            only = keep.named("only")(found)
            keep.named("inside")(n)
        keep.named("after")(only)
        return found

    job = await executed(client, skips, n=1)
    states = {node.node: str(node.state) for node in await client.jobs.nodes(job.id)}
    assert (job.state, job.result) == ("completed", 2)
    assert {states[name] for name in ("only", "inside", "after")} == {"skipped"}
    job = await executed(client, skips, n=11)
    assert {str(node.state) for node in await client.jobs.nodes(job.id)} == {"completed"}


async def test_the_workflows_that_a_workflow_calls_are_those_of_the_process_whatever_their_tags_are_at(
    client: weft.Client,
) -> None:
    @weft.workflow(workflow_id="pipeline")
    def older(n: int) -> int:
        return n

    pushed = await client.workflows.push(older)
    job = await executed(client, outer, n=3)
    assert job.result["inner"] == 6
    assert (await client.workflows.tag("pipeline")).target_id == pushed.artifact_id
    assert (await executed(client, "pipeline", n=3)).result == 3


async def test_a_job_is_run_again_by_the_workflows_of_the_process(client: weft.Client) -> None:
    job = await executed(client, outer, n=3)
    again = await client.jobs.plan_rerun(job.id, on=outer)
    assert again.nodes("run") == ["END"]


@weft.workflow
def for_ever(n: int) -> int:
    first = pong(n)
    return total([first, ping(n)])


@weft.workflow
def ping(n: int) -> int:
    return pong(n)


@weft.workflow
def pong(n: int) -> int:
    return ping(add(n))


async def test_workflows_that_would_execute_each_other_for_ever_are_refused(client: weft.Client) -> None:
    with pytest.raises(weft.InvalidInput, match=r"(ping → pong → ping|pong → ping → pong): a workflow that is a part"):
        await client.jobs.submit(for_ever, {"n": 1})
    assert await client.jobs.list() == []


async def test_a_version_may_execute_an_older_one_of_the_same_name(client: weft.Client) -> None:
    @weft.workflow(workflow_id="twice")
    def older(n: int) -> int:
        return double(n)

    await client.workflows.push(older)
    newer = {
        "workflow_id": "twice",
        "nodes": {
            "START": {"type": "start", "next": "call"},
            "call": {"type": "workflow", "workflow": "twice", "inputs": {"n": 4}, "next": "END"},
            "END": {"type": "end", "output": "{{ nodes.call.output }}"},
        },
    }
    assert (await executed(client, newer)).result == 8


async def test_a_python_workflow_is_pushed_as_a_file_is(client: weft.Client) -> None:
    pushed = await client.workflows.push(pipeline)
    assert (pushed.tag, pushed.version_hash) == ("pipeline/main", pipeline.version_hash)
    again = await client.workflows.push(pipeline.to_yaml())
    assert again.version_hash == pushed.version_hash
    assert (await executed(client, "pipeline", n=3)).result == 6


async def test_what_cannot_be_compiled_is_refused_before_anything_is_written(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @weft.workflow
    def wrong(n: int) -> Any:
        return keep(n) if n > 3 else None

    with pytest.raises(weft.InvalidDefinition, match=r"weft\.when"):
        await client.jobs.submit(wrong, {"n": 1})
    with pytest.raises(weft.InvalidDefinition):
        await client.workflows.push(wrong)
    assert await conn.fetchval("select count(*) from weft.artifact") == 0


async def test_what_is_no_workflow_says_what_to_do_with_it(client: weft.Client) -> None:
    wrong: list[tuple[Any, str]] = [
        (add, "add is a task: enqueue it, or call it in"),
        (print, "give it @weft.workflow"),
    ]
    for what, told in wrong:
        with pytest.raises(weft.InvalidInput, match=told):
            await client.jobs.submit(what)


async def test_a_job_is_watched_by_its_changes_until_it_has_ended(client: weft.Client) -> None:
    handle = await client.jobs.submit(pipeline, {"n": 2})
    job = SubmittedJob(handle.id, settings=client.settings)
    async with at_work(client):
        async with asyncio.timeout(60):
            seen = [(node.node, str(node.state)) async for node in job.watch()]
        assert await job.result(timeout=60) == 2
    assert {name for name, _ in seen} == {"count", "double", "double_results", "total", "END"}
    assert ("END", "completed") in seen
    assert len(seen) == len(set(seen)) or any(name == "double" for name, _ in seen)


@pytest.mark.parametrize(("make", "node"), [(lambda n: refuse(n), "refuse"), (lambda n: refuse.map([n]), "refuse")])
async def test_a_failed_job_raises_with_the_node_and_its_error(
    client: weft.Client, make: Callable[[Any], Any], node: str
) -> None:
    @weft.workflow
    def fails(n: int) -> Any:
        return add(make(n))

    handle = await client.jobs.submit(fails, {"n": 5})
    async with at_work(client):
        with pytest.raises(weft.JobFailed, match="failed at 'refuse': NonRetryable: not 5") as told:
            await SubmittedJob(handle.id, settings=client.settings).result(timeout=30)
    assert (told.value.node, told.value.error["message"], told.value.state) == (node, "not 5", "failed")  # type: ignore[index]


async def test_a_cancelled_job_has_no_result(client: weft.Client) -> None:
    @weft.workflow
    def waits() -> Any:
        return weft.wait_for_approval("ask", form={"n": {"type": "integer"}})

    handle = await client.jobs.submit(waits)
    job = SubmittedJob(handle.id, settings=client.settings)
    async with at_work(client):
        await until(lambda: client.jobs.approvals(handle.id))
        await job.cancel()
        with pytest.raises(weft.JobFailed, match="cancelled") as told:
            await job.result(timeout=30)
    assert (told.value.node, told.value.state, (await job.show()).state) == (None, "cancelled", "cancelled")
    with pytest.raises(weft.StateConflict):
        await job.cancel()


async def test_an_answer_and_an_event_are_values_of_the_workflow(client: weft.Client) -> None:
    @weft.workflow
    def asks(day: str) -> Any:
        arrived = weft.wait_for_event("file.arrived", match={"day": day})
        asked = weft.wait_for_approval("ask", form={"n": {"type": "integer", "required": True}})
        arrived >> asked
        return add(asked["values"].n, arrived.size)

    async with at_work(client):
        handle = await client.jobs.submit(asks, {"day": "monday"})
        await client.jobs.send_event("file.arrived", {"day": "monday", "size": 5})
        await until(lambda: client.jobs.approvals(handle.id))
        await client.jobs.approve(handle.id, "ask", {"n": 4})
        assert (await client.jobs.wait(handle.id, timeout=30)).result == 9
