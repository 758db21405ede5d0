"""Says with every answer what browsers must not do with it."""

from __future__ import annotations

import base64
from hashlib import sha256

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLOSED = "default-src 'none'; frame-ancestors 'none'"
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


def page_policy(style: str) -> str:
    """Return what a page of ours may load: what comes from the server itself, and one sheet of style."""
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'self'; style-src 'self' 'sha256-{digest}'; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )


class AddHeaders:
    """Adds the headers that keep an answer where it belongs; one that has its own policy keeps it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add to its answer."""

        async def added(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers[name] = value
                headers.setdefault("content-security-policy", _CLOSED)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, added if scope["type"] == "http" else send)
