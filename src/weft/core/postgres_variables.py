"""The address of a database as the variables of its container tell it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from weft.core.errors import InvalidSetting


def url_from_postgres_variables(environ: Mapping[str, str]) -> str | None:
    """Build a URL from POSTGRES_HOST, _PORT, _USER, _PASSWORD and _DB, when a host is named.

    As in libpq a host that begins with a slash is the folder of a socket, and there may be several with commas between.
    """
    host = environ.get("POSTGRES_HOST")
    if not host:
        return None
    port = environ.get("POSTGRES_PORT", "5432")
    if not re.fullmatch(r"\d{1,5}", port):
        raise InvalidSetting("POSTGRES_PORT", f"{port!r} is not a port")
    user = quote(environ.get("POSTGRES_USER", "postgres"), safe="")
    password = environ.get("POSTGRES_PASSWORD")
    secret = f":{quote(password, safe='')}" if password else ""
    database = quote(environ.get("POSTGRES_DB", "postgres"), safe="")
    if host.startswith("/"):
        return f"postgresql://{user}{secret}@/{database}?host={quote(host, safe='/,')}&port={port}"
    hosts = [f"[{name}]" if ":" in name and not name.startswith("[") else name for name in host.split(",")]
    return f"postgresql://{user}{secret}@{','.join(f'{name}:{port}' for name in hosts)}/{database}"
