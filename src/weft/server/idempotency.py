"""Requests with a key: carried out once, and answered the same however often they are sent.

The answer is written in the transaction that does what was asked, so a server that dies between the two leaves either
both or neither. Of those that come at once all but the first wait for it, though not for ever, and none of them holds a
connection.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from weft.core.server_errors import AnswerGone, KeyBusy, KeyReused
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.sdk.client import Client

SQL = Statements("weft.server", "sql/answer.sql")
# So long somebody waits who has found that another process is at it, before he looks again; in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
# So long he waits in all: less than those in between, and the callers themselves, mostly wait for an answer.
_PATIENCE = 30.0
# Of those who come to this process with one key at once one goes on at a time.
_turns: WeakValueDictionary[tuple[int, bytes], asyncio.Lock] = WeakValueDictionary()


class Answered(NamedTuple):
    """An answer: what is kept of it."""

    status: int
    body: bytes
    etag: str | None


class Kept(NamedTuple):
    """An answer, and whether it had been given before."""

    answered: Answered
    is_repeated: bool


class _Taken(Exception):
    """Another process has the turn."""


async def once(
    client: Client, key: str, request: bytes, act: Callable[[Client], Awaitable[Answered]], *, is_secret: bool,
    patience: float = _PATIENCE,
) -> Kept:  # fmt: skip
    """Carry out what a request asks for, unless one with the same key has been; return the answer to the first.

    Raises `KeyBusy` when that is still being carried out after ``patience`` seconds.
    """
    org_id, name, digest = await client.org_id(), sha256(key.encode()).digest(), sha256(request).digest()
    pause = _FIRST_PAUSE
    try:
        async with asyncio.timeout(patience) as limit, _turns.setdefault((org_id, name), asyncio.Lock()):

            async def act_in_time(inside: Client) -> Answered:
                limit.reschedule(None)
                return await act(inside)

            while True:
                try:
                    return await _once(client, org_id, name, digest, key, act_in_time, is_secret=is_secret)
                except _Taken:
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(_LONGEST_PAUSE, 2 * pause)
    except TimeoutError:
        if limit.expired():
            raise KeyBusy(key) from None
        raise


async def _once(
    client: Client, org_id: int, name: bytes, digest: bytes, key: str, act: Callable[[Client], Awaitable[Answered]], *,
    is_secret: bool,
) -> Kept:  # fmt: skip
    turn = int.from_bytes(sha256(b"%d %s" % (org_id, name)).digest()[:8], signed=True)
    async with client.in_one_transaction() as inside:
        async with inside.database.acquire() as conn:
            claim = await conn.fetchrow(SQL.claim, org_id, name, digest, turn)
            assert claim is not None
            if not claim["is_mine"]:
                raise _Taken
            found = None if claim["is_first"] else await conn.fetchrow(SQL.find, org_id, name)
        if claim["is_first"]:
            answered = await act(inside)
            async with inside.database.acquire() as conn:
                body = None if is_secret else answered.body
                await conn.execute(SQL.keep, org_id, name, answered.status, body, answered.etag)
            return Kept(answered, False)
    if found is None:
        # It was forgotten between the two: then this is the first.
        raise _Taken
    if found["request"] != digest:
        raise KeyReused(key)
    if found["body"] is None:
        raise AnswerGone(key)
    return Kept(Answered(found["status"], found["body"], found["etag"]), True)
