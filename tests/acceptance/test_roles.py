"""Roles that are no superusers: one that owns its database, and those that have only what the docs grant them."""

from __future__ import annotations

import asyncio
import logging
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from apps.cli_scene import Cli

import weft
from granted import grant, take_back
from weft.core.settings import Settings
from weft.db.database import Database
from weft.jobs.library import Libraries
from weft.live.ticker import Ticker
from weft.queue import graph, outbox
from weft.queue.services import Drainer, Pruner, Rescuer, Stager
from weft.worker.registry import Registry


def as_role(url: str, role: str) -> str:
    return urlsplit(url)._replace(netloc=f"{role}@").geturl()


def connected(url: str, act: Callable[[asyncpg.Connection[asyncpg.Record]], Awaitable[None]]) -> None:
    async def run() -> None:
        conn = await asyncpg.connect(url)
        try:
            await act(conn)
        finally:
            await conn.close()

    asyncio.run(run())


def execute(url: str, *statements: str) -> None:
    async def run(conn: asyncpg.Connection[asyncpg.Record]) -> None:
        for statement in statements:
            await conn.execute(statement)

    connected(url, run)


@pytest.fixture
def granted_url(url: str) -> Iterator[str]:
    """A migrated database with the roles and grants of the docs."""
    connected(url, grant)
    yield url
    connected(url, take_back)


@pytest.mark.parametrize(
    "right",
    ["alter database {name} owner to {role}", "grant create on database {name} to {role}"],
    ids=["own", "create"],
)
def test_a_role_that_may_create_in_its_database_migrates_and_works(server_url: str, home: Path, right: str) -> None:
    name = role = f"r_{uuid.uuid4().hex[:12]}"
    execute(server_url, f"create role {role} login nosuperuser", f"create database {name}")
    execute(server_url, right.format(name=name, role=role))
    try:
        own = urlsplit(as_role(server_url, role))._replace(path=f"/{name}").geturl()
        cli = Cli(own, home)
        assert cli("migrate").startswith("upgraded from nothing")
        with cli.worker() as worker:
            assert cli.json("tasks", "enqueue", "cli:add", "--params", '{"a": 1}', "--wait")["output"] == 2
            worker.signal(signal.SIGTERM)
            assert worker.code() == 0
            assert not [line for line in worker.lines if "WARNING" in line or "permission" in line]
        assert cli("migrate", "downgrade", "base", "--yes").strip().endswith("to nothing")
    finally:
        execute(server_url, f"drop database {name} with (force)", f"drop role {role}")


def test_a_role_that_may_not_create_is_told_so_when_it_migrates(server_url: str, home: Path) -> None:
    name = role = f"r_{uuid.uuid4().hex[:12]}"
    execute(server_url, f"create role {role} login nosuperuser", f"create database {name}")
    try:
        own = urlsplit(as_role(server_url, role))._replace(path=f"/{name}").geturl()
        complaint = Cli(own, home)("migrate", code=3)
        assert "the migration failed, nothing is changed" in complaint
        assert "permission denied for database" in complaint
        assert "use-your-own-postgres.md lists what each role needs" in complaint
    finally:
        execute(server_url, f"drop database {name} with (force)", f"drop role {role}")


def test_a_worker_process_with_the_grants_of_the_docs_works_to_the_end(granted_url: str, home: Path) -> None:
    cli = Cli(as_role(granted_url, "shop_worker"), home)
    with cli.worker() as worker:
        assert cli.json("tasks", "enqueue", "cli:add", "--params", '{"a": 1}', "--wait")["output"] == 2
        assert "no luck" in cli("tasks", "enqueue", "cli:fail", "--wait", code=1)
        worker.signal(signal.SIGTERM)
        assert worker.code() == 0
        expected = "is dead after attempt"  # the task that has no luck
        warnings = [line for line in worker.lines if "WARNING" in line and expected not in line]
        assert warnings + [line for line in worker.lines if "permission" in line] == []


@asynccontextmanager
async def client_of(url: str, role: str, home: Path) -> AsyncIterator[weft.Client]:
    settings = Settings.load(environ={}, database_url=as_role(url, role), home=home, log_upload=True)
    async with weft.Client(settings=settings) as client:
        yield client


def test_the_grants_of_the_docs_let_a_worker_do_all_that_clients_and_services_do(
    granted_url: str, home: Path, registry: Registry
) -> None:
    @registry.task(name="double", retry=weft.Retry(2, initial_delay=0))
    async def double(ctx: weft.Context, n: int, text: str = "") -> int:
        print("doubling")
        if ctx.attempt == 1:
            raise ValueError("again")
        return 2 * n

    async def run() -> None:
        async with client_of(granted_url, "shop_worker", home) as client:
            await use_queues(client)
            alone = await client.enqueue(double, {"n": 1, "text": "x" * 999}, idempotency_key="k")
            many = await client.enqueue_many(
                [weft.NewTask(double, {"n": n, "text": "x" * 999}, idempotency_key=f"k{n}", concurrency_key="k")
                 for n in (2, 3)]
            )  # fmt: skip
            async with weft.Worker(client=client, registry=registry):
                assert [await client.wait(task.id, timeout=60) for task in (alone, *many)] == [2, 4, 6]
            await use_dead_letters(client)
            await use_edges(client)
            await serve_once(client.database, client.settings)

    asyncio.run(run())


async def use_queues(client: weft.Client) -> None:
    assert await client.create_queue("mail")
    await client.pause_queue("mail")
    await client.resume_queue("mail")
    for options in ({}, {"per_key": True}, {"key": "k"}):
        await client.limit_queue("default", 2, **options)
    assert {queue.name for queue in await client.queues()} == {"default", "mail"}


async def use_dead_letters(client: weft.Client) -> None:
    task = await client.enqueue("later", delay=3600)
    await client.cancel(task.id)
    await client.replay(task.id)
    await client.cancel(task.id)
    assert [ended.id for ended in (await client.list_tasks(state="cancelled")).tasks] == [task.id]
    assert await client.replay_dead() == await client.purge() == await client.count_dead() == 0
    assert await client.replay_outbox() == len(await client.outbox()) == 0


async def use_edges(client: weft.Client) -> None:
    prev, next = await client.enqueue_many([weft.NewTask("later", queue="mail") for _ in range(2)])
    await client.database.run(lambda conn: graph.hold(conn, next.id))
    assert await client.database.run(lambda conn: graph.add_edge(conn, prev.id, next.id))
    for task in (next, prev):
        await client.cancel(task.id)


async def serve_once(database: Database, settings: Settings) -> None:
    """Do one round of every service, with something to do for each."""

    async def sink(effect: outbox.Effect) -> None:
        assert effect.payload == {}

    await database.run(lambda conn: outbox.add(conn, 1, "callback", {}))
    assert await Drainer(database, 1, {"callback": sink}).run_once() == 1
    await database.run(lambda conn: conn.execute(
        "insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)"
        " values (1, weft.now() - interval '2 hours', 1, 1, 'gone', '0', '{1}', '{}')"
    ))  # fmt: skip
    await Stager(database).run_once()
    await Rescuer(database, settings, lambda: True).run_once()
    assert await Pruner(database, settings).run_once() >= 1


@pytest.mark.own_database
def test_a_worker_without_ownership_makes_partitions_and_warns_of_those_that_it_cannot_drop(
    granted_url: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gap = "drop table weft.attempt_" + "{day}"

    async def run() -> None:
        async with client_of(granted_url, "shop_worker", home) as client:
            pruner = Pruner(client.database, client.settings)
            await pruner.run_once()
            assert not caplog.records
            owner = await asyncpg.connect(granted_url)
            day = await owner.fetchval("select to_char(weft.now() + interval '5 days', 'YYYYMMDD')")
            await owner.execute(gap.format(day=day))
            await Pruner(client.database, client.settings).run_once()
            assert await owner.fetchval("select weft.ensure_partitions()") == 0
            assert await owner.fetchval(
                "select pg_get_userbyid(relowner) = current_user from pg_class where relname = $1", f"attempt_{day}"
            )
            assert not caplog.records
            await Pruner(client.database, replace(client.settings, retention=timedelta(days=-3))).run_once()
            await owner.close()

    with caplog.at_level(logging.WARNING, "weft"):
        asyncio.run(run())
    [warning] = caplog.messages
    assert warning.startswith("partitions past the retention are dropped by the owner of the schema weft only: ")
    assert "task_done" in warning


def test_a_role_that_may_only_enqueue_does_so_by_the_client_and_is_told_what_else_it_lacks(
    granted_url: str, home: Path
) -> None:
    async def run() -> None:
        async with client_of(granted_url, "shop_web", home) as client:
            await client.enqueue("h", idempotency_key="k")
            await client.enqueue_many([weft.NewTask("h", {"text": "x" * 999}), weft.NewTask("h", concurrency_key="k")])

    asyncio.run(run())
    cli = Cli(as_role(granted_url, "shop_web"), home)
    for command in (["tasks", "list"], ["queues", "create", "mail"], ["worker", "--app", "cli_app"]):
        complaint = cli(*command, code=3)
        assert complaint.startswith("weft: permission denied for ")
        assert complaint.endswith(": grant that to the role, or use the role that owns the schema weft")
        assert "\n" not in complaint
    assert Cli(as_role(granted_url, "shop_report"), home)("tasks", "list", code=3).startswith("weft: permission denied")


def test_the_grants_of_the_docs_let_a_role_keep_workflows_and_nothing_else(granted_url: str, home: Path) -> None:
    nodes = {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"handler": "fetch", "params": {"size": 1, "text": "x" * 300_000}, "next": "END"},
        "END": {"type": "end"},
    }

    async def run() -> None:
        async with client_of(granted_url, "shop_flows", home) as client:
            w = client.workflows
            await w.push({"workflow_id": "etl", "nodes": nodes})
            for size in range(2, 14):
                await w.patch("etl", set={"nodes.fetch.params.size": size})
            await w.undo("etl", 2)
            await w.redo("etl")
            await w.branch("etl/other", "etl")
            await w.patch("etl/other", set={"nodes.fetch.queue": "fast"})
            merged = await w.merge("etl/other", into="etl")
            await w.revert("etl", merged.artifact_id)
            await w.snapshot("etl", set={"nodes.fetch.params.size": 99})
            await w.compact("etl")
            await w.protect("etl")
            await w.delete("etl/other")
            await w.undelete("etl/other")
            assert await w.blame("etl")
            assert await w.log("etl")
            assert await w.fsck(repair=True) == []
            assert (await w.gc()).blobs == 0
            with pytest.raises(weft.PermissionDenied):
                await client.enqueue("double", {"n": 1})

    asyncio.run(run())


def test_the_grants_of_the_docs_let_one_role_keep_schedules_and_another_begin_their_jobs(
    granted_url: str, home: Path
) -> None:
    nodes = {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}

    async def run() -> None:
        async with client_of(granted_url, "shop_flows", home) as client:
            await client.workflows.push({"workflow_id": "report", "nodes": nodes})
            schedules = client.schedules
            made = await schedules.add("report", every=3600)
            await schedules.change("report", priority=1)
            await schedules.pause("report")
            await schedules.resume("report")
            for _ in range(2):
                filling = await schedules.backfill("report", since=made.created_at - timedelta(hours=3), at_once=2)
            await schedules.cancel_backfill(filling.id)
            assert len(await schedules.backfills("report")) == 2
            await schedules.add("report", name="other", every=3600)
            await schedules.delete("other")
        async with client_of(granted_url, "shop_worker", home) as client:
            look = Ticker(client.database, client.ids, Libraries(client.database, lambda: client.blobs))
            assert await look.run_once() == 2
            async with client.database.acquire() as conn:
                assert await conn.fetchval("select count(*) from weft.jobs where labels ->> 'schedule' = 'report'") == 2

    asyncio.run(run())
