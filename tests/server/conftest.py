"""Fixtures of the tests of the server: one that answers over real HTTP, and clients of it with tokens of any role."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from server_scene import MakeHttp, MakeRemote

import weft
from weft.server.serving import Server


@pytest.fixture
async def server(settings: weft.Settings) -> AsyncIterator[Server]:
    """A server of the test's database, on a port of its own."""
    async with Server(settings, port=0) as serving:
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
            http = httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30)
            return await stack.enter_async_context(http)

        yield make


@pytest.fixture
async def http(make_http: MakeHttp) -> httpx.AsyncClient:
    """A plain HTTP client whose token may do everything in its org."""
    return await make_http()
