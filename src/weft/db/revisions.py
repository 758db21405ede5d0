"""Which revision the database is at, and which one this release needs, told without loading Alembic."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SCHEMA = "weft"
VERSION_TABLE = "schema_revision"
# The first revision of which a database knows by which SQL it got there.
DIGESTED = "0003"
# Not by its name: it may not be there.
DIGEST = f"select to_json(r) ->> 'digest' from {SCHEMA}.{VERSION_TABLE} r"


@cache
def all_revisions() -> tuple[str, ...]:
    """Return the revisions of this release, oldest first: the numbers that their files begin with."""
    files = resources.files("weft.db.migrations").joinpath("versions").iterdir()
    return tuple(sorted(file.name[:4] for file in files if file.name[:4].isdigit() and file.name.endswith(".py")))


def head() -> str:
    """Return the newest revision."""
    return all_revisions()[-1]


@cache
def digest(revision: str) -> str:
    """Return what tells one state of the SQL that leads to a revision from another; remarks do not count."""
    files = resources.files("weft.db.migrations").joinpath("sql").iterdir()
    leading = [file for file in files if file.name[:4] <= revision and not file.name.endswith("_down.sql")]
    lines = [
        stripped
        for file in sorted(leading, key=lambda file: file.name)
        for line in file.read_text(encoding="utf-8").splitlines()
        if (stripped := line.strip()) and not stripped.startswith("--")
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


async def is_same(conn: type_Connection) -> bool:
    """Whether a database that is at the newest revision got there by the SQL of this very release."""
    return bool(await conn.fetchval(DIGEST) == digest(head()))


async def current(conn: type_Connection) -> str | None:
    """Return the revision of the database, or None when it has no Weft schema."""
    try:
        found = await conn.fetchval(f"select version_num from {SCHEMA}.{VERSION_TABLE}")
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return None
    return None if found is None else str(found)
