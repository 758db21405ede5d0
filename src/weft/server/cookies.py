"""The session of a browser: a token in a cookie that only the server reads, and only its own pages act by."""

from __future__ import annotations

from starlette.datastructures import URL
from starlette.requests import HTTPConnection
from starlette.responses import Response

from weft.catalog.sign_ins import SESSION
from weft.core.server_errors import CrossSite

# Over TLS by a name that browsers take from nobody but this very host.
SECURE, PLAIN = "__Host-weft", "weft"
_SAFE = frozenset({"GET", "HEAD"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def session_of(connection: HTTPConnection) -> str | None:
    """Return the token in a browser's cookie; raises `CrossSite` when another page makes it change things."""
    secret = connection.cookies.get(SECURE) or (connection.cookies.get(PLAIN) if _is_loopback(connection) else None)
    if secret is not None and connection.scope["method"] not in _SAFE:
        _require_own_page(connection)
    return secret


def keep(response: Response, connection: HTTPConnection, secret: str) -> None:
    """Let a browser keep its session."""
    _set(response, connection, secret, int(SESSION.total_seconds()))


def is_lost(connection: HTTPConnection) -> bool:
    """Whether a browser would not keep a session, as far as can be told: it has come by plain HTTP to another machine.

    A proxy may have taken the TLS off. Over plain HTTP browsers do not say which page a request comes from.
    """
    headers = connection.headers
    is_plain = connection.url.scheme == "http" and not _is_loopback(connection)
    return is_plain and headers.get("x-forwarded-proto") != "https" and "sec-fetch-site" not in headers


def is_led(connection: HTTPConnection) -> bool:
    """Whether a page of somebody else has led a browser here.

    It does not send its session then, so that nobody can tell whether there is one that would be replaced.
    """
    return connection.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def forget(response: Response, connection: HTTPConnection) -> None:
    """Let a browser forget its session."""
    _set(response, connection, "", 0)


def _set(response: Response, connection: HTTPConnection, value: str, seconds: int) -> None:
    # A browser keeps no secure cookie of plain HTTP: that is for this machine alone.
    is_plain = connection.url.scheme == "http" and _is_loopback(connection)
    response.set_cookie(
        PLAIN if is_plain else SECURE, value, max_age=seconds, path="/", secure=not is_plain, httponly=True,
        samesite="strict",
    )  # fmt: skip


def _is_loopback(connection: HTTPConnection) -> bool:
    return connection.url.hostname in _LOOPBACK


def _host_in(origin: str) -> str | None:
    """Return the host of a page; None when nobody can tell it, as of an address that is none."""
    try:
        return URL(origin).netloc
    except ValueError:
        return None


def _require_own_page(connection: HTTPConnection) -> None:
    site, origin = connection.headers.get("sec-fetch-site"), connection.headers.get("origin")
    if site not in (None, "same-origin"):
        raise CrossSite(f"the request is {site[:20]}")
    if origin is not None:
        # Not the scheme: a proxy may have taken the TLS off.
        if _host_in(origin) != connection.url.netloc:
            raise CrossSite("the request comes from a page of another host")
    elif site is None:
        raise CrossSite("the request does not say from which page it comes")
    kind = connection.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise CrossSite("the body is not JSON")
