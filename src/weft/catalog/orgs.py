"""Orgs: made and named by whoever operates the installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.catalog import tokens, users
from weft.catalog.model import NewToken, Org, Role
from weft.core.checks import check_after, check_name, check_slug
from weft.core.errors import NotFound
from weft.core.json import readable
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from datetime import timedelta

    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/org.sql")


async def create(conn: type_Connection, slug: str, name: str, actor: str, admin: str | None = None) -> bool:
    """Make an org with the queue ``default``, and its first user; False when there is one of that name."""
    check_slug(slug, "org"), check_name(name, "name")
    org_id = await conn.fetchval(SQL.create, slug, name)
    if org_id is None:
        return False
    await conn.execute(SQL.default_queue, org_id, actor)
    await audit.record_named(conn, org_id, actor, AuditVerb.CREATE, "org", slug, {"name": name})
    if admin is not None:
        await users.add(conn, org_id, admin, Role.ADMIN, None, actor)
    return True


async def create_token(
    conn: type_Connection,
    slug: str,
    name: str,
    *,
    role: str,
    user: str | int | None,
    span: timedelta | None,
    actor: str,
) -> NewToken:
    """Make a token of an org, by which its first people get in; it stands in the audit of that org."""
    org = await show(conn, slug)
    return await tokens.create(conn, org.id, name, role=role, actor=actor, user=user, expires_in=span)


async def show(conn: type_Connection, slug: str) -> Org:
    """Return an org; raises `NotFound`."""
    row = await conn.fetchrow(SQL.show, check_slug(slug, "org"))
    if row is None:
        raise NotFound("org", slug)
    return _org(row)


async def list_orgs(conn: type_Connection, *, after: str = "", limit: int = 100) -> list[Org]:
    """Return the orgs of the installation by slug."""
    return [_org(row) for row in await conn.fetch(SQL.list, check_after(after), limit)]


async def rename(conn: type_Connection, slug: str, name: str, actor: str) -> None:
    """Change what people call an org; its slug, by which programs know it, stays."""
    org_id = await conn.fetchval(SQL.rename, check_slug(slug, "org"), check_name(name, "name"))
    if org_id is None:
        raise NotFound("org", slug)
    await audit.record_named(conn, org_id, actor, AuditVerb.CHANGE, "org", slug, {"name": name})


def _org(row: Record) -> Org:
    return Org(**{**dict(row), "settings": readable(row["settings"])})
