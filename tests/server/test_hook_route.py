"""Hooks: events of senders without a token are taken when they are signed, each once, and nothing else is."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import time
from typing import Any, TypeAlias

import asyncpg
import httpx
import pytest
from server_scene import MakeHttp

import weft
from live_scene import make_dag, make_job
from weft.server.credentials import HOOKS
from weft.server.serving import Server

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SECRET = "a-secret-that-nobody-guesses"
ENV = "WEFT_HOOK_ORDERS"
GITHUB = {"form": "github", "secret_env": ENV}
BODY = json.dumps({"order": 7}).encode()


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV, SECRET)


async def _listening(conn: Conn, hook: dict[str, Any] | None = None, **columns: Any) -> int:
    source = {"kind": "event", "event": "order.created", "hook": hook and json.dumps(hook)}
    return await make_job(conn, await make_dag(conn), "orders", "note", source=source, **columns)


def _signed(body: bytes = BODY, **more: str) -> dict[str, str]:
    return {"X-Hub-Signature-256": "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex(), **more}


async def _sent(
    http: httpx.AsyncClient, body: bytes = BODY, headers: dict[str, str] | None = None, **query: str
) -> Any:
    params = {"org": "default", "event": "order.created", **query}
    return await http.post(HOOKS, content=body, headers=_signed(body) if headers is None else headers, params=params)


async def _events(conn: Conn) -> int:
    return int(await conn.fetchval("select count(*) from weft.event"))


async def test_what_is_signed_becomes_an_event_once(make_http: MakeHttp, conn: Conn) -> None:
    await _listening(conn, GITHUB)
    http = await make_http(None)
    answers = await asyncio.gather(*(_sent(http, headers=_signed(**{"X-GitHub-Delivery": "1"})) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(answer.json()["created"] for answer in answers) == 1
    other = await _sent(http, headers=_signed(**{"X-GitHub-Delivery": "2"}))
    assert other.json()["created"]
    # Without what tells deliveries apart, the same body is the same.
    assert [(await _sent(http)).json()["created"] for _ in range(2)] == [True, False]
    assert await _events(conn) == 3
    units = await conn.fetch("select said from weft.live_unit order by id")
    assert [json.loads(unit["said"])["payload"] for unit in units] == [{"order": 7}] * 3
    acts = await conn.fetch("select actor, verb from weft.audit where subject_kind = 'event'")
    assert {tuple(act) for act in acts} == {("hook:order.created", "send")}


async def test_what_is_not_signed_is_refused_and_nobody_learns_what_there_is(
    make_http: MakeHttp, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    await _listening(conn, GITHUB)
    http = await make_http(None)
    caplog.set_level(logging.WARNING, "weft.server")
    refused = [
        await _sent(http, headers={}),
        await _sent(http, BODY + b" ", _signed()),
        await _sent(http, headers={"X-Hub-Signature-256": "sha256=" + "0" * 64}),
        await _sent(http, event="order.deleted"),
        await _sent(http, org="nobody"),
    ]
    assert {answer.status_code for answer in refused} == {401}
    assert len({answer.text for answer in refused}) == 1
    told = refused[0].json()
    assert told["code"] == "invalid_signature"
    assert refused[0].headers["content-type"] == "application/problem+json"
    assert "no header X-Hub-Signature-256" in caplog.text
    assert SECRET not in caplog.text
    assert await _events(conn) == 0
    # A token lets nobody in here, nor does a hook anywhere else.
    admin = await make_http()
    assert (await admin.post(HOOKS, params={"org": "default", "event": "order.created"}, json={})).status_code == 401
    events = await http.post("/api/v1/events", json={"name": "order.created"}, headers=_signed())
    assert events.status_code == 401


async def test_a_source_without_a_hook_or_that_does_not_listen_takes_nothing(make_http: MakeHttp, conn: Conn) -> None:
    await _listening(conn)
    http = await make_http(None)
    assert (await _sent(http)).status_code == 401
    await conn.execute("update weft.live_source set hook = $1, is_listening = false", json.dumps(GITHUB))
    assert (await _sent(http)).status_code == 401
    await conn.execute("update weft.live_source set is_listening = true")
    assert (await _sent(http)).status_code == 201


async def test_without_its_secret_a_hook_is_closed(
    make_http: MakeHttp, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _listening(conn, GITHUB)
    http = await make_http(None)
    for closed in ("", "short"):
        monkeypatch.setenv(ENV, closed)
        empty = {"X-Hub-Signature-256": "sha256=" + hmac.digest(closed.encode(), BODY, "sha256").hex()}
        assert (await _sent(http, headers=empty)).status_code == 401
    # Two, while one takes the place of the other.
    monkeypatch.setenv(ENV, f"another-secret-the-new-one {SECRET}")
    assert (await _sent(http)).status_code == 201


async def test_times_that_were_signed_are_those_of_the_database(make_http: MakeHttp, conn: Conn) -> None:
    await _listening(conn, {"form": "standard", "secret_env": ENV})
    http = await make_http(None)
    key = base64.b64encode(b"a key of twenty-four bytes").decode()

    def headers(id: str, moment: int) -> dict[str, str]:
        signed = f"{id}.{moment}.".encode() + BODY
        signature = base64.b64encode(hmac.digest(base64.b64decode(key), signed, "sha256")).decode()
        return {"webhook-id": id, "webhook-timestamp": str(moment), "webhook-signature": f"v1,{signature}"}

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(ENV, "whsec_" + key)
        now = int(time.time())
        assert (await _sent(http, headers=headers("msg_1", now))).json()["created"]
        assert not (await _sent(http, headers=headers("msg_1", now + 1))).json()["created"]
        assert (await _sent(http, headers=headers("msg_2", now - 3600))).status_code == 401
        await conn.execute(
            "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
            "return clock_timestamp() - interval '1 hour'"
        )
        assert (await _sent(http, headers=headers("msg_2", now - 3600))).status_code == 201
        # The id is a part of what is signed: another cannot be put in its place.
        assert (await _sent(http, headers=headers("msg_2", now - 3600) | {"webhook-id": "msg_3"})).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[1]", 422, "invalid_input"),
        (b"payload=%7B%7D", 400, "malformed_request"), (b"\xff", 400, "malformed_request"),
        (b"", 400, "malformed_request"), (b'{"a": 1, "a": 2}', 400, "malformed_request"),
        (b'{"a": "' + b"x" * 300_000 + b'"}', 413, "too_large"),
    ],
)  # fmt: skip
async def test_what_is_signed_and_no_event_is_refused(
    body: bytes, status: int, code: str, make_http: MakeHttp, conn: Conn
) -> None:
    await _listening(conn, GITHUB)
    answer = await _sent(await make_http(None), body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await _events(conn) == 0


async def test_a_body_that_comes_without_end_is_not_waited_for(make_http: MakeHttp, conn: Conn) -> None:
    await _listening(conn, GITHUB)
    http, sent = await make_http(None), 0

    async def pieces() -> Any:
        nonlocal sent
        for _ in range(10_000):
            sent += 1
            yield b"x" * 4096

    try:
        answer = await http.post(HOOKS, content=pieces(), params={"org": "default", "event": "order.created"})
        assert answer.status_code == 413
    except httpx.TransportError:
        # The server has closed the connection, and the answer was lost with what was still being sent.
        pass
    assert sent < 10_000
    assert await _events(conn) == 0


async def test_a_source_that_is_full_says_when_to_come_again(make_http: MakeHttp, conn: Conn) -> None:
    await _listening(conn, GITHUB, max_backlog=2)
    http = await make_http(None)
    for number in range(2):
        assert (await _sent(http, b'{"n": %d}' % number)).status_code == 201
    full = await _sent(http, b'{"n": 2}')
    assert (full.status_code, full.json()["code"], full.headers["retry-after"]) == (429, "source_full", "1")
    assert await _events(conn) == 2
    await conn.execute("delete from weft.live_unit")
    assert (await _sent(http, b'{"n": 2}')).json()["created"]


async def test_a_hook_is_of_one_org(walled_server: Server, client: weft.Client, conn: Conn) -> None:
    """Of a server whose role is held to the org that it acts for."""
    job = await _listening(conn, GITHUB)
    await client.orgs.create("acme", name="Acme")
    acme = await conn.fetchval("select id from weft.org where slug = 'acme'")
    async with httpx.AsyncClient(base_url=walled_server.url) as http:
        assert (await _sent(http, org="acme")).status_code == 401
        assert (await _sent(http)).status_code == 201
    assert await conn.fetchval("select count(*) from weft.event where org_id = $1", acme) == 0
    assert await conn.fetchval("select count(*) from weft.live_unit where live_job_id = $1", job) == 1
