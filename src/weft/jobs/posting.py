"""Posts one message over HTTP, to an address that was looked at before anything is sent there."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from weft.core.checks import check_text
from weft.core.errors import InvalidInput

MAX_URL = 2000
_GONE = 410
_SOUND = re.compile(r"[\x21-\x7e]+")
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
# What is given out to anybody of IPv6.
_GIVEN_OUT = ipaddress.ip_network("2000::/3")
# Of the registries of special purposes (IANA) what `ipaddress` knows only since a later release, or takes for reachable
# in parts, and where the machines of one large cloud find their host.
_SPECIAL = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "3fff::/20"))
)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NotDelivered(Exception):
    """A message was not taken; another time it may be."""


def check_url(url: object, field: str) -> str:
    """The address of a receiver, as far as it can be checked without a look at the network."""
    text = check_text(url, field, MAX_URL)
    if not _SOUND.fullmatch(text):
        raise InvalidInput(field, "has a character that must be percent-encoded in an address")
    _split(text, field)
    return text


def _split(url: str, field: str) -> tuple[SplitResult, str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise InvalidInput(field, f"is not an address: {problem}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(field, "must begin with https:// or http:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(field, "must not hold a user or password: receivers go by the signature")
    if port == 0:
        raise InvalidInput(field, "has no port 0")
    return parts, parts.hostname, port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True, slots=True)
class Poster:
    """Posts to receivers outside, and inside only to those that are ``allowed``: hosts, hosts with ports, networks."""

    allowed: Sequence[str] = ()
    timeout: float = 10.0

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], field: str = "url") -> None:
        """Post ``body``; raises `NotDelivered` when it was not taken, and `InvalidInput` when it never will be.

        Each name is resolved once and the connection made to the address that was looked at; redirects are not
        followed: so nobody leads the message elsewhere.
        """
        parts, host, port = _split(check_url(url, field), field)
        try:
            async with asyncio.timeout(self.timeout):
                addresses = await look_up(host, port, self.allowed, field, "WEFT_CALLBACK_ALLOWED")
                status = await self._send(parts, host, port, addresses, body, headers)
        except TimeoutError:
            raise NotDelivered(f"{host} did not answer within {self.timeout:g} s") from None
        except (OSError, asyncio.IncompleteReadError, ValueError) as problem:
            raise NotDelivered(f"{host}: {type(problem).__name__}: {_without_address(problem)}") from None
        if status == _GONE:
            raise InvalidInput(field, f"{host} answered 410: nobody takes messages there any more")
        if not 200 <= status < 300:
            more = ", and redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"{host} answered {status}{more}")

    async def _send(
        self,
        parts: SplitResult,
        host: str,
        port: int,
        addresses: Sequence[str],
        body: bytes,
        headers: Mapping[str, str],
    ) -> int:
        reader, writer = await _connect(addresses, port, host if parts.scheme == "https" else None)
        try:
            shown = f"[{host}]" if ":" in host else host
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            own = {
                "Host": shown if parts.port is None else f"{shown}:{port}", "Content-Type": "application/json",
                "Content-Length": str(len(body)), "Connection": "close", **headers,
            }  # fmt: skip
            lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items()), "", ""]
            writer.write("\r\n".join(lines).encode("ascii") + body)
            await writer.drain()
            return await _status(reader)
        finally:
            writer.transport.abort()


async def look_up(host: str, port: int, allowed: Sequence[str], field: str, setting: str) -> list[str]:
    """Return the addresses of a host; raises `InvalidInput` unless all are public, or ``allowed`` by a setting."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    shown = f"[{host}]" if ":" in host else host
    if any(entry.lower() in (host, f"{shown}:{port}") for entry in allowed):
        return addresses
    for address in addresses:
        if not _is_allowed(address, allowed):
            # Not which: whoever reads this could find out what names there are inside, and where they lead.
            raise InvalidInput(field, f"{host} is not a public address; {setting} names exceptions")
    return addresses


def _is_allowed(address: str, allowed: Sequence[str]) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    return is_public(found) or any(found in network for network in map(_network, allowed) if network is not None)


def is_public(address: Address) -> bool:
    """Whether an address belongs to nobody in particular here: not private, loopback, link-local or the like."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GIVEN_OUT:
            return False
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not address.is_multicast


def _without_address(problem: Exception) -> str:
    """Return what went wrong, but for the address that was connected to."""
    return re.sub(r" \('[0-9A-Fa-f:.%\w]+', \d+(?:, \d+)*\)", "", str(problem))


@functools.cache
def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    return None


@functools.cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _connect(
    addresses: Sequence[str], port: int, tls_name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers."""
    *first, last = addresses
    how = {} if tls_name is None else {"ssl": _trust(), "server_hostname": tls_name}
    for address in first:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(address, port, **how)  # type: ignore[arg-type]
    return await asyncio.open_connection(last, port, **how)  # type: ignore[arg-type]


async def _status(reader: asyncio.StreamReader) -> int:
    """Return the status of the answer; what follows it is of no interest."""
    while True:
        line = await reader.readline()
        found = re.match(rb"HTTP/1\.[01] (\d{3})\b", line)
        if found is None:
            raise ValueError("closed the connection without an answer" if not line else "did not answer in HTTP")
        status = int(found[1])
        if status >= 200:
            return status
        # Interim: the answer itself comes after its headers.
        while (await reader.readline()).strip():
            pass
