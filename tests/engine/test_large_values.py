"""Params and outputs that are too long for their rows, and those that are too long altogether."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import asyncpg
import process_handlers
import pytest
from engine_scene import MakeClient

import weft
from weft.core.errors import BlobUnavailable
from weft.worker.registry import Registry

LIMITS = {"inline_limit": 1000, "value_limit": 5000}


@pytest.fixture
def echo(registry: Registry) -> None:
    @registry.task(name="echo")
    async def echo(text: str) -> str:
        return text


def _blobs(home: Path) -> list[Path]:
    return [path for path in (home / "blobs").glob("??/*") if path.is_file()]


async def test_params_beyond_256_bytes_are_kept_beside_the_row(
    client: weft.Client, registry: Registry, echo: None, conn: asyncpg.Connection[asyncpg.Record], home: Path
) -> None:
    for length in (10, 200, 245, 246, 247, 300, 100_000):
        text = "x" * length
        handles = [
            await client.enqueue("echo", {"text": text}),
            *(await client.enqueue_many([weft.NewTask("echo", {"text": text})])),
        ]
        for handle in handles:
            assert (await client.get_task(handle.id)).params == {"text": text}
            beside = await conn.fetchval("select count(*) from weft.task_params where id = $1", handle.id)
            inline = await conn.fetchval("select params is not null from weft.task where id = $1", handle.id)
            assert (beside == 1) == (not inline) == (length + len('{"text":""}') > 256)
        await weft.Worker(client=client, registry=registry).run_until_idle()
        for handle in handles:
            assert await client.wait(handle.id) == text
            assert (await client.get_task(handle.id)).params == {"text": text}
    assert _blobs(home) == []


async def test_long_params_come_with_retry_hand_back_and_replay(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    seen: list[int] = []

    @registry.task(name="count", retry=0)
    async def count(text: str) -> int:
        seen.append(len(text))
        if len(seen) == 1:
            raise ValueError
        return len(text)

    handle = await client.enqueue("count", {"text": "x" * 5000}, max_attempts=1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    await client.replay(handle.id)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.wait(handle.id), seen) == (5000, [5000, 5000])


@pytest.mark.parametrize("way", ["enqueue", "enqueue_many", "connection"])
async def test_values_beyond_the_inline_limit_go_to_the_blob_storage_by_hash(
    make_client: MakeClient, registry: Registry, echo: None, conn: asyncpg.Connection[asyncpg.Record], home: Path,
    way: str,
) -> None:  # fmt: skip
    client = await make_client(**LIMITS)
    text = "ä" * 1500
    match way:
        case "enqueue":
            handle = await client.enqueue("echo", {"text": text})
        case "enqueue_many":
            (handle,) = await client.enqueue_many([weft.NewTask("echo", {"text": text})])
        case _:
            handle = await client.enqueue("echo", {"text": text}, connection=conn)
    assert (await client.get_task(handle.id)).params == {"text": text}
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(handle.id) == text
    row = await conn.fetchrow("select params::text, output::text from weft.tasks where id = $1", handle.id)
    assert row is not None
    assert all(len(value) < 200 and value.startswith('{"$blob":') for value in row)
    # Params and output differ, so there are two; the same once more makes no third.
    again = await client.enqueue("echo", {"text": text})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(again.id) == text
    assert len(_blobs(home)) == 2


async def test_large_values_go_to_a_process_and_back(make_client: MakeClient, home: Path) -> None:
    client = await make_client(inline_limit=1000)
    text = "x" * 3_000_000
    handle = await client.enqueue(process_handlers.echo, {"text": text})
    await weft.Worker(client=client).run_until_idle()
    assert await client.wait(handle.id) == text


async def test_sizes_are_counted_in_bytes(make_client: MakeClient, home: Path) -> None:
    client = await make_client(**LIMITS)
    await client.enqueue("h", {"text": "ä" * 600})
    assert len(_blobs(home)) == 1
    with pytest.raises(weft.InvalidInput, match="params: has 60"):
        await client.enqueue("h", {"text": "ä" * 3000})


async def test_the_hard_limit_holds_also_below_the_inline_limit(make_client: MakeClient, registry: Registry) -> None:
    @registry.task(name="give")
    async def give(n: int) -> str:
        return "x" * n

    client = await make_client(value_limit=1000, inline_limit=5000)
    large: dict[str, Any] = {"text": "x" * 2000}
    for call in (client.enqueue("give", large), client.enqueue_many([weft.NewTask("give", large)])):
        with pytest.raises(weft.InvalidInput, match="params: has 2011 bytes, and may have 1000"):
            await call
    handle = await client.enqueue("give", {"n": 2000})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason) == ("failed", "non_retryable")


async def test_values_beyond_the_hard_limit_are_refused_and_nothing_is_written(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record], home: Path
) -> None:
    @registry.task(name="give")
    async def give(n: int) -> str:
        return "x" * n

    client = await make_client(**LIMITS)
    large: dict[str, Any] = {"text": "x" * 5000}
    for call in (
        client.enqueue("give", large),
        client.enqueue_many([weft.NewTask("give", {"n": 1}), weft.NewTask("give", large)]),
        client.enqueue("give", large, connection=conn),
    ):
        with pytest.raises(weft.InvalidInput, match="params: has 5011 bytes, and may have 5000"):
            await call
    assert await conn.fetchval("select count(*) from weft.task") == 0
    assert _blobs(home) == []
    handle = await client.enqueue("give", {"n": 4999})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason) == ("failed", "non_retryable")
    assert task.error is not None
    assert task.error["message"] == "output: has 5001 bytes, and may have 5000"


async def test_a_process_answers_with_as_much_as_a_value_may_have_and_refuses_more(make_client: MakeClient) -> None:
    """A quote takes two bytes in the value and four on its way to the worker."""
    client = await make_client()
    limit = client.settings.value_limit
    most = limit // 2 - 1
    fits, too_large = [await client.enqueue(process_handlers.quotes, {"n": n}) for n in (most, most + 1)]
    await weft.Worker(client=client).run_until_idle()
    assert await client.wait(fits.id) == '"' * most
    task = await client.get_task(too_large.id)
    assert (task.state, task.reason) == ("failed", "non_retryable")
    assert task.error is not None
    assert task.error["message"] == f"output: has {limit + 2} bytes, and may have {limit}"


@pytest.mark.parametrize("damage", ["changed", "missing"])
async def test_a_damaged_blob_is_an_error_that_names_it(
    make_client: MakeClient, registry: Registry, echo: None, home: Path, damage: str
) -> None:
    client = await make_client(**LIMITS)
    handle = await client.enqueue("echo", {"text": "x" * 2000}, max_attempts=1)
    (blob,) = _blobs(home)
    if damage == "changed":
        blob.write_bytes(blob.read_bytes().replace(b"xxx", b"yyy", 1))
    else:
        blob.unlink()
    problem = "is damaged" if damage == "changed" else "is missing"
    await weft.Worker(client=client, registry=registry).run_until_idle()
    (line,) = (await client.dead_letters()).tasks
    assert line.error is not None
    assert f"blob {blob.name} {problem}" in line.error["message"]
    with pytest.raises(weft.TaskFailed, match=blob.name):
        await client.wait(handle.id, timeout=60)
    # What can be known of the task is shown all the same.
    task = await client.get_task(handle.id)
    assert (task.state, task.params) == ("dead", None)
    assert re.match(f"blob {blob.name} {problem}", str(task.unavailable["params"]))


async def test_an_output_whose_blob_is_missing_is_an_error_for_whoever_waits_for_it(
    make_client: MakeClient, registry: Registry, home: Path
) -> None:
    @registry.task(name="long")
    async def long() -> str:
        return "x" * 2000

    client = await make_client(**LIMITS)
    handle = await client.enqueue("long")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    (blob,) = _blobs(home)
    blob.unlink()
    with pytest.raises(BlobUnavailable, match=f"blob {blob.name} is missing"):
        await client.wait(handle.id, timeout=60)
    task = await client.get_task(handle.id)
    assert (task.state, task.output, list(task.unavailable)) == ("completed", None, ["output"])


async def test_a_large_one_among_many_is_moved_and_all_are_written_once(
    make_client: MakeClient, registry: Registry, echo: None, home: Path
) -> None:
    """The first are on their way to PostgreSQL when the large one is met: they are written anew, with it."""
    client = await make_client(**LIMITS)
    texts = [f"{n:040}" for n in range(20_000)]
    texts[15_000] = "y" * 4000
    handles = await client.enqueue_many([weft.NewTask("echo", {"text": text}) for text in texts])
    assert len(_blobs(home)) == 1
    (queue,) = await client.queues()
    assert queue.tasks == {"ready": 20_000}
    for n in (0, 14_999, 15_000, 15_001, 19_999):
        assert (await client.get_task(handles[n].id)).params == {"text": texts[n]}


async def test_what_is_too_large_among_many_leaves_nothing_behind(
    make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record], home: Path
) -> None:
    client = await make_client(**LIMITS)
    tasks = [weft.NewTask("echo", {"text": f"{n:040}"}) for n in range(20_000)]
    tasks[15_000] = weft.NewTask("echo", {"text": "y" * 4000})
    tasks[19_999] = weft.NewTask("echo", {"text": "y" * 6000})
    with pytest.raises(weft.InvalidInput, match="may have 5000"):
        await client.enqueue_many(tasks)
    assert await conn.fetchval("select count(*) from weft.task") == 0
