"""A worker whose event loop a handler blocks: its tasks stay its own, and everything else goes on without it."""

from __future__ import annotations

import asyncpg

import weft
from crash.checker import check_outcomes
from crash.harness import LIVENESS, Crew, Process, until, until_settled
from weft.worker.heart import EXIT_BLOCKED

LEADER = "select w.pid from weft.lease l join weft.worker w on w.id = l.holder where l.until > weft.now()"


async def test_a_leader_that_is_blocked_holds_up_neither_staging_nor_rescue(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    for queue in ("blocked", "doomed"):
        await client.create_queue(queue)
    params = {"folder": str(crew.folder)}

    async def leads(process: Process) -> bool:
        return bool(await conn.fetchval(LEADER) == process.pid)

    leader = await crew.worker(queues=("blocked",))
    await until(lambda: leads(leader), "the first worker leads")
    token = await conn.fetchval("select token from weft.lease")
    victim = await crew.worker(queues=("doomed",))
    held = (await client.enqueue("gated", params, queue="doomed")).id
    await crew.until_started(held)
    other = await crew.worker(queues=("default", "doomed"))
    assert await leads(leader)

    blocking = (await client.enqueue("block", params, queue="blocked")).id
    await crew.until_started(blocking)
    delayed = await client.enqueue("work", params, delay=1)
    assert (await client.wait(delayed.id, timeout=LIVENESS))["pid"] == other.pid
    await victim.kill()
    (again,) = await crew.until_started(held, attempt=2)
    assert again.worker == other.pid
    assert await conn.fetchval("select token from weft.lease") > token
    row = await conn.fetchrow(
        "select state::text, until > weft.now(), blocked from weft.worker where pid = $1", leader.pid
    )
    assert row is not None
    assert tuple(row) == ("active", True, True)
    task = await client.get_task(blocking)
    assert (task.state, task.attempt) == ("running", 1)

    (crew.folder / "open").touch()

    async def answers() -> bool:
        return bool(await conn.fetchval("select not blocked from weft.worker where pid = $1", leader.pid))

    await until(answers, "the loop turns again")
    await until_settled(conn)
    other.terminate()
    assert await other.wait() == 0
    await until(lambda: leads(leader), "the first worker leads again")
    last = await client.enqueue("work", params, queue="blocked", delay=0.5)
    assert (await client.wait(last.id, timeout=LIVENESS))["pid"] == leader.pid
    assert (await client.get_task(blocking)).attempt == 1
    await check_outcomes(conn, crew.ledger())


async def test_a_process_whose_loop_a_task_blocks_past_its_timeout_ends_with_a_code_of_its_own(
    crew: Crew, client: weft.Client
) -> None:
    """Nothing else would end that task; whoever supervises the worker sees why it ended."""
    worker = await crew.worker()
    blocking = (await client.enqueue("block", {"folder": str(crew.folder)}, timeout=1)).id
    await crew.until_started(blocking)
    assert await worker.wait() == EXIT_BLOCKED == 70
    assert f"task {blocking} (block) blocks the event loop past its timeout; this process ends" in crew.log()
