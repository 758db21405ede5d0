"""The identity provider: its keys, fetched and kept, and what its tokens say."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import orjson

from weft.core.errors import InvalidSetting
from weft.core.server_errors import ProviderUnavailable, Unauthenticated

if TYPE_CHECKING:
    from joserfc.jwk import Key

logger = logging.getLogger("weft.server")
# Never one by which whoever knows the public key could sign, and never none.
ALGORITHMS = ("RS256", "ES256", "EdDSA", "Ed25519")
LEEWAY = 30.0
_LONGEST_TOKEN = 8192
_LARGEST_ANSWER = 1024**2
_PATIENCE = 5.0
_FRESH, _KEPT = 600.0, 86_400.0
_KINDS = frozenset({"RSA", "EC", "OKP"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_WORTHLESS = "the token of the identity provider is not good here"


class Provider:
    """An identity provider that is found by OpenID Connect discovery.

    Its keys are asked for when they are first needed, anew after ten minutes, and at once when a token names one that
    is not known, but not more often than each ``pause`` seconds. While it is away, those of the last day are good.
    """

    def __init__(
        self, issuer: str, audience: str | None, pause: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if audience is None:
            raise InvalidSetting("WEFT_OIDC_AUDIENCE", "is missing: say whom the provider's tokens are meant for")
        if not _is_safe(issuer):
            raise InvalidSetting("WEFT_OIDC_ISSUER", f"{issuer} is not https: whoever is between could give other keys")
        try:
            import joserfc  # noqa: F401
        except ImportError as problem:
            raise InvalidSetting("WEFT_OIDC_ISSUER", "needs the extra: pip install 'weft[oidc]'") from problem
        self.issuer = issuer
        self._audience = audience
        self._pause, self._clock = pause, clock
        self._keys: dict[str | None, Key] = {}
        self._fetched_at = self._tried_at = -_KEPT
        self._problem = ""
        self._turn = asyncio.Lock()

    async def claims(self, token: str) -> Mapping[str, Any]:
        """Return what a token says when it is one of the provider's, for this server and for now.

        Raises `Unauthenticated` when it is not, and `ProviderUnavailable` when that cannot be told.
        """
        from joserfc import jws, jwt
        from joserfc.errors import JoseError, SecurityWarning

        if len(token) > _LONGEST_TOKEN:
            raise Unauthenticated(_WORTHLESS)
        try:
            # Of what is not proven yet only the name of the key is used, and only to look it up.
            header = jws.extract_compact(token.encode()).headers()
            if header.get("alg") not in ALGORITHMS:
                raise Unauthenticated(_WORTHLESS)
            key = await self._key(header.get("kid"))
            with warnings.catch_warnings():
                # By its old name EdDSA is as good as by its new one, and most providers know no other.
                warnings.simplefilter("ignore", SecurityWarning)
                said = jwt.decode(token, key, algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError, TypeError) as problem:
            raise Unauthenticated(_WORTHLESS) from problem
        self._require_now_and_here(said)
        return said

    def _require_now_and_here(self, said: Mapping[str, Any]) -> None:
        now, issuer, audience = time.time(), said.get("iss"), said.get("aud")
        meant = audience if isinstance(audience, list) else [audience]
        if not isinstance(issuer, str) or issuer.rstrip("/") != self.issuer or self._audience not in meant:
            raise Unauthenticated(_WORTHLESS)
        begin, end = _number(said.get("nbf", 0)), _number(said.get("exp"))
        if begin is None or end is None or not begin - LEEWAY <= now < end + LEEWAY:
            raise Unauthenticated("the token of the identity provider is not good at this time")

    async def _key(self, kid: object) -> Key:
        if kid is not None and not isinstance(kid, str):
            raise Unauthenticated(_WORTHLESS)
        is_stale = self._clock() - self._fetched_at > _FRESH
        # Who has a key need not wait until another has asked whether there are new ones.
        if not self._has(kid) or (is_stale and not self._turn.locked()):
            async with self._turn:
                if is_stale or not self._has(kid):
                    await self._refresh()
        found = self._keys.get(kid)
        if found is None and kid is None and len(self._keys) == 1:
            found = next(iter(self._keys.values()))
        if found is None:
            raise Unauthenticated(_WORTHLESS)
        return found

    def _has(self, kid: str | None) -> bool:
        return kid in self._keys or (kid is None and len(self._keys) == 1)

    async def _refresh(self) -> None:
        """Ask for the keys, unless that was tried just now; raises when there are none to go on with."""
        now = self._clock()
        if now - self._tried_at < (self._pause if self._keys else min(1.0, self._pause)):
            if not self._keys or now - self._fetched_at > _KEPT:
                raise ProviderUnavailable(self.issuer, self._problem)
            return
        self._tried_at = now
        try:
            self._keys, self._fetched_at = await self._fetch(), now
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, TimeoutError) as problem:
            told = self._problem = str(problem) or type(problem).__name__
            if not self._keys or now - self._fetched_at > _KEPT:
                raise ProviderUnavailable(self.issuer, told) from problem
            logger.warning("cannot ask the identity provider %s, going on with its last keys: %s", self.issuer, told)

    async def _fetch(self) -> dict[str | None, Key]:
        from joserfc.errors import JoseError
        from joserfc.jwk import import_key

        async with httpx.AsyncClient(timeout=_PATIENCE) as http, asyncio.timeout(2 * _PATIENCE):
            found = await _get(http, f"{self.issuer}/.well-known/openid-configuration")
            if str(found["issuer"]).rstrip("/") != self.issuer:
                raise ValueError(f"it calls itself {found['issuer']!r}")
            if not _is_safe(where := str(found["jwks_uri"])):
                raise ValueError(f"its keys are at {where!r}, which is not https")
            told = await _get(http, where)
        keys: dict[str | None, Key] = {}
        for each in told["keys"]:
            if each.get("kty") not in _KINDS or each.get("use", "sig") != "sig" or "d" in each:
                continue
            try:
                keys[each.get("kid")] = import_key(each)
            except (JoseError, ValueError, TypeError):
                # Of a kind that nobody here can use: others are.
                logger.warning("a key of the identity provider %s cannot be read", self.issuer)
        if not keys:
            raise ValueError("it has no keys that can be used")
        return keys


async def _get(http: httpx.AsyncClient, address: str) -> Any:
    """Return JSON from an address; redirects are not followed, and no more is read than such an answer has."""
    async with http.stream("GET", address) as answer:
        if answer.status_code != httpx.codes.OK:
            raise ValueError(f"it answered {answer.status_code} at {address}")
        body = b""
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > _LARGEST_ANSWER:
                raise ValueError(f"its answer at {address} is larger than {_LARGEST_ANSWER} bytes")
    found = orjson.loads(body)
    if not isinstance(found, dict):
        raise TypeError(f"its answer at {address} is not an object")
    return found


def _is_safe(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _number(value: object) -> float | None:
    """Return a moment; None for what is none, such as a number that is too large for one."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
