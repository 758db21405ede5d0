"""Reads requests: bodies of JSON that mean one thing, or a definition as its file has it, and nothing unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute

from weft.core.errors import InvalidInput
from weft.server.credentials import ANONYMOUS

JSON = "application/json"
YAML = "application/yaml"
IF_MATCH = "if-match"
# What else a file is sent as, which says the same.
_YAML = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml"})
# A definition as its file has it, for those who read the document.
FILE = {
    "schema": {"type": "string", "description": "The definition."},
    "example": """workflow_id: etl
nodes:
  START: {type: start, next: fetch}
  fetch: {type: task, handler: etl:fetch, next: END}
  END: {type: end}
""",
}
DAG_FILE = {
    "schema": {"type": "string", "description": "The live DAG."},
    "example": """dag: market
jobs:
  quotes:
    activation: source
    operator: python
    source: {kind: cron, schedule: "*/5 * * * *"}
    config: {handler: "market:quotes"}
    outputs: [quotes]
""",
}
# What may stand in the address beside a definition that is sent as it is, and what each looks like there.
BESIDE = {
    "tag": {"type": "string", "minLength": 1},
    "message": {"type": "string", "minLength": 1},
    "seen": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
}
# What is no such number is left as it is, and is refused as it would be in a body.
_NUMBER = re.compile("[0-9]{1,10}")


def read_json(body: bytes) -> Any:
    """Return what a body says; raises an answer of 400 for what is not JSON, or could be read in two ways."""
    try:
        return json.loads(body.decode(), parse_constant=_no_number, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise _malformed(f"is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise _malformed(f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise _malformed("has lists or objects too deep within each other") from error
    except ValueError as error:
        raise _malformed(f"is refused: {error}") from error


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a number in JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the field {twice[:80]!r} is there twice")
    return found


def _malformed(problem: str) -> HTTPException:
    return HTTPException(400, f"the body {problem}")


def _type_of(request: Request) -> Message:
    told = Message()
    told["content-type"] = request.headers.get("content-type", "text/plain")
    return told


class _Read(Request):
    """A request whose body is JSON, and told to be."""

    _taken, _wanted = frozenset({JSON}), JSON

    async def body(self) -> bytes:
        found = await super().body()
        if found:
            self._check_type()
        return found

    async def json(self) -> Any:
        return read_json(await self.body())

    def _check_type(self) -> None:
        told = _type_of(self)
        if told.get_content_type() not in self._taken:
            sent = self.headers.get("content-type", "")[:80]
            beside = f", not as {sent!r}" if sent else ", and say so"
            raise HTTPException(415, f"send the body as {self._wanted}{beside}")
        if str(told.get_param("charset", "utf-8")).lower() not in ("utf-8", "utf8", "us-ascii"):
            raise HTTPException(415, "send the body in UTF-8")


class _DefinitionRead(_Read):
    """A request whose body is JSON, or a definition as its file has it; what it leaves out may be in the address."""

    _taken, _wanted = frozenset({JSON, *_YAML}), f"{JSON} or {YAML}"

    async def json(self) -> Any:
        body = await self.body()
        beside = {name: _beside(name, self.query_params[name]) for name in BESIDE if name in self.query_params}
        if self.scope["is_definition"]:
            try:
                return {"definition": body.decode(), **beside}
            except UnicodeDecodeError as error:
                raise _malformed(f"is not UTF-8 at byte {error.start}") from error
        told = read_json(body)
        return beside | told if isinstance(told, dict) else told


def _beside(name: str, value: str) -> str | int:
    return int(value) if BESIDE[name]["type"] == "integer" and _NUMBER.fullmatch(value) else value


class KnownRoute(APIRoute):
    """A route that takes what it knows, and passes over nothing that was sent to be heeded."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer, known = super().get_route_handler(), self._known()
        if self.path in ANONYMOUS:
            # Whoever asks from time to time whether a server is there may add what he likes.
            return answer
        takes_match = IF_MATCH in known["header"] or set(self.methods or ()) <= {"GET"}

        async def handler(request: Request) -> Response:
            if request.scope["query_string"]:
                for name in request.query_params:
                    if name not in known["query"]:
                        names = ", ".join(sorted(known["query"])) or "none"
                        raise InvalidInput(
                            name[:80], f"there is no such parameter here: those of the address are {names}"
                        )
            if not takes_match and IF_MATCH in request.headers:
                raise InvalidInput(IF_MATCH, "is not heeded here, so nothing was done: leave it out")
            return await answer(request)

        return handler

    def _known(self) -> dict[str, set[str]]:
        """Return the names of what the route takes, by the part of the request that they stand in."""
        found: dict[str, set[str]] = {"query": set(), "header": set()}
        for field in get_flat_params(self.dependant):
            # The parts of a model do not say where they stand: only queries are read by one.
            place = getattr(field.field_info, "in_", None)
            found.setdefault("query" if place is None else place.value, set()).add(field.alias)
        for each in (self.openapi_extra or {}).get("parameters", ()):
            found[each["in"]].add(each["name"])
        return found


class JsonRoute(KnownRoute):
    """A route that takes JSON in UTF-8 and answers 415 to all else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await answer(_Read(request.scope, request.receive))

        return handler


class DefinitionRoute(KnownRoute):
    """A route that takes a definition: in JSON with what is said of it, or as its file has it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            scope = {**request.scope, "is_definition": _type_of(request).get_content_type() in _YAML}
            if scope["is_definition"]:
                # FastAPI asks for what the body says only where it is told to be JSON.
                kept = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
                scope["headers"] = [*kept, (b"content-type", JSON.encode())]
            return await answer(_DefinitionRead(scope, request.receive))

        return handler
