"""The pool opens no more connections than it may, and closes those that nobody needs."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from engine_scene import until

from weft.db import pool as pool_module
from weft.db.database import POOL_SIZE
from weft.db.pool import IDLE_SECONDS, Pool

OPEN = "select count(*) from pg_stat_activity where application_name = 'pooled'"


def pool_on(url: str, size: int) -> Pool:
    return Pool(lambda: asyncpg.connect(url, server_settings={"application_name": "pooled"}), size)


def test_its_size_and_its_patience_are_those_of_the_docs() -> None:
    assert (POOL_SIZE, IDLE_SECONDS) == (8, 60.0)


async def test_who_comes_when_all_are_lent_waits_for_the_first_that_comes_back(
    url: str, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    pool, go, inside = pool_on(url, 2), asyncio.Event(), 0
    both = asyncio.Event()

    async def hold() -> None:
        nonlocal inside
        async with pool.acquire() as own:
            inside += 1
            if inside == 2:
                both.set()
            await go.wait()
            await own.execute("select 1")

    holders = [asyncio.create_task(hold()) for _ in range(5)]
    await both.wait()
    assert (inside, await conn.fetchval(OPEN)) == (2, 2)
    go.set()
    await asyncio.gather(*holders)
    assert (inside, await conn.fetchval(OPEN)) == (5, 2)
    await pool.close()


async def test_what_is_idle_for_long_is_closed(
    url: str, conn: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.05)
    pool = pool_on(url, 2)
    async with pool.acquire(), pool.acquire():
        assert await conn.fetchval(OPEN) == 2
    await until(lambda: conn.fetchval(OPEN), lambda count: count == 0)
    async with pool.acquire() as own:
        assert await own.fetchval("select 1") == 1
    await pool.close()
