"""Takes the password out of a database's address."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit


class Address(NamedTuple):
    """An address that may be printed, and the password that may not."""

    url: str
    password: str | None


def split_password(url: str) -> Address:
    """Return the address without its password, wherever it stands, and the password."""
    parts = urlsplit(url)
    password = None if parts.password is None else unquote(parts.password)
    netloc = parts.netloc
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}@{host}"
    query = parts.query
    pairs = parse_qsl(query, keep_blank_values=True)
    if secrets := [value for name, value in pairs if name in ("password", "sslpassword")]:
        password = password or secrets[0]
        query = urlencode([pair for pair in pairs if pair[0] not in ("password", "sslpassword")], safe="/")
    rest = urlunsplit(("", "", parts.path, query, parts.fragment))
    # Not by urlunsplit as a whole, which drops the slashes before an empty host.
    return Address(f"{parts.scheme}://{netloc}{rest}", password)
