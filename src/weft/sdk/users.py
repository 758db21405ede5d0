"""The part of the client with which the users of an org are managed."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from weft.catalog import users
from weft.catalog.model import User
from weft.core.checks import check_number

if TYPE_CHECKING:
    from weft.sdk.session import Session


class Users:
    """What is done with the users of an org; `Client.users`. A user is named by ``external_id`` or by id."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, external_id: str, *, role: str = "reader", email: str | None = None) -> User:
        """Add a user, by the name under which the identity provider knows the person.

        Example::

            await client.users.add("ada@example.com", role="writer")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: users.add(conn, org_id, external_id, role, email, actor))

    async def show(self, user: str | int) -> User:
        """Return a user.

        Example::

            print((await client.users.show("ada@example.com")).role)
        """
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: users.show(conn, org_id, user))

    async def list(
        self, *, role: str | None = None, with_deactivated: bool = False, after: str = "", limit: int = 100
    ) -> builtins.list[User]:
        """Return users by name; ``after`` is the last ``external_id`` of the page before.

        Example::

            admins = await client.users.list(role="admin")
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(
            lambda conn: users.list_users(
                conn, org_id, role=role, with_deactivated=with_deactivated, after=after, limit=limit
            )
        )

    async def change(self, user: str | int, *, role: str | None = None, email: str | None = None) -> User:
        """Give a user another role or address; tokens of the user may from then on do no more than that role.

        Example::

            await client.users.change("ada@example.com", role="admin")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(
            lambda conn: users.change(conn, org_id, user, role=role, email=email, actor=actor)
        )

    async def deactivate(self, user: str | int) -> None:
        """Let nobody act as a user any more; the tokens and sessions of the user are revoked for good.

        Example::

            await client.users.deactivate("ada@example.com")
        """
        org_id = await self._session.org_id()
        await self._session.database.run(lambda conn: users.deactivate(conn, org_id, user, self._session.actor))

    async def activate(self, user: str | int) -> None:
        """Let a user act again, by the identity provider or by new tokens: those from before stay revoked.

        Example::

            await client.users.activate("ada@example.com")
        """
        org_id = await self._session.org_id()
        await self._session.database.run(lambda conn: users.activate(conn, org_id, user, self._session.actor))
