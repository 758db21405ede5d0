"""Tokens: made and shown once, kept as a digest, looked up, revoked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from weft.catalog import users
from weft.catalog.model import NewToken, Principal, Role, Token, TokenRole
from weft.catalog.telling import tell_refused
from weft.core.checks import check_id, check_name, check_queues, check_span, check_word
from weft.core.errors import InvalidInput, NotFound, StateConflict
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/token.sql")
# Programs that look for secrets in places where they must not be know one by how it begins.
PREFIX = "weft_"
FROM_NEWEST = 2**63 - 1
_HINT = len(PREFIX) + 6
_LONGEST = 200


async def create(
    conn: type_Connection, org_id: int, name: str, *, role: str, actor: str, user: str | int | None = None,
    queues: Sequence[str] | None = None, expires_in: timedelta | None = None,
) -> NewToken:  # fmt: skip
    """Make a token of a user, or of a program; what is returned is the only copy of its secret."""
    wanted = check_word(role, "role", TokenRole)
    if queues is not None and wanted is not TokenRole.WORKER:
        raise InvalidInput("queues", "only a token with the role worker is limited to queues")
    if user is not None and wanted is TokenRole.WORKER:
        raise InvalidInput("user", "a worker's token is of a program: leave the user out")
    owner = None if user is None else await users.show(conn, org_id, user)
    if owner is not None and not owner.role.includes(Role(wanted)):
        raise InvalidInput("role", f"is {wanted}, and {owner.external_id} is {owner.role}: a token may do no more")
    secret = PREFIX + secrets.token_urlsafe(32)
    token_id = await conn.fetchval(
        SQL.create, org_id, owner and owner.id, check_name(name, "name"), wanted,
        None if queues is None else check_queues(queues), secret[:_HINT], _digest(secret),
        None if expires_in is None else check_span(expires_in, "expires_in"), actor,
    )  # fmt: skip
    if token_id is None:
        raise InvalidInput("user", f"{owner and owner.external_id} is deactivated: activate him first")
    detail = {"id": str(token_id), "role": wanted, "user": owner and owner.external_id}
    await audit.record_named(conn, org_id, actor, AuditVerb.CREATE, "token", name, detail)
    return NewToken(await show(conn, org_id, token_id), secret)


async def show(conn: type_Connection, org_id: int, token_id: int) -> Token:
    """Return a token of an org; raises `NotFound`."""
    row = await conn.fetchrow(SQL.show, org_id, check_id(token_id, shown_by="weft tokens list"))
    if row is None:
        raise NotFound("token", token_id)
    return _token(row)


async def list_tokens(
    conn: type_Connection, org_id: int, *, user: str | int | None = None, with_ended: bool = False,
    before: int | None = None, limit: int = 100,
) -> list[Token]:  # fmt: skip
    """Return the tokens of an org or of one of its users, newest first."""
    user_id = None if user is None else (await users.show(conn, org_id, user)).id
    below = FROM_NEWEST if before is None else before
    return [_token(row) for row in await conn.fetch(SQL.list, org_id, below, user_id, with_ended, limit)]


async def revoke(conn: type_Connection, org_id: int, token_id: int, actor: str) -> None:
    """Let nobody act by a token any more."""
    name = await conn.fetchval(SQL.revoke, org_id, check_id(token_id, shown_by="weft tokens list"))
    if name is None:
        await show(conn, org_id, token_id)
        raise StateConflict("revoke", token_id, "revoked", ["active"], kind="token")
    await tell_refused(conn, "token", token_id)
    await audit.record_named(conn, org_id, actor, AuditVerb.REVOKE, "token", name, {"id": str(token_id)})


async def principal(conn: type_Connection, secret: str) -> Principal | None:
    """Return whom a secret stands for, and note that it was used; None when it lets nobody in."""
    if not secret.startswith(PREFIX) or len(secret) > _LONGEST:
        return None
    row = await conn.fetchrow(SQL.principal, _digest(secret))
    if row is None:
        return None
    if row["is_stale"]:
        await conn.execute(SQL.touch, row["token_id"])
    return Principal(
        row["org_id"], row["org"], row["actor"], TokenRole(row["role"]),
        None if row["queues"] is None else tuple(row["queues"]), row["user_id"], row["token_id"],
        frozenset(row["roles"]),
    )  # fmt: skip


def _digest(secret: str) -> bytes:
    # Of 256 random bits: nobody can try them all, so one pass is as good as many.
    return sha256(secret.encode()).digest()


def _token(row: Record) -> Token:
    queues = None if row["queues"] is None else tuple(row["queues"])
    facts = {each.name: row[each.name] for each in fields(Token)}
    return Token(**{**facts, "role": TokenRole(row["role"]), "queues": queues})
