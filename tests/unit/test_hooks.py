"""Signatures of hooks: as GitHub, Stripe and Standard Webhooks make them, and nothing that is only like one."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from weft.core.server_errors import InvalidSignature
from weft.flow.hooks import Hmac
from weft.live.hooks import secrets_of, verify

SECRET = b"It's a Secret to Everybody"
BODY = b"Hello, World!"
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
TIME = str(int(NOW.timestamp()))
ENV = "WEFT_HOOK_TEST"


def _hex(signed: bytes, secret: bytes = SECRET) -> str:
    return hmac.digest(secret, signed, "sha256").hex()


def _base64(signed: bytes, secret: bytes = SECRET) -> str:
    return base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()


def _refused(said: Hmac, headers: dict[str, str], body: bytes = BODY, secrets: tuple[bytes, ...] = (SECRET,)) -> str:
    with pytest.raises(InvalidSignature) as caught:
        verify(said, secrets, headers, body, NOW)
    return str(caught.value)


def test_the_signature_that_github_documents_is_taken() -> None:
    said = Hmac(secret_env=ENV)
    # The example of GitHub's own documentation.
    told = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": told, "x-github-delivery": "72d3162e"}
    assert verify(said, [SECRET], headers, BODY, NOW) == b"id:72d3162e"
    assert verify(said, [b"another secret, rotated", SECRET], headers, BODY, NOW)
    without = {"x-hub-signature-256": told}
    assert verify(said, [SECRET], without, BODY, NOW) == b"body:" + hashlib.sha256(BODY).digest()
    for wrong in (told[:-1], told[7:], told.replace("sha256", "sha1"), "sha256=", "", told + "0", "sha256=ä"):
        _refused(said, {**headers, "x-hub-signature-256": wrong})
    _refused(said, headers, BODY + b" ")
    _refused(said, headers, secrets=(b"something else entirely",))
    assert "no header X-Hub-Signature-256" in _refused(said, {})


def test_a_plain_signature_has_its_own_header_prefix_and_encoding() -> None:
    said = Hmac(secret_env=ENV, header="X-Sig", prefix="", encoding="base64", delivery_header="X-Id")
    assert verify(said, [SECRET], {"x-sig": _base64(BODY), "x-id": "7"}, BODY, NOW) == b"id:7"
    _refused(said, {"x-sig": _hex(BODY)})
    # Without a header that tells them apart, the same body is the same.
    plain = Hmac(secret_env=ENV, header="X-Sig", prefix="")
    told = {"x-sig": _hex(BODY).upper(), "x-github-delivery": "7"}
    assert verify(plain, [SECRET], told, BODY, NOW).startswith(b"body:")


def test_a_signature_of_stripe_is_taken_within_its_time() -> None:
    said = Hmac(secret_env=ENV, form="stripe")

    def headers(time: str, signature: str | None = None) -> dict[str, str]:
        signature = signature or _hex(f"{time}.".encode() + BODY)
        return {"stripe-signature": f"t={time},v1={'0' * 64},v1={signature},v0=abc"}

    assert verify(said, [SECRET], headers(TIME), BODY, NOW).startswith(b"body:")
    for far in (int(TIME) - 301, int(TIME) + 301):
        assert "300 s from now" in _refused(said, headers(str(far)))
    assert verify(said, [SECRET], headers(str(int(TIME) - 299)), BODY, NOW)
    # The time is a part of what is signed.
    _refused(said, headers(TIME, _hex(f"{int(TIME) - 1}.".encode() + BODY)))
    for wrong in ("", "v1=abc", f"t=,v1={_hex(b'.' + BODY)}", "t=-1,v1=a", "t=١,v1=a", "t=9" + "9" * 20):
        _refused(said, {"stripe-signature": wrong})
    _refused(said, {"stripe-signature": f"t={TIME},v0={_hex(f'{TIME}.'.encode() + BODY)}"})


def test_a_signature_of_standard_webhooks_is_taken_with_its_id_and_time() -> None:
    said = Hmac(secret_env=ENV, form="standard")

    def headers(id: str, time: str, prefix: str = "webhook") -> dict[str, str]:
        signature = f"v1,{_base64(b'other')} v1,{_base64(f'{id}.{time}.'.encode() + BODY)} v1a,x"
        return {f"{prefix}-id": id, f"{prefix}-timestamp": time, f"{prefix}-signature": signature}

    assert verify(said, [SECRET], headers("msg_1", TIME), BODY, NOW) == b"id:msg_1"
    _refused(said, headers("msg_1", TIME) | {"webhook-id": "msg_2"})
    _refused(said, headers("msg_1", TIME) | {"webhook-timestamp": str(int(TIME) + 1)})
    # What is signed in another manner is not what it seems.
    other = headers("msg_1", TIME)["webhook-signature"].replace("v1,", "v2,")
    _refused(said, headers("msg_1", TIME) | {"webhook-signature": other})
    assert "from now" in _refused(said, headers("msg_1", str(int(TIME) - 400)))
    svix = Hmac(secret_env=ENV, form="standard", header="Svix-Signature")
    assert verify(svix, [SECRET], headers("msg_1", TIME, "svix"), BODY, NOW)
    with pytest.raises(ValidationError, match="-Signature"):
        Hmac(secret_env=ENV, form="standard", header="X-Sig")


def test_secrets_come_from_variables_of_their_own_and_are_not_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "WEFT_DATABASE_URL", "WEFT_HOOK_", "weft_hook_x", "WEFT_HOOK_A\n"):
        with pytest.raises(ValidationError):
            Hmac(secret_env=name)
    said = Hmac(secret_env=ENV)
    for wrong in (None, "", "   ", "short", f"{'x' * 20} short"):
        monkeypatch.delenv(ENV, raising=False)
        if wrong is not None:
            monkeypatch.setenv(ENV, wrong)
        with pytest.raises(InvalidSignature) as caught:
            secrets_of(said)
        assert "short" not in str(caught.value)
    monkeypatch.setenv(ENV, f"{'a' * 20} {'b' * 20}")
    assert secrets_of(said) == [b"a" * 20, b"b" * 20]
    standard = Hmac(secret_env=ENV, form="standard")
    monkeypatch.setenv(ENV, "whsec_" + base64.b64encode(SECRET).decode())
    assert secrets_of(standard) == [SECRET]
    monkeypatch.setenv(ENV, "whsec_not base64 at all")
    with pytest.raises(InvalidSignature, match="base64"):
        secrets_of(standard)
