"""Runs one statement on a connection that belongs to the caller, whichever driver it is of."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from weft.core.errors import InvalidInput

Row = tuple[Any, ...]


def fetch_row(connection: Any, function: str, arguments: tuple[tuple[Any, str], ...]) -> Row | Awaitable[Row]:
    """Call a SQL function with typed arguments inside the caller's transaction and return its one row.

    ``connection`` may be of asyncpg, psycopg 3 (sync or async) or SQLAlchemy (Connection, Session and their async
    forms), whatever row factories, cursors and codecs its owner has set. The answer is awaitable exactly when the
    connection's own calls are.
    """
    # A class of the caller's own may stand on one of a driver.
    modules = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    module = next((name for name in modules if name in ("asyncpg", "psycopg", "sqlalchemy")), "")
    values = [value for value, _ in arguments]
    if module == "asyncpg" and hasattr(connection, "is_in_transaction"):
        marks = ", ".join(_cast(f"${n}", kind) for n, (_, kind) in enumerate(arguments, 1))
        return _asyncpg(connection, f"select * from {function}({marks})", values)
    if module == "psycopg" and hasattr(connection, "pgconn"):
        marks = ", ".join(_cast("%s", kind) for _, kind in arguments)
        return _psycopg(connection, f"select * from {function}({marks})", values)
    if module == "sqlalchemy" and hasattr(connection, "execute"):
        from sqlalchemy import text

        marks = ", ".join(_cast(f":a{n}", kind) for n, (_, kind) in enumerate(arguments))
        bound = {f"a{n}": value for n, value in enumerate(values)}
        result = connection.execute(text(f"select * from {function}({marks})"), bound)
        return _sqlalchemy_async(result) if hasattr(result, "__await__") else tuple(result.one())
    raise InvalidInput(
        "connection",
        f"{type(connection).__name__} is not a connection of asyncpg, psycopg 3 or SQLAlchemy; "
        "of a pool or an engine take a connection, and begin a transaction",
    )


def _cast(mark: str, kind: str) -> str:
    """Give a parameter its type; JSON goes as the text that it is, past codecs that would encode it again."""
    return f"cast(cast({mark} as text) as json)" if kind == "json" else f"cast({mark} as {kind})"


async def _asyncpg(connection: Any, statement: str, values: list[Any]) -> Row:
    return tuple(await connection.fetchrow(statement, *values))


def _psycopg(connection: Any, statement: str, values: list[Any]) -> Row | Awaitable[Row]:
    from psycopg import AsyncConnection, AsyncCursor, Cursor
    from psycopg.rows import tuple_row

    if isinstance(connection, AsyncConnection):
        return _psycopg_async(AsyncCursor(connection, row_factory=tuple_row), statement, values)
    with Cursor(connection, row_factory=tuple_row) as cursor:
        row = cursor.execute(statement, values).fetchone()
    assert row is not None
    return row


async def _psycopg_async(cursor: Any, statement: str, values: list[Any]) -> Row:
    async with cursor:
        await cursor.execute(statement, values)
        return tuple(await cursor.fetchone())


async def _sqlalchemy_async(result: Any) -> Row:
    return tuple((await result).one())
