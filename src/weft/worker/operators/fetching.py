"""Fetches over HTTP for operators: from addresses that were looked at, so much at most, and for so long at most."""

from __future__ import annotations

import asyncio
import email.utils
import json
import re
import socket
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from http.cookiejar import CookieJar, DefaultCookiePolicy
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
# Connections of so many hosts are kept for what is fetched next.
_HOSTS = 50
_IN_HEADER = re.compile(r"[\t\x20-\x7e]*")
_ZLIB_WITH_GZIP = 16 + zlib.MAX_WBITS


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

    def json(self, host: str, *, exact: bool = False) -> Any:
        """Return what the body says, its numbers ``exact`` if that matters; what is no JSON may be half of it."""
        return decoded(self.body, f"{host} did not answer in JSON", exact=exact)


def decoded(body: bytes, problem: str, *, exact: bool) -> Any:
    """Return what a text of JSON says; numbers that no float and no integer of 64 bits has are exact if asked for."""
    try:
        if exact:
            return json.loads(body, parse_float=Decimal, parse_int=_whole, parse_constant=_refused)
        return orjson.loads(body)
    except (ValueError, RecursionError) as why:
        raise Unavailable(f"{problem}: {why}") from None


def _whole(digits: str) -> int | Decimal:
    number = Decimal(digits)
    return int(number) if abs(number) < 2**63 else number


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


class _Guarded(httpx.AsyncBaseTransport):
    """Resolves each name once, and connects to the address that was looked at.

    A connection belongs to the host whose certificate was looked at: another at the same address has its own.
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = allowed
        self._trust = httpx.create_ssl_context()
        self._of_hosts: dict[str, httpx.AsyncHTTPTransport] = {}
        # Of the hosts beyond those that are kept: nothing is used twice.
        self._of_others = httpx.AsyncHTTPTransport(self._trust, limits=httpx.Limits(max_keepalive_connections=0))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await look_up(url.host, port, self._allowed, "url", "WEFT_FETCH_ALLOWED")
        request.extensions = {**request.extensions, "sni_hostname": url.host}
        inner = self._of(url.host)
        *first, last = addresses
        for address in first:
            try:
                request.url = url.copy_with(host=address)
                return await inner.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        request.url = url.copy_with(host=last)
        return await inner.handle_async_request(request)

    def _of(self, host: str) -> httpx.AsyncHTTPTransport:
        if host not in self._of_hosts:
            if len(self._of_hosts) >= _HOSTS:
                return self._of_others
            self._of_hosts[host] = httpx.AsyncHTTPTransport(self._trust)
        return self._of_hosts[host]

    async def aclose(self) -> None:
        for each in (*self._of_hosts.values(), self._of_others):
            await each.aclose()


def guarded_client(allowed: Sequence[str]) -> httpx.AsyncClient:
    """Return a client that reaches public addresses, and those that are allowed; it follows nobody elsewhere.

    All jobs of all orgs fetch by it: so it keeps no cookies, which one would get and another would send.
    """
    return httpx.AsyncClient(
        transport=_Guarded(allowed), follow_redirects=False, trust_env=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
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
        if not answer.is_success:
            # What it says of that is for nobody.
            return Fetched(answer.status_code, answer.headers, b"")
        whole = _Whole(answer.headers.get("content-encoding", ""), host)
        async for piece in answer.aiter_raw():
            whole.add(piece)
        return Fetched(answer.status_code, answer.headers, whole.end())


class _Whole:
    """An answer as it comes: unpacked where it is packed, and never larger than it may be on the way."""

    def __init__(self, encoding: str, host: str) -> None:
        self._host = host
        self._body = bytearray()
        self._is_begun = False
        match encoding.strip().lower():
            case "" | "identity":
                self._packed: Any = None
            case "gzip" | "x-gzip":
                self._packed = zlib.decompressobj(_ZLIB_WITH_GZIP)
            case other:
                raise FetchRefused(f"{host} answers in the encoding {other[:100]!r}, and was asked for gzip or none")

    def add(self, piece: bytes) -> None:
        if self._packed is not None:
            piece = self._unpacked(piece)
        self._body += piece
        if len(self._body) > LARGEST:
            raise FetchRefused(f"{self._host} answers more than {LARGEST:,} bytes: ask for less at once")

    def end(self) -> bytes:
        # What is cut off may look like a whole answer, such as lines of CSV.
        if self._packed is not None and not self._packed.eof and self._is_begun:
            raise Unavailable(f"{self._host} ended amid what it packed")
        return bytes(self._body)

    def _unpacked(self, piece: bytes) -> bytes:
        found = bytearray()
        self._is_begun = True
        try:
            while piece and len(found) <= LARGEST:
                if self._packed.eof:
                    # One packed part may come after the other.
                    self._packed = zlib.decompressobj(_ZLIB_WITH_GZIP)
                found += self._packed.decompress(piece, LARGEST + 1)
                piece = self._packed.unused_data if self._packed.eof else self._packed.unconsumed_tail
        except zlib.error as problem:
            raise Unavailable(f"{self._host} answers what is not packed as it says: {problem}") from None
        return bytes(found)


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
    place = f"{field.rpartition('.')[0]}.headers.{name}"
    text = value if isinstance(value, str) else value.prefix + live.workshop.secret(value.env, place)
    if not _IN_HEADER.fullmatch(text):
        # Not what it is: whoever refuses it further on repeats it.
        whose = "" if isinstance(value, str) else f" of {value.env}"
        raise InvalidInput(place, f"the value{whose} has a sign that no header may have, such as the end of a line")
    return text


def _retry_after(headers: httpx.Headers) -> float | None:
    """Return how long whoever was asked wants to be left alone, in seconds; None where that is nothing sensible."""
    said = headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return min(float(said), _LONGEST_REST)
    try:
        moment = email.utils.parsedate_tz(said) if said else None
        then = None if moment is None else datetime.fromtimestamp(email.utils.mktime_tz(moment), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None if then is None else min(max(0.0, (then - datetime.now(UTC)).total_seconds()), _LONGEST_REST)
