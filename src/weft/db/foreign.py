"""Runs one statement on a connection that belongs to the caller, whichever driver it is of."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from weft.core.errors import InvalidInput

Row = tuple[Any, ...]


def fetch_row(connection: Any, function: str, arguments: tuple[tuple[Any, str], ...]) -> Row | Awaitable[Row]:
    """Call a SQL function with typed arguments inside the caller's transaction and return its one row.

    ``connection`` may be of asyncpg, psycopg 3 (sync or async) or SQLAlchemy (Connection, Session and their async
    forms). The answer is awaitable exactly when the connection's own calls are.
    """
    module = type(connection).__module__.partition(".")[0]
    values = [value for value, _ in arguments]
    if module == "asyncpg":
        marks = ", ".join(f"${n}::{kind}" for n, (_, kind) in enumerate(arguments, 1))
        return _asyncpg(connection, f"select * from {function}({marks})", values)
    if module == "psycopg":
        marks = ", ".join(f"%s::{kind}" for _, kind in arguments)
        cursor = connection.execute(f"select * from {function}({marks})", values)
        return _psycopg_async(cursor) if hasattr(cursor, "__await__") else tuple(cursor.fetchone())
    if module == "sqlalchemy":
        from sqlalchemy import text

        marks = ", ".join(f"cast(:a{n} as {kind})" for n, (_, kind) in enumerate(arguments))
        bound = {f"a{n}": value for n, value in enumerate(values)}
        result = connection.execute(text(f"select * from {function}({marks})"), bound)
        return _sqlalchemy_async(result) if hasattr(result, "__await__") else tuple(result.one())
    raise InvalidInput(
        "connection", f"{type(connection).__name__} is not a connection of asyncpg, psycopg 3 or SQLAlchemy"
    )


async def _asyncpg(connection: Any, statement: str, values: list[Any]) -> Row:
    return tuple(await connection.fetchrow(statement, *values))


async def _psycopg_async(cursor: Any) -> Row:
    return tuple(await (await cursor).fetchone())


async def _sqlalchemy_async(result: Any) -> Row:
    return tuple((await result).one())
