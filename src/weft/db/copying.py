"""Writes rows by COPY, and notices when the connection ends meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    from weft.db.database import type_Connection

_LEAST_SECONDS = 60.0
_ROWS_PER_SECOND = 1000


async def copy_rows(
    conn: type_Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int
) -> None:
    """Write about ``count`` rows to a table of ours.

    asyncpg waits for ever for leave to send more to a server that is gone, whatever its time limit is: so the end of
    the connection is listened for. The limit grows with the rows.
    """
    limit = _LEAST_SECONDS + count / _ROWS_PER_SECOND
    copying = asyncio.ensure_future(
        conn.copy_records_to_table(table, schema_name="weft", columns=list(columns), records=rows, timeout=limit)
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
