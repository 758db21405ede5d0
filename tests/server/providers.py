"""An identity provider that runs in the tests: real HTTP, real keys, which it changes, and which goes away."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
import warnings
from types import TracebackType
from typing import Any, Self

import orjson
from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

AUDIENCE = "weft"


class TestProvider:
    """Answers OpenID Connect discovery on a port of this machine, and signs whatever it is asked to."""

    __test__ = False

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {"first": RSAKey.generate_key(2048, {"kid": "first"})}
        self.asked: list[str] = []
        self.is_away = False
        self.overrides: dict[str, bytes] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.issuer = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def rotate(self, kid: str, kind: str = "RSA") -> None:
        """Sign by another key from now on, and forget those before."""
        made: dict[str, Any] = {
            "RSA": lambda: RSAKey.generate_key(2048, {"kid": kid}),
            "EC": lambda: ECKey.generate_key("P-256", {"kid": kid}),
            "OKP": lambda: OKPKey.generate_key("Ed25519", {"kid": kid}),
        }
        self.keys = {kid: made[kind]()}

    def claims(self, **more: Any) -> dict[str, Any]:
        """Return what a good token says."""
        now = int(time.time())
        said = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300, **more}
        return {name: value for name, value in said.items() if value is not None}

    def token(self, *, header: dict[str, Any] | None = None, key: Key | None = None, **more: Any) -> str:
        """Return a token, good but for what is said to be otherwise."""
        kid, own = next(iter(self.keys.items()))
        algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[(key or own).key_type]
        told = {"alg": algorithm, "kid": kid} | (header or {})
        told = {name: value for name, value in told.items() if value is not None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)
            return jwt.encode(told, self.claims(**more), key or own, algorithms=[algorithm], registry=_lenient())

    def signed_by_public_key(self) -> str:
        """Return a token that is signed as if the public key were a secret that both sides know."""
        kid, key = next(iter(self.keys.items()))
        unsigned = unsigned_token({"alg": "HS256", "kid": kid}, self.claims())
        signature = hmac.digest(key.as_pem(private=False), unsigned.rstrip(".").encode(), "sha256")
        return unsigned + base64.urlsafe_b64encode(signature).rstrip(b"=").decode()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        self.asked.append(asked)
        documents = {
            "/.well-known/openid-configuration": {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"},
            "/keys": {"keys": [key.as_dict(private=False) for key in self.keys.values()]},
        }
        body = self.overrides.get(asked) or orjson.dumps(documents[asked])
        status = b"503 Away" if self.is_away else b"200 OK"
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()
        writer.close()


def unsigned_token(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """Return a token with an empty signature."""
    parts = [base64.urlsafe_b64encode(orjson.dumps(each)).rstrip(b"=").decode() for each in (header, claims)]
    return f"{parts[0]}.{parts[1]}."


def _lenient() -> JWSRegistry:
    return JWSRegistry(algorithms=["RS256", "ES256", "EdDSA", "HS256", "none"], strict_check_header=False)
