"""Who may do what: every route of the app, whoever asks, whatever it is about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import asyncpg
import httpx
import pytest
from matrix import ROLES, Asked, Things, make_things, routes, send

import weft
from weft.server.credentials import ANONYMOUS
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
    http: httpx.AsyncClient, found: list[Asked], things: Things, headers: Mapping[str, str]
) -> dict[tuple[str, str], httpx.Response]:
    gate = asyncio.Semaphore(8)

    async def one(asked: Asked) -> httpx.Response:
        async with gate:
            return await send(http, asked, things, headers)

    answers = await asyncio.gather(*(one(asked) for asked in found))
    return {(asked.method, asked.path): answer for asked, answer in zip(found, answers, strict=True)}


def _walled(settings: weft.Settings) -> list[Asked]:
    return [asked for asked in routes(settings) if asked.roles]


async def _counts(conn: asyncpg.Connection[asyncpg.Record]) -> list[int]:
    tables = (
        "task",
        "task_done",
        "job",
        "job_done",
        "audit",
        "artifact",
        "tag_move",
        "outbox",
        "token",
        "queue",
        "org",
    )
    return [await conn.fetchval(f"select count(*) from weft.{table}") for table in tables]


def test_what_is_answered_to_everybody_is_a_short_list(settings: weft.Settings) -> None:
    assert {asked.path for asked in routes(settings) if not asked.roles} <= ANONYMOUS
    assert {"/", "/healthz", "/readyz", "/openapi.json", "/docs", "/sign-in"} == ANONYMOUS


async def test_nobody_comes_in_without_a_credential_that_is_good_now(
    http: httpx.AsyncClient, acme: weft.Client, settings: weft.Settings, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    things = await make_things(acme, "acme")
    revoked = await acme.tokens.create("revoked", role="admin")
    await acme.tokens.revoke(revoked.token.id)
    expired = await acme.tokens.create("expired", role="admin", expires_in=timedelta(microseconds=1))
    await acme.users.add("gone@example.com", role="admin")
    deactivated = await acme.tokens.create("his", role="admin", user="gone@example.com")
    good = await acme.tokens.create("good", role="admin")
    await acme.users.deactivate("gone@example.com")
    before = await _counts(conn)
    for said, credential in {
        "anonymous": "",
        "revoked": f"Bearer {revoked.secret}",
        "expired": f"Bearer {expired.secret}",
        "deactivated": f"Bearer {deactivated.secret}",
    }.items():
        headers = {"authorization": credential} if credential else {}
        answers = await _answers(http, _walled(settings), things, headers)
        let_in = {route: answer.status_code for route, answer in answers.items() if answer.status_code != 401}
        assert not let_in, said
        told = {answer.json()["code"] for answer in answers.values()}
        assert told == {"unauthenticated"}
        assert all(answer.headers["www-authenticate"] == "Bearer" for answer in answers.values())
    for credential in (f"Basic {good.secret}", f"Bearer {good.secret[:-1]}", "Bearer", good.secret):
        answer = await http.get("/api/v1/tasks", headers={"authorization": credential})
        assert answer.status_code == 401
        assert good.secret[:-1] not in answer.text
    assert await _counts(conn) == before


async def test_no_path_is_let_in_because_of_how_it_looks(http: httpx.AsyncClient) -> None:
    for path in (
        "/api/v1/jobs/healthz", "/api/v1/tags/a/healthz", "/api/v1/tasks?path=/healthz",
        "/api/v1/queues%2F..%2F..%2Fhealthz", "//healthz/../api/v1/tasks", "/healthz/../api/v1/tasks", "/HEALTHZ",
        "/..%2f",
        "/openapi.json/api/v1/tasks", "/docs/..%2fapi%2fv1%2ftasks", "/api/v1/tasks;/healthz", "/api/v1/tasks/.json",
    ):  # fmt: skip
        for headers in ({}, {"x-original-url": "/healthz"}, {"x-forwarded-prefix": "/healthz"}):
            answer = await http.get(httpx.URL(str(http.base_url)).copy_with(raw_path=path.encode()), headers=headers)
            assert answer.status_code == 401, path
    # Nor is it read what somebody has to say whom nobody knows.
    assert (await http.post("/api/v1/jobs", content=b"{not json")).status_code == 401


@pytest.mark.parametrize("role", ROLES)
async def test_every_route_lets_in_those_it_is_for(
    role: str, http: httpx.AsyncClient, client: weft.Client, settings: weft.Settings,
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:  # fmt: skip
    org = client if role == "operator" else await _org(client, "acme")
    if role == "operator":
        await client.orgs.create("acme")
    things = await make_things(org, "acme")
    bearer = await _bearer(org, "admin" if role == "operator" else role)
    found = _walled(settings)
    closed = [asked for asked in found if role not in asked.roles]
    before = await _counts(conn)
    refused = await _answers(http, closed, things, bearer)
    assert {route: answer.status_code for route, answer in refused.items() if answer.status_code != 403} == {}
    assert await _counts(conn) == before
    # The writes last, so that what is looked at is still there.
    allowed = sorted((asked for asked in found if asked not in closed), key=lambda each: each.method != "GET")
    for asked in allowed:
        answer = await send(http, asked, things, bearer)
        if asked.call and asked.method == "GET":
            wanted = {504} if asked.path.endswith("/wait") else {200, 204}
        else:
            wanted = {200, 201, 204, 404, 409, 422}
        assert answer.status_code in wanted, (asked, answer.text)


async def test_who_may_not_make_a_call_does_not_learn_how_it_would_be_taken(
    http: httpx.AsyncClient, acme: weft.Client
) -> None:
    bearer = await _bearer(acme, "reader")
    for body in ({}, {"nonsense": 1}, {"external_id": 7}):
        assert (await http.post("/api/v1/users", json=body, headers=bearer)).status_code == 403


async def test_what_another_org_has_is_not_there(
    http: httpx.AsyncClient, client: weft.Client, acme: weft.Client, settings: weft.Settings,
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:  # fmt: skip
    rival = await _org(client, "rival")
    await make_things(acme, "acme")
    theirs = await make_things(rival, "rival")
    bearer = await _bearer(acme, "admin")
    rows = "select (select json_agg(t order by t.id) from weft.{0} t where t.org_id = $1)::text"
    of_rival = [rows.format(table) for table in ("task", "job", "user", "org_role", "token", "queue", "artifact")]
    before = [await conn.fetchval(row, await rival.org_id()) for row in of_rival]
    found = [asked for asked in _walled(settings) if asked.is_of_org]
    answers = await _answers(http, found, theirs, bearer)
    assert {route: answer.status_code for route, answer in answers.items() if answer.status_code != 404} == {}
    # What there is of it in other orgs is not told either: it is answered as what nobody has.
    nobody = Things({name: _other(value) for name, value in theirs.names.items()})
    for route, answer in (await _answers(http, found, nobody, bearer)).items():
        assert answer.status_code == 404, route
        assert set(answer.json()) == set(answers[route].json()), route
    assert [await conn.fetchval(row, await rival.org_id()) for row in of_rival] == before


def _other(value: str) -> str:
    return str(int(value) + 1) if value.isdigit() else value.replace("rival", "nobody")
