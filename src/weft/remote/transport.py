"""Makes calls by HTTP: what is asked as the contract says, the answer read back, errors raised as they were there."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from weft.contract.answers import answer_of
from weft.contract.errors import error_in
from weft.contract.operations import NDJSON, Access, Operation
from weft.core.errors import WaitTimeout, WeftError
from weft.core.server_errors import KeyBusy, NeedsDatabase, ServerStopping, ServerUnavailable
from weft.core.tracing import HEADER as TRACEPARENT
from weft.core.tracing import current_traceparent
from weft.queue.audit import why
from weft.remote.addresses import PREFIX, check_server, headers_of, said_by, said_of

REASON = "weft-reason"
# What stands in a header as it is.
_PLAIN = "".join(sign for sign in map(chr, range(33, 127)) if sign != "%")
_PATIENCE = httpx.Timeout(90.0, connect=10.0)
# So long a call is made again that may be: a server that has answered before is perhaps started anew.
_FIRST, _AGAIN = 2.0, 60.0
_SHORTEST, _LONGEST = 0.1, 2.0
# A line comes each second.
_BETWEEN_LINES = httpx.Timeout(30.0, connect=10.0)
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_UNKNOWN = "whether it was done is not known, look before you do it again"
TRANSIENT = frozenset({502, 503, 504})


class Transport:
    """One server, reached by one token."""

    def __init__(self, server: str, token: str | None) -> None:
        self.server = check_server(server)
        self._was_reached = False
        headers = headers_of(token)
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
        return dict(self._told(await self._send("GET", path, {}, None, {}, is_repeatable=True)))

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a route answers that changes something and is no call of the client; it is done once."""
        headers = {"idempotency-key": uuid.uuid4().hex, **_reasons()}
        return dict(self._told(await self._send("POST", path, {}, orjson.dumps(body), headers, is_repeatable=True)))

    def _told(self, answer: httpx.Response) -> Any:
        """Return what an answer says; raises `ServerUnavailable` when somebody else has given it."""
        try:
            return orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            raise ServerUnavailable(self.server, said_by(answer)) from None

    async def call(self, operation: Operation, given: Mapping[str, Any]) -> Any:
        """Make a call and return what it returns; raises what it raises."""
        if given.get("connection") is not None:
            raise NeedsDatabase("connection", "your transaction cannot take part; leave it out, and give a key")
        path, query, body = operation.path, {}, {}
        for each in operation.parameters:
            if each.name not in given or (given[each.name] is None and not each.is_required):
                continue
            value = None if given[each.name] is None else each.encode(given[each.name])
            if each.place == "path":
                part = _in_path(str(value))
                path = path.replace(f"{{{each.name}}}", part).replace(f"{{{each.name}:name}}", part)
            elif each.place == "query":
                query[each.name] = _in_query(value)
            else:
                body[each.name] = value
        headers = _reasons() if operation.changes else {}
        if operation.takes_key and not (operation.goes_on_by_key and "idempotency_key" in body):
            # A call whose answer is lost is made again, and must not be carried out twice; nor is what it has made
            # taken for that of somebody else who has had the same key.
            headers["idempotency-key"] = uuid.uuid4().hex
        if operation.tells_progress:
            told = await self._follow(operation.method, path, orjson.dumps(body), given.get("on_progress"), headers)
            return answer_of(operation).decode(told)
        is_repeatable = operation.method == "GET" or operation.access is Access.READER or operation.takes_key
        content = None if operation.method == "GET" else orjson.dumps(body)
        answer = await self._send(operation.method, path, query, content, headers, is_repeatable=is_repeatable)
        if answer.status_code == httpx.codes.NO_CONTENT:
            return None
        form = answer_of(operation)
        return answer.content if form.model is None else form.decode(self._told(answer))

    async def _send(
        self, method: str, path: str, query: dict[str, Any], content: bytes | None, headers: dict[str, str], *,
        is_repeatable: bool,
    ) -> httpx.Response:  # fmt: skip
        sent = headers | ({} if content is None else {"content-type": "application/json"})
        if (place := current_traceparent()) is not None:
            sent[TRACEPARENT] = place
        began, pause = time.monotonic(), _SHORTEST
        patience = _AGAIN if self._was_reached else _FIRST
        while True:
            try:
                answer = await self.http.request(method, PREFIX + path, params=query, content=content, headers=sent)
            except httpx.HTTPError as problem:
                # What was not even sent may be sent again, whatever it is.
                if not is_repeatable and not isinstance(problem, _UNSENT):
                    raise ServerUnavailable(self.server, f"{said_of(problem)}; {_UNKNOWN}") from problem
                if time.monotonic() - began > patience:
                    raise ServerUnavailable(self.server, said_of(problem)) from problem
            else:
                if answer.is_success:
                    self._was_reached = True
                    return answer
                self._raise(answer, began, patience, is_repeatable=is_repeatable)
                pause = max(pause, _asked_pause(answer))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST, 2 * pause)

    async def _follow(
        self, method: str, path: str, content: bytes, on_progress: Callable[[int], Any] | None, headers: dict[str, str]
    ) -> Any:
        """Make a call that may take long, and return what it answers; meanwhile it says how far it is."""
        headers = headers | {"content-type": "application/json", "accept": NDJSON}
        began, pause, done = time.monotonic(), _SHORTEST, 0
        patience = _AGAIN if self._was_reached else _FIRST
        while True:
            try:
                async with self.http.stream(
                    method, PREFIX + path, content=content, headers=headers, timeout=_BETWEEN_LINES
                ) as answer:
                    if not answer.is_success:
                        await answer.aread()
                        raise self.error_of(answer)
                    self._was_reached = True
                    async for line in lines_of(answer):
                        told = orjson.loads(line)
                        if "answer" in told:
                            return told["answer"]
                        if "problem" in told:
                            raise error_in(told["problem"], told["problem"]["status"])
                        done = told["progress"]
                        if on_progress is not None:
                            on_progress(done)
                    raise httpx.RemoteProtocolError("it ended amid the answer")
            except httpx.HTTPError as problem:
                if not isinstance(problem, _UNSENT) or time.monotonic() - began > patience:
                    raise ServerUnavailable(self.server, said_of(problem), done=done) from problem
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(_LONGEST, 2 * pause)

    def _raise(self, answer: httpx.Response, began: float, patience: float, *, is_repeatable: bool) -> None:
        """Raise what an answer tells, unless the same may be asked again."""
        error = self.error_of(answer)
        is_transient = answer.status_code in TRANSIENT or isinstance(error, KeyBusy)
        # Of what is wrong with the installation itself the server tells, and it may take longer than anybody waits.
        longest = patience if isinstance(error, (ServerUnavailable, ServerStopping, KeyBusy)) else min(patience, _FIRST)
        if not is_transient or isinstance(error, WaitTimeout):
            raise error
        if not is_repeatable and isinstance(error, ServerUnavailable):
            raise ServerUnavailable(self.server, f"{said_by(answer)}; {_UNKNOWN}")
        if not is_repeatable or time.monotonic() - began > longest:
            raise error

    def error_of(self, answer: httpx.Response) -> WeftError:
        """Return what an answer tells that is none of what was asked for; it may be of somebody in between."""
        told = body_of(answer)
        if "code" not in told:
            return ServerUnavailable(self.server, said_by(answer))
        return error_in(told, answer.status_code)


def _reasons() -> dict[str, str]:
    """Return the header that says why something is done, if the caller does."""
    return {} if (reason := why()) is None else {REASON: quote(reason, safe=_PLAIN)}


def _asked_pause(answer: httpx.Response) -> float:
    """Return how long the answer says to wait, within reason."""
    told = answer.headers.get("retry-after", "")
    return min(_LONGEST, float(told)) if told.isascii() and told.isdigit() else 0.0


async def lines_of(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of an answer as they come; what is cut off amid one is left out."""
    rest = b""
    async for piece in answer.aiter_raw():
        # Not by what text calls a line: JSON may have such signs in it.
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line


def _in_path(value: str) -> str:
    """Return a value as it stands in an address: one part of it, whatever it is."""
    return value.replace(".", "%2E") if value in (".", "..") else quote(value, safe="")


def _in_query(value: Any) -> Any:
    return ("true" if value else "false") if isinstance(value, bool) else value


def body_of(answer: httpx.Response) -> dict[str, Any]:
    """Return what an answer tells that is none of what was asked for."""
    try:
        found = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {}
