"""Who asks: the credential of a request, whom it stands for, and whether that is enough for the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from weft.catalog import tokens
from weft.contract.operations import Access
from weft.core.log_lines import add_to_lines
from weft.core.server_errors import Forbidden, Unauthenticated

if TYPE_CHECKING:
    from weft.catalog.model import Principal
    from weft.server.state import State

# The routes that answer without a credential; each tells nothing of any org.
ANONYMOUS = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs", "/docs/oauth2-redirect"})
# The org of an installation's operator: its admins manage orgs.
OPERATORS = "default"
_documented = HTTPBearer(auto_error=False, description="A token made by `weft tokens create`.", scheme_name="token")


async def principal(request: Request, _: Annotated[object, Depends(_documented)] = None) -> Principal:
    """Return whom the request's credential stands for; raises `Unauthenticated`."""
    state: State = request.app.state.weft
    scheme, secret = get_authorization_scheme_param(request.headers.get("authorization"))
    if not secret:
        raise Unauthenticated("there is no credential")
    if scheme.lower() != "bearer":
        raise Unauthenticated(f"the scheme {scheme[:40]!r} is not known")
    found = await state.client.database.read(lambda conn: tokens.principal(conn, secret))
    if found is None:
        raise Unauthenticated("the token is unknown, revoked or past its time, or its user is deactivated")
    request.state.who = found
    add_to_lines(actor=found.actor, org=found.org)
    return found


Who = Annotated["Principal", Depends(principal)]


def require(who: Principal, access: Access) -> None:
    """Refuse whoever may not make a call."""
    if not access.allows(who.role, is_operator=who.org == OPERATORS):
        raise Forbidden(who.actor, who.role, access)
