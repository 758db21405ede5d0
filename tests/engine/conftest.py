"""Fixtures of the tests of the engine: one database for all of them, emptied before each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from engine_scene import Clock, MakeClient

import weft

RESET = (Path(__file__).parents[1] / "store" / "reset.sql").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def engine_url(server_url: str) -> str:
    """A clone of the template that the tests of the engine share, because emptying one is quicker than making one."""

    async def make() -> None:
        admin = await asyncpg.connect(server_url)
        await admin.execute("create database engine_tests template weft_template")
        await admin.close()

    asyncio.run(make())
    return urlsplit(server_url)._replace(path="/engine_tests").geturl()


@pytest.fixture
async def url(engine_url: str) -> str:
    conn = await asyncpg.connect(engine_url)
    await conn.execute(RESET)
    await conn.close()
    return engine_url


@pytest.fixture
def clock(conn: asyncpg.Connection[asyncpg.Record], client: weft.Client) -> Clock:
    return Clock(conn, client)


@pytest.fixture
async def make_client(url: str, home: Path) -> AsyncIterator[MakeClient]:
    """Opens clients of the test's database with settings of their own."""
    async with AsyncExitStack() as stack:

        async def make(**overrides: Any) -> weft.Client:
            options = {"database_url": url, "home": home, "profile": "fast", **overrides}
            return await stack.enter_async_context(weft.Client(settings=weft.Settings.load(environ={}, **options)))

        yield make
