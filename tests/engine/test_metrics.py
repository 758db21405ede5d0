"""Numbers that are right, and counters that never fall."""

from __future__ import annotations

import asyncio
import re
from typing import TypeAlias

import asyncpg
import pytest
from engine_scene import Clock
from job_scene import Handlers, at_work, flow

import weft
from weft.core.settings import Settings
from weft.jobs.metrics import Metric, Sample, exposition
from weft.queue.services import Pruner

pytestmark = pytest.mark.own_database

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
FAIL = {"handler": "fail", "retry": {"max_attempts": 1}}


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


async def _metrics(client: weft.Client) -> dict[str, Metric]:
    return {metric.name: metric for metric in await client.metrics()}


async def _counters(client: weft.Client) -> dict[str, float]:
    return {
        name: metric.samples[0].value for name, metric in (await _metrics(client)).items() if metric.kind == "counter"
    }


async def _prune(client: weft.Client) -> None:
    await Pruner(client.database, Settings.load(environ={}, retention="30d")).run_once()


async def test_each_thing_is_counted_once_and_no_counter_falls_when_the_history_goes(
    client: weft.Client, handlers: Handlers, clock: Clock, conn: Connection
) -> None:
    assert set((await _counters(client)).values()) == {0}
    async with at_work(client, handlers):
        done = [
            await client.jobs.submit(flow(a={"handler": "say", "next": "b"}, b={"handler": "say"})) for _ in range(3)
        ]
        failed = await client.jobs.submit(flow(a=FAIL))
        for handle in (*done, failed):
            await client.jobs.wait(handle.id, timeout=30)
    cancelled = await client.jobs.submit(flow(a={"handler": "say"}))
    await client.jobs.cancel(cancelled.id)
    async with at_work(client, handlers):
        await client.jobs.wait(cancelled.id, timeout=30)
    await client.jobs.submit(flow(a={"handler": "say"}))
    found = await _counters(client)
    assert found == {
        "jobs_created_total": 6, "jobs_completed_total": 3, "jobs_failed_total": 1, "jobs_cancelled_total": 1,
        "tasks_created_total": 9, "tasks_completed_total": 6, "tasks_failed_total": 1,
    }  # fmt: skip
    await conn.execute("update weft.job set timeout_at = null")
    for days in (0.01, 0.1, 3, 40):
        await clock.advance(days=days)
        await conn.fetchval("select weft.ensure_partitions()")
        for _ in range(3):
            await _prune(client)
        assert await _counters(client) == found, f"{days} days later"
    assert await conn.fetchval("select count(*) from weft.worker") == 0
    assert await conn.fetchval("select id from weft.tally_mark") > await conn.fetchval("select max(id) from weft.task")


async def test_what_is_purged_at_once_stays_counted(client: weft.Client, handlers: Handlers) -> None:
    async with at_work(client, handlers):
        task = await client.enqueue("fail", retry=weft.Retry(max_attempts=1))
        with pytest.raises(weft.TaskFailed):
            await client.wait(task.id, timeout=30)
    before = await _counters(client)
    assert await client.purge(older_than=0) == 1
    assert await _counters(client) == before
    assert (before["tasks_created_total"], before["tasks_failed_total"]) == (1, 1)


async def test_totals_of_server_processes_that_are_gone_are_put_together(
    client: weft.Client, conn: Connection, url: str
) -> None:
    others = [await asyncpg.connect(url) for _ in range(2)]
    for number, other in enumerate(others):
        await other.execute("select weft.add_up(1, 'jobs_completed', $1, 2.5)", number + 1)
    await conn.execute("select weft.add_up(1, 'jobs_completed', 10)")
    await asyncio.gather(*(other.close() for other in others))
    gone = "select count(*) from pg_stat_activity a join weft.tally t on t.process = a.pid"
    async with asyncio.timeout(60):
        while await conn.fetchval(gone) > 1:  # noqa: ASYNC110  (the server tells nobody when a process of it has ended)
            await asyncio.sleep(0.01)
    for _ in range(2):
        await _prune(client)
    rows = await conn.fetch(
        "select process <> 0 as is_own, count, seconds from weft.tally where name = 'jobs_completed' order by 1"
    )
    assert [tuple(row) for row in rows] == [(False, 3, 5.0), (True, 10, 0.0)]
    assert (await _counters(client))["jobs_completed_total"] == 13


async def test_depths_times_and_workers_are_told(client: weft.Client, handlers: Handlers) -> None:
    async with at_work(client, handlers):
        handle = await client.jobs.submit(flow(a={"handler": "say"}))
        await client.jobs.wait(handle.id, timeout=30)
        await client.enqueue("say", {}, delay=3600)
        found = await _metrics(client)
    value = {name: metric.samples[0].value for name, metric in found.items() if metric.samples}
    assert (value["workers_active"], value["orchestrators_active"]) == (1, 1)
    assert len(found["worker_heartbeat_age"].samples) == 2
    assert found["task_queue_depth"].samples == (Sample(1, {"queue": "default", "state": "scheduled"}),)
    assert [sample.labels.get("quantile") or sample.part for sample in found["job_duration_seconds"].samples] == [
        "0.5", "0.9", "0.99", "sum", "count",
    ]  # fmt: skip
    assert len(found["task_duration_seconds"].samples) == 3
    assert len(found["worker_task_execution_time"].samples) == 1
    assert found["jobs"].samples == ()
    stopped = await _metrics(client)
    assert stopped["worker_task_execution_time"].samples == stopped["worker_heartbeat_age"].samples == ()


async def test_another_org_is_not_counted(client: weft.Client, conn: Connection) -> None:
    await client.jobs.submit(flow(a={"handler": "say"}))
    await conn.execute("select weft.add_up(1, 'jobs_failed', 3)")
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'other', 'Other')")
    for table in ("job", "task", "tally"):
        await conn.execute(f"update weft.{table} set org_id = 2")
    assert set((await _counters(client)).values()) == {0}


def test_the_text_for_prometheus_is_well_formed() -> None:
    text = exposition([
        Metric("jobs_failed_total", "counter", "Jobs that failed.", (Sample(3),)),
        Metric("depth", "gauge", "Depth.", (Sample(1.5, {"queue": 'a"b\\c\nd', "state": "ready"}),)),
        Metric("took", "summary", "Took.", (Sample(0.25, {"quantile": "0.5"}), Sample(9, part="count"))),
        Metric("none", "gauge", "None.", ()),
    ])  # fmt: skip
    assert text == (
        "# HELP weft_jobs_failed_total Jobs that failed.\n"
        "# TYPE weft_jobs_failed_total counter\nweft_jobs_failed_total 3\n"
        "# HELP weft_depth Depth.\n# TYPE weft_depth gauge\n"
        'weft_depth{queue="a\\"b\\\\c\\nd",state="ready"} 1.5\n'
        "# HELP weft_took Took.\n# TYPE weft_took summary\n"
        'weft_took{quantile="0.5"} 0.25\nweft_took_count 9\n'
        "# HELP weft_none None.\n# TYPE weft_none gauge\n"
    )
    assert all(re.match(r"(# |weft_\w+(\{[^}]*\})? [0-9.e+-]+$)", line) for line in text.splitlines())


async def test_each_part_is_well_or_says_what_to_do(client: weft.Client, handlers: Handlers, conn: Connection) -> None:
    health = await client.health()
    assert {check.name: check.ok for check in health.checks} == {
        "database": True, "workers": False, "stale_tasks": True, "orchestrators": True,
    }  # fmt: skip
    await client.jobs.submit(flow(a={"handler": "hold"}))
    assert {check.name for check in (await client.health()).checks if not check.ok} == {"workers", "orchestrators"}
    async with at_work(client, handlers):
        await handlers.begun.wait()
        assert (await client.health()).ok
        await conn.execute("update weft.task set worker_id = 7 where state = 'running'")
        (stale,) = [check for check in (await client.health()).checks if not check.ok]
        assert (stale.name, stale.text) == ("stale_tasks", "1 held by workers that are lost")
        await conn.execute("delete from weft.task")
        handlers.leave.set()
    await client.enqueue("say", {}, delay=3600)
    await conn.execute("update weft.task set due_at = weft.now() - interval '2 minutes'")
    told = {check.name: check.text for check in (await client.health()).checks}
    assert told["stale_tasks"] == "1 late by more than a minute"
