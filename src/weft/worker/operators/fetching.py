"""Fetches over HTTP for operators: from addresses that were looked at, so much at most, and no longer than it may take."""

from __future__ import annotations

import asyncio
import email.utils
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import orjson

from weft.core.errors import InvalidInput
from weft.flow.live.configs import SecretHeader
from weft.jobs.posting import check_url, look_up
from weft.version import __version__

if TYPE_CHECKING:
    from weft.worker.live import LiveContext

LARGEST = 64 * 1024 * 1024
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_PLACE = re.compile(r"\{([A-Za-z_][\w.]*)(?::([^{}]*))?\}")
_LONGEST_REST = 3600.0


class Unavailable(Exception):
    """Nothing sound came, and another time it may; ``retry_after`` is when, if that was said."""

    def __init__(self, problem: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(problem)


class FetchRefused(Exception):
    """Whoever was asked does not answer such a question: it is wrong, or a right is missing."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came."""

    status: int
    headers: httpx.Headers
    body: bytes

    def json(self, host: str) -> Any:
        """Return what the body says; what is no JSON may be half of it."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as problem:
            raise Unavailable(f"{host} did not answer in JSON: {problem}") from None


class _Guarded(httpx.AsyncBaseTransport):
    """Resolves each name once, and connects to the address that was looked at."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = allowed
        self._inner = httpx.AsyncHTTPTransport(retries=0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await look_up(url.host, port, self._allowed, "url", "WEFT_FETCH_ALLOWED")
        request.extensions = {**request.extensions, "sni_hostname": url.host}
        *first, last = addresses
        for address in first:
            try:
                request.url = url.copy_with(host=address)
                return await self._inner.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        request.url = url.copy_with(host=last)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def guarded_client(allowed: Sequence[str]) -> httpx.AsyncClient:
    """Return a client that reaches public addresses, and those that are allowed; it follows nobody elsewhere."""
    return httpx.AsyncClient(
        transport=_Guarded(allowed), follow_redirects=False, trust_env=False,
        headers={"User-Agent": f"weft/{__version__}", "Accept-Encoding": "gzip"},
    )  # fmt: skip


async def fetch(
    live: LiveContext, url: str, field: str, *, seconds: float, headers: Mapping[str, str | SecretHeader] | None = None,
    more_headers: Mapping[str, str] | None = None, body: bytes | None = None,
) -> Fetched:  # fmt: skip
    """Return what an address answers, by POST where there is a body.

    Raises `Unavailable`, `FetchRefused`, or `InvalidInput` for an address that is none or must not be fetched.
    """
    sent = {name: _header(live, name, value, field) for name, value in (headers or {}).items()} | dict(
        more_headers or {}
    )
    if body is not None:
        sent["Content-Type"] = "application/json"
    host = httpx.URL(check_url(url, field)).host
    try:
        async with asyncio.timeout(seconds):
            found = await _answer(live.workshop.http(), url, sent, body, host)
    except TimeoutError:
        raise Unavailable(f"{host} did not answer within {seconds:g} s") from None
    except (httpx.HTTPError, OSError, socket.gaierror) as problem:
        raise Unavailable(f"{host}: {type(problem).__name__}: {problem}") from None
    if found.status in _PASSING:
        raise Unavailable(f"{host} answered {found.status}", _retry_after(found.headers))
    if not (200 <= found.status < 300 or found.status == httpx.codes.NOT_MODIFIED):
        more = ", and redirects are not followed" if 300 <= found.status < 400 else ""
        raise FetchRefused(f"{host} answered {found.status}{more}")
    return found


async def _answer(http: httpx.AsyncClient, url: str, headers: dict[str, str], body: bytes | None, host: str) -> Fetched:
    method = "GET" if body is None else "POST"
    async with http.stream(method, url, headers=headers, content=body, timeout=None) as answer:
        whole = bytearray()
        async for piece in answer.aiter_bytes():
            whole += piece
            if len(whole) > LARGEST:
                raise FetchRefused(f"{host} answers more than {LARGEST:,} bytes: ask for less at once")
        return Fetched(answer.status_code, answer.headers, bytes(whole))


def filled(template: str, values: Mapping[str, Any], field: str) -> str:
    """Return an address with values in the places that it has for them, ``{name}``; a time may have a form.

    A value is one part of the address, whatever signs it has. Raises `InvalidInput` for a place without a value.
    """

    def value(found: re.Match[str]) -> str:
        name, form = found[1], found[2]
        value = found_at(values, name)
        if value is None:
            raise InvalidInput(field, f"there is no {{{name}}} here; there are {', '.join(sorted(values))}")
        if form is not None:
            try:
                value = datetime.fromisoformat(str(value)).strftime(form)
            except ValueError:
                raise InvalidInput(field, f"{{{name}}} is no time, and has no form {form!r}") from None
        return quote(str(value), safe="")

    return _PLACE.sub(value, template)


def found_at(value: Any, path: str) -> Any:
    """Return what stands at a path such as ``data.items`` or ``$.0.number``; None where nothing does."""
    for name in path.removeprefix("$").strip(".").split("."):
        if name == "":
            continue
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _header(live: LiveContext, name: str, value: str | SecretHeader, field: str) -> str:
    if isinstance(value, str):
        return value
    return value.prefix + live.workshop.secret(value.env, f"{field}.headers.{name}")


def _retry_after(headers: httpx.Headers) -> float | None:
    """Return how long whoever was asked wants to be left alone, in seconds."""
    said = headers.get("retry-after", "").strip()
    if said.isdigit():
        return min(float(said), _LONGEST_REST)
    moment = email.utils.parsedate_tz(said) if said else None
    if moment is None:
        return None
    then = datetime.fromtimestamp(email.utils.mktime_tz(moment), UTC)
    return min(max(0.0, (then - datetime.now(UTC)).total_seconds()), _LONGEST_REST)
