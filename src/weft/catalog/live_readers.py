"""Who is told what comes to live jobs, and why they fail: those who see all datasets that a job reads and writes."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.catalog.datasets import Sees
    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/live_readers.sql")
ADVICE = "those who see all datasets of the job: ask an admin for their roles"
# An error may quote rows, keys and values.
WITHHELD = f"failed; why is told to {ADVICE}"


async def untold(conn: type_Connection, org_id: int, jobs: Collection[int], sees: Sees) -> set[int]:
    """Return those of some live jobs of which this is not for whoever asks; of one that is gone nobody can say."""
    if sees is None:
        return set()
    return set(jobs) - {row["id"] for row in await conn.fetch(SQL.told, org_id, [*jobs], sorted(sees))}
