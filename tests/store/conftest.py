"""Fixtures of the tests of the store: one database for all of them, emptied before each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest
from store_scene import Ears, Store


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
async def store(conn: asyncpg.Connection[asyncpg.Record]) -> Store:
    return Store(conn)


@pytest.fixture
async def other(url: str) -> AsyncIterator[Store]:
    """The same database on another connection, for what happens at the same time."""
    conn = await asyncpg.connect(url)
    yield Store(conn)
    await conn.close()


@pytest.fixture
def ears(other: Store) -> Ears:
    return Ears(other)


@pytest.fixture
async def unshared_url(server_url: str) -> AsyncIterator[str]:
    """A database of the test's own, for what outlives the emptying of the shared one: partitions."""
    admin = await asyncpg.connect(server_url)
    await admin.execute("drop database if exists unshared with (force)")
    await admin.execute("create database unshared template weft_template")
    yield urlsplit(server_url)._replace(path="/unshared").geturl()
    await admin.execute("drop database unshared with (force)")
    await admin.close()
