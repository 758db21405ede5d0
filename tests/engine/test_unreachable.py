"""Whoever cannot reach PostgreSQL is told what to do about that very cause."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from engine_scene import MakeClient

import weft


async def refusal(url: str, home: Path) -> str:
    """Return what a client says that cannot begin."""
    with pytest.raises(weft.WeftError) as caught:
        async with weft.Client(settings=weft.Settings.load(environ={}, database_url=url, home=home)):
            pass
    assert caught.value.code == "database_unavailable"
    return str(caught.value)


@pytest.fixture
async def role(url: str) -> AsyncIterator[str]:
    """A role that may have one connection."""
    name = f"r_{uuid.uuid4().hex[:12]}"
    conn = await asyncpg.connect(url)
    await conn.execute(f"create role {name} login connection limit 1")
    yield name
    await conn.execute(f"drop role {name}")
    await conn.close()


def changed(url: str, **parts: str) -> str:
    return urlsplit(url)._replace(**parts).geturl()


async def test_a_database_that_does_not_exist(url: str, tmp_path: Path) -> None:
    said = await refusal(changed(url, path="/nowhere"), tmp_path)
    assert 'database "nowhere" does not exist' in said
    assert said.endswith("make that database with `createdb`, or name another in the address")


async def test_a_role_that_does_not_exist(url: str, tmp_path: Path) -> None:
    said = await refusal(changed(url, netloc="nobody@"), tmp_path)
    assert said.endswith("check the user and the password, and pg_hba.conf")


async def test_no_connection_left(url: str, role: str, tmp_path: Path) -> None:
    url = changed(url, netloc=f"{role}@")
    only = await asyncpg.connect(url)
    try:
        said = await refusal(url, tmp_path)
    finally:
        await only.close()
    assert said.endswith("raise max_connections, or run fewer workers and clients")


async def test_a_standby(url: str, tmp_path: Path) -> None:
    """As one answers: nothing may be written."""
    settings = weft.Settings.load(
        environ={}, database_url=f"{url}&options=-cdefault_transaction_read_only%3Don", home=tmp_path
    )
    async with weft.Client(settings=settings) as client:
        with pytest.raises(weft.WeftError, match=r"it is a standby: give the address of the primary$"):
            await client.enqueue("h")


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("postgresql://ann@127.0.0.1:1/db", "check that it runs, and the host and the port"),
        ("postgresql://ann@nowhere.invalid/db", "check the host in the address"),
        ("postgresql://ann@/db?host=/nowhere", "check that it runs, and the host and the port"),
    ],
)
async def test_nobody_there(url: str, advice: str, tmp_path: Path) -> None:
    assert (await refusal(url, tmp_path)).endswith(advice)


async def test_somebody_who_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.db.database.CONNECT_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = await refusal(f"postgresql://ann@127.0.0.1:{silent.getsockname()[1]}/db", tmp_path)
    assert said.endswith("check the host and the port, and that no firewall is between")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_another_default_isolation_of_the_database_changes_nothing(
    url: str, make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record], level: str
) -> None:
    name = urlsplit(url).path[1:]
    await conn.execute(f"alter database \"{name}\" set default_transaction_isolation = '{level}'")
    try:
        client = await make_client()
        handles = await asyncio.gather(*(client.enqueue("h", idempotency_key=f"k{n % 5}") for n in range(60)))
        assert sum(handle.created for handle in handles) == 5
        shown = "select current_setting('transaction_isolation')"
        assert await client.database.run(lambda mine: mine.fetchval(shown)) == "read committed"
        async with client.database.acquire() as mine:
            assert await mine.fetchval(shown) == "read committed"
    finally:
        await conn.execute(f'alter database "{name}" reset default_transaction_isolation')


async def test_a_wrong_call_is_not_told_as_a_server_that_is_gone(client: weft.Client) -> None:
    """One argument too many: the connection is as it was, and only whoever wrote the call can mend it."""
    database = client.database
    for lend in (database.acquire, database.transaction):
        with pytest.raises(asyncpg.InterfaceError, match="expects 0 arguments"):
            async with lend() as conn:
                await conn.fetchval("select 1", 2)
    for run in (database.run, database.run_alone, database.read):
        with pytest.raises(asyncpg.InterfaceError, match="expects 0 arguments"):
            await run(lambda conn: conn.fetchval("select 1", 2))
    assert await database.read(lambda conn: conn.fetchval("select 1")) == 1
