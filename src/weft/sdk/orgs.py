"""The part of the client with which an installation's operator makes orgs."""

from __future__ import annotations

import builtins
from datetime import timedelta
from typing import TYPE_CHECKING

from weft.catalog import orgs
from weft.catalog.model import NewToken, Org
from weft.core.checks import check_number, check_span

if TYPE_CHECKING:
    from weft.sdk.session import Session


class Orgs:
    """What is done with orgs; `Client.orgs`. It is for whoever may write the database, not for the people of an org."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(self, slug: str, name: str | None = None, *, admin: str | None = None) -> bool:
        """Make an org, with the queue ``default``; False when there is one of that name, which stays as it is.

        ``admin`` is the first user, as the identity provider knows the person. Example::

            await client.orgs.create("acme", "Acme Ltd", admin="ada@example.com")
        """
        actor = self._session.actor
        return await self._session.database.run(
            lambda conn: orgs.create(conn, slug, slug if name is None else name, actor, admin)
        )

    async def create_token(
        self, slug: str, name: str = "first", *, role: str = "admin", user: str | int | None = None,
        expires_in: float | timedelta | None = None,
    ) -> NewToken:  # fmt: skip
        """Make a token of an org, or of a ``user`` of it, by which its people get in and make others.

        Its secret is returned this once and kept nowhere. The org finds in its audit who made it. Example::

            made = await client.orgs.create_token("acme", user="ada@example.com")
            print(made.secret)
        """
        span = None if expires_in is None else check_span(expires_in, "expires_in")
        actor = self._session.actor
        return await self._session.database.run(
            lambda conn: orgs.create_token(conn, slug, name, role=role, user=user, span=span, actor=actor)
        )

    async def show(self, slug: str) -> Org:
        """Return an org.

        Example::

            print((await client.orgs.show("acme")).name)
        """
        return await self._session.database.read(lambda conn: orgs.show(conn, slug))

    async def list(self, *, after: str = "", limit: int = 100) -> builtins.list[Org]:
        """Return orgs by slug; ``after`` is the last slug of the page before.

        Example::

            for org in await client.orgs.list():
                print(org.slug)
        """
        check_number(limit, "limit", 1, 1000)
        return await self._session.database.read(lambda conn: orgs.list_orgs(conn, after=after, limit=limit))

    async def rename(self, slug: str, name: str) -> None:
        """Change what people call an org.

        Example::

            await client.orgs.rename("acme", "Acme International")
        """
        await self._session.database.run(lambda conn: orgs.rename(conn, slug, name, self._session.actor))
