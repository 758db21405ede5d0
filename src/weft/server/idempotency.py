"""Requests with a key: carried out once, and answered the same however often they are sent.

The answer is written in the transaction that does what was asked, so a server that dies between the two leaves either
both or neither. Of two that come at once the second waits for the first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from weft.core.server_errors import AnswerGone, KeyReused
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.sdk.client import Client

SQL = Statements("weft.server", "sql/answer.sql")


class Kept(NamedTuple):
    """An answer, and whether it had been given before."""

    status: int
    body: bytes
    is_repeated: bool


async def once(
    client: Client, key: str, request: bytes, act: Callable[[Client], Awaitable[tuple[int, bytes]]], *, is_secret: bool
) -> Kept:
    """Carry out what a request asks for, unless one with the same key has been; return the answer to the first."""
    org_id, name, digest = await client.org_id(), sha256(key.encode()).digest(), sha256(request).digest()
    async with client.in_one_transaction() as inside:
        database = inside.database
        async with database.acquire() as conn:
            found = None
            while not await conn.fetchval(SQL.claim, org_id, name, digest):
                # Between the two it may have been forgotten: then this is the first.
                if (found := await conn.fetchrow(SQL.find, org_id, name)) is not None:
                    break
        if found is None:
            status, body = await act(inside)
            async with database.acquire() as conn:
                await conn.execute(SQL.keep, org_id, name, status, None if is_secret else body)
            return Kept(status, body, False)
    if found["request"] != digest:
        raise KeyReused(key)
    if found["body"] is None:
        raise AnswerGone(key)
    return Kept(found["status"], found["body"], True)
