"""What is wrong with a bucket, in words on which somebody can act."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from weft.core.errors import InvalidSetting
from weft.core.settings import parse_flag

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# Of what the server or obstore says only these are repeated: the rest may have credentials in it.
_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"(?:<Code>|\(code: )(\w{1,64})\b")

# An object by whose name no store can be asked: the list of all around it fails.
_ODD_NAME = re.compile(r'object with invalid path: .*?Path "(.{1,1000}?)"', re.DOTALL)
_NO_CREDENTIALS = re.compile(r"/latest/(api/token|meta-data)")
_RIGHTS = "allow s3:GetObject, s3:PutObject and s3:DeleteObject on its objects, and s3:ListBucket"
_OTHER_REGION = "its bucket is in another region: set AWS_REGION"
_UNKNOWN_KEY = (
    "it does not know the credentials: look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
)
# What S3 calls it, and what to do about it.
_BY_CODE = {
    "AccessDenied": f"access is denied: {_RIGHTS}",
    "AuthorizationHeaderMalformed": _OTHER_REGION,
    "ExpiredToken": "the credentials have expired: renew AWS_SESSION_TOKEN and what belongs to it",
    "IllegalLocationConstraintException": _OTHER_REGION,
    "InvalidAccessKeyId": _UNKNOWN_KEY,
    "InvalidObjectState": "it is archived: restore it there, and remove the lifecycle rule that moves objects",
    "InvalidToken": _UNKNOWN_KEY,
    "NoSuchBucket": "there is no such bucket: create it, or correct its name or AWS_ENDPOINT_URL",
    "PermanentRedirect": _OTHER_REGION,
    "RequestTimeTooSkewed": "it refuses the clock of this machine: set it right",
    "SignatureDoesNotMatch": _UNKNOWN_KEY,
}


def problem_of(problem: Exception) -> str:
    """Return what is wrong with a bucket, and what to do about it."""
    text = str(problem)
    status, code = _found(_STATUS, text), _found(_CODE, text)
    return _BY_CODE.get(code) or _by_status(status, code, text)


def is_denied(problem: Exception) -> bool:
    """Whether a bucket may be used by others, or for other things."""
    return _found(_STATUS, str(problem)) in ("401", "403")


def _by_status(status: str, code: str, text: str) -> str:
    if (odd := _ODD_NAME.search(text)) is not None:
        return (
            f"it has an object {odd[1]!r}, whose name has an empty part, one of dots alone, or a control character: "
            "remove it, or give it another name"
        )
    if _NO_CREDENTIALS.search(text):
        return "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
    if "incorrectly configured region" in text:
        return _OTHER_REGION
    if status in ("401", "403"):
        return f"access is denied: {_RIGHTS}"
    if not status and not code:
        return "it cannot be reached: see to the network, AWS_ENDPOINT_URL and AWS_REGION, then try again"
    answer = f"{status} {code}".strip()
    if status == "429" or status.startswith("5"):
        return f"it is out of order or too busy, and answers {answer}: try again later"
    return f"it answers {answer}: look that up in the documentation of the storage"


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def allows_http(environ: Mapping[str, str]) -> bool:
    """Whether values may go unencrypted: to this machine itself, or if AWS_ALLOW_HTTP says so.

    Raises `InvalidSetting` for an endpoint that cannot be one, or that would need it.
    """
    found = [(name, environ[name]) for name in _ENDPOINTS if name in environ]
    return any([_is_plain(name, url, environ) for name, url in found])


def _is_plain(name: str, url: str, environ: Mapping[str, str]) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        raise InvalidSetting(name, "is not an address like https://host:port")
    if parts.scheme == "https":
        return False
    if not _is_this_machine(host) and not _is_set(environ, "AWS_ALLOW_HTTP"):
        raise InvalidSetting(name, "http:// sends values unencrypted: use https://, or set AWS_ALLOW_HTTP=true")
    return True


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    try:
        return parse_flag(environ.get(name, "false"))
    except ValueError as problem:
        raise InvalidSetting(name, str(problem)) from None
