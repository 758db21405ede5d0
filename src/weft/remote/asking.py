"""Asks a server for acts of the worker protocol, and raises what they raise there."""

from __future__ import annotations

from typing import Any

import httpx
import orjson

from weft.contract.errors import error_in
from weft.core.errors import OperatorError
from weft.core.server_errors import ServerUnavailable, TooLarge
from weft.core.tracing import HEADER, current_traceparent, tracer
from weft.remote.addresses import NOT_OURS, check_server, headers_of, said_by, said_of
from weft.worker.context import RUNNING

_PATIENCE = 30.0
_JSON = {"content-type": "application/json"}
_BROKEN = frozenset({502, 504})
_TOO_LARGE = (
    "what stands before the server takes no request so large: let it take as much as WEFT_SERVER_BODY_LIMIT says"
)


class Asking:
    """One server, and the token of a worker."""

    def __init__(self, server: str, token: str | None) -> None:
        self.server = check_server(server)
        self.token = token
        headers = headers_of(token)
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(base_url=self.server, headers=headers, timeout=_PATIENCE, limits=limits)

    async def ask(self, path: str, body: dict[str, Any], *, wait: float = 0.0) -> dict[str, Any]:
        """Ask for an act that may take ``wait`` seconds, and return what is told; raises what the act raises."""
        answer = await self.send("POST", path, content=orjson.dumps(body), headers=_JSON, timeout=_PATIENCE + wait)
        try:
            found: dict[str, Any] = orjson.loads(answer)
        except orjson.JSONDecodeError:
            raise ServerUnavailable(self.server, NOT_OURS) from None
        return found

    async def send(self, method: str, path: str, **more: Any) -> bytes:
        """Send a request and return the body of its answer; raises what it tells of, and `ServerUnavailable`."""
        if self._http.is_closed:
            raise ServerUnavailable(self.server, "the worker has stopped")
        try:
            headers = {**more.pop("headers", {}), **_place()}
            answer = await self._http.request(method, path, headers=headers, **more)
        except httpx.HTTPError as problem:
            raise ServerUnavailable(self.server, said_of(problem)) from problem
        if answer.is_success:
            return answer.content
        try:
            told = orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            told = None
        is_ours = isinstance(told, dict) and told.get("code") == TooLarge.code
        if answer.status_code == TooLarge.http_status and not is_ours:
            told = {"code": TooLarge.code, "detail": _TOO_LARGE}
        if not isinstance(told, dict) or "code" not in told or answer.status_code in _BROKEN:
            raise ServerUnavailable(self.server, said_by(answer))
        error = error_in(told, answer.status_code)
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE and not isinstance(error, OperatorError):
            # Such as a server that is full: it passes, and is no fault of what was asked for.
            raise ServerUnavailable(self.server, str(error))
        raise error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _place() -> dict[str, str]:
    """Return the header that says in which attempt something is asked for: what a worker asks for itself is in none."""
    running = RUNNING.get()
    if running is None or tracer() is None:
        return {}
    return {HEADER: current_traceparent() or running.context.traceparent}
