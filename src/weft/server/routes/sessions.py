"""Sessions of browsers: signing in by a link, signing out, and the pages that anybody may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import orjson
from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from weft.catalog import sign_ins, tokens
from weft.queue.audit import acting_from
from weft.server import cookies, pages
from weft.server.bodies import KnownRoute
from weft.server.credentials import Who, origin_of
from weft.server.heads import refuse_head

if TYPE_CHECKING:
    from weft.server.state import State

router = APIRouter(route_class=KnownRoute)
_HOME = "/docs"
_PLAIN = """<p>The link is still good. It was opened over plain HTTP, by which a browser keeps no session, unless the
server is on the same machine. Open it at an address that begins with <code>https://</code>, or at
<code>http://localhost</code> through a tunnel. If it did begin so, let the proxy in between send
<code>X-Forwarded-Proto</code>, and name it in <code>WEFT_SERVER_PROXIES</code>.</p>"""
_ASKED = """<p>Another page has led you here. If you go on, this browser acts as whoever the link was made for, in place
of whoever it may be signed in as now. Go on only if the link is meant for you.</p>
<p><a href="/sign-in?code={code}">Sign in</a></p>"""


@router.get("/sign-in", include_in_schema=False)
async def sign_in(request: Request, code: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Let a browser in by a code that was not used yet."""
    # Whoever only looks what is behind a link, as programs that show mails do, does not use it up.
    refuse_head(request)
    state: State = request.app.state.weft
    if cookies.is_lost(request):
        return pages.page("This address is not safe to sign in at", _PLAIN, 400)
    if cookies.is_led(request):
        return pages.page("Sign in here?", _ASKED.format(code=quote(code, safe="")))
    with acting_from(origin_of(request)):
        made = await state.client.database.run(lambda conn: sign_ins.take(conn, code))
    if made is None:
        told = "<p>It was used already, or its time is over. Make another by <code>weft tokens sign-in</code>.</p>"
        return pages.page("This link lets nobody in", told, 401)
    answer = RedirectResponse(_HOME, 303)
    cookies.keep(answer, request, made.secret)
    return answer


@router.post("/sign-out", status_code=204, include_in_schema=False)
async def sign_out(request: Request, who: Who) -> Response:
    """End a browser's session, wherever its token has come to."""
    state: State = request.app.state.weft
    token_id = who.token_id
    if cookies.session_of(request) is not None and token_id is not None:
        with acting_from(origin_of(request)):
            await state.client_of(who).database.run(lambda conn: tokens.revoke(conn, who.org_id, token_id, who.actor))
    answer = Response(status_code=204)
    cookies.forget(answer, request)
    return answer


@router.get("/", include_in_schema=False)
async def home(request: Request) -> Response:
    """Lead a browser to the page that there is, and tell others where to look."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(_HOME, 303)
    return JSONResponse({"docs": _HOME, "openapi": "/openapi.json"})


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Show the HTTP interface."""
    app: FastAPI = request.app
    # Anybody may ask, so it is made once.
    if not hasattr(app.state, "interface"):
        app.state.interface = pages.interface(app.openapi())
    return pages.page(*app.state.interface)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    app: FastAPI = request.app
    if not hasattr(app.state, "document"):
        app.state.document = orjson.dumps(app.openapi())
    return Response(app.state.document, media_type="application/json")
