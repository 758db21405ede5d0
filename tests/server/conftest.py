"""Fixtures of the tests of the server: one that answers over real HTTP, and clients of it with tokens of any role."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from gate import Gate
from server_scene import MakeHttp, MakeRemote

import weft
from granted import grant, take_back
from weft.server.serving import Server


@pytest.fixture
async def server(settings: weft.Settings) -> AsyncIterator[Server]:
    """A server of the test's database, on a port of its own."""
    async with Server(settings, port=0) as serving:
        yield serving


@pytest.fixture
async def walled_settings(settings: weft.Settings) -> AsyncIterator[weft.Settings]:
    """Settings of a server whose role has what the docs grant it, and is held to the org that it acts for."""
    assert settings.database_url is not None
    conn = await asyncpg.connect(settings.database_url)
    await grant(conn)
    address = urlsplit(settings.database_url)._replace(netloc="shop_server@").geturl()
    # No worker that a test has registered is lost while it looks on.
    yield replace(settings, database_url=address, worker_timeout=timedelta(minutes=5))
    await take_back(conn)
    await conn.close()


@pytest.fixture
async def walled_server(walled_settings: weft.Settings) -> AsyncIterator[Server]:
    """A server that is held to the org that it acts for, on a port of its own."""
    async with Server(walled_settings, port=0) as serving:
        yield serving


@pytest.fixture
async def make_remote(server: Server, client: weft.Client) -> AsyncIterator[MakeRemote]:
    """Opens clients of the server, each with a token of its own."""
    async with AsyncExitStack() as stack:

        async def make(role: str = "admin", name: str = "tester", **more: Any) -> weft.RemoteClient:
            made = await client.tokens.create(name, role=role, **more)
            remote = weft.RemoteClient(server.url, made.secret, settings=weft.Settings.load(environ={}))
            return await stack.enter_async_context(remote)

        yield make


@pytest.fixture
async def remote(make_remote: MakeRemote) -> weft.RemoteClient:
    """A client of the server whose token may do everything in its org."""
    return await make_remote()


@pytest.fixture
async def make_http(server: Server, client: weft.Client) -> AsyncIterator[MakeHttp]:
    """Opens plain HTTP clients of the server."""
    async with AsyncExitStack() as stack:

        async def make(role: str | None = "admin", **more: Any) -> httpx.AsyncClient:
            headers = {}
            if role is not None:
                made = await client.tokens.create("tester", role=role, **more)
                headers = {"authorization": f"Bearer {made.secret}"}
            # To read all certificates that there are takes longer than most tests ask for.
            http = httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30, verify=False)
            return await stack.enter_async_context(http)

        yield make


@pytest.fixture
async def http(make_http: MakeHttp) -> httpx.AsyncClient:
    """A plain HTTP client whose token may do everything in its org."""
    return await make_http()


@pytest.fixture
async def gate(server: Server) -> AsyncIterator[tuple[Gate, str]]:
    """What stands before the server, and its address."""
    made = Gate(server.url)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as listening:
        yield made, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    await made.close()


@pytest.fixture
async def apart(url: str, home: Path) -> AsyncIterator[tuple[str, int]]:
    """A server in a process of its own, and which that is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "PG"))}
    environment = {**kept, "WEFT_DATABASE_URL": url, "WEFT_HOME": str(home)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "weft", "server", "--port", "0", env=environment, stdout=PIPE, stderr=STDOUT
    )
    assert process.stdout is not None
    try:
        line = b""
        while (found := re.search(rb"http://[0-9.:]+", line)) is None:
            line = await process.stdout.readline()
            assert line, "it has ended"
        yield found[0].decode(), process.pid
    finally:
        process.kill()
        await process.communicate()
