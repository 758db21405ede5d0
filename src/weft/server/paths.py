"""Lets names with slashes stand in paths: written as ``%2F`` they are one part, plain they are all that comes."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

# What no path can hold otherwise: such requests are turned away.
_SLASH = "\x00"
_ENCODED_SLASH = re.compile(rb"%2f", re.IGNORECASE)


class _Name(Convertor[str]):
    """A name that may have slashes."""

    regex = ".+"

    def convert(self, value: str) -> str:
        return value.replace(_SLASH, "/")

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", _Name())


class KeepSlashes:
    """Tells routes apart by the slashes that were sent as such."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its path read anew."""
        if scope["type"] == "http" and _ENCODED_SLASH.search(raw := scope.get("raw_path") or b""):
            path = unquote(_ENCODED_SLASH.sub(b"%00", raw.partition(b"?")[0]).decode("ascii", "replace"))
            scope = {**scope, "path": path} if b"%00" not in raw else {**scope, "path": "/%00"}
        elif scope["type"] == "http" and _SLASH in scope["path"]:
            scope = {**scope, "path": "/%00"}
        await self._app(scope, receive, send)
