"""Tokens of an identity provider: those that are good now and here let their user in, and no other does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from joserfc.jwk import RSAKey
from providers import AUDIENCE, TestProvider, unsigned_token

import weft
from weft.core.server_errors import ProviderUnavailable
from weft.server.provider import LEEWAY, Provider
from weft.server.serving import Server


@pytest.fixture
async def provider() -> AsyncIterator[TestProvider]:
    async with TestProvider() as running:
        yield running


@pytest.fixture
async def oidc_settings(provider: TestProvider, settings: weft.Settings) -> weft.Settings:
    return replace(settings, oidc_issuer=provider.issuer, oidc_audience=AUDIENCE)


@pytest.fixture
async def http(oidc_settings: weft.Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        Server(oidc_settings, port=0) as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as opened,
    ):
        yield opened


async def _status(http: httpx.AsyncClient, token: str) -> int:
    answer = await http.get("/api/v1/tasks", headers={"authorization": f"Bearer {token}"})
    assert token not in answer.text
    return answer.status_code


async def test_a_user_of_the_provider_is_let_in_as_what_he_is_here(
    http: httpx.AsyncClient, provider: TestProvider, client: weft.Client
) -> None:
    assert await _status(http, provider.token()) == 401
    await client.users.add("ada", role="writer")
    bearer = {"authorization": f"Bearer {provider.token(aud=['other', AUDIENCE])}"}
    made = await http.post("/api/v1/tasks", json={"handler": "a"}, headers=bearer)
    assert (await client.get_task(int(made.json()["id"]))).actor == "ada"
    assert (await http.get("/api/v1/tokens", headers=bearer)).status_code == 403
    assert await _status(http, (await client.tokens.create("own", role="reader")).secret) == 200
    await client.users.deactivate("ada")
    assert await _status(http, provider.token()) == 401
    # All that was asked of the provider for all of these.
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_what_is_not_a_token_of_the_provider_for_here_and_now_lets_nobody_in(
    http: httpx.AsyncClient, provider: TestProvider, client: weft.Client
) -> None:
    await client.users.add("ada", role="admin")
    good, now = provider.token(), int(time.time())
    assert await _status(http, good) == 200
    foreign = RSAKey.generate_key(2048, {"kid": "first"})
    head, body, signature = good.split(".")
    other = provider.token(sub="eve").split(".")[1]
    far = int(LEEWAY) + 60
    for said, token in {
        "none": unsigned_token({"alg": "none", "kid": "first"}, provider.claims()),
        "None": unsigned_token({"alg": "None", "kid": "first"}, provider.claims()),
        "no algorithm": unsigned_token({"kid": "first"}, provider.claims()),
        "the public key as a secret": provider.signed_by_public_key(),
        "another key of the same name": provider.token(key=foreign),
        "a key in the token": provider.token(
            key=foreign, header={"jwk": foreign.as_dict(private=False), "kid": "first"}
        ),
        "a key elsewhere": provider.token(key=foreign, header={"jku": f"{provider.issuer}/evil", "kid": "evil"}),
        "a certificate elsewhere": provider.token(key=foreign, header={"x5u": f"{provider.issuer}/evil"}),
        "a path as a key": provider.token(key=foreign, header={"kid": "../../../../dev/null"}),
        "a statement as a key": provider.token(key=foreign, header={"kid": "' or 1=1 --"}),
        "a list as a key": unsigned_token({"alg": "RS256", "kid": ["first"]}, provider.claims()),
        "for another": provider.token(aud="shop"),
        "for nobody": provider.token(aud=None),
        "from another": provider.token(iss="https://evil.example"),
        "from nobody": provider.token(iss=None),
        "expired": provider.token(exp=now - far),
        "for ever": provider.token(exp=None),
        "for ever in words": provider.token(exp="never"),
        "beyond all time": provider.token(exp=10**400),
        "before all time": provider.token(nbf=-(10**400)),
        "not yet": provider.token(nbf=now + far),
        "of nobody": provider.token(sub=None),
        "of a number": provider.token(sub=7),
        "of an empty name": provider.token(sub=""),
        "of the name of a token": provider.token(sub="token:nightly"),
        "another body": f"{head}.{other}.{signature}",
        "without a signature": f"{head}.{body}.",
        "huge": provider.token(more="x" * 9000),
        "no token": "a.b.c",
        "half of one": good[: len(good) // 2],
    }.items():
        assert await _status(http, token) == 401, said
    assert await _status(http, provider.token(exp=now - 5, nbf=now + 5)) == 200
    assert "/evil" not in provider.asked


async def test_the_keys_of_the_provider_change_and_it_goes_away(provider: TestProvider) -> None:
    asking = Provider(provider.issuer, AUDIENCE, pause=0)
    provider.is_away = True
    with pytest.raises(ProviderUnavailable, match="503"):
        await asking.claims(provider.token())
    provider.is_away = False
    assert (await asking.claims(provider.token()))["sub"] == "ada"
    for kid, kind in (("second", "EC"), ("third", "OKP")):
        provider.rotate(kid, kind)
        assert (await asking.claims(provider.token()))["sub"] == "ada"
    provider.is_away = True
    assert (await asking.claims(provider.token()))["sub"] == "ada"
    provider.rotate("fourth")
    with pytest.raises(weft.Unauthenticated):
        await asking.claims(provider.token())


async def test_keys_of_the_last_day_are_good_and_older_ones_are_not(provider: TestProvider) -> None:
    now = 1e6
    asking = Provider(provider.issuer, AUDIENCE, clock=lambda: now)
    token = provider.token()
    await asking.claims(token)
    provider.is_away = True
    now += 86_000
    for _ in range(2):
        assert (await asking.claims(token))["sub"] == "ada"
    now += 1000
    # Also while it was asked just now.
    for _ in range(3):
        with pytest.raises(ProviderUnavailable, match="503"):
            await asking.claims(token)
    provider.is_away = False
    now += 60
    assert (await asking.claims(token))["sub"] == "ada"


async def test_the_provider_is_not_asked_again_for_each_key_that_nobody_has(provider: TestProvider) -> None:
    asking = Provider(provider.issuer, AUDIENCE)
    await asking.claims(provider.token())
    asked = len(provider.asked)
    for n in range(5):
        with pytest.raises(weft.Unauthenticated):
            await asking.claims(provider.token(header={"kid": f"made up {n}"}))
    assert len(provider.asked) == asked


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/.well-known/openid-configuration",
            b'{"issuer": "https://evil.example", "jwks_uri": "https://evil.example"}',
        ),
        ("/.well-known/openid-configuration", b'{"issuer": "ISSUER", "jwks_uri": "http://evil.example/keys"}'),
        ("/.well-known/openid-configuration", b"[]"),
        ("/keys", b'{"keys": []}'),
        ("/keys", b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "first"}]}'),
        ("/keys", b'{"keys": "' + b"x" * 1024**2 + b'"}'),
        ("/keys", b"not json"),
    ],
    ids=["another issuer", "keys without https", "no document", "no keys", "a secret", "too large", "no json"],
)
async def test_what_the_provider_says_is_not_believed_blindly(provider: TestProvider, path: str, body: bytes) -> None:
    provider.overrides[path] = body.replace(b"ISSUER", provider.issuer.encode())
    with pytest.raises(ProviderUnavailable):
        await Provider(provider.issuer, AUDIENCE).claims(provider.token())


async def test_the_org_and_the_name_come_from_the_claims_that_the_settings_name(
    oidc_settings: weft.Settings, provider: TestProvider, client: weft.Client
) -> None:
    await client.orgs.create("acme")
    acme = client.of_org((await client.orgs.show("acme")).id, "acme")
    await client.users.add("ada@example.com", role="admin")
    wanted = replace(oidc_settings, oidc_org_claim="tenant", oidc_user_claim="email", oidc_add_users="reader")
    async with Server(wanted, port=0) as server, httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        assert await _status(http, provider.token(email="ada@example.com")) == 401
        assert await _status(http, provider.token(email="ada@example.com", tenant="nowhere")) == 401
        assert await _status(http, provider.token(email="ada@example.com", tenant="acme")) == 200
        assert [(user.external_id, user.role) for user in await acme.users.list()] == [("ada@example.com", "reader")]
        (act,) = await acme.audit(limit=1)
        assert (act.verb, act.subject_name, act.actor) == ("create", "ada@example.com", "identity provider")
        assert str(act.origin).startswith("127.0.0.1")
        for sub in ("worker", "token:nightly"):
            assert await _status(http, provider.token(email=sub, tenant="acme")) == 401
        # Whoever was shut out is not let in again by being unknown.
        await acme.users.deactivate("ada@example.com")
        assert await _status(http, provider.token(email="ada@example.com", tenant="acme")) == 401


def test_a_provider_needs_an_audience_and_a_safe_way_to_it() -> None:
    with pytest.raises(weft.WeftError, match="WEFT_OIDC_AUDIENCE"):
        Provider("https://id.example.com", None)
    with pytest.raises(weft.WeftError, match="not https"):
        Provider("http://id.example.com", AUDIENCE)
