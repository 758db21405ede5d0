"""Users that an identity provider vouches for: found by what its token says, or added as the settings allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.catalog import orgs, users
from weft.core.errors import InvalidInput, NotFound
from weft.core.server_errors import Unauthenticated

if TYPE_CHECKING:
    from weft.catalog.model import Principal
    from weft.core.settings import Settings
    from weft.db.database import Database, type_Connection
    from weft.server.provider import Provider

_ORG = "default"
_LONGEST = 500


def provider_of(settings: Settings) -> Provider | None:
    """Return the identity provider of the settings, if they name one."""
    if settings.oidc_issuer is None:
        return None
    from weft.server.provider import Provider  # which asks over HTTP: most servers need not load that

    return Provider(settings.oidc_issuer, settings.oidc_audience)


async def vouched(database: Database, provider: Provider, token: str) -> Principal:
    """Return the user that a token of the provider stands for; raises `Unauthenticated`."""
    said, settings = await provider.claims(token), database.settings
    name = _name(said.get(settings.oidc_user_claim))
    org = _ORG if settings.oidc_org_claim is None else _text(said.get(settings.oidc_org_claim))
    found = await database.read(lambda conn: users.principal(conn, name, org))
    if found is None and settings.oidc_add_users is not None:
        await _add(database, org, name, settings.oidc_add_users)
        found = await database.read(lambda conn: users.principal(conn, name, org))
    if found is None:
        raise Unauthenticated("the identity provider knows you, and there is no active user of that name here")
    return found


async def _add(database: Database, slug: str, name: str, role: str) -> None:
    async def add(conn: type_Connection) -> None:
        org = await orgs.show(conn, slug)
        await users.add(conn, org.id, name, role, None, users.PROVIDER)

    try:
        await database.run(add)
    except (InvalidInput, NotFound):
        # He is there already, perhaps deactivated, or there is no such org: whoever looks next finds out.
        return


def _name(value: Any) -> str:
    try:
        return users.check_external_id(_text(value), "external_id")
    except InvalidInput as problem:
        raise Unauthenticated("the identity provider calls you by a name that nobody may have here") from problem


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not value.isprintable():
        raise Unauthenticated("the token of the identity provider does not say who you are here")
    return value
