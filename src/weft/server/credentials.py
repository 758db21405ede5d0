"""Who asks: the credential of a request, whom it stands for, and whether that is enough for the call."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.catalog import tokens
from weft.catalog.model import Principal
from weft.contract.operations import Access
from weft.core.errors import WeftError
from weft.core.log_lines import add_to_lines
from weft.core.server_errors import Forbidden, Unauthenticated
from weft.queue.audit import acting_from
from weft.server.cookies import session_of
from weft.server.problems import of_error
from weft.server.vouching import vouched

if TYPE_CHECKING:
    from weft.server.state import State

# The org of an installation's operator: its admins manage orgs.
OPERATORS = "default"
# What comes here is signed, and looked at by its route.
HOOKS = "/api/v1/hooks"
# All that is answered to whoever asks. Whole paths, by which the routes are found: nothing is let in by how it ends.
ANONYMOUS = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/docs", "/sign-in", HOOKS})
# Kept as it is only when it can be nothing else.
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,100}")
_documented = HTTPBearer(auto_error=False, description="A token made by `weft tokens create`.", scheme_name="token")


class AskForCredentials:
    """Lets nobody unknown past it, whatever the route: one that was forgotten elsewhere is closed too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with whom it is from, before anything else of it is read."""
        if scope["type"] == "http" and scope["path"] not in ANONYMOUS:
            try:
                scope.setdefault("state", {})["who"] = who = await identify(HTTPConnection(scope))
            except WeftError as error:
                await of_error(error)(scope, receive, send)
                return
            add_to_lines(actor=who.actor, org=who.org)
        await self._app(scope, receive, send)


async def identify(connection: HTTPConnection) -> Principal:
    """Return whom the credential of a request stands for at this moment; raises `Unauthenticated`.

    A stream that stays open asks again from time to time, and ends when it raises.
    """
    state: State = connection.app.state.weft
    secret = _bearer(connection)
    if secret is not None and state.provider is not None and not secret.startswith(tokens.PREFIX):
        with acting_from(origin_of(connection)):  # whom it vouches for may be added
            return await vouched(state.client.database, state.provider, secret)
    secret = secret or session_of(connection)
    if secret is None:
        raise Unauthenticated("there is no credential")
    found = await state.client.database.read(lambda conn: tokens.principal(conn, secret))
    if found is None:
        raise Unauthenticated("the token is unknown, revoked or past its time, or its user is deactivated")
    return found


def _bearer(connection: HTTPConnection) -> str | None:
    told = connection.headers.getlist("authorization")
    if len(told) > 1:
        # Whatever is between might have looked at the other.
        raise Unauthenticated("there are several credentials")
    scheme, secret = get_authorization_scheme_param(told[0] if told else None)
    if scheme and (scheme.lower() != "bearer" or not secret):
        raise Unauthenticated("only the scheme Bearer is known")
    return secret or None


def origin_of(connection: HTTPConnection) -> str:
    """Return from where a request came, as it is kept with acts: the address, the request's id and that of the token.

    Tokens may have the same name, and a user several: by the id it is told which it was.
    """
    parts = [connection.client.host if connection.client is not None else "unknown"]
    told = connection.scope.get("request_id") or connection.headers.get("x-request-id", "")
    if _REQUEST_ID.fullmatch(told):
        parts.append(told)
    who: Principal | None = connection.scope.get("state", {}).get("who")
    if who is not None and who.token_id is not None:
        parts.append(f"token={who.token_id}")
    return " ".join(parts)


async def principal(request: Request, _: Annotated[object, Depends(_documented)] = None) -> Principal:
    """Return whom the request was let in as; whether he still would be is told by `identify`."""
    found: Principal | None = getattr(request.state, "who", None)
    if found is None:
        raise Unauthenticated("there is no credential")
    return found


Who = Annotated[Principal, Depends(principal)]


@cache
def admitted(access: Access) -> Any:
    """Return the type of whom a request is from when that is somebody who may make it; what he sent is not looked at.

    Refused as a part of a route, and not in it, nobody learns by what he sends how a call would take it.
    """

    async def admit(request: Request, _: Annotated[object, Depends(_documented)] = None) -> Principal:
        who = await principal(request)
        require(who, access)
        return who

    return Annotated[Principal, Depends(admit)]


def require(who: Principal, access: Access) -> None:
    """Refuse whoever may not make a call."""
    if not access.allows(who.role, is_operator=who.org == OPERATORS):
        raise Forbidden(who.actor, who.role, access)
