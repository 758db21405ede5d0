"""Tells servers who must not be let in any more, so that what is open for him ends at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/token.sql")
CHANNEL = "weft_credentials"


async def tell_refused(conn: type_Connection, kind: str, id: int) -> None:
    """Tell of a token or a user that is refused from the end of this transaction on."""
    await conn.execute(SQL.tell_refused, f"{kind} {id}")
