"""The worked examples of the specs that concern the queue, with Weft's names."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner

import weft
from moments import time_of
from weft.cli.main import app
from weft.core.settings import Settings
from weft.db.database import Database
from weft.queue import graph, outbox, upkeep, work, workers
from weft.queue.work import Completed, Lane
from weft.worker.registry import Registry

Connection = asyncpg.Connection
ORG, DEFAULT_QUEUE = 1, 1
LEASE = timedelta(seconds=30)


async def new_worker(conn: Connection, hostname: str = "worker-01", pid: int = 12345) -> int:
    return await workers.register(
        conn, ORG, lease=LEASE, concurrency=10, pid=pid, hostname=hostname, version="1", queues=[DEFAULT_QUEUE],
        handlers=["email:send"],
    )  # fmt: skip


async def beat(conn: Connection, worker_id: int) -> workers.Pulse | None:
    return await workers.heartbeat(conn, worker_id, lease=LEASE, busy=False, completed=0, failed=0)


async def claim(conn: Connection, worker_id: int, wanted: int = 1) -> list[work.Claim]:
    claims, _ = await work.finish_and_claim(conn, worker_id, [], [Lane(DEFAULT_QUEUE)], wanted)
    return claims


async def pass_time(conn: Connection, seconds: int) -> None:
    """Set the one clock ahead."""
    await conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
        f"return clock_timestamp() + interval '{seconds} seconds'"
    )


# --- spec 1: leases, retries, dedupe keys, the outbox ---


async def test_spec_1_a_claim_sets_worker_and_lease_and_nobody_else_gets_the_task(
    client: weft.Client, conn: Connection
) -> None:
    handle = await client.enqueue("email:send")
    first, second = await new_worker(conn), await new_worker(conn)
    assert [found.id for found in await claim(conn, first)] == [handle.id]
    assert await claim(conn, second) == []
    task = await client.get_task(handle.id)
    assert (task.state, task.worker_id, task.attempt) == ("running", first, 1)
    until = await conn.fetchval("select until - weft.now() from weft.workers where id = $1", first)
    assert timedelta(0) < until <= LEASE


async def test_spec_1_an_expired_lease_gives_the_same_task_to_another_as_a_new_attempt(
    client: weft.Client, conn: Connection
) -> None:
    handle = await client.enqueue("email:send")
    late = await new_worker(conn)
    (held,) = await claim(conn, late)
    await pass_time(conn, 31)
    assert await upkeep.mark_lost(conn) == [late]
    assert (await upkeep.rescue(conn, late, loss_limit=3))[0] == 1
    other = await new_worker(conn)
    (again,) = await claim(conn, other)
    assert (again.id, again.attempt) == (handle.id, held.attempt + 1)

    # Only who holds the current attempt may beat or complete.
    assert await beat(conn, late) is None
    _, refused = await work.finish_and_claim(conn, late, [Completed(held.id, held.attempt, '"late"')], [], 0)
    assert refused == [handle.id]
    _, refused = await work.finish_and_claim(conn, other, [Completed(again.id, again.attempt, '"mine"')], [], 0)
    assert refused == []
    task = await client.get_task(handle.id)
    assert (task.state, task.output, task.crashes) == ("completed", "mine", 1)


async def test_spec_1_a_failed_attempt_is_retried_with_backoff_under_the_same_id(
    client: weft.Client, registry: Registry
) -> None:
    attempts: list[int] = []

    @registry.task(name="flaky", retry=weft.Retry(max_attempts=3, initial_delay=0.01))
    async def flaky(ctx: weft.Context) -> int:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise ConnectionError("try again")
        return ctx.task_id

    async with weft.Worker(client=client, registry=registry):
        handle = await client.enqueue(flaky)
        assert await client.wait(handle.id, timeout=30) == handle.id
    assert attempts == [1, 2, 3]


async def test_spec_1_an_event_that_is_delivered_twice_makes_one_task(client: weft.Client) -> None:
    keys = ["partition:d1:v3:2026-11-14", "cursor:d1:v3:1200"]
    events = [weft.NewTask("aggregate", {"key": key}, idempotency_key=key) for key in [*keys, *keys]]
    handles = await client.enqueue_many(events)
    assert [handle.created for handle in handles] == [True, True, False, False]
    assert (await client.queues())[0].depth == 2


async def test_spec_1_an_effect_is_committed_with_its_cause_and_carried_out_afterwards(
    client: weft.Client, conn: Connection, database: Database
) -> None:
    async def enqueue_task(effect: outbox.Effect) -> None:
        await client.enqueue(**effect.payload, idempotency_key=f"outbox-{effect.id}")

    effect = {"handler": "email:send", "params": {"to": "user@example.com"}}
    transaction = conn.transaction()
    await transaction.start()
    await outbox.add(conn, ORG, "enqueue_task", effect)
    await transaction.rollback()
    assert await client.outbox() == []
    await outbox.add(conn, ORG, "enqueue_task", effect)
    assert [row.state for row in await client.outbox()] == ["pending"]
    assert await outbox.drain(database, await new_worker(conn), {"enqueue_task": enqueue_task}) == 1
    assert [row.state for row in await client.outbox()] == ["done"]
    assert [task.handler for task in (await client.list_tasks()).tasks] == ["email:send"]


async def test_spec_1_a_worker_drains_the_outbox_by_itself(
    client: weft.Client, conn: Connection, registry: Registry
) -> None:
    sent = asyncio.Event()

    @registry.task(name="email:send")
    async def send(to: str) -> None:
        sent.set()

    await outbox.add(conn, ORG, "enqueue_task", {"handler": "email:send", "params": {"to": "user@example.com"}})
    async with weft.Worker(client=client, registry=registry), asyncio.timeout(60):
        await sent.wait()


async def test_spec_1_an_effect_that_fails_keeps_its_error_and_is_tried_again(
    client: weft.Client, conn: Connection, database: Database
) -> None:
    async def sink(_: outbox.Effect) -> None:
        raise ConnectionError("no route")

    await outbox.add(conn, ORG, "enqueue_task", {})
    assert await outbox.drain(database, await new_worker(conn), {"enqueue_task": sink}) == 1
    (row,) = await client.outbox()
    assert (row.state, row.attempts, row.last_error) == ("pending", 1, "ConnectionError: no route")
    assert row.available_at > row.created_at


# --- spec 2: enqueue, priority, dead letter, workers, leadership ---


async def test_spec_2_the_idempotent_enqueue_of_the_spec_in_sql(conn: Connection) -> None:
    statement = """
        select id, created from weft.enqueue(
          'email:send', '{"to":"user@example.com"}', idempotency_key => 'email-user-123')
    """
    first = await conn.fetchrow(statement)
    second = await conn.fetchrow(statement)
    other = await conn.fetchrow("select * from weft.enqueue('sms:send', '{}', idempotency_key => 'email-user-123')")
    assert first is not None
    assert second is not None
    assert other is not None
    assert (first["created"], second["created"], other["created"]) == (True, False, True)
    assert first["id"] == second["id"] != other["id"]
    assert await conn.fetchval("select count(*) from weft.tasks") == 2


async def test_spec_2_a_double_click_makes_one_task(client: weft.Client) -> None:
    params = {"to": "user@example.com"}
    handles = await asyncio.gather(
        *(client.enqueue("email:send", params, idempotency_key="email-user-123") for _ in range(8))
    )
    assert len({handle.id for handle in handles}) == 1
    assert sum(handle.created for handle in handles) == 1


async def test_spec_2_higher_priority_first_then_oldest(client: weft.Client, conn: Connection) -> None:
    ids = [(await client.enqueue("task:backup", priority=priority)).id for priority in (0, 5, 0, 5, -1)]
    claimed = [(await claim(conn, worker))[0].id for worker in [await new_worker(conn)] * 5]
    assert claimed == [ids[1], ids[3], ids[0], ids[2], ids[4]]


async def test_spec_2_three_retries_are_four_attempts_and_then_the_dead_letter(
    client: weft.Client, registry: Registry
) -> None:
    runs: list[int] = []

    @registry.task(name="service:nextjs", retry=weft.Retry(max_attempts=4, initial_delay=0))
    async def fail(ctx: weft.Context) -> None:
        runs.append(ctx.attempt)
        raise RuntimeError("port in use")

    async with weft.Worker(client=client, registry=registry):
        handle = await client.enqueue(fail)
        with pytest.raises(weft.TaskFailed, match="port in use"):
            await client.wait(handle.id, timeout=30)
    task = await client.get_task(handle.id)
    assert (task.state, task.failures, runs) == ("dead", 4, [1, 2, 3, 4])
    assert [letter.id for letter in (await client.dead_letters()).tasks] == [handle.id]


async def test_spec_2_two_workers_never_both_lead_and_the_lead_passes_on_when_its_lease_lapses(
    conn: Connection,
) -> None:
    first, second = await new_worker(conn), await new_worker(conn)
    one, two = await beat(conn, first), await beat(conn, second)
    assert one is not None
    assert two is not None
    assert (one.leader, two.leader) == (True, False)
    again = await beat(conn, first)
    assert again is not None
    assert (again.leader, again.token) == (True, one.token)
    await pass_time(conn, 31)
    taken = await beat(conn, second)
    assert taken is not None
    assert taken.leader
    assert (taken.token or 0) > (one.token or 0)
    assert await conn.fetch("select id from weft.workers where is_leader") == [(second,)]


async def test_spec_2_a_worker_without_heartbeat_is_dead_and_its_tasks_are_claimable_again(
    client: weft.Client, conn: Connection
) -> None:
    handle = await client.enqueue("email:send")
    dead, alive = await new_worker(conn), await new_worker(conn)
    await claim(conn, dead)
    await pass_time(conn, 31)
    await beat(conn, alive)
    await upkeep.mark_lost(conn)
    await upkeep.rescue(conn, dead, loss_limit=3)
    assert {worker.id: worker.state for worker in await client.workers()} == {dead: "lost", alive: "idle"}
    assert (await client.get_task(handle.id)).state == "ready"
    await pass_time(conn, 3700)
    await upkeep.prune_workers(conn, timedelta(hours=1))
    assert [worker.id for worker in await client.workers()] == [alive]


# --- spec 4: ids, logs, results, workers, settings, migrations ---


async def test_spec_4_ids_are_made_before_the_insert_and_hold_time_machine_and_sequence(client: weft.Client) -> None:
    handles = await client.enqueue_many([weft.NewTask("myapp.func1") for _ in range(3)])
    single = await client.enqueue("myapp.func2")
    ids = [handle.id for handle in handles]
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]
    assert all(0 < id < 2**63 for id in [*ids, single.id])
    assert 1 <= (ids[0] >> 12) % 1024 <= 1023, "a process has a machine number of its own"
    assert (single.id >> 12) % 1024 == 0, "number 0 is kept for ids made in SQL"
    task = await client.get_task(ids[0])
    assert abs(time_of(task.id) - task.created_at) < timedelta(seconds=5)


async def test_spec_4_what_a_task_prints_is_in_the_log_of_its_id(
    client: weft.Client, registry: Registry, home: Path
) -> None:
    @registry.task(name="log_summary")
    async def log_summary(count: int) -> None:
        print(f"Processed {count} rows")

    handle = await client.enqueue("log_summary", {"count": 3})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (home / "logs" / f"{handle.id}.log").read_text() == "Processed 3 rows\n"
    assert (await client.get_task(handle.id)).output is None, "a task that returns None has no result"


async def test_spec_4_returned_values_are_kept(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="compute_sum")
    def compute_sum(data: list[int]) -> int:
        return sum(data)

    @registry.task(name="process_data")
    def process_data(data: list[int]) -> list[int]:
        return [x * 2 for x in data]

    handles = [await client.enqueue(name, {"data": [1, 2, 3]}) for name in ("compute_sum", "process_data")]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [(await client.get_task(handle.id)).output for handle in handles] == [6, [2, 4, 6]]


async def test_spec_4_a_worker_registers_beats_deregisters_and_is_listed(client: weft.Client, conn: Connection) -> None:
    worker_id = await new_worker(conn, hostname="worker-01", pid=12345)
    before = (await client.workers())[0]
    assert (before.id, before.hostname, before.pid, before.state) == (worker_id, "worker-01", 12345, "active")
    await beat(conn, worker_id)
    after = (await client.workers(state="idle"))[0]
    assert after.last_heartbeat > before.last_heartbeat
    assert after.until > before.until
    assert await workers.deregister(conn, worker_id)
    assert [worker.state for worker in await client.workers()] == ["stopped"]
    assert await client.workers(state="active") == []


async def test_spec_4_extract_transform_load_run_one_after_the_other(
    client: weft.Client, conn: Connection, registry: Registry
) -> None:
    order: list[str] = []
    for name in ("extract", "transform", "load"):
        registry.task(name=f"myapp.{name}")(_noted(order, name))
    ids = [(await client.enqueue(f"myapp.{name}")).id for name in ("load", "transform", "extract")]
    load, transform, extract = ids
    async with conn.transaction():
        for task_id in (transform, load):
            assert await graph.hold(conn, task_id)
        assert await graph.add_edge(conn, extract, transform)
        assert await graph.add_edge(conn, transform, load)
        for task_id in (transform, load):
            assert not await graph.release(conn, task_id)
    assert [(await client.get_task(id)).state for id in ids] == ["pending", "pending", "ready"]
    async with weft.Worker(client=client, registry=registry):
        await client.wait(load, timeout=30)
    assert order == ["extract", "transform", "load"]


def _noted(order: list[str], name: str):  # type: ignore[no-untyped-def]
    async def handler() -> None:
        order.append(name)

    return handler


def test_spec_4_the_environment_of_the_spec_leads_to_the_database() -> None:
    environ = {
        "POSTGRES_HOST": "localhost",
        "POSTGRES_PORT": "5432",
        "POSTGRES_USER": "aaiclick",
        "POSTGRES_PASSWORD": "secret",
        "POSTGRES_DB": "aaiclick_orchestration",
    }
    assert (
        Settings.load(environ=environ).database_url
        == "postgresql://aaiclick:secret@localhost:5432/aaiclick_orchestration"
    )


def test_spec_4_the_worker_settings_of_the_spec_exist_with_their_defaults() -> None:
    settings = Settings.load(environ={})
    assert settings.worker_task_timeout == timedelta(seconds=3600)
    assert settings.worker_max_attempts == 3
    assert settings.worker_shutdown_grace == timedelta(seconds=30)
    named = Settings.load(environ={"WEFT_WORKER_HEARTBEAT_INTERVAL": "30", "WEFT_WORKER_TIMEOUT": "2m"})
    assert (named.heartbeat_interval, named.lease_time) == (timedelta(seconds=30), timedelta(minutes=2))


async def test_spec_4_the_migrate_commands_of_the_spec(url: str, home: Path) -> None:
    runner = CliRunner()

    async def migrate(*arguments: str) -> str:
        env = {"WEFT_DATABASE_URL": url, "WEFT_HOME": str(home)}
        # In a thread: the command runs an event loop of its own.
        finished = await asyncio.to_thread(runner.invoke, app, ["migrate", *arguments], env=env, catch_exceptions=False)
        assert finished.exit_code == 0, finished.output
        return finished.stdout

    history = json.loads(await migrate("history", "--json"))["revisions"]
    head = history[0]["revision"]
    assert json.loads(await migrate("current", "--json")) == {"current": head, "head": head}
    assert "downgraded" in await migrate("downgrade", "base", "--yes")
    assert f"to {head}" in await migrate("upgrade", head)
    assert "already" in await migrate()


# --- spec 5: the retry policy ---


def test_spec_5_the_retry_policy_of_the_spec() -> None:
    policy = weft.Retry(max_attempts=3, backoff="exponential", initial_delay=5, max_delay=300, jitter=0)
    seconds = [policy.delay(failures).total_seconds() for failures in range(1, 9)]
    assert seconds == [5, 10, 20, 40, 80, 160, 300, 300]
