"""The roles of the docs with what the docs grant them, and their end."""

from __future__ import annotations

import contextlib
from pathlib import Path

import asyncpg

from weft.db.statements import Statements

GRANTS = (Path(__file__).resolve().parents[1] / "examples" / "docs" / "grants.sql").read_text(encoding="utf-8")
ROLES = "shop_server, shop_web, shop_report, shop_worker, shop_flows"
DROP_WALLS = Statements("weft.db.migrations", "sql/0004_down.sql").texts["drop_walls"]


async def grant(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Make the roles, each statement in a transaction of its own, as psql runs a file.

    In one transaction the grants would wait for an autovacuum that waits for them: it takes a table before it changes
    the row of pg_class that a grant changes too.
    """
    for statement in GRANTS.split(";\n")[:-1]:
        await _insist(conn, statement)


async def take_back(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Drop the roles, which belong to the whole server and not to the test's database."""
    # A session whose client has gone may be amid a statement, and would wait for this as this for it.
    await conn.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename like 'shop\\_%'")
    for statement in (f"drop owned by {ROLES}", f"drop role {ROLES}", DROP_WALLS):
        await _insist(conn, statement)


async def _insist(conn: asyncpg.Connection[asyncpg.Record], statement: str) -> None:
    """Do something with many tables at once, again when an autovacuum was amid one of them and waited for another."""
    for _ in range(9):
        with contextlib.suppress(asyncpg.DeadlockDetectedError):
            await conn.execute(statement)
            return
    await conn.execute(statement)
