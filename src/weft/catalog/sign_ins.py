"""Sign-ins: a code that lets somebody in once, and the token that it is exchanged for."""

from __future__ import annotations

import secrets
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from weft.catalog import tokens, users
from weft.catalog.model import NewToken, Role, SignIn
from weft.core.checks import check_name, check_span, check_word
from weft.core.errors import InvalidInput
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/sign_in.sql")
# How long a browser stays signed in.
SESSION = timedelta(hours=12)
_LONGEST_CODE = 200
_LATEST = timedelta(hours=1)


async def create(
    conn: type_Connection, org_id: int, name: str, *, role: str, actor: str, user: str | int | None, span: timedelta
) -> SignIn:
    """Make a code by which somebody is let in once; what is returned is the only copy of it."""
    wanted = check_word(role, "role", Role)
    if check_span(span, "expires_in") > _LATEST:
        raise InvalidInput("expires_in", "a code is good for an hour at most: for longer make a token")
    owner = None if user is None else await users.show(conn, org_id, user)
    if owner is not None and not owner.role.includes(wanted):
        raise InvalidInput("role", f"is {wanted}, and {owner.external_id} is {owner.role}: he is let in as no more")
    code = secrets.token_urlsafe(32)
    expires_at = await conn.fetchval(
        SQL.create, org_id, owner and owner.id, check_name(name, "name"), wanted, _digest(code), span, actor
    )
    if expires_at is None:
        raise InvalidInput("user", f"{owner and owner.external_id} is deactivated: activate him first")
    detail = {"role": wanted, "user": owner and owner.external_id}
    await audit.record_named(conn, org_id, actor, AuditVerb.CREATE, "sign-in", name, detail)
    return SignIn(code, expires_at)


async def take(conn: type_Connection, code: str) -> NewToken | None:
    """Exchange a code for a token of a browser; None when it lets nobody in, or no more."""
    row = await conn.fetchrow(SQL.take, _digest(code)) if len(code) <= _LONGEST_CODE else None
    if row is None:
        return None
    return await tokens.create(
        conn, row["org_id"], row["name"], role=row["role"], actor=row["actor"], user=row["user_id"], expires_in=SESSION
    )


def _digest(code: str) -> bytes:
    return sha256(code.encode()).digest()
