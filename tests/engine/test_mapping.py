"""A task maps a handler over a list: a task for each chunk, the same ones in every attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import weft
from weft.orchestration import map as map_chunks
from weft.worker.registry import Registry

registry = Registry()
seen: list[tuple[list[int], int]] = []


@registry.task(name="mapping.scale")
async def scale(chunk: list[int], factor: int = 1) -> list[int]:
    seen.append((chunk, factor))
    return [factor * each for each in chunk]


@registry.task(name="mapping.total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@registry.task(name="mapping.awaits", retry=weft.Retry(max_attempts=2, initial_delay=0))
async def awaits(count: int, chunk_size: int, fails: bool, ctx: weft.Context) -> Any:
    found = await map_chunks(scale, list(range(count)), chunk_size=chunk_size, factor=10)
    if fails and ctx.attempt == 1:
        raise ConnectionError
    return found


@registry.task(name="mapping.blocks")
def blocks(count: int) -> Any:
    return map_chunks(total, list(range(count)), chunk_size=3)


@weft.workflow
async def awaiting(count: int, chunk_size: int = 4, fails: bool = False) -> Any:
    return await awaits(count, chunk_size, fails)  # type: ignore[call-arg]


@weft.workflow
def blocking(count: int) -> Any:
    return blocks(count)


@asynccontextmanager
async def at_work(client: weft.Client) -> AsyncIterator[None]:
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        yield


async def result(client: weft.Client, workflow: Any, **inputs: Any) -> Any:
    seen.clear()
    async with at_work(client):
        handle = await client.jobs.submit(workflow, inputs)
        job = await client.jobs.wait(handle.id, timeout=30)
    assert job.state == "completed", job.error
    return job.result


async def test_what_comes_of_the_chunks_is_joined_in_order(client: weft.Client) -> None:
    assert await result(client, awaiting, count=10) == [10 * n for n in range(10)]
    assert sorted(seen) == [([0, 1, 2, 3], 10), ([4, 5, 6, 7], 10), ([8, 9], 10)]
    assert await result(client, awaiting, count=0) == []


async def test_a_handler_in_a_thread_blocks_and_values_that_are_no_lists_are_kept(client: weft.Client) -> None:
    assert await result(client, blocking, count=7) == [3, 12, 6]


async def test_a_later_attempt_gets_the_tasks_of_the_one_before(client: weft.Client) -> None:
    assert await result(client, awaiting, count=5, chunk_size=2, fails=True) == [0, 10, 20, 30, 40]
    assert len(seen) == 3


async def test_outside_of_a_task_and_with_what_is_no_list_it_says_so(client: weft.Client) -> None:
    with pytest.raises(weft.InvalidInput, match=r"in a @weft\.workflow use task\.map"):
        map_chunks(scale, [1])
    async with at_work(client):
        for inputs, message in (({"count": 3, "chunk_size": 0}, "chunk_size"),):
            handle = await client.jobs.submit(awaiting, inputs)
            job = await client.jobs.wait(handle.id, timeout=30)
            assert job.error is not None
            assert message in job.error["message"]
