"""PostgreSQL does not answer in time, for a lock or a dead connection: nothing fails by it, and soon all goes on."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from server_scene import MakeRemote

import weft
from crash.harness import until
from crash.proxy import proxy_to
from weft.db.database import Database
from weft.server.serving import Server
from weft.worker.registry import Registry

SOON = 1.0


def _impatient(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let statements of new connections wait for a short time only, and have no others."""
    monkeypatch.setattr(database, "command_timeout", SOON)
    database.expire()


async def _pid(conn: asyncpg.Connection[asyncpg.Record]) -> int:
    return int(await conn.fetchval("select pg_backend_pid() from pg_sleep(0.02)"))


async def _several(database: Database) -> set[int]:
    """Open several connections; return which they are."""
    return set(await asyncio.gather(*(database.read(_pid) for _ in range(4))))


async def test_connections_that_are_dead_in_the_network_are_noticed_all_at_once(
    settings: weft.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.database_url is not None
    async with proxy_to(settings.database_url) as proxy:
        database = await Database.open(replace(settings, database_url=proxy.url))
        _impatient(database, monkeypatch)
        of_org = database.of_org(1)
        before = await _several(database) | await _several(of_org)
        assert len(before) == 8
        proxy.partition()
        proxy.heal()
        # The first waits in vain and asks once more; nobody after it waits.
        assert await of_org.read(_pid) not in before
        assert not (await _several(database) | await _several(of_org)) & before
        assert await database.run(_pid) not in before
        await database.close()


def _sockets_to(port: int) -> Iterator[socket.socket]:
    """Yield copies of the sockets by which this process is connected to a port."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as copied:
            if copied.family == socket.AF_INET and copied.getpeername()[1] == port:
                yield copied


async def test_the_kernel_is_told_how_long_the_other_end_of_a_connection_may_be_silent(settings: weft.Settings) -> None:
    assert settings.database_url is not None
    async with proxy_to(settings.database_url) as proxy:
        port = urlsplit(proxy.url).port
        assert port is not None
        database = await Database.open(replace(settings, database_url=proxy.url))
        await database.read(_pid)
        listening = await database.connect(database.listen_url)
        found = [
            (
                each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            )
            for each in _sockets_to(port)
        ]
        assert found == [(4000, 1)] * 2
        await listening.close()
        await database.close()


async def test_a_statement_that_waits_for_a_lock_costs_no_other_connection(
    settings: weft.Settings, conn: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.open(settings)
    _impatient(database, monkeypatch)
    before = await _several(database)
    async with conn.transaction():
        await conn.execute("lock table weft.step")
        with pytest.raises(TimeoutError):
            await database.read(lambda conn: conn.fetch("select * from weft.step"))
    assert len(await _several(database) & before) == len(before) - 1
    await database.close()


async def test_what_passes_is_told_as_an_outage_and_not_as_a_surprise(
    server: Server, http: httpx.AsyncClient, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    task = await client.enqueue("h")

    async def told(answer: Awaitable[httpx.Response]) -> tuple[int, str, str]:
        found = await answer
        return found.status_code, found.json()["code"], found.headers["retry-after"]

    async def end_one() -> int:
        await conn.execute("select pg_stat_clear_snapshot()")
        return int(
            await conn.fetchval(
                "select count(pg_cancel_backend(pid)) from pg_stat_activity"
                " where wait_event_type = 'Lock' and datname = current_database()"
            )
        )

    outage = (503, "database_unavailable", "1")
    _impatient(server.state.client.database, monkeypatch)
    path = f"/api/v1/tasks/{task.id}"
    async with conn.transaction():
        await conn.execute("lock table weft.task")
        # PostgreSQL ends what waits, as an operator may, or a limit that he set.
        asked = asyncio.create_task(told(http.get(path)))
        await until(end_one, "it waits, and is ended")
        assert await asked == outage
        # Nobody ends it: the wait for it does.
        assert await told(http.get(path)) == outage
    assert (await http.get(path)).status_code == 200


async def test_a_far_attempt_waits_while_its_step_cannot_be_kept(
    server: Server, make_remote: MakeRemote, client: weft.Client, registry: Registry,
    conn: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    began, go = asyncio.Event(), asyncio.Event()

    @registry.task(name="h")
    async def h(ctx: weft.Context) -> Any:
        began.set()
        await go.wait()
        return await ctx.step("work", lambda: 1)

    async def is_told() -> bool:
        return "database_unavailable" in caplog.text

    _impatient(server.state.client.database, monkeypatch)
    far = await make_remote(role="worker")
    async with weft.Worker(client=far, registry=registry):
        task = await client.enqueue("h")
        await began.wait()
        async with conn.transaction():
            await conn.execute("lock table weft.step")
            go.set()
            await until(is_told, "the step was not kept in time")
        assert await client.wait(task.id, timeout=30) == 1
    assert (await client.get_task(task.id)).attempt == 1
