"""What all crash tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from crash.harness import Crew, crew_at, until

EMPTIED = (
    "task task_done task_params attempt edge idempotency_key worker handler lease queue_slot key_slot outbox audit"
    " task_blob task_log blob"
).split()


@pytest.fixture
async def crew(url: str, tmp_path: Path) -> AsyncIterator[Crew]:
    """The processes of one test on its own database."""
    async with crew_at(url, tmp_path / "crew") as opened:
        yield opened


@pytest.fixture(scope="session")
def shared_database(server_url: str) -> str:
    """A migrated database that many small tests use one after the other: to clone one takes longer than they do."""
    head, _, query = server_url.partition("?")
    base = head.rpartition("/")[0]

    async def prepare() -> None:
        admin = await asyncpg.connect(f"{base}/postgres?{query}")
        try:
            await admin.execute("create database crash_shared template weft_template strategy file_copy")
        finally:
            await admin.close()

    asyncio.run(prepare())
    return f"{base}/crash_shared?{query}"


@pytest.fixture
async def shared_url(shared_database: str) -> AsyncIterator[str]:
    """The address of the shared database, emptied after the test."""
    yield shared_database
    conn = await asyncpg.connect(shared_database)

    async def is_alone() -> bool:
        others = await conn.fetch(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        return not others

    try:
        await until(is_alone, "nobody else uses the shared database")
        await conn.execute("drop function if exists gate cascade")
        for table in EMPTIED:
            await conn.execute(f"delete from weft.{table}")
        await conn.execute("delete from weft.queue where id <> 1")
        await conn.execute("delete from weft.org where id <> 1")
        await conn.execute("update weft.queue set max_running = null, max_running_per_key = null, paused_at = null")
    finally:
        await conn.close()
