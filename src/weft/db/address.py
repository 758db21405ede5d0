"""Addresses of databases: read as asyncpg reads them, and shown without their secrets."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from weft.core.errors import InvalidSetting

HIDDEN = "***"
_SCHEMES = ("postgresql://", "postgres://")
# Names of options whose values are secrets; a file of passwords is none, only its path is told.
_SECRET = re.compile(r"pass(?!file)|pwd|secret|token", re.IGNORECASE)
_SECRET_INSIDE = re.compile(rf"(?:{_SECRET.pattern})\w*\s*=", re.IGNORECASE)


class Address(NamedTuple):
    """An address without its password, and the password."""

    url: str
    password: str | None


def redacted(url: str) -> str:
    """Return ``url`` as it may be printed: without its password, and hidden whole when that could be anywhere.

    A password in which a slash, a question mark or a # was not written as %XX reaches into the parts behind the host;
    an @ there gives it away.
    """
    if _problem(url) is not None:
        return f"{url.partition('://')[0]}://{HIDDEN}" if url.startswith(_SCHEMES) else HIDDEN
    return split_password(url).url


def split_password(url: str) -> Address:
    """Return a sound address without its password, wherever that stands, and the password."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    secret = unquote(password) or None
    query = parts.query
    pairs = parse_qsl(query, keep_blank_values=True)
    kept = [(name, value) for name, value in pairs if not _SECRET.search(name) and not _SECRET_INSIDE.search(value)]
    if kept != pairs:
        secret = secret or dict(pairs).get("password")
        query = urlencode(kept, safe="/,")
    rest = urlunsplit(("", "", parts.path, query, parts.fragment))
    # Not by urlunsplit as a whole, which drops the slashes before an empty host.
    return Address(f"{parts.scheme}://{user}{at}{hosts}{rest}", secret)


def check_address(url: str, setting: str) -> str:
    """Return ``url`` when it can be an address of PostgreSQL; the error never repeats it, for its password's sake.

    Several hosts with commas between them are tried in their order, as asyncpg and psql do.
    """
    problem = _problem(url)
    if problem is not None:
        raise InvalidSetting(
            setting,
            f"is not an address like postgresql://user:password@host:5432/database: {problem}; "
            "write special characters of the password as %XX",
        )
    return url


def _problem(url: str) -> str | None:
    if not url.startswith(_SCHEMES):
        return "it must begin with postgresql://"
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
    except ValueError:
        return "it cannot be split into its parts"
    if parts.netloc.count("@") > 1 or parts.fragment:
        return "there is an @ or a # too many"
    if "@" in parts.path + parts.query:
        return "an @ behind the host is written as %40"
    return _problem_of_hosts(parts, query)


def _problem_of_hosts(parts: SplitResult, query: dict[str, list[str]]) -> str | None:
    """Look at hosts and ports, of which there may be several."""
    place = parts.netloc.rpartition("@")[2]
    hosts = place.split(",") if place else query.get("host", [""])[-1].split(",")
    if len(hosts) > 1 and not all(hosts):
        return "one of its hosts is empty"
    ports = [] if not place else [re.sub(r"^\[[^\]]*\]|^[^:]*", "", host) for host in hosts]
    if not all(not port or _is_port(port.removeprefix(":")) for port in ports if port != ":"):
        return "a port is a number from 1 to 65535"
    listed = query.get("port", [""])[-1]
    if listed and not all(_is_port(port) for port in listed.split(",")):
        return "a port is a number from 1 to 65535"
    if len(listed.split(",")) not in (1, len(hosts)):
        return "it has another number of ports than of hosts"
    return None


def _is_port(text: str) -> bool:
    return re.fullmatch(r"\d{1,5}", text) is not None and 0 < int(text) < 65536
