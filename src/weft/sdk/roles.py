"""The part of the client with which an org defines roles and gives them to its users."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from weft.catalog import roles
from weft.catalog.model import OrgRole
from weft.core.checks import check_number

if TYPE_CHECKING:
    from weft.sdk.session import Session


class Roles:
    """What is done with the roles that an org defines; `Client.roles`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(self, slug: str, name: str | None = None) -> bool:
        """Define a role; False when there is one of that name.

        Example::

            await client.roles.create("finance", "Finance")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: roles.create(conn, org_id, slug, name, actor))

    async def show(self, slug: str) -> OrgRole:
        """Return a role.

        Example::

            print((await client.roles.show("finance")).users)
        """
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: roles.show(conn, org_id, slug))

    async def list(self, *, after: str = "", limit: int = 100) -> builtins.list[OrgRole]:
        """Return roles by slug; ``after`` is the last slug of the page before.

        Example::

            for role in await client.roles.list():
                print(role.slug, role.users)
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: roles.list_roles(conn, org_id, after=after, limit=limit))

    async def delete(self, slug: str) -> int:
        """Take a role away from all who have it, and the role itself; return how many had it.

        Example::

            await client.roles.delete("finance")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: roles.delete(conn, org_id, slug, actor))

    async def grant(self, slug: str, user: str | int) -> bool:
        """Give a user a role; False when the user has it.

        Example::

            await client.roles.grant("finance", "ada@example.com")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: roles.grant(conn, org_id, slug, user, actor))

    async def revoke(self, slug: str, user: str | int) -> bool:
        """Take a role from a user; False when the user does not have it.

        Example::

            await client.roles.revoke("finance", "ada@example.com")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: roles.revoke(conn, org_id, slug, user, actor))
