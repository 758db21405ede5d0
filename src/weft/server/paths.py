"""Lets names with slashes stand in paths: written as ``%2F`` they are one part, plain they are all that comes.

A path that is also that of something more special is only ever that: ``/tags/etl/moves`` are the moves of ``etl``, and
never a tag, by whatever method it is asked for; the tag is ``/tags/etl%2Fmoves``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from fastapi.routing import iter_route_contexts
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.server.heads import ONLY_GET

PREFIX = "/api/v1"
# What no path can hold otherwise: such requests are turned away.
_SLASH = "\x00"
_SAMPLE = re.compile(r"{\w+}")
_GROUP = re.compile(r"\(\?P<\w+>")
_ENCODED_SLASH = re.compile(rb"%2f", re.IGNORECASE)
# Of a pattern's end a line's end is no part: with one, a path would mean what it means without.
_CONTROL = re.compile("[\x01-\x1f\x7f]")
# That of nothing.
_NOWHERE = "/%00"


class _Name(Convertor[str]):
    """A name that may have slashes."""

    regex = ".+"

    def convert(self, value: str) -> str:
        return value.replace(_SLASH, "/")

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", _Name())


def keep_apart(routes: Sequence[BaseRoute]) -> None:
    """Let no route answer for a path that is also that of a more special one."""
    found = [(each.path_regex, _SAMPLE.sub("0", each.path_format or "")) for each in iter_route_contexts(routes)]
    for route in routes:
        if not isinstance(route, Route):
            continue
        pattern, sample = route.path_regex, _SAMPLE.sub("0", route.path_format)
        special = {
            other.pattern.removeprefix("^") for other, path in found if pattern.match(path) and not other.match(sample)
        }
        if special:
            others = "|".join(_GROUP.sub("(?:", each) for each in sorted(special))
            route.path_regex = re.compile(f"^(?!{others}){pattern.pattern.removeprefix('^')}")


def methods_at(request: Request) -> list[str]:
    """Return by which methods the path of a request may be asked for."""
    found: set[str] = set()
    for context in iter_route_contexts(request.app.routes):
        pattern = getattr(context, "path_regex", None)
        if pattern is not None and pattern.match(request.scope["path"]):
            found |= context.methods or set()
            if "GET" in found and context.name not in ONLY_GET:
                found.add("HEAD")
    return sorted(found)


class KeepSlashes:
    """Tells routes apart by the slashes that were sent as such."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its path read anew."""
        if scope["type"] == "http":
            # In its place: what routes note of the request is for those who were asked before them.
            scope["path"] = _path_of(scope)
        await self._app(scope, receive, send)


def _path_of(scope: Scope) -> str:
    path: str = scope["path"]
    if _SLASH in path or _CONTROL.search(path):
        return _NOWHERE
    if _ENCODED_SLASH.search(raw := scope.get("raw_path") or b""):
        return unquote(_ENCODED_SLASH.sub(b"%00", raw.partition(b"?")[0]).decode("ascii", "replace"))
    return path
