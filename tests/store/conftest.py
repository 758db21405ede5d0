"""Fixtures of the tests of the store: one database for all of them, emptied before each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest
from store_scene import RESET, Store


@pytest.fixture(scope="session")
def store_url(server_url: str) -> str:
    """A clone of the template that the tests of the store share, because emptying one is quicker than making one."""

    async def make() -> None:
        admin = await asyncpg.connect(server_url)
        await admin.execute("create database store_tests template weft_template")
        await admin.close()

    asyncio.run(make())
    return urlsplit(server_url)._replace(path="/store_tests").geturl()


@pytest.fixture
async def url(store_url: str) -> str:
    conn = await asyncpg.connect(store_url)
    await conn.execute(RESET)
    await conn.close()
    return store_url


@pytest.fixture
async def store(conn: asyncpg.Connection[asyncpg.Record]) -> Store:
    return Store(conn)


@pytest.fixture
async def other(url: str) -> AsyncIterator[Store]:
    """The same database on another connection, for what happens at the same time."""
    conn = await asyncpg.connect(url)
    yield Store(conn)
    await conn.close()
