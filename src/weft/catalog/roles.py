"""The roles that an org defines for its users: made, given and taken; who may see what is told by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.catalog import users
from weft.catalog.model import OrgRole
from weft.core.checks import check_after, check_name, check_slug
from weft.core.errors import NotFound
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/role.sql")


async def create(conn: type_Connection, org_id: int, slug: str, name: str | None, actor: str) -> bool:
    """Define a role; False when there is one of that name."""
    check_slug(slug, "role")
    called = check_name(slug.capitalize() if name is None else name, "name")
    created = await conn.fetchval(SQL.create, org_id, slug, called, actor) is not None
    if created:
        await audit.record_named(conn, org_id, actor, AuditVerb.CREATE, "role", slug, {"name": called})
    return created


async def show(conn: type_Connection, org_id: int, slug: str) -> OrgRole:
    """Return a role of an org; raises `NotFound`."""
    row = await conn.fetchrow(SQL.show, org_id, check_slug(slug, "role"))
    if row is None:
        raise NotFound("role", slug)
    return OrgRole(*row)


async def list_roles(conn: type_Connection, org_id: int, *, after: str = "", limit: int = 100) -> list[OrgRole]:
    """Return the roles of an org by slug."""
    return [OrgRole(*row) for row in await conn.fetch(SQL.list, org_id, check_after(after), limit)]


async def delete(conn: type_Connection, org_id: int, slug: str, actor: str) -> int:
    """Take a role away from all who have it and all that is seen by it, and the role itself; return how many had it."""
    await conn.execute(SQL.one_at_a_time, org_id)
    role = await show(conn, org_id, slug)
    await conn.execute(SQL.delete, org_id, slug)
    await conn.execute(SQL.forget_readers, org_id, slug)
    await audit.record_named(conn, org_id, actor, AuditVerb.DELETE, "role", slug, {"users": role.users})
    return role.users


async def grant(conn: type_Connection, org_id: int, slug: str, user: str | int, actor: str) -> bool:
    """Give a user a role; False when he has it."""
    await conn.execute(SQL.keep, org_id)
    role, found = await show(conn, org_id, slug), await users.show(conn, org_id, user)
    granted = await conn.fetchval(SQL.grant, org_id, role.id, found.id, actor) is not None
    if granted:
        await audit.record_named(conn, org_id, actor, AuditVerb.GRANT, "role", slug, {"user": found.external_id})
    return granted


async def revoke(conn: type_Connection, org_id: int, slug: str, user: str | int, actor: str) -> bool:
    """Take a role from a user; False when he does not have it."""
    role, found = await show(conn, org_id, slug), await users.show(conn, org_id, user)
    revoked = await conn.fetchval(SQL.revoke, org_id, role.id, found.id) is not None
    if revoked:
        await audit.record_named(conn, org_id, actor, AuditVerb.REVOKE, "role", slug, {"user": found.external_id})
    return revoked
