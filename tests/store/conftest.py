"""Fixtures of the tests of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from store_scene import Ears, Store


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
