"""Fixtures of the tests of the store: one database for all of them, emptied before each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from store_scene import Store


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
