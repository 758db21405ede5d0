"""Migrations while workers work: one that has nothing to do is not felt, one that gives up leaves all as it was."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

import weft
from crash.checker import check_outcomes
from crash.harness import Crew, until, until_settled
from weft.db import migrate, revisions

pytestmark = pytest.mark.own_database


async def ended(conn: asyncpg.Connection[asyncpg.Record]) -> int:
    """Return how many tasks have ended."""
    return int(await conn.fetchval("select count(*) from weft.task_done"))


async def test_an_upgrade_of_what_is_up_to_date_is_not_felt_by_those_who_work(
    crew: Crew, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await crew.workers(2)
    submitter = await crew.submitter(16)
    await until(lambda: ended(conn), "work is under way")
    for _ in range(3):
        before = await ended(conn)
        await asyncio.gather(*(migrate.upgrade(crew.url) for _ in range(3)))

        async def goes_on(before: int = before) -> bool:
            return await ended(conn) > before + 50

        await until(goes_on, "work goes on")
    assert await submitter.finish() == 0
    await until_settled(conn)
    assert await conn.fetchval("select count(*) from weft.attempt") == 0
    assert set(await check_outcomes(conn, crew.ledger())) == {"completed"}
    for complaint in ("connection lost", "heartbeat failed", "Error"):
        assert complaint not in crew.log()


async def test_a_migration_that_gives_up_under_load_leaves_the_work_as_it_was(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle reader keeps it from its locks, and whoever came after it waits behind it until it gives up."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "500ms")
    await crew.workers(2, worker_timeout=20)
    submitter = await crew.submitter(17)
    await until(lambda: ended(conn), "work is under way")
    reader = await asyncpg.connect(crew.url)
    transaction = reader.transaction()
    await transaction.start()
    await reader.fetchval("select count(*) from weft.task_done")
    for _ in range(2):
        before = await ended(conn)
        with pytest.raises(migrate.MigrationBlocked):
            await migrate.downgrade(crew.url, "base")

        async def goes_on(before: int = before) -> bool:
            return await ended(conn) > before + 20

        await until(goes_on, "work goes on")
    assert await revisions.current(conn) == revisions.head()
    await transaction.rollback()
    await reader.close()
    assert await submitter.finish() == 0
    await until_settled(conn)
    assert await conn.fetchval("select count(*) from weft.worker where state = 'lost'") == 0
    assert set(await check_outcomes(conn, crew.ledger())) == {"completed"}
