"""Graphs that are very deep, or very wide: nothing recurses, and large ones are written at once."""

from __future__ import annotations

from itertools import pairwise

import asyncpg
import pytest

import weft
from weft.jobs.adding import Addition
from weft.jobs.adhoc import document_of_graph, laid_out
from weft.jobs.items import Group, Known, Task
from weft.worker.registry import Registry

REGISTRY = Registry()


@REGISTRY.task(name="pass")
async def nothing() -> None: ...


def _chain(length: int) -> list[Task]:
    tasks = [Task("pass") for _ in range(length)]
    for before, after in pairwise(tasks):
        before >> after
    return tasks


def _nest(depth: int) -> tuple[Group, Group]:
    """Return the outermost and the innermost of groups in each other."""
    outermost = innermost = Group("g")
    for _ in range(depth - 1):
        innermost = Group("g", group=innermost)
    return outermost, innermost


def test_a_chain_of_100_000_tasks_is_laid_out() -> None:
    addition = Addition.of(_chain(100_000)[-1:])
    addition.ids = list(range(addition.room))
    layout = laid_out(addition, -1)
    assert (layout.new, len(layout.sources)) == (100_000, 100_000)


def test_a_nest_of_10_000_groups_is_laid_out() -> None:
    outermost, innermost = _nest(10_000)
    task = Task("pass", group=innermost)
    outermost.depends_on(Task("pass"))
    addition = Addition.of([task])
    addition.ids = list(range(addition.room))
    layout = laid_out(addition, -1)
    assert (layout.new, len(layout.gates)) == (20_002, 10_000)
    assert document_of_graph("deep", addition) is None


def test_a_circle_of_100_000_tasks_is_told() -> None:
    tasks = _chain(100_000)
    tasks[-1] >> tasks[0]
    addition = Addition.of(tasks)
    addition.ids = list(range(addition.room))
    with pytest.raises(weft.InvalidInput, match="circle"):
        laid_out(addition, -1)


async def _run(client: weft.Client, *items: Task | Group, timeout: float) -> weft.Job:
    async with weft.Worker(client=client, registry=REGISTRY, concurrency=20), weft.Orchestrator(client=client):
        job = await client.jobs.submit_graph("deep", items)
        return await client.jobs.wait(job.id, timeout=timeout)


@pytest.mark.timeout(900)
async def test_a_long_chain_runs(client: weft.Client, campaign: str) -> None:
    tasks = _chain(100_000 if campaign == "long" else 300)
    assert (await _run(client, *tasks, timeout=800)).state == "completed"


@pytest.mark.timeout(900)
async def test_a_deep_nest_opens_and_closes(client: weft.Client, campaign: str) -> None:
    outermost, innermost = _nest(1000 if campaign == "long" else 100)
    Task("pass", group=innermost)
    outermost.depends_on(Task("pass"))
    after = Task("pass").depends_on(outermost)
    assert (await _run(client, after, timeout=800)).state == "completed"


@pytest.mark.timeout(900)
async def test_a_circle_over_a_long_chain_that_is_there_is_refused(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    tasks = _chain(100_000 if campaign == "long" else 3000)
    job = await client.jobs.submit_graph("deep", tasks)
    assert tasks[0].id is not None
    with pytest.raises(weft.InvalidInput, match="circle"):
        await client.jobs.add(job.id, Known(tasks[0].id).depends_on(tasks[-1]))
    await client.jobs.add(job.id, Task("pass", name="last").depends_on(tasks[-1]))
    assert await conn.fetchval("select count(*) from weft.task where node = 'last'") == 1


async def test_a_wide_group_leads_to_a_wide_group_over_one_edge(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    one, two = Group("one"), Group("two")
    for _ in range(60):
        Task("pass", group=one)
        Task("pass", group=two)
    one >> two
    addition = Addition.of([two])
    document = document_of_graph("wide", addition)
    assert document is not None
    assert document["groups"]["one"]["next"] == ["one-done"]
    assert document["nodes"]["one-done"] == {"type": "fan_in", "next": ["two"]}
    await client.jobs.submit_graph("wide", two)
    # As many to each close, from the gate, from one group to the other, and to the end.
    assert await conn.fetchval("select count(*) from weft.edge") == 182
