"""The way to a server as people give it: its address and a token, and what is wrong when it leads nowhere."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx

from weft.core.errors import InvalidInput

PREFIX = "/api/v1"
_EXAMPLE = "https://weft.example.com"
_IS_IT = "is it the address of a Weft server?"
NOT_OURS = f"it, or what stands before it, answered with what is not Weft's; {_IS_IT}"
# By words of the error, what there is to do.
_ADVICE = {
    "CERTIFICATE_VERIFY_FAILED": "where an authority of your own signs certificates, name its own by SSL_CERT_FILE",
    "WRONG_VERSION_NUMBER": "it speaks no TLS there: does its address begin with http://?",
}


def check_server(server: str) -> str:
    """Return the address of a server without a slash at its end; raises `InvalidInput` for what cannot be one."""
    try:
        found = urlsplit(server)
        host, _ = found.hostname, found.port
    except ValueError as problem:
        raise InvalidInput("server", f"{server!r} is not an address: {problem}") from None
    if found.scheme not in ("http", "https") or not host or any(sign.isspace() for sign in server):
        raise InvalidInput("server", f"{server!r} is not an address; write for example {_EXAMPLE}")
    if found.username is not None:
        raise InvalidInput("server", "has a user in its address: the token alone says who you are, leave it out")
    if found.query or found.fragment:
        raise InvalidInput("server", f"{server!r} is not the address of a server: leave out what follows ? and #")
    address = server.rstrip("/")
    if address.endswith(PREFIX):
        raise InvalidInput("server", f"is given without {PREFIX}: write {address.removesuffix(PREFIX)}")
    return address


def headers_of(token: str | None) -> dict[str, str]:
    """Return the headers by which a server knows who asks; raises `InvalidInput` for what cannot be a token."""
    if token is None:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInput("token", "has characters in it that no token has: copy it anew, and nothing beside it")
    return {"authorization": f"Bearer {token}"}


def said_of(problem: httpx.HTTPError) -> str:
    """Return what went wrong with a connection, and what to do if that is known; some errors have no words."""
    words = str(problem) or f"it closed the connection without an answer ({type(problem).__name__})"
    advice = next((advice for mark, advice in _ADVICE.items() if mark in words), None)
    return words if advice is None else f"{words}; {advice}"


def said_by(answer: httpx.Response) -> str:
    """Return what there is to say of an answer that is none of Weft's."""
    who = "it, or what stands before it,"
    if answer.is_success:
        return NOT_OURS
    if answer.is_redirect:
        return f"{who} sends to {answer.headers.get('location', 'another address')[:200]}; give the address there"
    told = f"{who} answered {answer.status_code} without saying why"
    return f"{told}; {_IS_IT}" if answer.status_code in (404, 405) else told
