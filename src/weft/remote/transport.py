"""Makes calls by HTTP: what is asked as the contract says, the answer read back, errors raised as they were there."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from weft.contract.answers import answer_of
from weft.contract.errors import error_in
from weft.contract.operations import Operation
from weft.core.errors import InvalidInput
from weft.core.server_errors import ServerUnavailable
from weft.core.tracing import HEADER as TRACEPARENT
from weft.core.tracing import current_traceparent

PREFIX = "/api/v1"
_PATIENCE = httpx.Timeout(90.0, connect=10.0)
_ATTEMPTS = 4
TRANSIENT = frozenset({502, 503, 504})


class Transport:
    """One server, reached by one token."""

    def __init__(self, server: str, token: str | None) -> None:
        if not server.startswith(("http://", "https://")):
            raise InvalidInput("server", f"{server!r} is not an address; write for example https://weft.example.com")
        self.server = server.rstrip("/")
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=20)
        self.http = httpx.AsyncClient(
            base_url=self.server, headers=headers, timeout=_PATIENCE, limits=limits,
            # To read all certificates that there are takes 40 ms, and nothing here is ever sent elsewhere.
            verify=self.server.startswith("https://"),
        )  # fmt: skip

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    async def get(self, path: str) -> dict[str, Any]:
        """Return what a route answers that is no call of the client; raises what it tells."""
        return body_of(await self._send("GET", path, {}, None, {}, is_repeatable=True))

    async def call(self, operation: Operation, given: Mapping[str, Any]) -> Any:
        """Make a call and return what it returns; raises what it raises."""
        path, query, body = operation.path, {}, {}
        for each in operation.parameters:
            if each.name not in given or (given[each.name] is None and not each.is_required):
                continue
            value = None if given[each.name] is None else each.encode(given[each.name])
            if each.place == "path":
                path = path.replace(f"{{{each.name}}}", quote(str(value), safe=""))
                path = path.replace(f"{{{each.name}:name}}", quote(str(value), safe=""))
            elif each.place == "query":
                query[each.name] = _in_query(value)
            else:
                body[each.name] = value
        headers = {}
        if operation.takes_key and body.get("idempotency_key") is None:
            # A call whose answer is lost is made again, and must not be carried out twice.
            headers["idempotency-key"] = uuid.uuid4().hex
        is_repeatable = operation.method == "GET" or operation.takes_key
        content = None if operation.method == "GET" else orjson.dumps(body)
        answer = await self._send(operation.method, path, query, content, headers, is_repeatable=is_repeatable)
        if answer.status_code == httpx.codes.NO_CONTENT:
            return None
        form = answer_of(operation)
        return answer.content if form.model is None else form.decode(orjson.loads(answer.content))

    async def _send(
        self, method: str, path: str, query: dict[str, Any], content: bytes | None, headers: dict[str, str], *,
        is_repeatable: bool,
    ) -> httpx.Response:  # fmt: skip
        sent = headers | ({} if content is None else {"content-type": "application/json"})
        if (place := current_traceparent()) is not None:
            sent[TRACEPARENT] = place
        for attempt in range(_ATTEMPTS):
            is_last = attempt == _ATTEMPTS - 1 or not is_repeatable
            try:
                answer = await self.http.request(method, PREFIX + path, params=query, content=content, headers=sent)
            except httpx.HTTPError as problem:
                if is_last and not isinstance(problem, httpx.ConnectError):
                    raise ServerUnavailable(self.server, str(problem) or type(problem).__name__) from problem
                if attempt == _ATTEMPTS - 1:
                    raise ServerUnavailable(self.server, str(problem) or type(problem).__name__) from problem
            else:
                if answer.is_success:
                    return answer
                if is_last or answer.status_code not in TRANSIENT or _is_told(answer):
                    raise error_in(body_of(answer), answer.status_code)
            await asyncio.sleep(random.uniform(0, 0.1 * 2**attempt))
        raise AssertionError("unreachable")


def _in_query(value: Any) -> Any:
    return ("true" if value else "false") if isinstance(value, bool) else value


def _is_told(answer: httpx.Response) -> bool:
    """Whether an answer that says to come later is what the call itself has ended with, such as a wait."""
    return body_of(answer).get("code") == "wait_timeout"


def body_of(answer: httpx.Response) -> dict[str, Any]:
    """Return what an answer tells that is none of what was asked for."""
    try:
        found = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"detail": f"the server answered {answer.status_code}, without JSON"}
