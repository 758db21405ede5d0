"""The dead letter: what ended without success, how it goes round again, and how it is removed."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest
from engine_scene import Clock, MakeClient

import weft
from weft.worker.registry import Registry


@pytest.fixture
def repaired(registry: Registry) -> list[bool]:
    """Whether the handlers work by now; empty while they do not."""
    found: list[bool] = []

    @registry.task(name="break", retry=0)
    async def fail(n: int) -> int:
        if not found:
            raise ValueError(f"broken {n}")
        return n

    @registry.task(name="refuse")
    async def refuse(n: int) -> int:
        if not found:
            raise weft.NonRetryable(f"refused {n}")
        return n

    return found


async def _broken(client: weft.Client, registry: Registry) -> list[int]:
    names = ["break", "refuse", "break"]
    handles = [await client.enqueue(name, {"n": n}, max_attempts=1) for n, name in enumerate(names)]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    return [handle.id for handle in handles]


async def test_dead_letters_are_what_failed_or_died_newest_first(
    client: weft.Client, registry: Registry, repaired: list[bool]
) -> None:
    ids = await _broken(client, registry)
    page = await client.dead_letters()
    assert [task.id for task in page.tasks] == ids[::-1]
    assert [task.state for task in page.tasks] == ["dead", "failed", "dead"]
    assert [(task.error or {})["message"] for task in page.tasks] == ["broken 2", "refused 1", "broken 0"]
    first = await client.dead_letters(limit=2)
    rest = await client.dead_letters(limit=2, before=first.next)
    assert [task.id for task in (*first.tasks, *rest.tasks)] == ids[::-1]
    assert rest.next is None


async def test_a_replayed_task_keeps_its_attempts_and_counts_anew_in_a_new_generation(
    client: weft.Client, registry: Registry, repaired: list[bool]
) -> None:
    id, *_ = await _broken(client, registry)
    await client.replay(id)
    task = await client.get_task(id)
    assert (task.state, task.generation, task.failures, task.attempt) == ("ready", 1, 0, 1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(id)
    assert (task.state, task.generation, [a.attempt for a in task.attempts]) == ("dead", 1, [1, 2])
    repaired.append(True)
    await client.replay(id)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(id)
    assert (task.state, task.generation, task.output, task.attempt) == ("completed", 2, 0, 3)
    assert [a.attempt for a in task.attempts] == [1, 2]


async def test_only_what_failed_died_or_was_cancelled_can_be_replayed(
    client: weft.Client, registry: Registry, repaired: list[bool]
) -> None:
    repaired.append(True)
    done = await client.enqueue("break", {"n": 1})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    ready = await client.enqueue("break", {"n": 1})
    for handle, state in [(done, "completed"), (ready, "ready")]:
        with pytest.raises(weft.StateConflict, match=f"it is {state}, and must be cancelled or dead or failed"):
            await client.replay(handle.id)
    with pytest.raises(weft.NotFound, match="no task 12345"):
        await client.replay(12345)
    await client.cancel(ready.id)
    await client.replay(ready.id)
    assert (await client.get_task(ready.id)).generation == 1


async def test_all_dead_letters_of_a_queue_or_handler_go_round_again(
    client: weft.Client, registry: Registry, repaired: list[bool]
) -> None:
    ids = await _broken(client, registry)
    assert await client.replay_dead(handler="refuse") == 1
    assert await client.replay_dead(queue="default") == 2
    assert await client.replay_dead() == 0
    repaired.append(True)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [await client.wait(id) for id in ids] == [0, 1, 2]


async def test_more_dead_letters_than_a_page_go_round_again(
    client: weft.Client, registry: Registry, repaired: list[bool]
) -> None:
    await client.enqueue_many([weft.NewTask("break", {"n": n}, max_attempts=1) for n in range(1203)])
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.replay_dead() == 1203
    assert (await client.queues())[0].tasks == {"ready": 1203}


async def test_purge_removes_dead_letters_for_good_and_nothing_else(
    client: weft.Client, clock: Clock, registry: Registry, repaired: list[bool]
) -> None:
    ids = await _broken(client, registry)
    cancelled = await client.enqueue("break", {"n": 1})
    await client.cancel(cancelled.id)
    repaired.append(True)
    done = await client.enqueue("break", {"n": 1})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    live = await client.enqueue("break", {"n": 1})
    assert await client.purge(older_than=3600) == 0
    assert await client.purge(ids=[ids[1], done.id, live.id, cancelled.id]) == 1
    with pytest.raises(weft.NotFound):
        await client.get_task(ids[1])
    with pytest.raises(weft.NotFound):
        await client.replay(ids[1])
    await client.create_queue("other")
    assert await client.purge(queue="other") == 0
    await clock.advance(hours=2)
    assert await client.count_dead(older_than=3600) == 2
    assert await client.purge(older_than=3600, queue="default") == 2
    for handle, state in [(done, "completed"), (live, "ready"), (cancelled, "cancelled")]:
        assert (await client.get_task(handle.id)).state == state


async def test_more_dead_letters_than_a_batch_are_purged(
    client: weft.Client, registry: Registry, repaired: list[bool]
) -> None:
    await client.enqueue_many([weft.NewTask("break", {"n": n}, max_attempts=1) for n in range(2100)])
    await weft.Worker(client=client, registry=registry, concurrency=500).run_until_idle()
    assert await client.purge() == 2100
    assert (await client.dead_letters()).tasks == ()


async def test_nothing_of_a_purged_task_is_left(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record], home: Path
) -> None:
    @registry.task(name="spill")
    async def spill(text: str, fail: bool, ctx: weft.Context) -> None:
        print("secret")
        if fail:
            await ctx.checkpoint.save("secret")
        if fail:
            raise ValueError("secret")

    client = await make_client(log_upload=True, inline_limit=1000)
    long = [
        await client.enqueue("spill", {"text": f"secret {'x' * size}", "fail": True}, max_attempts=1)
        for size in (300, 2000)
    ]
    other = await client.enqueue("spill", {"text": "x" * 300, "fail": False})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    kept = {
        "task_done": "id", "task_params": "id", "attempt": "task_id", "task_log": "task_id", "task_blob": "task_id",
        "step": "task_id",
    }  # fmt: skip

    async def found(ids: list[int]) -> set[str]:
        return {
            table
            for table, column in kept.items()
            if await conn.fetchval(f"select exists (select 1 from weft.{table} where {column} = any ($1))", ids)
        }

    ids = [task.id for task in long]
    assert await found(ids) == set(kept)
    assert await client.purge() == 2
    assert await found(ids) == set()
    assert {path.stem for path in (home / "logs").iterdir()} == {str(other.id)}
    assert await found([other.id]) == {"task_done", "task_params", "task_log"}
    assert (await client.get_task(other.id)).params == {"text": "x" * 300, "fail": False}
