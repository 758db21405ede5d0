"""Which revision the database is at, and which one this release needs, told without loading Alembic."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SCHEMA = "weft"
VERSION_TABLE = "schema_revision"


@cache
def all_revisions() -> tuple[str, ...]:
    """Return the revisions of this release, oldest first: the numbers that their files begin with."""
    files = resources.files("weft.db.migrations").joinpath("versions").iterdir()
    return tuple(sorted(file.name[:4] for file in files if file.name[:4].isdigit() and file.name.endswith(".py")))


def head() -> str:
    """Return the newest revision."""
    return all_revisions()[-1]


async def current(conn: type_Connection) -> str | None:
    """Return the revision of the database, or None when it has no Weft schema."""
    try:
        found = await conn.fetchval(f"select version_num from {SCHEMA}.{VERSION_TABLE}")
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return None
    return None if found is None else str(found)
