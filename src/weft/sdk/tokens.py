"""The part of the client with which tokens are made and revoked."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from weft.catalog import sign_ins, tokens
from weft.catalog.model import NewToken, SignIn, Token
from weft.core.checks import check_id, check_number, check_span

if TYPE_CHECKING:
    from weft.sdk.session import Session


class Tokens:
    """What is done with the tokens of an org; `Client.tokens`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(
        self, name: str, *, role: str = "reader", user: str | int | None = None, queues: Sequence[str] | None = None,
        expires_in: float | timedelta | None = None,
    ) -> NewToken:  # fmt: skip
        """Make a token of a program, or of a ``user``; its secret is returned this once and kept nowhere.

        The role ``worker`` is for the worker protocol alone, and with ``queues`` for these alone. Example::

            made = await client.tokens.create("nightly", role="writer", expires_in=timedelta(days=90))
            print(made.secret)
        """
        span = None if expires_in is None else check_span(expires_in, "expires_in")
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(
            lambda conn: tokens.create(
                conn, org_id, name, role=role, actor=actor, user=user, queues=queues, expires_in=span
            )
        )

    async def create_sign_in(
        self, name: str = "browser", *, role: str = "reader", user: str | int | None = None,
        expires_in: float | timedelta = timedelta(minutes=10),
    ) -> SignIn:  # fmt: skip
        """Make a code that lets a browser in once, as a ``user`` or with a role; it is kept nowhere.

        The browser then has a token of its own for twelve hours, which is listed and revoked like others. Example::

            made = await client.tokens.create_sign_in(role="admin")
            print(f"https://weft.example.com/sign-in?code={made.code}")
        """
        span = check_span(expires_in, "expires_in")
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(
            lambda conn: sign_ins.create(conn, org_id, name, role=role, actor=actor, user=user, span=span)
        )

    async def show(self, token_id: int) -> Token:
        """Return a token, without its secret.

        Example::

            print((await client.tokens.show(made.token.id)).last_used_at)
        """
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: tokens.show(conn, org_id, token_id))

    async def list(
        self, *, user: str | int | None = None, with_ended: bool = False, before: int | None = None, limit: int = 100
    ) -> builtins.list[Token]:
        """Return tokens, newest first; those that are revoked or past their time only ``with_ended``.

        Example::

            for token in await client.tokens.list():
                print(token.name, token.hint, token.last_used_at)
        """
        check_number(limit, "limit", 1, 1000)
        below = None if before is None else check_id(before, "before", shown_by="weft tokens list")
        org_id = await self._session.org_id()
        return await self._session.database.read(
            lambda conn: tokens.list_tokens(conn, org_id, user=user, with_ended=with_ended, before=below, limit=limit)
        )

    async def revoke(self, token_id: int) -> None:
        """Let nobody act by a token any more. There is no way back: make another.

        Example::

            await client.tokens.revoke(made.token.id)
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: tokens.revoke(conn, org_id, token_id, actor))
