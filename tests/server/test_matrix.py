"""Who may do what: every route of the app, whoever asks, whatever it is about."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest
from acts import ENDS
from matrix import ROLES, WORKERS, Asked, Headers, Things, all_rows, make_things, nobodys, routes, send, unnamed

import weft
from weft.server.credentials import ANONYMOUS, HOOKS
from weft.server.serving import Server


@pytest.fixture
async def http(walled_server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client without a credential of its own."""
    async with httpx.AsyncClient(base_url=walled_server.url, timeout=30) as opened:
        yield opened


@pytest.fixture
async def acme(client: weft.Client) -> weft.Client:
    """A client of an org that is not the operator's."""
    return await _org(client, "acme")


async def _org(client: weft.Client, slug: str) -> weft.Client:
    await client.orgs.create(slug)
    return client.of_org((await client.orgs.show(slug)).id, slug)


async def _bearer(client: weft.Client, role: str) -> dict[str, str]:
    return {"authorization": f"Bearer {(await client.tokens.create(f'a {role}', role=role)).secret}"}


async def _answers(
    http: httpx.AsyncClient, found: list[Asked], things: Things, *headers: Headers
) -> dict[tuple[str, str], httpx.Response]:
    """Ask for each route, by the headers in turn."""
    gate = asyncio.Semaphore(8)

    async def one(asked: Asked, own: Headers) -> httpx.Response:
        async with gate:
            return await send(http, asked, things, own)

    answers = await asyncio.gather(*map(one, found, itertools.cycle(headers)))
    return {(asked.method, asked.path): answer for asked, answer in zip(found, answers, strict=True)}


def _walled() -> list[Asked]:
    return [asked for asked in routes() if asked.roles]


def test_what_is_answered_to_everybody_is_a_short_list() -> None:
    assert {asked.path for asked in routes() if not asked.roles} <= ANONYMOUS
    assert {"/", "/healthz", "/readyz", "/openapi.json", "/docs", "/sign-in", HOOKS} == ANONYMOUS


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_comes_in_without_a_credential_that_is_good_now(
    role: str, http: httpx.AsyncClient, client: weft.Client, acme: weft.Client,
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:  # fmt: skip
    things = await make_things(acme, "acme", str(http.base_url))
    org = client if role == "operator" else acme
    # By the worker's token its worker has registered: all that it asks for would be done for it.
    token_id, secret = int(things.names["worker_token_id"]), things.secret
    if role != "worker":
        wanted = "admin" if role == "operator" else role
        await org.users.add("ada@example.com", role=wanted)
        made = await org.tokens.create("hers", role=wanted, user="ada@example.com")
        token_id, secret = made.token.id, made.secret
    good = {"authorization": f"Bearer {secret}"}
    assert (await http.get("/api/v1/me", headers=good)).status_code == 200
    found = [asked for asked in _walled() if role in asked.roles or role == "admin"]
    before = await all_rows(conn)

    async def is_shut(*headers: Headers) -> None:
        answers = await _answers(http, found, things, *headers)
        let_in = {route: answer.status_code for route, answer in answers.items() if answer.status_code != 401}
        assert not let_in
        assert {answer.json()["code"] for answer in answers.values()} == {"unauthenticated"}
        assert {answer.headers["www-authenticate"] for answer in answers.values()} == {"Bearer"}
        assert not any(secret[:-1] in answer.text for answer in answers.values())

    if role == "worker":
        await is_shut({})
    await is_shut(
        {"authorization": f"Basic {secret}"}, {"authorization": good["authorization"][:-1]},
        {"authorization": secret}, {"authorization": "Bearer"}, [*good.items(), *good.items()],
    )  # fmt: skip
    await conn.execute("update weft.token set expires_at = weft.now() where id = $1", token_id)
    await is_shut(good)
    await conn.execute("update weft.token set expires_at = null where id = $1", token_id)
    if role != "worker":
        await conn.execute("update weft.user set deactivated_at = weft.now() where external_id = 'ada@example.com'")
        await is_shut(good)
        await conn.execute("update weft.user set deactivated_at = null where external_id = 'ada@example.com'")
    await conn.execute("update weft.token set revoked_at = weft.now() where id = $1", token_id)
    await is_shut(good)
    await conn.execute("update weft.token set revoked_at = null where id = $1", token_id)
    assert await all_rows(conn) == before
    # It was for that alone that nobody came in.
    assert (await http.get("/api/v1/me", headers=good)).status_code == 200


@pytest.mark.parametrize("role", [role for role in ROLES if role != "worker"])
async def test_nothing_is_changed_by_a_cookie_that_another_page_may_have_sent(
    role: str, http: httpx.AsyncClient, client: weft.Client, acme: weft.Client,
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:  # fmt: skip
    things = await make_things(acme, "acme", str(http.base_url))
    org = client if role == "operator" else acme
    made = await org.tokens.create_sign_in(role="admin" if role == "operator" else role)
    entered = await http.get("/sign-in", params={"code": made.code})
    cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
    http.cookies.clear()
    found = [asked for asked in _walled() if role in asked.roles]
    before = await all_rows(conn)
    acts = [asked for asked in found if not asked.is_safe]
    for other in ({}, {"sec-fetch-site": "cross-site"}):
        answers = await _answers(http, acts, things, {**cookie, **other})
        told = {route: (answer.status_code, answer.json().get("code")) for route, answer in answers.items()}
        assert {route: said for route, said in told.items() if said != (403, "cross_site")} == {}
    assert await all_rows(conn) == before
    assert (await http.get("/api/v1/tasks", headers=cookie)).status_code == 200


async def test_no_path_is_let_in_because_of_how_it_looks(http: httpx.AsyncClient) -> None:
    for path in (
        "/api/v1/jobs/healthz", "/api/v1/tags/a/healthz", "/api/v1/tasks?path=/healthz",
        "/api/v1/queues%2F..%2F..%2Fhealthz", "//healthz/../api/v1/tasks", "/healthz/../api/v1/tasks", "/HEALTHZ",
        "/..%2f", "/openapi.json/api/v1/tasks", "/docs/..%2fapi%2fv1%2ftasks", "/api/v1/tasks;/healthz",
        "/api/v1/tasks/.json",
    ):  # fmt: skip
        for headers in ({}, {"x-original-url": "/healthz"}, {"x-forwarded-prefix": "/healthz"}):
            answer = await http.get(httpx.URL(str(http.base_url)).copy_with(raw_path=path.encode()), headers=headers)
            assert answer.status_code == 401, path
    # Nor is it read what somebody has to say whom nobody knows.
    assert (await http.post("/api/v1/jobs", content=b"{not json")).status_code == 401


@pytest.mark.parametrize("role", ROLES)
async def test_every_route_lets_in_those_it_is_for(
    role: str, http: httpx.AsyncClient, client: weft.Client,
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:  # fmt: skip
    org = client if role == "operator" else await _org(client, "acme")
    if role == "operator":
        await client.orgs.create("acme")
    things = await make_things(org, "acme", str(http.base_url))
    bearer = await _bearer(org, "admin" if role == "operator" else role)
    if role == "worker":
        bearer = {"authorization": f"Bearer {things.secret}"}
    found = _walled()
    closed = [asked for asked in found if role not in asked.roles]
    before = await all_rows(conn)
    refused = await _answers(http, closed, things, bearer)
    assert {route: answer.status_code for route, answer in refused.items() if answer.status_code != 403} == {}
    assert await all_rows(conn) == before
    # The writes last, so that what is looked at is still there; and what ends the attempt after all else.
    allowed = sorted(
        (asked for asked in found if asked not in closed), key=lambda each: (not each.is_safe, each.path.endswith(ENDS))
    )
    for asked in allowed:
        answer = await send(http, asked, things, bearer)
        if asked.call and asked.method == "GET":
            wanted = {504} if asked.path.endswith("/wait") else {200, 204}
            if asked.call.startswith(("datasets.", "live.state")) and role in ("reader", "writer"):
                # Not of those who see it, or the datasets of the job that remembers it.
                wanted |= {404}
        elif asked.roles == WORKERS and not asked.path.endswith(ENDS):
            # The task that is held is not one of a live job, which is said to who holds it and to nobody else.
            wanted = {422} if asked.path.startswith("/v1/task/live/") else {200}
        elif asked.path.endswith("/stream"):
            wanted = {200}
            assert b"data: " in answer.content, asked
        else:
            wanted = {200, 201, 204, 404, 409, 422}
        assert answer.status_code in wanted, (asked, answer.text)


async def test_who_may_not_make_a_call_does_not_learn_how_it_would_be_taken(
    http: httpx.AsyncClient, acme: weft.Client
) -> None:
    bearer = await _bearer(acme, "reader")
    for body in ({}, {"nonsense": 1}, {"external_id": 7}):
        assert (await http.post("/api/v1/users", json=body, headers=bearer)).status_code == 403


@pytest.mark.parametrize("role", ["reader", "writer", "admin", "worker"])
async def test_what_another_org_has_is_not_there(
    role: str, http: httpx.AsyncClient, client: weft.Client, acme: weft.Client,
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:  # fmt: skip
    rival = await _org(client, "rival")
    ours = await make_things(acme, "acme", str(http.base_url))
    theirs = await make_things(rival, "rival", str(http.base_url))
    bearer = {"authorization": f"Bearer {ours.secret}"} if role == "worker" else await _bearer(acme, role)
    found = [asked for asked in _walled() if role in asked.roles and (asked.is_of_org or role == "worker")]
    # Whoever registers names nobody.
    found = [asked for asked in found if asked.path not in ("/v1/worker/register", "/sign-out", "/api/v1/me")]
    before = await all_rows(conn)
    answers = await _answers(http, found, theirs, bearer)
    # Whoever acts for a worker that is not his own is told to register anew, or that it has left.
    left = {route: (200, None) for route in answers if "/v1/worker/deregister" in route}
    told = {route: (answer.status_code, answer.json().get("code")) for route, answer in answers.items()}
    assert {route: each for route, each in told.items() if each[0] != 404 and each != (409, "worker_lost")} == left
    # What there is of it in other orgs is not told either: it is answered as what nobody has.
    nobody = nobodys(theirs, "rival", "rivel")
    for route, answer in (await _answers(http, found, nobody, bearer)).items():
        assert answer.status_code == told[route][0], route
        assert unnamed(answer, nobody) == unnamed(answers[route], theirs), route
    assert await all_rows(conn) == before
