"""What becomes of outcomes that cannot be settled at once: refused by PostgreSQL, or cut off from it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from engine_scene import MakeClient, until

import weft
from far import with_and_without_a_database
from pooler import pooler_to
from weft.core.settings import Settings
from weft.queue.work import Claim, Completed, Ended, Postponed
from weft.worker import unsuccessful
from weft.worker.attempt import Attempt, Environment
from weft.worker.background import Background
from weft.worker.database_store import DatabaseStore
from weft.worker.holdings import Holdings
from weft.worker.line import Line
from weft.worker.processes import Processes
from weft.worker.recovery import Recovery
from weft.worker.registry import Registry


async def test_outcomes_that_could_not_be_sent_are_all_kept_and_the_worker_goes_on(
    client: weft.Client, make_client: MakeClient, url: str, tmp_path: Path, registry: Registry
) -> None:
    @registry.task(name="h")
    async def handler() -> None: ...

    known = registry.get("h")
    assert known is not None
    settings = Settings(home=tmp_path)
    env = Environment(
        DatabaseStore(client.database, settings),
        1,
        Processes([], None),
        tmp_path,
        lambda _: None,
        lambda _attempt, _outcome: None,
    )
    held = Holdings()
    for id in (1, 2, 3):
        claim = Claim(id, 1, 1, 0, id, "h", "{}", 3, 0, 0, None, None, None, None)
        held.running[id] = Attempt(env, claim, known)
        held.note(Completed(id, 1, "null"))
    line = Line(client.database, 1, lambda _: None)
    await line.open()
    with pooler_to(url) as pooler:
        cut_off = await make_client(database_url=pooler.url, pooler="transaction")
    recovery = Recovery(
        DatabaseStore(cut_off.database, worker_id=1), line, held, Background(lambda: None),
        lambda _completed, _lost: None, lambda _outcomes, _landed: None, on_lost=lambda _: None, on_room=lambda: None,
    )  # fmt: skip
    await recovery.recover(asyncpg.DataError("refused"))
    assert [outcome.id for outcome in held.completed] == [1, 2, 3]
    assert not line.is_open


async def test_an_outcome_that_postgresql_refuses_fails_and_holds_up_no_other(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Of the three the second comes after the last moment that PostgreSQL knows, the third is no JSON."""
    ids = [(await client.enqueue("h")).id for _ in range(3)]
    ghost = await conn.fetchval(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 1, 1, 'here', '0', '{1}', '{}') returning id"""
    )
    await conn.execute("update weft.task set state = 'running', worker_id = $1, attempt = 1, claimed_at = now()", ghost)
    outcomes = [
        Postponed(ids[0], 1, timedelta(0), "failed", "error", "{}", True),
        Postponed(ids[1], 1, timedelta.max, "snoozed", "snooze", None, False),
        Ended(ids[2], 1, "dead", "failed", "error", "this is no JSON"),
    ]
    assert await client.database.run(lambda conn: unsuccessful.settle(conn, ghost, outcomes)) == set(ids)
    tasks = [await client.get_task(id) for id in ids]
    assert [(task.state, task.reason) for task in tasks] == [
        ("scheduled", "error"), ("failed", "output_refused"), ("failed", "output_refused"),
    ]  # fmt: skip
    assert "timestamp out of range" in str(tasks[1].error)


@pytest.mark.parametrize("delay", [8e13, 1e12, -1.0, float("inf"), float("nan"), timedelta(days=20_001)])
async def test_an_absurd_snooze_is_an_error_of_its_own_attempt(
    client: weft.Client, registry: Registry, delay: float | timedelta
) -> None:
    @registry.task(name="rest", retry=weft.Retry(1))
    async def rest() -> None:
        raise weft.Snooze(delay)

    @registry.task(name="innocent")
    async def innocent() -> str:
        return "done"

    absurd, other = await client.enqueue("rest", max_attempts=1), await client.enqueue("innocent")
    async with weft.Worker(client=client, registry=registry):
        assert await client.wait(other.id, timeout=60) == "done"
        task = await until(lambda: client.get_task(absurd.id), lambda task: task.state == "dead")
    assert task.error is not None
    assert task.error["type"] in ("ValueError", "OverflowError")


@with_and_without_a_database
@pytest.mark.parametrize("fails", [False, True], ids=["completed", "failed"])
async def test_a_task_of_which_no_outcome_can_be_written_is_set_aside_and_holds_up_no_other(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record], fails: bool
) -> None:
    """Its id is that of a task that has ended, as after a clock that was set back."""

    @registry.task(name="h", retry=0)
    async def handler(fails: bool = False) -> None:
        if fails:
            raise ValueError("no")

    first = await client.enqueue("h")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    await conn.execute(
        """insert into weft.task (id, org_id, queue_id, order_id, state, handler, params, concurrency_key)
           values ($1, 1, 1, $1, 'pending', 'h', $2, 'k')""",
        first.id,
        '{"fails": true}' if fails else "{}",
    )
    await conn.execute("select weft.take_slots(array[$1::bigint])", first.id)
    async with weft.Worker(client=client, registry=registry):
        await client.wait((await client.enqueue("h")).id, timeout=60)
        reason = "select reason from weft.task where id = $1 and state = 'pending' and worker_id is null"
        await until(lambda: conn.fetchval(reason, first.id), lambda found: found == "outcome_refused")
        await client.wait((await client.enqueue("h")).id, timeout=60)
    assert await conn.fetchval("select held from weft.key_slot where key = 'k'") in (0, None)
    assert await conn.fetchval("select state::text from weft.task_done where id = $1", first.id) == "completed"


async def test_an_attempt_whose_number_is_taken_ends_all_the_same(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="h", retry=weft.Retry(5, initial_delay=0))
    async def handler() -> None:
        raise ValueError("no")

    task = await client.enqueue("h")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    await conn.execute("update weft.task set attempt = 0, state = 'ready', due_at = null")
    async with weft.Worker(client=client, registry=registry):
        with pytest.raises(weft.TaskFailed):
            await client.wait(task.id, timeout=60)
