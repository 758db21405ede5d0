"""Says which rights a role lacks on a thing that PostgreSQL has refused it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weft.core.errors import PermissionDenied
from weft.db.statements import Statements

if TYPE_CHECKING:
    import asyncpg

    from weft.db.database import type_Connection

SQL = Statements("weft.db", "sql/privilege.sql")
_REFUSED = re.compile(r"permission denied for (table|view|sequence|schema) (\w+)")


async def explained(conn: type_Connection, problem: asyncpg.InsufficientPrivilegeError) -> PermissionDenied:
    """Return the error with what the role has and lacks; PostgreSQL names the thing, not the right."""
    found = _REFUSED.match(str(problem))
    if found is None or conn.is_closed():
        return PermissionDenied(str(problem))
    kind, name = found.groups()
    rows = await conn.fetch(SQL.on_schema if kind == "schema" else SQL.on_relation, name)
    lacking = [right for right, has in rows if not has]
    return PermissionDenied(str(problem), await conn.fetchval(SQL.role), lacking)
