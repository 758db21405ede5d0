"""The stand-in for a transaction pooler is as unkind as the real ones, lest tests that pass behind it prove nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import asyncpg
import pytest

from pooler import Pooler, pooler_to
from reset import EMPTIER

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def pooled(pooler: Pooler) -> AsyncIterator[Connection]:
    """A connection through the pooler that prepares nothing under a name."""
    conn = await asyncpg.connect(pooler.url, statement_cache_size=0)
    yield conn
    conn.terminate()


async def session_of(conn: Connection) -> int:
    async with conn.transaction():
        return int(await conn.fetchval("select pg_backend_pid()"))


async def test_consecutive_transactions_meet_different_sessions_and_one_transaction_meets_one(
    pooled: Connection,
) -> None:
    first, second = await session_of(pooled), await session_of(pooled)
    assert first != second
    async with pooled.transaction():
        assert len({await pooled.fetchval("select pg_backend_pid()") for _ in range(5)}) == 1


async def test_a_named_statement_is_unknown_to_the_next_transaction(pooled: Connection) -> None:
    async with pooled.transaction():
        statement = await pooled.prepare("select 1", name="one")
        assert [await statement.fetchval(), await statement.fetchval()] == [1, 1]
    with pytest.raises(asyncpg.InvalidSQLStatementNameError):
        await statement.fetchval()


async def test_settings_of_a_session_are_lost(pooled: Connection) -> None:
    for _ in range(5):
        await pooled.execute("set work_mem = '77MB'")
        async with pooled.transaction():
            assert await pooled.fetchval("show work_mem") != "77MB"


async def test_whoever_listens_hears_nothing(pooled: Connection, conn: Connection) -> None:
    heard: list[object] = []
    await pooled.add_listener("news", lambda *message: heard.append(message))
    await conn.execute("notify news")
    # The server sends what was heard before it is ready again: more often than there are sessions.
    for _ in range(5):
        await pooled.execute("select 1")
    assert heard == []


async def test_settings_at_the_login_are_refused_or_ignored(pooler: Pooler, url: str) -> None:
    with pytest.raises(asyncpg.ProtocolViolationError, match="unsupported startup parameter: work_mem"):
        await asyncpg.connect(pooler.url, server_settings={"work_mem": "77MB"})
    with pooler_to(url, ignores_settings=True) as lenient:
        conn = await asyncpg.connect(lenient.url, server_settings={"work_mem": "77MB"}, statement_cache_size=0)
        async with conn.transaction():
            assert await conn.fetchval("show work_mem") != "77MB"
        await conn.close()


async def test_more_clients_than_sessions_take_turns(pooler: Pooler) -> None:
    clients = [await asyncpg.connect(pooler.url, statement_cache_size=0) for _ in range(8)]
    sessions = [await asyncio.gather(*(session_of(client) for client in clients)) for _ in range(3)]
    assert {pid for turn in sessions for pid in turn} == set(sessions[0])
    assert len(set(sessions[0])) == 3
    for client in clients:
        await client.close()


async def test_rows_pass_in_both_directions_by_copy(pooled: Connection) -> None:
    async with pooled.transaction():
        await pooled.execute("create temporary table number (n int) on commit drop")
        await pooled.copy_records_to_table("number", records=[(n,) for n in range(1000)])
        assert await pooled.fetchval("select sum(n) from number") == 499_500


async def test_a_client_that_goes_in_the_middle_of_a_transaction_leaves_no_lock(
    pooled: Connection, conn: Connection
) -> None:
    transaction = pooled.transaction()
    await transaction.start()
    await pooled.execute("lock table weft.queue")
    pooled.terminate()
    async with asyncio.timeout(60), conn.transaction():
        await conn.execute("lock table weft.queue")


async def test_a_statement_is_cancelled_in_the_session_where_it_runs(pooled: Connection) -> None:
    with pytest.raises(TimeoutError):
        await pooled.execute("select pg_sleep(600)", timeout=0.1)
    assert await session_of(pooled)


async def test_a_session_that_the_server_ended_is_replaced(
    pooler: Pooler, pooled: Connection, conn: Connection
) -> None:
    ended = await conn.fetch(
        "select pg_terminate_backend(pid, 20000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        " and application_name <> $1",
        EMPTIER,
    )
    assert len(ended) == 3
    assert await session_of(pooled)
