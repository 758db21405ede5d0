"""Answers HEAD wherever GET is answered: with all that GET would say before the body, and without it."""

from __future__ import annotations

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MARK = "weft.is_head"
# Routes that are asked for by GET alone, by their names.
ONLY_GET = frozenset({"jobs.stream", "jobs.list.stream", "tasks.log.stream", "sign_in"})


class AnswerHeads:
    """Passes HEAD on as GET, and keeps the body back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        inner: Scope = {**scope, "method": "GET", _MARK: True}
        try:
            await self._app(inner, receive, without_body)
        finally:
            # By which the request is noted.
            scope.update({name: inner[name] for name in ("route", "path_params") if name in inner})


def method_of(request: Request) -> str:
    """Return by which method was asked."""
    return "HEAD" if request.scope.get(_MARK) else request.method


def refuse_head(request: Request) -> None:
    """Refuse a request for what is nothing without its body, or is done by asking: the routes of `ONLY_GET`."""
    if method_of(request) == "HEAD":
        raise HTTPException(405)
