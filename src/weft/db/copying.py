"""Writes rows by COPY, and notices when the connection ends meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import asyncpg

from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.db", "sql/wall.sql")
_LEAST_SECONDS = 60.0
_ROWS_PER_SECOND = 1000
_walled: WeakKeyDictionary[type_Connection, bool] = WeakKeyDictionary()


async def copy_rows(
    conn: type_Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int
) -> None:
    """Write about ``count`` rows to a table of ours, inside the caller's transaction."""
    if not await _is_walled(conn):
        await _copy(conn, table, columns, rows, count, schema_name="weft")
        return
    # COPY knows no row level security: what is written by a role that is held to an org goes past it as an INSERT.
    beside, names = f"copied_{table}", ", ".join(columns)
    await conn.execute(
        f"create temp table if not exists {beside} on commit delete rows as table weft.{table} with no data"
    )
    await _copy(conn, beside, columns, rows, count)
    await conn.execute(f"insert into weft.{table} ({names}) select {names} from {beside}")
    await conn.execute(f"delete from {beside}")


async def _is_walled(conn: type_Connection) -> bool:
    """Whether row level security holds for the role of a session, asked once."""
    found = _walled.get(conn)
    if found is None:
        found = _walled[conn] = bool(await conn.fetchval(SQL.is_walled))
    return found


async def _copy(
    conn: type_Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int,
    schema_name: str | None = None,
) -> None:  # fmt: skip
    """Write rows by COPY.

    asyncpg waits for ever for leave to send more to a server that is gone, whatever its time limit is: so the end of
    the connection is listened for. The limit grows with the rows.
    """
    limit = _LEAST_SECONDS + count / _ROWS_PER_SECOND
    copying = asyncio.ensure_future(
        conn.copy_records_to_table(table, schema_name=schema_name, columns=list(columns), records=rows, timeout=limit)
    )

    def notice_end(_: object) -> None:
        copying.cancel()

    conn.add_termination_listener(notice_end)
    try:
        await copying
    except asyncio.CancelledError:
        if conn.is_closed() and not _is_being_cancelled():
            raise asyncpg.ConnectionDoesNotExistError("the connection was closed in the middle of a COPY") from None
        raise
    finally:
        conn.remove_termination_listener(notice_end)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
