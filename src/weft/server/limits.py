"""Turns away requests that are too large, and gives up clients that stop amid one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.core.server_errors import TooLarge
from weft.server.problems import of_error, problem


class LimitBodies:
    """Lets no body pass that is larger than ``limit`` bytes, or of which nothing comes for ``patience`` seconds.

    ``larger`` are the paths that take more.
    """

    def __init__(self, app: ASGIApp, limit: int, patience: float, larger: Mapping[str, int]) -> None:
        self._app = app
        self._limit = limit
        self._patience = patience
        self._larger = larger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look at its body as it comes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._larger.get(scope["path"], self._limit)
        told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if told.isdigit() and int(told) > limit:
            await of_error(TooLarge(limit))(scope, receive, send)
            return
        seen, is_whole, has_answered = 0, False, False

        async def limited() -> Message:
            nonlocal seen, is_whole
            if is_whole:
                return await receive()
            async with asyncio.timeout(self._patience):
                message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise TooLarge(limit)
            is_whole = not message.get("more_body", False)
            return message

        async def noted(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            await send(message)

        try:
            await self._app(scope, limited, noted)
        except TooLarge as error:
            if not has_answered:
                await of_error(error)(scope, receive, send)
        except TimeoutError:
            if has_answered or is_whole:
                raise
            said = f"nothing came for {self._patience:g} s amid the request"
            await problem(408, "request_timeout", "RequestTimeout", said)(scope, receive, send)
        except ClientDisconnect:
            return
