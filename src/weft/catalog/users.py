"""Users: added to an org, given a role, deactivated when they leave."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING
from unicodedata import normalize

from weft.catalog.model import Principal, Role, TokenRole, User
from weft.catalog.telling import tell_refused
from weft.core.checks import MAX_ID, check_after, check_text, check_word
from weft.core.errors import InvalidInput, NotFound, StateConflict
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/user.sql")
# As whom users are added that an identity provider vouches for.
PROVIDER = "identity provider"
# As whom Weft itself acts, and how the names begin of those who act by a token that is no user's.
_OWN_ACTORS = frozenset({PROVIDER, "worker"})
_TOKENS = "token:"


def check_external_id(value: object, field: str) -> str:
    """What an identity provider calls a user, under which his acts are kept: nobody is taken for what others act as."""
    name = check_text(value, field, 500)
    if not name.isprintable() or name != name.strip():
        # Whoever reads the audit would take him for the one who is called so without them.
        raise InvalidInput(field, f"{name!a} has characters that nobody sees, or blanks around it")
    # However it is written: whoever reads the audit takes it for the same.
    plain = normalize("NFKC", name).strip().casefold()
    if plain in _OWN_ACTORS or plain.startswith(_TOKENS):
        raise InvalidInput(field, f"{name!r} is kept for acts of Weft itself: call the user otherwise")
    return name


async def add(conn: type_Connection, org_id: int, external_id: str, role: str, email: str | None, actor: str) -> User:
    """Add a user to an org."""
    check_external_id(external_id, "external_id")
    wanted = check_word(role, "role", Role)
    user_id = await conn.fetchval(SQL.add, org_id, external_id, _email(email), wanted, actor, _as_id(external_id))
    if user_id is None:
        raise InvalidInput("external_id", f"there is a user {external_id!r} already: change him, or activate him again")
    await audit.record_named(conn, org_id, actor, AuditVerb.CREATE, "user", external_id, {"role": wanted})
    return await show(conn, org_id, external_id)


async def show(conn: type_Connection, org_id: int, user: str | int) -> User:
    """Return a user of an org, by the name of the identity provider or by id; raises `NotFound`.

    A number is an id, and nothing else. A text is a name, and where nobody has that, an id.
    """
    name = check_text(str(user), "user", 500)
    called = None if isinstance(user, int) else name
    rows = await conn.fetch(SQL.show, org_id, called, _as_id(name))
    if not rows:
        raise NotFound("user", user)
    # A provider may have called somebody by a number that is now the id of another: the name comes first.
    return _user(next((row for row in rows if row["external_id"] == called), rows[0]))


async def list_users(
    conn: type_Connection, org_id: int, *, role: str | None = None, with_deactivated: bool = False, after: str = "",
    limit: int = 100,
) -> list[User]:  # fmt: skip
    """Return the users of an org by name."""
    wanted = None if role is None else check_word(role, "role", Role)
    return [
        _user(row) for row in await conn.fetch(SQL.list, org_id, check_after(after), wanted, with_deactivated, limit)
    ]


async def change(
    conn: type_Connection, org_id: int, user: str | int, *, role: str | None, email: str | None, actor: str
) -> User:
    """Give a user another role or address."""
    if role is None and email is None:
        raise InvalidInput("role", "give a role or an email to change")
    wanted = None if role is None else check_word(role, "role", Role)
    found = await show(conn, org_id, user)
    await conn.fetchval(SQL.change, org_id, found.id, wanted, _email(email))
    detail = {"role": wanted, "was": None if wanted is None else found.role, "email": email}
    given = {name: value for name, value in detail.items() if value is not None}
    await audit.record_named(conn, org_id, actor, AuditVerb.CHANGE, "user", found.external_id, given)
    return await show(conn, org_id, found.id)


async def deactivate(conn: type_Connection, org_id: int, user: str | int, actor: str) -> None:
    """Let nobody act as a user any more: his tokens and sessions are revoked, and stay so."""
    await _turn(conn, org_id, user, actor, AuditVerb.DEACTIVATE)


async def activate(conn: type_Connection, org_id: int, user: str | int, actor: str) -> None:
    """Let a user act again who was deactivated; he needs new tokens."""
    await _turn(conn, org_id, user, actor, AuditVerb.ACTIVATE)


async def _turn(conn: type_Connection, org_id: int, user: str | int, actor: str, verb: AuditVerb) -> None:
    found = await show(conn, org_id, user)
    statement = SQL.deactivate if verb is AuditVerb.DEACTIVATE else SQL.activate
    if await conn.fetchval(statement, org_id, found.id) is None:
        is_active = found.deactivated_at is None
        states = ("active", "deactivated") if is_active else ("deactivated", "active")
        raise StateConflict(verb, found.external_id, states[0], [states[1]], kind="user")
    detail = {}
    if verb is AuditVerb.DEACTIVATE:
        detail["tokens"] = await conn.fetchval(SQL.end_tokens, org_id, found.id)
        await tell_refused(conn, "user", found.id)
    await audit.record_named(conn, org_id, actor, verb, "user", found.external_id, detail)


async def principal(conn: type_Connection, external_id: str, org: str | None = None) -> Principal | None:
    """Return whom an identity provider's name stands for; None unless it is exactly one active user."""
    rows = await conn.fetch(SQL.principal, external_id, org)
    if len(rows) != 1:
        return None
    (row,) = rows
    return Principal(
        row["org_id"], row["org"], row["actor"], TokenRole(row["role"]), user_id=row["user_id"],
        roles=frozenset(row["roles"]),
    )  # fmt: skip


def _as_id(name: str) -> int:
    """Return the id that a text may be; 0, which nobody has, for any other."""
    found = int(name) if name.isascii() and name.isdigit() and len(name) < 20 else 0
    return found if found <= MAX_ID else 0


def _email(email: str | None) -> str | None:
    if email is not None and "@" not in check_text(email, "email", 320):
        raise InvalidInput("email", f"{email!r} is not an address")
    return email


def _user(row: Record) -> User:
    facts = {each.name: row[each.name] for each in fields(User)}
    return User(**{**facts, "role": Role(row["role"]), "roles": tuple(row["roles"])})
