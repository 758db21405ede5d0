"""The part of the client with which an installation's operator makes orgs."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from weft.catalog import orgs
from weft.catalog.model import Org
from weft.core.checks import check_number

if TYPE_CHECKING:
    from weft.sdk.session import Session


class Orgs:
    """What is done with orgs; `Client.orgs`. It is for whoever may write the database, not for the people of an org."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(self, slug: str, name: str | None = None) -> bool:
        """Make an org, with the queue ``default``; False when there is one of that name.

        Example::

            await client.orgs.create("acme", "Acme Ltd")
        """
        actor = self._session.actor
        return await self._session.database.run(
            lambda conn: orgs.create(conn, slug, slug if name is None else name, actor)
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
