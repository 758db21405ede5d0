"""A worker that is killed between two steps, or between a callback and the note that it was sent."""

from __future__ import annotations

from pathlib import Path

import asyncpg

import weft
from crash.harness import Crew, until
from receivers import receiving


async def test_what_was_saved_before_the_worker_was_killed_is_not_done_again(
    crew: Crew, client: weft.Client, tmp_path: Path
) -> None:
    note = tmp_path / "steps"
    modules = ("crash.apps.stepping",)
    victim = await crew.worker(modules=modules)
    handle = await client.enqueue("stepping", {"path": str(note)})

    async def is_in_the_second() -> bool:
        return note.exists() and len(note.read_text(encoding="ascii").splitlines()) == 2

    await until(is_in_the_second, "the second step has begun")
    await victim.kill()
    await crew.worker(modules=modules)
    output = await client.wait(handle.id, timeout=60)
    pids = [int(line) for line in note.read_text(encoding="ascii").split()]
    assert pids[:2] == [victim.pid, victim.pid]
    assert len(pids) == 3, "the first step of the second attempt was not done again, its second was"
    task = await client.get_task(handle.id)
    assert [(step.name, step.attempt) for step in task.steps] == [("first", 1), ("second", 2)]
    assert output == [victim.pid, pids[2]]


async def test_a_handler_saves_how_far_it_is_when_its_worker_is_told_to_end(
    crew: Crew, client: weft.Client, tmp_path: Path
) -> None:
    note = tmp_path / "begun"
    first = await crew.worker(modules=("crash.apps.stepping",), grace=60)
    handle = await client.enqueue("stopping", {"path": str(note)}, max_attempts=1)

    async def has_begun() -> bool:
        return note.exists()

    await until(has_begun, "the handler has begun")
    first.terminate()
    assert await first.wait() == 0
    second = await crew.worker(modules=("crash.apps.stepping",))
    assert await client.wait(handle.id, timeout=60) == [first.pid, second.pid]


async def test_a_callback_whose_sender_is_killed_before_it_could_note_that_is_sent_again_with_the_same_id(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    definition = {
        "workflow_id": "told",
        "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end", "output": 7}},
    }
    async with receiving("hang") as receiver:
        told = {"callback_allowed": "127.0.0.1", "callback_timeout": "60s"}
        sender = await crew.orchestrator(**told)
        handle = await client.jobs.submit(definition, callback_url=receiver.url)
        await receiver.until(1, within=60)
        await sender.kill()
        await crew.orchestrator(**told)
        first, second = await receiver.until(2, within=60)

        async def is_done() -> bool:
            return bool(await conn.fetchval("select state = 'done' and attempts = 2 from weft.outbox"))

        await until(is_done, "the second one is noted")
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert (first.json["job_id"], first.json["status"]) == (str(handle.id), "completed")
