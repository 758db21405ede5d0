"""A statement, and what it may read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import asyncpg
from million import cost_of

# Tables of which one may read everything: there are few rows in them, however many tasks there are. Those of blobs
# are read whole by the collector alone, once an hour; what others read of them is held by the pages.
SMALL = {
    "queue",
    "worker",
    "lease",
    "queue_slot",
    "key_slot",
    "handler",
    "org",
    "blob",
    "task_blob",
    "tally",
    "tally_mark",
}
ONE_PASS = 26_000


@dataclass
class Guard:
    """A statement, and what it may read."""

    name: str
    statement: str
    arguments: tuple[Any, ...]
    pages: int
    indexes: dict[str, int] = field(default_factory=dict)
    rows: int | None = None

    async def broken(self, conn: asyncpg.Connection[asyncpg.Record], when: str) -> list[str]:
        """Return in which ways the statement reads more than it may."""
        cost = await cost_of(conn, self.statement, *self.arguments)
        if cost.pages > self.pages:
            # The first call of a session also reads the catalogue.
            cost = await cost_of(conn, self.statement, *self.arguments)
        where = f"{when}, {self.name}"
        found = []
        if cost.pages > self.pages:
            found.append(f"{where}: {cost.pages} pages, may be {self.pages}; indexes {cost.indexes}")
        for table, read in cost.whole_tables.items():
            if table not in SMALL and read and self.pages < ONE_PASS:
                found.append(f"{where}: read all of {table} ({read} rows)")
        for index, most in self.indexes.items():
            if not any(name.startswith(index) for name in cost.indexes):
                found.append(f"{where}: did not use {index} but {cost.indexes}")
            if (read := cost.index_entries(index)) > most:
                found.append(f"{where}: {read} entries of {index}, may be {most}")
        if self.rows is not None and cost.rows != self.rows:
            found.append(f"{where}: {cost.rows} rows, should be {self.rows}")
        return found


async def check(conn: asyncpg.Connection[asyncpg.Record], guards: list[Guard], when: str) -> list[str]:
    """Return in which ways any of the statements reads more than it may."""
    return [line for guard in guards for line in await guard.broken(conn, when)]
