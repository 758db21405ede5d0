"""Recognises a transaction pooler that the settings do not tell of, by what goes wrong behind it."""

from __future__ import annotations

import asyncpg

from weft.core.errors import InvalidSetting

# A statement that was prepared in one session and executed in another, or prepared where somebody else had done so.
LOST_STATEMENTS = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)


def refuses_settings(problem: BaseException) -> bool:
    """Whether a login failed because of the settings that it asked for, which PostgreSQL itself would have taken."""
    return isinstance(problem, asyncpg.ProtocolViolationError) and "startup parameter" in str(problem)


def undeclared_pooler(sign: object, *, on_listen_url: bool = False) -> InvalidSetting:
    """Return the error that says which setting to change; ``sign`` is what showed that there is a pooler."""
    # The first line only: asyncpg adds advice for those who call it themselves.
    words = str(sign).partition("\n")[0]
    if on_listen_url:
        return InvalidSetting(
            "WEFT_LISTEN_URL",
            f"leads through a pooler ({words}): give the address of PostgreSQL itself, or leave it out, "
            "and workers find new tasks by polling",
        )
    return InvalidSetting(
        "WEFT_POOLER",
        f"WEFT_DATABASE_URL leads through a pooler ({words}): set WEFT_POOLER=transaction, "
        "or let the pooler keep sessions and ignore unknown startup parameters",
    )
