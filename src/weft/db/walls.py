"""Sessions that are each held to one org, so that a statement that forgets to name it sees no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from weft.db.pool import Pool
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import Database, type_Connection

SQL = Statements("weft.db", "sql/wall.sql")
# No org has this id.
NO_ORG = "0"


class Walled:
    """The sessions of a process that serves many orgs; one goes back to the org that it was held to last if it can."""

    def __init__(self, database: Database, size: int) -> None:
        self.pool = Pool(database.connect_walled, size)
        self._is_lost_at_commit = database.through_pooler
        self._held: WeakKeyDictionary[type_Connection, int] = WeakKeyDictionary()

    def suits(self, org_id: int) -> Callable[[type_Connection], bool]:
        """Return what tells whether a session is held to an org already."""
        return lambda conn: self._held.get(conn) == org_id

    async def hold(self, conn: type_Connection, org_id: int) -> None:
        """Let a session see one org only; behind a transaction pooler for this transaction."""
        if self._is_lost_at_commit:
            await conn.execute(SQL.hold_transaction, str(org_id))
        elif self._held.get(conn) != org_id:
            await conn.execute(SQL.hold, str(org_id))
            self._held[conn] = org_id


async def missing_wall(conn: type_Connection) -> str | None:
    """Say why PostgreSQL does not hold sessions of this role to one org each; None when it does."""
    rows = await conn.fetch(SQL.lacking)
    if not rows:
        return None
    role = rows[0]["role"]
    if rows[0]["is_superuser"]:
        return f"its role {role} is a superuser"
    if rows[0]["is_owner"]:
        return f"its role {role} owns the tables"
    return f"its role {role} is not held back in {', '.join(row['name'] for row in rows)}"
