"""Hooks: takes what a sender without a token has signed for a source of events, and nothing else."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from weft.core.server_errors import InvalidSignature
from weft.db.statements import Statements
from weft.flow.hooks import Hmac

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.live", "sql/hook.sql")
# Shorter ones can be guessed: what should hold them is not set as it should be.
SHORTEST_SECRET = 16
_HEADERS = {"github": "X-Hub-Signature-256", "stripe": "Stripe-Signature", "standard": "Webhook-Signature"}
_MOST_SIGNATURES = 10


class Hook(NamedTuple):
    """How what is sent for an event to an org is signed."""

    org_id: int
    org: str
    hmac: Hmac
    now: datetime


class Delivery(NamedTuple):
    """What was sent and is signed: for whom, and the key by which it is taken once."""

    org_id: int
    org: str
    key: str


async def find(conn: type_Connection, org: str, event: str) -> list[Hook]:
    """Return the hooks of an org's sources that listen for an event now, by the org's slug."""
    rows = await conn.fetch(SQL.find, org, event)
    return [Hook(row["id"], row["slug"], Hmac.model_validate_json(row["hook"]), row["now"]) for row in rows]


def admit(hooks: Sequence[Hook], event: str, headers: Mapping[str, str], body: bytes) -> Delivery:
    """Return what was sent if one of the hooks takes it; raises `InvalidSignature`, which says why for the log."""
    problems = []
    for hook in hooks:
        try:
            said = verify(hook.hmac, secrets_of(hook.hmac), headers, body, hook.now)
        except InvalidSignature as problem:
            problems.append(problem.problem)
            continue
        digest = hashlib.sha256(b"%s\n%s" % (event.encode(), said)).hexdigest()
        return Delivery(hook.org_id, hook.org, f"hook:{digest}")
    raise InvalidSignature("; ".join(problems) or "no source listens for it that has a hook")


def secrets_of(said: Hmac) -> list[bytes]:
    """Return the secrets that the environment holds for a hook; raises `InvalidSignature` when it holds none."""
    found = [_secret(each, said) for each in os.environ.get(said.secret_env, "").split()]
    if not found or any(len(secret) < SHORTEST_SECRET for secret in found):
        raise InvalidSignature(f"{said.secret_env} is not set, or has fewer than {SHORTEST_SECRET} bytes")
    return found


def verify(said: Hmac, secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: datetime) -> bytes:
    """Return what tells this delivery from others; raises `InvalidSignature`. Names of headers are in small letters."""
    header = said.header or _HEADERS[said.form]
    told = _header(headers, header)
    match said.form:
        case "github":
            prefix = "sha256=" if said.prefix is None else said.prefix
            signed, candidates, kind = body, [told.removeprefix(prefix)] * told.startswith(prefix), said.encoding
            named = said.delivery_header or (None if said.header else "X-GitHub-Delivery")
            delivery = headers.get(named.lower(), "").encode() if named else b""
        case "stripe":
            parts = [part.strip().partition("=") for part in told.split(",")]
            times = [value for name, _, value in parts if name == "t"]
            _require_now(times[0] if times else "", said, now)
            signed, kind = b"%s.%s" % (times[0].encode(), body), "hex"
            candidates, delivery = [value for name, _, value in parts if name == "v1"], b""
        case "standard":
            base = header[: -len("signature")]
            name, time = _header(headers, f"{base}id"), _header(headers, f"{base}timestamp")
            _require_now(time, said, now)
            signed, kind = b"%s.%s.%s" % (name.encode(), time.encode(), body), "base64"
            candidates, delivery = [each[3:] for each in told.split() if each.startswith("v1,")], name.encode()
    if not _is_signed(secrets, signed, candidates[:_MOST_SIGNATURES], kind):
        raise InvalidSignature(f"no signature in {header} is that of the body")
    return b"id:" + delivery if delivery else b"body:" + hashlib.sha256(body).digest()


def _is_signed(secrets: Sequence[bytes], signed: bytes, candidates: Sequence[str], encoding: str) -> bool:
    found = False
    for secret in secrets:
        digest = hmac.digest(secret, signed, "sha256")
        expected = digest.hex().encode() if encoding == "hex" else base64.b64encode(digest)
        for each in candidates:
            told = each.lower() if encoding == "hex" else each
            found |= hmac.compare_digest(told.encode("utf-8", "replace"), expected)
    return found


def _require_now(time: str, said: Hmac, now: datetime) -> None:
    if not (time.isascii() and time.isdigit() and len(time) <= 12):
        raise InvalidSignature("the time that was signed is missing, or is no number of seconds")
    if abs(now.timestamp() - int(time)) > said.tolerance:
        raise InvalidSignature(f"the time that was signed is more than {said.tolerance:g} s from now")


def _header(headers: Mapping[str, str], name: str) -> str:
    if not (found := headers.get(name.lower())):
        raise InvalidSignature(f"there is no header {name}")
    return found


def _secret(text: str, said: Hmac) -> bytes:
    if said.form != "standard":
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise InvalidSignature(f"{said.secret_env} is not in base64, as secrets of Standard Webhooks are") from None
