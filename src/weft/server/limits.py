"""Turns away requests that are too large, and gives up clients that stop amid one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.core.errors import InvalidInput
from weft.core.server_errors import TooLarge
from weft.server.problems import of_error, problem

_SLOWEST = 1024
# What reads them compares each with all others.
_MOST_PARAMETERS = 500


class LimitBodies:
    """Lets no body pass that is larger than ``limit`` bytes, or slower than it may be.

    It may begin ``patience`` seconds late, and has a second more for each `_SLOWEST` bytes.

    ``others`` are the paths that take more or less, each with how much, and the setting that says so.
    """

    def __init__(self, app: ASGIApp, limit: int, patience: float, others: Mapping[str, tuple[int, str]]) -> None:
        self._app = app
        self._limit = limit, "WEFT_SERVER_BODY_LIMIT"
        self._patience = patience
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look at its body as it comes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit, setting = self._others.get(scope["path"], self._limit)
        too_large = TooLarge(limit, setting)
        refused = _refused(dict(scope["headers"]), limit, too_large) or _refused_address(scope["query_string"])
        if refused is not None:
            await refused(scope, receive, send)
            return
        seen, is_whole, has_answered = 0, False, False
        loop = asyncio.get_running_loop()
        due_at = loop.time() + self._patience

        async def limited() -> Message:
            nonlocal seen, is_whole, refused
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout_at(due_at + seen / _SLOWEST):
                    message = await receive()
            except TimeoutError:
                said = f"the body came slower than {_SLOWEST} bytes a second"
                refused = problem(408, "request_timeout", "RequestTimeout", said)
                raise
            seen += len(message.get("body", b""))
            if seen > limit:
                refused = of_error(too_large)
                raise too_large
            is_whole = not message.get("more_body", False)
            return message

        async def answered(message: Message) -> None:
            # Whoever reads the body may make another answer of its end than the one that is due.
            nonlocal has_answered
            if refused is None or has_answered:
                has_answered = True
                await send(message)

        try:
            await self._app(scope, limited, answered)
        except (TooLarge, TimeoutError):
            if refused is None:
                raise
        except ClientDisconnect:
            return
        if refused is not None and not has_answered:
            # The rest of the body is not waited for, so nothing else can come over this connection.
            refused.headers["connection"] = "close"
            await refused(scope, receive, send)


def _refused_address(query: bytes) -> Response | None:
    """Return the answer to a request whose address has more in it than anybody means well."""
    if (count := 1 + query.count(b"&")) > _MOST_PARAMETERS:
        return of_error(InvalidInput("query", f"has {count} parameters, and may have {_MOST_PARAMETERS}"))
    return None


def _refused(headers: Mapping[bytes, bytes], limit: int, too_large: TooLarge) -> Response | None:
    """Return the answer to a request of which the headers say enough."""
    told = headers.get(b"content-length", b"0")
    if told.isdigit() and int(told) > limit:
        return of_error(too_large)
    has_body = told != b"0" or b"transfer-encoding" in headers
    # What is packed may be any size when it is unpacked.
    if has_body and headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
        return problem(415, "unsupported_media_type", "UnsupportedMediaType", "send the body as it is, not encoded")
    return None
